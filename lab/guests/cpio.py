"""Initial RAM disks: the cpio archives that Linux unpacks as its first root, written without a tool."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass

_MAGIC = b"070701"  # "newc", kernel Documentation/driver-api/early-userspace/buffer-format.rst
_ALIGNED = 4


@dataclass(frozen=True, slots=True)
class RamDiskEntry:
    """A file, folder (no content) or symbolic link (its target as content) with its mode bits."""

    mode: int
    content: bytes = b""

    @classmethod
    def file(cls, content: bytes, *, executable: bool = False) -> RamDiskEntry:
        return cls(stat.S_IFREG | (0o755 if executable else 0o644), content)

    @classmethod
    def folder(cls) -> RamDiskEntry:
        return cls(stat.S_IFDIR | 0o755)

    @classmethod
    def link(cls, target: str) -> RamDiskEntry:
        return cls(stat.S_IFLNK | 0o777, target.encode())


def initramfs(entries: Mapping[str, RamDiskEntry]) -> bytes:
    """Archive of `entries` by path without a leading slash; folders above them are added."""
    whole = {folder: RamDiskEntry.folder() for path in entries for folder in _above(path)} | dict(entries)
    members = [_member(path, whole[path], number) for number, path in enumerate(sorted(whole), start=1)]
    return b"".join([*members, _member("TRAILER!!!", RamDiskEntry(0), 0)])


def _above(path: str) -> list[str]:
    names = path.split("/")[:-1]
    return ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]


def _member(path: str, entry: RamDiskEntry, number: int) -> bytes:
    name = path.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    # inode, mode, owner, group, links, time, size, four device numbers, length of the name, unused checksum
    fields = (number, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, 0, 0, len(name), 0)
    header = _MAGIC + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNED)
