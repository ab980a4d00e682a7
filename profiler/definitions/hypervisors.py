"""The definitions of all hypervisors by the name of their backend; each has a module of that name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from profiler.definitions.definition import Definition
from profiler.host_kinds import TRAITS

# Each holds the eight in the order of profiler.metrics.EIGHT.
DEFINITIONS: Mapping[str, tuple[Definition, ...]] = MappingProxyType(
    {kind.backend: import_module(f"profiler.definitions.{kind.backend}").DEFINITIONS for kind in TRAITS.values()}
)
TITLES: Mapping[str, str] = MappingProxyType({kind.backend: kind.title for kind in TRAITS.values()})
