"""Files and bytes from outside, read within limits: plain or compressed, so many bytes and lines no longer than that.

A few kilobytes of gzip can hold gigabytes. A file that another party made is read by this module.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

MEGABYTE = 2**20
GZIP = b"\x1f\x8b"
_PART = 2**16


class TooLargeError(ValueError):
    """There is more than a limit allows; the message says of which limit."""


class _Limited(io.RawIOBase):
    """What another file holds, up to `most` bytes; TooLargeError beyond."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._file = file
        self._most = self._left = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        part = self._file.read(min(len(buffer), _PART))
        self._left -= len(part)
        if self._left < 0:
            raise TooLargeError(f"it holds more than {in_words(self._most)}")
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_limited(path: Path, most_bytes: int, *, packed: bool) -> io.BufferedReader:
    """A file to read from, decompressed if it is `packed` with gzip; TooLargeError when it holds more."""
    file = cast("BinaryIO", gzip.open(path)) if packed else path.open("rb")  # noqa: SIM115 - closed with the reader
    return io.BufferedReader(_Limited(file, most_bytes), _PART)


def lines(file: BinaryIO, most_bytes: int) -> Iterator[bytes]:
    """The lines of a file with their ends; TooLargeError for one that is longer."""
    number = 0
    while line := file.readline(most_bytes + 1):
        number += 1
        if len(line) > most_bytes:
            raise TooLargeError(f"line {number} is longer than {in_words(most_bytes)}")
        yield line


def read_text(path: Path, most_bytes: int) -> str:
    """A whole file as UTF-8; TooLargeError when it is larger, OSError and UnicodeDecodeError as usual."""
    with open_limited(path, most_bytes, packed=False) as file:
        return file.read().decode("utf-8")


def load_yaml(path: Path, most_bytes: int) -> Any:
    """The document of a YAML file, as PyYAML's safe loader makes it; TooLargeError when the file is larger, ValueError
    where an alias could make a few bytes stand for many. Needs PyYAML, which the agent does without."""
    import yaml

    text = read_text(path, most_bytes)
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ValueError(f"line {line}: an alias is not read; repeat the value")  # noqa: TRY004
    return yaml.safe_load(text)


def sha256(path: Path) -> str:
    """The digest of a file of any size; OSError as usual."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpacked(data: bytes, most_bytes: int) -> bytes:
    """What zlib compressed; TooLargeError when it is more, zlib.error when it is cut off or damaged."""
    unpacker = zlib.decompressobj()
    found = unpacker.decompress(data, most_bytes)
    if unpacker.unconsumed_tail:
        raise TooLargeError(f"it holds more than {in_words(most_bytes)}")
    if not unpacker.eof:
        raise zlib.error("it is cut off")
    return found


def in_words(count: int) -> str:
    """Bytes as a text."""
    return f"{count / MEGABYTE:g} MiB"
