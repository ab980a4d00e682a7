"""`share_hosts` of `cpu_contention`, and `below` of `normal`, as a compiled library: cpu_contention.c has both in C.

The library is built with the wheel (pyproject.toml). Where there was no compiler the functions run as they are.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints

log = logging.getLogger(__name__)
_SIZES, _ARRAYS = 4, 22  # arguments of the function in C


def load(folder: Path) -> Callable[..., None] | None:
    """The compiled function, called as `cpu_contention.share_hosts` is; None where this folder has no library."""
    found = _function(folder, "share_hosts")
    if found is None:
        return None
    found.argtypes = [*[ctypes.c_int64] * _SIZES, *[ctypes.c_void_p] * _ARRAYS]
    found.restype = ctypes.c_int
    return _Compiled(found)


def load_normal(folder: Path) -> Callable[[Floats], Floats] | None:
    """The distribution function of the standard normal distribution; None where this folder has no library."""
    found = _function(folder, "normal_below")
    if found is None:
        return None
    found.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    found.restype = None

    def below(values: Floats) -> Floats:
        given = np.ascontiguousarray(values, dtype=np.float64)
        chances = np.empty_like(given)
        found(given.ctypes.data, chances.ctypes.data, given.size)
        return chances

    return below


def _function(folder: Path, name: str) -> Any:
    """The function of the library, None where there is none that can be used."""
    for path in sorted(folder.glob("_cpu_contention*.so")):
        try:
            return getattr(ctypes.CDLL(str(path)), name)
        except (OSError, AttributeError) as error:
            log.warning("predictions are slower: %s cannot be used: %s", path.name, error)
    return None


class _Compiled:
    """Hands arrays to the library, which runs without the interpreter's lock."""

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function

    def __call__(
        self,
        cpus: Floats,
        counts: Ints,
        vcpus: Floats,
        demand: Floats,
        growth: Floats,
        day: Floats,
        most: Floats,
        loop: Ints,
        weight: Floats,
        brief: Floats,
        astray: Floats,
        allowed: Bools,
        sizes: Floats,
        moments: Floats,
        chances: Floats,
        *results: Floats,
    ) -> None:
        """MemoryError where there is not enough; ValueError where lengths do not fit."""
        given = [
            _plain(cpus, np.float64), _plain(counts, np.int64),
            *(_plain(one, np.float64) for one in (vcpus, demand, growth, day, most)),
            _plain(loop, np.int64), *(_plain(one, np.float64) for one in (weight, brief, astray)),
            _plain(allowed, np.bool_), *(_plain(one, np.float64) for one in (sizes, moments, chances)),
        ]  # fmt: skip
        hosts, consumers = len(cpus), len(vcpus)
        of_each = [*given[2:10], *given[11:13], *results[:-1]]
        if (
            int(counts.sum()) != consumers
            or any(len(one) != consumers for one in of_each)
            or not len(counts) == len(astray) == len(results[-1]) == hosts
            or len(moments) != len(chances)
            or any(one.dtype != np.float64 or not one.flags.c_contiguous for one in results)
        ):
            raise ValueError("the arrays of hosts and consumers do not fit together")
        sizes_of_all = hosts, allowed.shape[1], day.shape[1], len(moments)
        if self._function(*sizes_of_all, *(one.ctypes.data for one in (*given, *results))):
            raise MemoryError


def _plain(values: NDArray[np.generic], kind: type[np.generic]) -> NDArray[np.generic]:
    return np.ascontiguousarray(values, dtype=kind)
