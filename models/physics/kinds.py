"""Traits of the kinds of hypervisors, as arrays over scenes."""

from __future__ import annotations

import numpy as np

from models.arrays import Bools, Floats, Ints
from profiler.host_kinds import HOST_KINDS, TRAITS


def trait(kind: Ints, name: str) -> Floats:
    """A number of each scene's kind of host; nan where that kind has none. `kind` is an index into HOST_KINDS."""
    values = [getattr(TRAITS[one], name) for one in HOST_KINDS]
    return np.asarray(np.array([np.nan if value is None else float(value) for value in values])[kind])


def holds(kind: Ints, name: str) -> Bools:
    """Whether each scene's kind of host has a trait."""
    return np.asarray(np.array([bool(getattr(TRAITS[one], name)) for one in HOST_KINDS])[kind])
