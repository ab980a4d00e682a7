"""Arrays: small helpers for batches of scenes, and values that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

# Results that are computed when first asked for, and kept.

T = TypeVar("T")


class Once:
    """`once(name, work)` calls `work` for a name the first time only; for a field of a value that never changes."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def knows(self, name: str) -> bool:
        """Whether the work was done."""
        return name in self._known

    def __call__(self, name: str, work: Callable[[], T]) -> T:
        if name not in self._known:
            self._known[name] = work()
        found: T = self._known[name]
        return found


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
