"""The types of arrays, named once for all rooms; shapes stand in the docstrings of what takes and returns them."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bools", "Floats", "Floats32", "Hashes", "Ints", "axis_fields", "over"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Hashes = NDArray[np.uint64]


def over(axis: str, **more: object) -> dict[str, object]:
    """Metadata of a field of a dataclass of arrays whose first axes are those of `axis`; `more` is kept beside it.

    This is the one declaration of a field's axes: what takes, stacks or replaces parts of such a dataclass asks
    `axis_fields` which fields have them.
    """
    return {"axis": axis, **more}


def axis_fields(kind: type, axis: str, **more: object) -> tuple[str, ...]:
    """The names of the fields of a dataclass that were declared `over` this axis, with these metadata, in its order."""
    wanted = {"axis": axis, **more}.items()
    return tuple(one.name for one in fields(kind) if wanted <= one.metadata.items())
