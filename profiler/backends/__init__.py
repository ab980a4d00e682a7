"""Backends: one read-only protocol for instances, counters and limits of all hypervisors."""

from profiler.backends.base import (
    Backend,
    BackendError,
    Counters,
    DomainCounters,
    GroupedBackend,
    HostCounters,
    TaskCounters,
    ThreadedBackend,
)
from profiler.backends.detection import RecordedBackend
from profiler.backends.lxc.backend import LxcBackend

__all__ = [
    "Backend",
    "BackendError",
    "Counters",
    "DomainCounters",
    "GroupedBackend",
    "HostCounters",
    "LxcBackend",
    "RecordedBackend",
    "TaskCounters",
    "ThreadedBackend",
]
