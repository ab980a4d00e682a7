"""Turns names that hypervisors allow into ids that Cotenant allows."""

from __future__ import annotations

import hashlib
import re

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
