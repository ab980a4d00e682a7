"""One protocol over hypervisors: what they run, what they count and what they limit; reads only."""

from profiler.backends.base import Backend, BackendError, Counters, DomainCounters, HostCounters, TaskCounters
from profiler.backends.lxc.backend import LxcBackend
from profiler.backends.recording import RecordedBackend

__all__ = [
    "Backend",
    "BackendError",
    "Counters",
    "DomainCounters",
    "HostCounters",
    "LxcBackend",
    "RecordedBackend",
    "TaskCounters",
]
