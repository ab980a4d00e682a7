"""Which instances slow which on a host as it was measured: by the run queue where agents watch it, else by
correlation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np
from sqlalchemy import Connection

from advisor.domain import STOPPED_AT, Instance, MeasuredSlowing, SlowingHere
from advisor.store import rollups
from advisor.store.rollups import BUCKET_S, WaitSums
from advisor.store.sample_store import STORED, SampleStore
from advisor.telemetry.profiles import parse_since
from models.arrays import Floats
from models.figures import utc_time
from models.profiling.antagonists import UsedAndWaited, antagonists
from profiler.metrics import WAITED_FOR

_METRICS = (("instance", "cpu"), ("instance", "waiting"))
_BEFORE_S = 86_400.0
MOST_COMPARED = 150  # residents of a host: with more, those with the largest demand for CPUs
LEAST_SAMPLES = (
    12  # of a victim, and with a neighbour: what was there for moments says nothing of which instances slow which
)
LEAST_LOSS = 0.005  # of the CPU time that it demands: who takes less is not listed


def of_host(
    connection: Connection,
    host: str,
    residents: Sequence[Instance],
    *,
    since: str,
    now: datetime,
    samples: SampleStore = STORED,
) -> SlowingHere:
    """Which instances slowed which, of those that are on the host now, in the last `since`: whole windows of five
    minutes.

    Every instance is compared with every instance: of more than MOST_COMPARED those that want most of the CPUs.
    """
    end_s = now.timestamp() // BUCKET_S * BUCKET_S
    begin_s = end_s - max(parse_since(since) // BUCKET_S, 1) * BUCKET_S
    running = [instance for instance in residents if STOPPED_AT not in instance.labels]
    by_name = {instance.id: instance for instance in busiest(running, MOST_COMPARED)}
    names = list(by_name)
    watched = by_run_queue(samples.wait_sums(connection, host, names, begin_s, now.timestamp()))
    keys = samples.of_host(connection, host, names, _METRICS)
    measured = measured_of(samples.means(connection, keys, begin_s, end_s, BUCKET_S), by_name)
    windows = max((used.cpu.size for used in measured.values()), default=0)
    slowings = [slowing for of_victim in watched.values() for slowing in of_victim]
    slowings += [
        MeasuredSlowing(guess.victim, guess.suspect, guess.loss, "correlation", guess.chance)
        for guess in antagonists(measured, lambda one, other: share_cpus(by_name[one], by_name[other]))
        if guess.victim not in watched
    ]
    slowings.sort(key=lambda slowing: (-slowing.loss, slowing.victim))
    return SlowingHere(host, utc_time(begin_s), utc_time(end_s), windows, tuple(sorted(watched)), tuple(slowings))


def busiest(residents: Sequence[Instance], most: int) -> Sequence[Instance]:
    """At most so many of the residents of a host, in their order: those whose demand for CPUs is largest, as far as it
    is known."""

    def demanded(instance: Instance) -> float:
        return instance.demand["cpu"].mean if "cpu" in instance.demand else 0.0

    if len(residents) <= most:
        return residents
    kept = {instance.id for instance in sorted(residents, key=lambda one: (-demanded(one), one.id))[:most]}
    return [instance for instance in residents if instance.id in kept]


def by_run_queue(sums: Sequence[WaitSums]) -> dict[str, tuple[MeasuredSlowing, ...]]:
    """By instance whose run queue was watched: for which part of the CPU time that it wanted it waited while another
    one ran."""
    of: dict[str, dict[str, WaitSums]] = {}
    for entry in sums:
        of.setdefault(entry.instance, {})[entry.metric] = entry
    slowed_by: dict[str, tuple[MeasuredSlowing, ...]] = {}
    for victim, metrics in of.items():
        parts = _parts(metrics)
        if parts is None or metrics["waited_for_host"].number < LEAST_SAMPLES:
            continue
        slowed_by[victim] = tuple(
            MeasuredSlowing(victim, other, min(part, 1.0), "run queue", None)
            for other, part in parts.items()
            if part >= LEAST_LOSS and other and metrics[f"{WAITED_FOR}{other}"].number >= LEAST_SAMPLES
        )
    return slowed_by


def waited_more(
    connection: Connection, samples: SampleStore, now_s: float, host: str, victim: str, since_s: float
) -> Mapping[str, float] | None:
    """By how much more of the CPU time that it demands an instance waited since then than in the day before, by who ran
    meanwhile ("" = the host itself); None where its run queue was not watched."""
    now = {entry.metric: entry for entry in samples.wait_sums(connection, host, [victim], since_s, now_s)}
    both = {entry.metric: entry for entry in samples.wait_sums(connection, host, [victim], since_s - _BEFORE_S, now_s)}
    before = {name: _without(entry, now.get(name)) for name, entry in both.items()}
    parts = _parts(now)
    if parts is None:
        return None
    were = _parts(before) or {}
    return {name: part - were.get(name, 0.0) for name, part in parts.items()}


def _parts(metrics: Mapping[str, WaitSums]) -> Mapping[str, float] | None:
    """Parts of the CPU time wanted, by who ran while it waited ("" = the host itself); None = it was not watched."""
    if any(name not in metrics or not metrics[name].number for name in ("cpu", "waiting", "waited_for_host")):
        return None
    demanded = sum(metrics[name].total / metrics[name].number for name in ("cpu", "waiting"))
    windows = metrics["waited_for_host"].number
    if demanded <= 0:
        return {}
    ran = {name.removeprefix(WAITED_FOR): sums for name, sums in metrics.items() if name.startswith(WAITED_FOR)}
    return {name: sums.total / windows / demanded for name, sums in {**ran, "": metrics["waited_for_host"]}.items()}


def _without(both: WaitSums, later: WaitSums | None) -> WaitSums:
    if later is None:
        return both
    return replace(both, total=both.total - later.total, number=both.number - later.number)


def measured_of(
    means: Mapping[rollups.Key, rollups.Means], instances: Mapping[str, Instance]
) -> dict[str, UsedAndWaited]:
    """CPU use and waiting of each instance on one axis of windows; NaN where nothing was measured."""
    steps = sorted({at for times, _ in means.values() for at in times})
    at_step = {at: number for number, at in enumerate(steps)}

    def row(key: rollups.Key) -> Floats:
        values = np.full(len(steps), np.nan)
        times, measured = means.get(key, ((), ()))
        values[[at_step[at] for at in times]] = measured
        return values

    return {
        name: UsedAndWaited(row((host, name, "cpu")), row((host, name, "waiting")), float(instances[name].vcpus))
        for host, name in sorted({(host, name) for host, name, _ in means if name is not None})
    }


def share_cpus(one: Instance, other: Instance) -> bool:
    """Whether some CPU is open to both of them."""
    mine, theirs = (_cpus(instance) for instance in (one, other))
    return mine is None or theirs is None or bool(mine & theirs)


def _cpus(instance: Instance) -> set[int] | None:
    """The CPUs that it may run on; None = any."""
    pinning = instance.settings.pinning
    if pinning is None or not all(pinning.cpus):
        return None
    return {cpu for cpus in pinning.cpus for cpu in cpus}
