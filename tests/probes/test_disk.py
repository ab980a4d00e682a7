"""The disk probe on operations with known answers, and for real: on a disk, in memory, on a full disk, and killed."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.processes import wait_until
from profiler.probes.base import ProbeError, Progress
from profiler.probes.disk import (
    FILE_BYTES,
    PROBE,
    SMALL_BYTES,
    TESTS,
    DiskOperation,
    Files,
    Moved,
    doubts,
    own_files,
    parse_io,
    perform,
    remove,
    remove_stale,
    summarise,
)
from tests.probes.two_ends import options_of

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "profiler.cli", "probe", "disk", "--json"]
PREFIX = "cotenant-probe-disk-"


def test_small_operations_are_times_and_whole_files_are_rates() -> None:
    done = [
        DiskOperation("read_small", 0, 4.0, 1024),
        DiskOperation("read_small", 1, 20.0, 1024),
        DiskOperation("write_sustained", 0, 50.0, 5_000_000),
        DiskOperation("write_sustained", 1, 100.0, 5_000_000),
    ]
    values = summarise(done)
    assert (values["read_small_max"].value, values["read_small_max"].unit) == (20, "ms")
    assert (values["write_sustained_mean"].value, values["write_sustained_mean"].unit) == (75, "MB/s")
    assert not any(name.startswith("write_small") for name in values)  # not reached is not zero


def test_bytes_that_reached_no_device_are_marked_by_test() -> None:
    done = [DiskOperation("read_small", 0, 1, 1000), DiskOperation("write_small", 0, 1, 1000)]
    accounts = {"read_small": (Moved(0, 0), Moved(200, 0)), "write_small": (Moved(200, 0), Moved(200, 1000))}
    (mark,) = doubts(done, accounts)
    assert mark.startswith("read_small: only 20 % of the bytes")


def test_a_kernel_that_keeps_no_account_is_marked() -> None:
    (mark,) = doubts([], {"read_small": (None, None)})
    assert "does not tell" in mark


def test_the_account_of_a_process_is_read_strictly() -> None:
    text = "rchar: 1\nwchar: 2\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 9\n"
    assert parse_io(text) == Moved(4096, 512)
    for bad in ("", "read_bytes: 1\n", "read_bytes: -1\nwrite_bytes: 1\n", "read_bytes: x\nwrite_bytes: 1\n"):
        assert parse_io(bad) is None


@given(st.text())
def test_no_text_breaks_the_account(text: str) -> None:
    parse_io(text)


def options(folder: Path, *arguments: str) -> argparse.Namespace:
    return options_of("disk", "--dir", str(folder), "--files", "3", "--count", "12", *arguments)


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder on a real disk; the tests' temporary folder may be in memory."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-test-", dir="/var/tmp"))
    yield folder
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_all_four_tests_run_on_own_files_which_are_gone_afterwards(disk: Path) -> None:
    (disk / "precious").write_text("mine")
    run = PROBE.run(options(disk), Progress())
    for test in TESTS:
        assert run.values[f"{test}_operations"].value == (12 if test.endswith("small") else 3)
        assert run.values[f"{test}_min"].value > 0
    assert run.main == "write_sustained_mean"
    assert len(run.series) == 2 * 12 + 2 * 3
    assert [path.name for path in disk.iterdir()] == ["precious"]
    if "O_DIRECT" in run.circumstances["small"]:
        assert not [mark for mark in run.marks if "only 0 %" in mark]


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs a file system in memory")
def test_in_memory_every_test_is_marked_for_reaching_no_device() -> None:
    run = PROBE.run(options(Path("/dev/shm")), Progress())
    assert sum("only 0 % of the bytes" in mark for mark in run.marks) == len(TESTS)


def test_the_same_seed_reads_the_same_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def places(seed: str) -> list[tuple[Path, int]]:
        read: list[tuple[Path, int]] = []

        def note(test: str, path: Path, offset: int, memory: memoryview, *, direct: bool) -> int:
            read.append((path, offset))
            return 1

        monkeypatch.setattr("profiler.probes.disk._timed", note)
        files = Files(tmp_path, tuple(tmp_path / f"f{number:04}" for number in range(3)), True, True)
        perform("read_small", files, options(tmp_path, "--seed", seed), [], Progress())
        return read

    assert len(places("5")) == 12
    assert places("5") == places("5") != places("6")
    assert all(0 <= at <= FILE_BYTES - SMALL_BYTES and at % SMALL_BYTES == 0 for _, at in places("5"))


@pytest.mark.measured
def test_seconds_end_every_test_early(disk: Path) -> None:
    begin = time.monotonic()
    run = PROBE.run(options(disk, "--count", "1000000", "--seconds", "0.8"), Progress())
    assert time.monotonic() - begin < 6
    assert 0 < run.values["read_small_operations"].value < 1_000_000


def test_no_room_is_said_before_anything_is_written(disk: Path) -> None:
    free = os.statvfs(disk)
    files = free.f_bavail * free.f_frsize // FILE_BYTES + 1000  # more than others can free meanwhile
    if files > 10**6:
        pytest.skip("this disk is too large for the number of files")
    with (
        pytest.raises(ProbeError, match=r"MB free, and .* MB are needed"),
        own_files(disk, files, Progress()),
    ):
        pass
    assert list(disk.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it mounts a small file system")
def test_a_disk_that_fills_up_meanwhile_is_one_sentence_and_left_empty(tmp_path: Path) -> None:
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", tmp_path], check=False)
    if mount.returncode != 0:
        pytest.skip("no tmpfs can be mounted")

    class Hog(Progress):
        def update(self, done: float) -> None:
            if done == 1:
                with (tmp_path / "hog").open("wb") as file:
                    file.truncate(0)
                    os.posix_fallocate(file.fileno(), 0, 30_000_000)

    try:
        with pytest.raises(ProbeError, match="is full"):
            PROBE.run(options(tmp_path, "--files", "5"), Hog())
        assert [path.name for path in tmp_path.iterdir()] == ["hog"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="choose another with --dir"):
        PROBE.run(options(tmp_path / "none"), Progress())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_run_leaves_no_files(disk: Path, number: signal.Signals) -> None:
    with started(disk) as running:
        running.send_signal(number)
        out, err = running.communicate(timeout=120)
    assert running.returncode == 1
    assert "Traceback" not in err
    assert list(disk.iterdir()) == []
    document = json.loads(out)
    assert "stopped before its end" in document["marks"]


def test_after_a_kill_the_next_run_removes_what_was_left(disk: Path) -> None:
    with started(disk) as running:
        running.kill()
        running.communicate(timeout=120)
    assert len(list(disk.glob(f"{PREFIX}*"))) == 1
    PROBE.run(options(disk), Progress())
    assert list(disk.iterdir()) == []


def started(disk: Path) -> subprocess.Popen[str]:
    """A run that has done some of its small operations."""
    running = subprocess.Popen(
        [*COMMAND, "--dir", str(disk), "--files", "3", "--count", "1000000"], cwd=ROOT, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert wait_until(lambda: len(list(disk.glob(f"{PREFIX}*/f*"))) >= 3, 120)
    made = _calls(running.pid)
    assert wait_until(lambda: _calls(running.pid) >= made + 100, 120)
    return running


def _calls(pid: int) -> int:
    """Calls that read or wrote so far."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["syscr"]) + int(fields["syscw"])


