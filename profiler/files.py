"""Files that are whole under their name, secrets that only their owner can change, and bytes read within limits."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

# Files and folders that are complete and on the disk under their name, or not there: also after a power cut.
#
# A rename alone does not ensure it: a file system may store the new name before the content (fsync(2), rename(2)).

TEMPORARY = ".tmp"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file; one that is there is replaced when the new one is complete. Raises OSError."""
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    temporary.unlink(missing_ok=True)  # of a writer that was killed, or a link that another user of the folder laid
    try:
        with temporary.open("xb") as file:
            file.write(data)
        replace_whole(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def replace_whole(made: Path, path: Path) -> None:
    """Give a finished file or folder its name. A file may replace a file, a folder an empty one. Raises OSError."""
    for folder, _, names in os.walk(made):
        for name in names:
            sync(Path(folder, name))
        sync(Path(folder))
    if not made.is_dir():
        sync(made)
    made.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Write a file's content, or a folder's entries, through to the disk. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# Reads secrets from files; refuses files that others can change, or that users beyond the group can read.

_MOST_BYTES = 2**16
_OTHERS_WRITE, _OTHERS_READ = 0o022, 0o004  # the group counts as others: whoever writes the secret chooses it


def read_secret(path: Path) -> str:
    """The text of a file that holds a secret, UTF-8. ValueError says in one sentence what is wrong, without the secret.

    The group may read, unlike with ssh: what a service needs belongs to root and to the service's group.
    """
    try:
        with path.open("rb") as file:
            check_private(path, os.fstat(file.fileno()).st_mode)
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} cannot be read: it has more than {_MOST_BYTES // 1024} KiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} cannot be read: it is not text in UTF-8") from None


def check_private(path: Path, mode: int, *, secret: bool = True) -> None:
    """ValueError where a file of this mode (`stat.st_mode`) is open to others; without a secret all may read it."""
    what = "change" if mode & _OTHERS_WRITE else "read" if secret and mode & _OTHERS_READ else ""
    if what:
        raise ValueError(f"{path} is refused because others may {what} it (mode {mode & 0o777:03o}); chmod 640 it")


# Files and bytes from outside, read within limits: plain or compressed, so many bytes and lines no longer than that.
#
# A few kilobytes of gzip can hold gigabytes. A file that another party made is read by this module.

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
