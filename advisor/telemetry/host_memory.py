"""The state of each host's memory, learned from agents' samples on their way in, and which hosts are short of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from advisor.domain import HostMemory
from advisor.store import host_memory as store
from profiler.observed import MetricSample

MEMORY_S = 300.0  # over which older rates fade
FRESH_S = 900.0  # as for scores: what was measured before says nothing about now
_RATES = {"psi_memory": "stalled", "swap_in_mb_s": "swap_in_mb_s", "swap_out_mb_s": "swap_out_mb_s"}
_LEVELS = {name: name for name in ("swap_mb", "ksm_mb", "available_mb", "huge_mb", "huge_free_mb")}


def learn(connection: Connection, taken: Iterable[MetricSample], percent: float) -> bool:
    """Learn from the samples of hosts' memory; True where a host is short of memory since then, or no longer.

    Of samples that come again, or later than newer ones, nothing is learned. `percent` of stalls make a host short.
    """
    by_host: dict[str, dict[float, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for sample in taken:
        if sample.scope == "host" and (sample.metric in _RATES or sample.metric in _LEVELS):
            by_host[sample.host][sample.time_s][sample.metric] = sample.value
    if not by_host:
        return False
    known = store.get(connection, by_host)
    new: dict[str, tuple[float, HostMemory]] = {}
    for host, readings in by_host.items():
        until_s, state = known.get(host, (0.0, HostMemory()))
        for time_s in sorted(readings):
            if time_s > until_s:
                state = _after(state, readings[time_s], time_s - until_s)
                until_s = time_s
        if host not in known or until_s > known[host][0]:
            new[host] = until_s, state
    store.put(connection, new)
    before = {host: known[host][1] if host in known else HostMemory() for host in new}
    return any(short_words(state, percent) != short_words(before[host], percent) for host, (_, state) in new.items())


def _after(state: HostMemory, reading: Mapping[str, float], seconds: float) -> HostMemory:
    """Rates fade over MEMORY_S, sizes are those of the last reading."""
    faded = min(seconds / MEMORY_S, 1.0)
    values: dict[str, float] = {_LEVELS[name]: value for name, value in reading.items() if name in _LEVELS}
    for name, field in _RATES.items():
        if name in reading:
            before = getattr(state, field)
            values[field] = reading[name] if before is None else before + faded * (reading[name] - before)
    return replace(state, **values)


def short_words(state: HostMemory, percent: float) -> str:
    """Why a host takes no new VM; empty = it does. In steps, so that noise makes no host another one."""
    return state.short_words if state.is_short(percent) else ""


def measured(connection: Connection, now_s: float) -> Mapping[str, HostMemory]:
    """Of each host that was measured lately."""
    return store.since(connection, now_s - FRESH_S)


def short(connection: Connection, now_s: float, percent: float) -> Mapping[str, str]:
    """The hosts that take no new VM for want of memory, with the reason in words."""
    found = {host: short_words(state, percent) for host, state in measured(connection, now_s).items()}
    return {host: words for host, words in found.items() if words}
