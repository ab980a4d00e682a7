"""Takes a check-up of the cloud: what is wrong by what was measured, not only by what was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from advisor.domain import LOW_SCORE, NOTICED_PERCENT, CloudScores, Host, HostMemory
from advisor.domain.checkup import LOW_DELIVERY, Checkup, Delivered, MemoryHere, OwnLoad, worst_first
from advisor.errors import SeriesUnavailable
from advisor.inventories.announced import DISAGREEMENT, LEFT_OUT
from advisor.planning.repair import every_violation
from advisor.serving.snapshot_cache import CloudView
from advisor.settings import Settings
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry import host_memory
from advisor.telemetry.demands import held_back

HOUR_S = 3600.0
STOPPED_S = 900.0  # without measurements, though it is reported: three windows of five minutes
LEAST_OWN_CPUS, LEAST_OWN_PART = 1.0, 0.1  # CPUs, and of a host's CPUs: its own work is reported from there on
LEAST_HELD_BACK = 5.0  # % of one CPU: who waits for less has no more to gain, whatever its share


def take(
    connection: Connection,
    view: CloudView,
    scored: CloudScores,
    settings: Settings,
    *,
    degraded: bool,
    now: datetime,
    samples: SampleStore = STORED,
) -> Checkup:
    """The check-up of a view at `now`, by the samples that are stored; `scored` are its scores."""
    snapshot = view.snapshot
    silent = {
        host.id for host, quiet in zip(snapshot.hosts, snapshot.is_silent(settings.fresh_s), strict=True) if quiet
    }
    elsewhere = settings.only_scraped
    measured: Mapping[tuple[str, str], Mapping[str, float]] = {}
    if not elsewhere:
        try:
            measured = samples.run_and_wait(connection, now.timestamp() - HOUR_S, now.timestamp())
        except SeriesUnavailable:
            elsewhere = True
    last_s = {} if elsewhere else samples.last_measured(connection)
    running = {instance.id: instance.host for instance in view.inventory.instances}
    shares = _shares(measured, running)
    others = [] if elsewhere else [host.id for host in view.inventory.hosts if host.id not in silent]
    old_s = now.timestamp() - STOPPED_S
    return Checkup(
        hosts=len(view.inventory.hosts),
        instances=len(view.inventory.instances),
        measured_instances=len(shares),
        alarms=view.alarms,
        silent=tuple(sorted(silent)),
        unmeasured=tuple(name for name in others if name not in last_s),
        stopped=tuple(name for name in others if name in last_s and last_s[name] < old_s),
        low_scores=tuple(
            of
            for of in scored.lowest(scored.cloud.instances, LOW_SCORE)
            if of.source == "measured" and not _hardly_waits(shares.get(of.instance))
        ),
        memory=_short(host_memory.measured(connection, now.timestamp())),
        starved=worst_first([one for one, starved in shares.values() if starved]),
        disagreements=_by_host(view.inventory.hosts, DISAGREEMENT),
        malformed=_by_host(view.inventory.hosts, LEFT_OUT),
        own_load=tuple(
            OwnLoad(host.id, host.own_cpus, host.pcpus)
            for host in snapshot.hosts
            if host.own_cpus >= max(LEAST_OWN_CPUS, LEAST_OWN_PART * host.pcpus)
        ),
        broken=tuple(violation.text for violation in every_violation(snapshot)),
        degraded=degraded,
        elsewhere=elsewhere,
    )


def _hardly_waits(delivered: tuple[Delivered, bool] | None) -> bool:
    """Whether a low CPU share is of an instance that asks for next to nothing, and so is held back by next to
    nothing."""
    return delivered is not None and delivered[0].share < LOW_DELIVERY and not delivered[1]


def _short(found: Mapping[str, HostMemory]) -> tuple[MemoryHere, ...]:
    """Hosts that stall for memory noticeably, or swap, the longest stalls first."""
    pressed = {
        host: state for host, state in found.items() if state.swaps or (state.stalled or 0.0) >= 5 * NOTICED_PERCENT
    }
    ranked = sorted(pressed.items(), key=lambda item: (-(item[1].stalled or 0.0), item[0]))
    return tuple(MemoryHere(host, state) for host, state in ranked)


def _shares(
    measured: Mapping[tuple[str, str], Mapping[str, float]], running: Mapping[str, str | None]
) -> dict[str, tuple[Delivered, bool]]:
    """CPU time delivered to each instance where it is now, and whether it is starved."""
    found: dict[str, tuple[Delivered, bool]] = {}
    for (host, instance), means in measured.items():
        if running.get(instance) != host or not {"cpu", "waiting"} <= means.keys():
            continue
        waited = held_back(means)
        share = means["cpu"] / (means["cpu"] + waited) if waited > 0 else 1.0
        starved = share < LOW_DELIVERY and waited >= LEAST_HELD_BACK
        found[instance] = Delivered(instance, host, share), starved
    return found


def _by_host(hosts: Sequence[Host], label: str) -> dict[str, str]:
    return {host.id: host.labels[label] for host in hosts if label in host.labels}
