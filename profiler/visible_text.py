"""Text from outside on a page: without characters that change the order or the place of the text around them."""

from __future__ import annotations

import re
from typing import Any

# Controls, line separators, and marks of direction (UAX 9). Joiners stay: scripts of Asia need them.
_UNSEEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(value: Any) -> Any:
    """A text with a mark in the place of each such character, of the same type; any other value as it is."""
    if not isinstance(value, str) or not _UNSEEN.search(value):
        return value
    return type(value)(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", str(value)))
