"""Writes a cpio archive (newc) that Linux unpacks as its initial root (kernel: early-userspace docs)."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath

_MAGIC = "070701"
_ALIGNMENT = 4
_END = "TRAILER!!!"


class CpioArchive:
    """Files, folders and links in the order in which they are added; folders above a file come by themselves."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._folders: set[PurePosixPath] = set()
        self._entries = 0

    def file(self, path: str, content: bytes, *, executable: bool = False) -> None:
        """Add a file at an absolute path."""
        name = self._named(path)
        self._entry(str(name), stat.S_IFREG | (0o755 if executable else 0o644), content)

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link at an absolute path."""
        self._entry(str(self._named(path)), stat.S_IFLNK | 0o777, target.encode())

    def folder(self, path: str) -> None:
        self._folder(self._named(path))

    def write(self, target: Path) -> None:
        """Write the whole archive; the target is there whole or not at all."""
        self._entry(_END, 0, b"")
        beside = target.with_name(f".{target.name}.new")
        beside.write_bytes(b"".join(self._parts))
        beside.replace(target)

    def _named(self, path: str) -> PurePosixPath:
        name = PurePosixPath(path.lstrip("/"))
        self._folder(name.parent)
        return name

    def _folder(self, name: PurePosixPath) -> None:
        if name == PurePosixPath(".") or name in self._folders:
            return
        self._folder(name.parent)
        self._folders.add(name)
        self._entry(str(name), stat.S_IFDIR | 0o755, b"")

    def _entry(self, name: str, mode: int, content: bytes) -> None:
        self._entries += 1
        encoded = name.encode() + b"\0"
        # inode, mode, uid, gid, links, time, size, device (2), special device (2), length of the name, checksum
        numbers = (self._entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
        header = (_MAGIC + "".join(f"{number:08x}" for number in numbers)).encode() + encoded
        self._parts += [_padded(header), _padded(content)]


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % _ALIGNMENT)
