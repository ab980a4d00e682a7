"""Files from outside are read within limits, whatever they are compressed to."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler import files
from profiler.files import MEGABYTE, TooLargeError


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 MB in 300 kB."""
    path = tmp_path_factory.mktemp("bomb") / "bomb.gz"
    path.write_bytes(gzip.compress(b"x" * (300 * MEGABYTE), 6, mtime=0))
    return path


def peak_of(read: Callable[[], object]) -> int:
    """Bytes at most allocated while something is read, and refused."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_bomb_is_refused_at_its_limit_and_costs_little_more_than_that(bomb: Path) -> None:
    assert bomb.stat().st_size < MEGABYTE

    def read() -> None:
        with files.open_limited(bomb, 10 * MEGABYTE, packed=True) as file:
            while file.read(MEGABYTE):
                pass

    assert peak_of(read) < 5 * MEGABYTE


def test_a_line_without_end_is_refused(bomb: Path) -> None:
    def read() -> None:
        with files.open_limited(bomb, 1000 * MEGABYTE, packed=True) as file:
            list(files.lines(file, 2 * MEGABYTE))

    assert peak_of(read) < 10 * MEGABYTE


def test_packed_bytes_are_refused_at_their_limit() -> None:
    packed = zlib.compress(b"x" * (100 * MEGABYTE))
    assert peak_of(lambda: files.unpacked(packed, 3 * MEGABYTE)) < 8 * MEGABYTE
    with pytest.raises(zlib.error):
        files.unpacked(zlib.compress(b"whole")[:-3], MEGABYTE)


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 200_000])
def test_what_is_within_the_limits_is_read_whole(tmp_path: Path, size: int) -> None:
    content = bytes(at % 251 for at in range(size)) + b"\nend\n"
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(content)
    packed.write_bytes(gzip.compress(content))
    for path in (plain, packed):
        with files.open_limited(path, len(content), packed=path is packed) as file:
            assert b"".join(files.lines(file, len(content))) == content
    assert files.unpacked(zlib.compress(content), len(content)) == content
    with pytest.raises(TooLargeError):
        files.unpacked(zlib.compress(content), len(content) - 1)


def test_a_yaml_file_of_aliases_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "laughs.yaml"
    path.write_text("a: &a [x, x]\nb: &b [*a, *a]\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        files.load_yaml(path, MEGABYTE)
    path.write_text("a: [x, x]\n", encoding="utf-8")
    assert files.load_yaml(path, MEGABYTE) == {"a": ["x", "x"]}
    with pytest.raises(TooLargeError):
        files.load_yaml(path, 3)
