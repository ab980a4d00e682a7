"""Names and texts from outside: as ids that Cotenant allows, as text that moves nothing on a page, and as limits."""

from __future__ import annotations

import hashlib
import re
from typing import Any

# Turns names that hypervisors allow into ids that Cotenant allows.

_LONGEST_ID = 255
_ESCAPED_BYTE = re.compile(rb"\\x([0-9a-f]{2})")


def instance_id(name: str) -> str:
    """A valid id for any name; one that had to be changed ends with a digest of the name, so that ids stay unique."""
    decoded = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), name)  # systemd escapes unit names
    clean = re.sub(r"[^A-Za-z0-9._:-]", "_", decoded)
    if clean == name and 0 < len(clean) <= _LONGEST_ID and clean not in {".", ".."}:
        return clean
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{clean[:200]}-{digest}"


def name_label(name: str) -> dict[str, str]:
    """The label `name` with what can be seen of a name that no id can be; empty where the id is the name."""
    if not name or instance_id(name) == name:
        return {}
    seen = "".join(char for char in _unescaped(name) if char.isprintable()).strip()[:_LONGEST_ID]
    return {"name": seen} if seen else {}


def _unescaped(name: str) -> str:
    """With the bytes that systemd escapes in names of units, as UTF-8; as it is where they are not."""
    try:
        escaped = name.encode("utf-8")
        return _ESCAPED_BYTE.sub(lambda match: bytes([int(match[1], 16)]), escaped).decode("utf-8")
    except UnicodeError:
        return name


# A path of a control group below its hierarchy.

_GROUP_PART = re.compile(r"[A-Za-z0-9._:@\\-]{1,255}\Z")  # systemd escapes with backslashes: machine-lxc\x2dshop.scope


def is_group_path(path: str) -> bool:
    """Whether it is a plain path below a hierarchy of control groups: no step out of it, no option."""
    parts = path.split("/")
    return not path.startswith("-") and all(part not in (".", "..") and _is_group(part) for part in parts)


def _is_group(part: str) -> bool:
    """Whether it is a plain name of a group; letters of other scripts are, what is not seen or parts words is not."""
    ascii_part = "".join("x" if char > "\x7f" and char.isprintable() else char for char in part)
    return _GROUP_PART.match(ascii_part) is not None


# Text from outside on a page: without characters that change the order or the place of the text around them.

# Controls, line separators, and marks of direction (UAX 9). Joiners stay: scripts of Asia need them.
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(value: Any) -> Any:
    """A text with a mark in the place of each such character, of the same type; any other value as it is."""
    if not isinstance(value, str) or not _UNSEEN.search(value):
        return value
    return type(value)(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(value)))


# Limits as tools print them.

# Where nothing is limited, tools write 0, -1, or a number that no machine reaches, and each its own one: 2^44-1 µs as a
# quota (libvirt since 7.0), 2^64/1000 before, 2^63 rounded to pages, 2^53. What is as large as this is no limit.
NO_CAP_PERCENT = 100.0 * 4096  # of more CPUs than a host may have (observed.MAX_CPUS)
NO_DISK_LIMIT_BYTES = 1e15  # per second; QEMU accepts no larger one (THROTTLE_VALUE_MAX)
NO_RATE_MBIT = 1e7
NO_MEMORY_LIMIT_BYTES = 2.0**50


def real_limit(value: float | None, none_from: float) -> float | None:
    """A limit as a tool prints it, None where that means that there is none: 0, below 0, or `none_from` and more."""
    return value if value is not None and 0 < value < none_from else None
