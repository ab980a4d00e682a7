"""Files for the user, written whole or not at all; what is in them is made elsewhere."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable
from pathlib import Path

from advisor.errors import InvalidInput, OutOfSpace
from advisor.validation import check_writable
from profiler.files import replace_whole


def write_whole(path: Path, content: bytes, what: str, *, check: Callable[[Path], None] = lambda _path: None) -> None:
    """Write `path`, a `what` such as "report"; a file that is there is replaced when the new one is complete.

    `check` may refuse the complete file before it takes its place. A link stays one: the file that it leads to is
    written. OutOfSpace when the disk is full, InvalidInput when `path` cannot be written or is no regular file.
    """
    target = path.resolve()
    check_writable(path, what)
    partial = target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.partial")
    try:
        try:
            partial.write_bytes(content)
            check(partial)
            replace_whole(partial, target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise OutOfSpace(f"no space left for the {what} {path}: free some and try again", field=what) from error
        raise InvalidInput(f"the {what} cannot be written to {path}: {error.strerror or error}", field=what) from error
