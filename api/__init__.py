"""Asks: REST, web page and command line over `advisor.service`; no SQL and no learning library here."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# How commands and the service import their modules: without looking for cycles of objects meanwhile.


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Inside, Python looks for no cycles of objects: modules are kept, and to search them again and again while they
    are imported takes an eighth of that time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
