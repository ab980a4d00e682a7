"""Files and folders that are complete and on the disk under their name, or not there: also after a power cut.

A rename alone does not ensure it: a file system may store the new name before the content (fsync(2), rename(2)).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TEMPORARY = ".tmp"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file; one that is there is replaced when the new one is complete. Raises OSError."""
    temporary = path.with_name(f"{path.name}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
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
