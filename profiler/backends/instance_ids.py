"""Turns names that hypervisors allow into ids that Cotenant allows."""

from __future__ import annotations

import hashlib
import re

_LONGEST_ID = 255


def instance_id(name: str) -> str:
    """A valid id for any name; one that had to be changed ends with a digest of the name, so that ids stay unique."""
    decoded = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), name)  # systemd escapes unit names
    clean = re.sub(r"[^A-Za-z0-9._:-]", "_", decoded)
    if clean == name and 0 < len(clean) <= _LONGEST_ID:
        return clean
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{clean[:200]}-{digest}"