def test_a_folder_whose_owner_lives_is_not_stale(tmp_path: Path) -> None:
    with own_files(tmp_path, 2, Progress()) as files:
        assert remove_stale(tmp_path) == []
        assert len(files.paths) == 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of our own names, without an owner."""
    made = tmp_path / f"{PREFIX}0123"
    made.mkdir()
    return made


def test_only_our_own_names_are_ever_removed(tmp_path: Path, folder: Path) -> None:
    for name in ("owner", "f0000", "f0001.txt", "precious"):
        (folder / name).write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(folder)
    (tmp_path / f"{PREFIX}file").write_text("not a folder")
    remove_stale(tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["f0001.txt", "precious"]
    assert (tmp_path / f"{PREFIX}link").is_symlink()
    assert (tmp_path / f"{PREFIX}file").exists()
    remove(tmp_path / "none")  # what another one removed meanwhile


def test_a_folder_that_is_young_or_locked_is_in_use(tmp_path: Path, folder: Path) -> None:
    assert remove_stale(tmp_path) == []  # another run begins
    with (folder / "owner").open("wb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        os.utime(folder, (0, 0))
        assert remove_stale(tmp_path) == []
    assert remove_stale(tmp_path) == [folder]


def test_an_old_folder_without_an_owner_is_removed(tmp_path: Path, folder: Path) -> None:
    os.utime(folder, (0, 0))
    assert remove_stale(tmp_path) == [folder]
