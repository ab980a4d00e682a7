"""Which machine a host is, by what is stated of its processors: campaigns and clouds name platforms as they like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.arrays import Bools, Floats
from models.data.scene import HOST_NUMBERS

STATED = HOST_NUMBERS[:5]  # CPUs, threads of a core, clock, second- and third-level cache
_TELLING = slice(2, 5)  # clock and caches: how many CPUs there are tells no machine from another
ALIKE = 0.02  # values of one machine may differ by so much: a clock is stated or measured


def alike(stated: Floats, other: Floats) -> Bools:
    """Whether hosts (R, 5) may be the machine `other` (5,), in the order of STATED: no value that is stated of both
    differs; (R,)."""
    return np.asarray(~(np.abs(stated - other) > ALIKE * np.maximum(np.abs(stated), np.abs(other))).any(axis=1))


def machines_of(platform: Sequence[str], stated: Floats) -> tuple[str, ...]:
    """The machine of each row, (R,): the name of the first platform that is stated to be alike. Of whose processors
    neither clock nor cache is stated, each platform counts as a machine; `stated` is (R, 5) or empty."""
    if not len(stated):
        return tuple(platform)
    known: dict[str, Floats] = {}
    found: dict[str, str] = {}
    for name, numbers in zip(platform, stated, strict=True):
        if name not in found:
            telling = bool(np.isfinite(numbers[_TELLING]).any())
            like = (one for one, seen in known.items() if telling and alike(numbers[None], seen)[0])
            found[name] = next(like, name)
            if telling and found[name] == name:
                known[name] = numbers
    return tuple(found[name] for name in platform)
