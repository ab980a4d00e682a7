"""The live source: files stay open from one reading to the next, and are let go when what they show has ended."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.backends import sources as module
from profiler.backends.sources import LiveSource, RecordingSource


@pytest.fixture
def source() -> Iterator[LiveSource]:
    """A source that keeps files, as it does after its first reading; limits are put back afterwards."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    live = LiveSource()
    live.sweep()
    try:
        yield live
    finally:
        live.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _open_files(path: Path | str) -> int:
    """How many descriptors of this process show a path, deleted ones included."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found += str(descriptor.readlink()).removesuffix(" (deleted)") == str(path)
    return found


def _descriptors() -> list[int]:
    return [int(path.name) for path in Path("/proc/self/fd").iterdir()]


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_nothing_stays_open_for_who_reads_once(tmp_path: Path) -> None:
    path = _file(tmp_path, "a", "1")
    assert LiveSource().read(str(path)) == "1"
    assert _open_files(path) == 0


def test_a_kept_file_gives_what_is_in_it_now(source: LiveSource, tmp_path: Path) -> None:
    path = _file(tmp_path, "a", "1")
    assert source.read(str(path)) == "1"
    source.sweep()
    with path.open("r+") as file:
        file.write("22")
    assert source.read(str(path)) == "22"
    assert _open_files(path) == 1


def test_what_is_not_read_any_more_is_closed_after_some_readings(source: LiveSource, tmp_path: Path) -> None:
    kept, left = _file(tmp_path, "kept", "1"), _file(tmp_path, "left", "1")
    source.read(str(left))
    for _ in range(30):
        source.read(str(kept))
        source.sweep()
    assert (_open_files(kept), _open_files(left)) == (1, 0)


def test_after_something_ended_the_next_reading_closes_what_it_does_not_use(source: LiveSource, tmp_path: Path) -> None:
    kept, dead = _file(tmp_path, "kept", "1"), _file(tmp_path, "dead", "1")
    for path in (kept, dead):
        source.read(str(path))
    source.sweep()
    source.read(str(kept))
    source.sweep(ended=True)
    source.read(str(kept))
    source.sweep()
    assert (_open_files(kept), _open_files(dead)) == (1, 0)


def test_a_file_that_fails_is_opened_once_more_and_then_an_error(source: LiveSource) -> None:
    child = subprocess.Popen(["sleep", "60"])
    path = f"/proc/{child.pid}/schedstat"
    assert source.read(path)
    child.kill()
    child.wait()
    with pytest.raises(OSError) as caught:
        source.read(path)
    assert caught.value.errno in (errno.ENOENT, errno.ESRCH)
    assert _open_files(path) == 0


@pytest.mark.parametrize("path", ["/proc/{0}/net/dev", "/proc/self/net/dev", "/proc/{0}/task/{0}/net/dev"])
def test_files_of_a_network_namespace_are_never_kept(source: LiveSource, path: str) -> None:
    path = path.format(os.getpid())
    assert "lo:" in source.read(path)
    assert _open_files(path) + _open_files(os.path.realpath(path)) == 0


def test_closing_lets_everything_go_and_twice_is_harmless(source: LiveSource, tmp_path: Path) -> None:
    path = _file(tmp_path, "a", "1")
    source.read(str(path))
    source.close()
    source.close()
    assert _open_files(path) == 0
    assert source.read(str(path)) == "1"


def test_no_more_files_are_kept_than_the_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [_file(tmp_path, str(number), "1") for number in range(60)]
    used = len(_descriptors())
    monkeypatch.setattr(module, "_may_keep", lambda: 50)
    with contextlib.closing(LiveSource()) as live:
        live.sweep()
        assert [live.read(str(path)) for path in paths] == ["1"] * 60
        assert len(_descriptors()) == used + 50


def test_without_descriptors_reading_goes_on_without_keeping_any(source: LiveSource, tmp_path: Path) -> None:
    kept, other = _file(tmp_path, "kept", "1"), _file(tmp_path, "other", "2")
    source.read(str(kept))
    used = max(_descriptors())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2, hard))
        with pytest.raises(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        assert source.read(str(other)) == "2"
    finally:
        for filler in fillers:
            os.close(filler)
    assert (_open_files(kept), _open_files(other)) == (0, 0)


def test_the_soft_limit_on_descriptors_is_raised_to_the_hard_one(source: LiveSource) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    source.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 300), hard))
    with contextlib.closing(LiveSource()) as live:
        live.sweep()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard


@pytest.mark.parametrize("size", [0, 1, 2047, 2048, 4096, 70_000, 200_000])
def test_files_of_every_size_are_read_whole(source: LiveSource, tmp_path: Path, size: int) -> None:
    path = _file(tmp_path, "a", "x" * size)
    assert [len(source.read(str(path))) for _ in range(3)] == [size] * 3


def test_a_file_without_end_is_an_error_and_not_cut(source: LiveSource) -> None:
    with pytest.raises(OSError) as caught:
        source.read("/dev/zero")
    assert caught.value.errno == errno.EFBIG


def test_kernel_files_longer_than_a_page_are_whole(source: LiveSource) -> None:
    def own(text: str) -> list[str]:
        """Lines of the kernel itself: programs and modules come and go."""
        return [line for line in text.splitlines() if not line.endswith("]")]

    plain = own(Path("/proc/kallsyms").read_text())
    assert len(plain) > 10_000
    assert own(source.read("/proc/kallsyms")) == plain


def test_folders_are_listed_as_they_are_wherever_they_lie(source: LiveSource, tmp_path: Path) -> None:
    for name in ("b", "a", "a/c"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    _file(tmp_path, "file", "")
    for folder in (tmp_path, tmp_path / "a", tmp_path / "a/c", Path("/sys/class"), Path("/sys/fs"), Path("/proc/self")):
        expected = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
        assert source.names(str(folder)) == expected
        assert source.names(str(folder)) == expected


def test_a_folder_that_gets_its_first_child_shows_it(source: LiveSource, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert source.names(str(tmp_path)) == ["a"]  # from here on its links are believed
    assert source.names(str(tmp_path / "a")) == []
    (tmp_path / "a" / "b").mkdir()
    assert source.names(str(tmp_path / "a")) == ["b"]


def test_a_recorded_reading_has_one_time() -> None:
    recording = RecordingSource(LiveSource())
    first = recording.clock()
    assert recording.clock() == first
    recording.cut()
    assert recording.clock() > first
