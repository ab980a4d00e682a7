"""Probe results on their way in: which are taken, and why the others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import ProbeReport
from advisor.settings import CLOCK_SKEW
from advisor.store import hosts, instances, probes
from advisor.validation import check_value
from profiler.observed import PROBE_NAMES


@dataclass(frozen=True, slots=True)
class TakenProbes:
    """What became of a batch; `dropped` has the position in the batch and the reason of each that was not taken.

    `older` are those of which something as new is stored.
    """

    accepted: int
    older: int
    dropped: tuple[tuple[int, str], ...]


def take(
    connection: Connection, batch: Sequence[ProbeReport], *, now: datetime, only: str | None = None
) -> TakenProbes:
    """Store the newest result of each probe of a host, instance or pair.

    `only` is the one host that the sender may speak for, None = any. Raises InvalidInput for a value that no database
    stores.
    """
    check_value([(one.result.circumstances, one.result.marks) for one in batch])
    known_hosts = hosts.staying(connection, (one.host for one in batch))
    others = {name for one in batch for name in (one.instance, one.peer) if name}
    known = instances.known(connection, others)
    peers = known | hosts.known(connection, others)
    newest: dict[tuple[str, str, str, str], ProbeReport] = {}
    dropped: list[tuple[int, str]] = []
    for position, one in enumerate(batch):
        reason = _fault(one, now, only, known_hosts, known, peers)
        if reason:
            dropped.append((position, reason))
        elif one.key not in newest or newest[one.key].taken_at < one.taken_at:
            newest[one.key] = one
    accepted = probes.put(connection, list(newest.values()))
    return TakenProbes(accepted, len(batch) - len(dropped) - accepted, tuple(dropped))


def _fault(
    one: ProbeReport, now: datetime, only: str | None, known_hosts: set[str], known: set[str], peers: set[str]
) -> str:
    """Why a result is not taken; empty where it is."""
    if only not in {None, one.host}:
        return f"this token is for the agent of host {only}, not of {one.host}"
    if one.result.probe not in PROBE_NAMES:
        return f"there is no probe {one.result.probe[:60]!r}; there are {', '.join(PROBE_NAMES)}"
    if one.host not in known_hosts:
        return f"unknown host {one.host[:60]!r}"
    if one.instance and one.instance not in known:
        return f"unknown instance {one.instance[:60]!r}"
    if one.peer and one.peer not in peers:
        return f"unknown peer {one.peer[:60]!r}; it is a host or an instance of the inventory"
    if one.taken_at > now + CLOCK_SKEW:
        return f"time is {(one.taken_at - now).total_seconds():.0f} s in the future; check the clock of the host"
    return ""
