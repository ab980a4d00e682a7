"""Reads secrets from files; refuses files that others can change, or that users beyond the group can read."""

from __future__ import annotations

import os
from pathlib import Path

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
