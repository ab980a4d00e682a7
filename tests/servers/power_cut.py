"""What kill -9 or a power cut leaves of the files below a folder, at every moment while something writes them.

A moment is each operation on names and each sync. What was written and not synced counts as half written after a power
cut; names count as they are, or as they were when their folder was last synced: file systems do either (fsync(2)).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Left = Mapping[str, bytes | None]  # contents by path below the folder, None = a folder
_NAMING = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate")  # events of `sys.addaudithook`
_watching: list[Watched] = []


class Watched:
    """The disk below one folder; what is there at first has been synced long ago."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy = False
        self._names: dict[int, dict[str, int]] = {}  # of each folder, by inode, when it was last synced
        self._contents: dict[int, bytes] = {}
        self._held: list[int] = []  # open, so that no inode is given to another file
        self.cuts: list[Left] = []  # each once
        for place, _, files in os.walk(folder):
            for path in (Path(place), *(Path(place, name) for name in files)):
                handle = os.open(path, os.O_RDONLY)
                self._held.append(handle)
                self.synced(handle)

    def synced(self, handle: int) -> None:
        self._held.append(kept := os.dup(handle))
        inode, path = os.fstat(kept).st_ino, Path(f"/proc/self/fd/{kept}").readlink()
        if path.is_dir():
            self._names[inode] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._contents[inode] = path.read_bytes()

    def moment(self) -> None:
        """Note what would be left now."""
        if not self._busy:
            self._busy = True
            self.cuts += [left for left in self.left().values() if left not in self.cuts]
            self._busy = False

    def left(self) -> dict[str, Left]:
        """By how it ended: killed, or power cut with names as they are, or with names as they were synced."""
        written = {path.relative_to(self._folder): path for path in sorted(self._folder.rglob("*"))}
        killed = {str(name): None if path.is_dir() else path.read_bytes() for name, path in written.items()}
        torn = {
            name: None if content is None else self._torn(written[Path(name)], content)
            for name, content in killed.items()
        }
        return {"killed": killed, "names first": torn, "names last": dict(self._as_synced(self._folder.stat().st_ino))}

    def _torn(self, path: Path, content: bytes) -> bytes:
        synced = self._contents.get(path.stat().st_ino, b"")
        if content.startswith(synced):
            return content[: len(synced) + (len(content) - len(synced)) // 2]
        return content[: len(content) // 2]

    def _as_synced(self, folder: int, before: str = "") -> Iterator[tuple[str, bytes | None]]:
        for name, inode in self._names.get(folder, {}).items():
            if inode in self._names:
                yield f"{before}{name}", None
                yield from self._as_synced(inode, f"{before}{name}/")
            else:
                yield f"{before}{name}", self._contents.get(inode, b"")

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)


@contextmanager
def watched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Watch what is written below `folder` by this process; not by threads beside it or by other programs."""
    found, really = Watched(folder), os.fsync

    def fsync(handle: int) -> None:
        found.moment()
        really(handle)
        if Path(f"/proc/self/fd/{handle}").readlink().is_relative_to(folder):
            found.synced(handle)
        found.moment()

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fsync)
        _watching.append(found)
        try:
            yield found
        finally:
            _watching.clear()
            found.moment()
    found.close()


def put_back(left: Left, folder: Path) -> Path:
    """The folder as it would be found after the end."""
    folder.mkdir(parents=True)
    for name, content in sorted(left.items()):
        if content is None:
            (folder / name).mkdir(exist_ok=True)
        else:
            (folder / name).write_bytes(content)
    return folder


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and event in _NAMING:
        _watching[0].moment()


sys.addaudithook(_on_event)
