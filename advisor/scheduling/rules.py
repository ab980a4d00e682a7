"""Rules that schedulers place a VM by without predictions, each once, with one tie rule.

A rule weighs hosts by columns, each with a row for every host that has room. COLUMNS says what a column holds. A
comparison has every rule whose columns its world knows, so that a new rule is one entry of RULES.

Of equal weights the first host is taken. That is Nova's default: it sorts hosts by weight, stably (nova/weights.py),
and takes one (`host_subset_size` 1) without shuffling equals (`shuffle_best_same_weighed_hosts` off;
nova/scheduler/manager.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from advisor.domain import PlacementRequest
from advisor.rounding import with_slack
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats

DECIMALS = 9  # weights that differ by less are equal
NOVA = "Nova's weighers"
FULL = (0.5, 0.65, 0.8, 1.0, 1.2, 1.5)  # of the CPUs, that best fit may be tuned to
ROOMS = (0.6, 0.7, 0.8, 0.9, 1.0)  # of the CPUs, above which greedy placement counts the demand
WAVES: Mapping[str, int | None] = {"means": 0, "days, 2 waves": 2, "days, 4 waves": 4, "every hour": None}
EVEN = 0.01  # what greedy placement gives for balance where no host is above its room
BESIDE = ("net_mbit", "disk_mb_s", "rss_mb", "mem_bw_mb_s")
TIMES = (0.5, 1.0, 2.0)

COLUMNS = {
    "chance": "a random number from 0 to 1",
    "instances": "VMs on the host",
    "free_vcpus": "vCPUs that may be promised and are not; any constant may be added",
    "free_memory_mb": "the same of memory",
    "cpus": "CPUs of the host",
    "load": "mean demand for CPUs of the VMs on the host, as far as it is known",
    "load_after": "the same with the new VM",
    "load_now": "CPUs in use in the last seconds",
    **dict.fromkeys(BESIDE, "mean use by the VMs on the host, in CPUs: the greatest user is as great as of CPUs"),
    "day": "demand for CPUs over the next day as the last ones were, (H, T)",
    "day_after": "the same with the new VM",
    "peak_after": "the most CPUs that will be demanded at once, with the new VM: the future, which no scheduler knows",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """`weight` takes the columns `needs` in their order and gives weights (H,); a host with a greater one is better.

    `setting`: it is one of several settings of a rule, for comparisons that choose the best.
    """

    needs: tuple[str, ...]
    weight: Callable[..., Floats]
    setting: bool = False


def choose(rule: Rule, fits: Bools, column: Callable[[str], Floats]) -> int | None:
    """The row of the host with the greatest weight of those that `fits` (H,), of equals the first; None = no host fits.

    `column` gives a column of all H hosts by its name.
    """
    at = np.flatnonzero(fits)
    if not len(at):
        return None
    return int(at[np.round(rule.weight(*(column(name)[at] for name in rule.needs)), DECIMALS).argmax()])


def known_by(columns: Collection[str], *, settings: bool = False) -> dict[str, Rule]:
    """The rules that need no other columns, by name; `settings`: with all settings of each."""
    return {
        name: rule for name, rule in RULES.items() if set(rule.needs) <= {*columns} and (settings or not rule.setting)
    }


def from_0_to_1(values: Floats) -> Floats:
    """As Nova's weighers scale what hosts have: 0 where it is least, 1 where it is most, 0 where all have the same."""
    width = values.max() - values.min()
    return np.asarray((values - values.min()) / width if width > 0 else np.zeros(len(values)))


def fullest(after: Floats, cpus: Floats, full: float = 1.0) -> Floats:
    """Weights of best fit: the fullest host within a part of its CPUs, else the one that is least above it."""
    return np.where(after <= with_slack(full * cpus), after, -after)


def greedy(day: Floats, after: Floats, cpus: Floats, *, room: float, waves: int | None) -> Floats:
    """Weights of greedy placement: least is added above a part of the CPUs, by days with so many waves; None = all."""
    day, after = _smooth(day, waves), _smooth(after, waves)
    most = (room * cpus)[:, None]
    more = np.maximum(after - most, 0.0).mean(axis=1) - np.maximum(day - most, 0.0).mean(axis=1)
    return np.asarray(-(more + EVEN * after.mean(axis=1)))


def _smooth(days: Floats, waves: int | None) -> Floats:
    if waves is None:
        return days
    found = np.fft.rfft(days, axis=-1)
    found[..., waves + 1 :] = 0
    return np.asarray(np.fft.irfft(found, days.shape[-1], axis=-1))


RULES: dict[str, Rule] = {
    "first fit": Rule((), lambda: np.zeros(1)),
    "best fit": Rule(("free_vcpus",), lambda vcpus: -vcpus),
    "fewest instances": Rule(("instances",), lambda count: -count),
    "fewest vCPUs": Rule(("free_vcpus",), lambda vcpus: vcpus),
    NOVA: Rule(("free_vcpus", "free_memory_mb"), lambda vcpus, memory: from_0_to_1(vcpus) + from_0_to_1(memory)),
    "least loaded": Rule(("load",), lambda load: -load),
    "least loaded now": Rule(("load_now",), lambda load: -load),
    "random": Rule(("chance",), lambda chance: chance),
    "peak oracle": Rule(("peak_after", "cpus"), fullest),
    **{f"best fit to {full:.0%}": Rule(("load_after", "cpus"), partial(fullest, full=full), True) for full in FULL},
    **{
        f"least loaded, {metric} x {times:g}": Rule(
            ("load", metric), lambda load, beside, times=times: -(load + times * beside), True
        )
        for metric in BESIDE
        for times in TIMES
    },
    **{
        f"greedy by {name}, {room:.0%}": Rule(
            ("day", "day_after", "cpus"), partial(greedy, room=room, waves=waves), True
        )
        for name, waves in WAVES.items()
        for room in ROOMS
    },
}


def freest(free_vcpus: Sequence[float], free_memory_mb: Sequence[float]) -> int | None:
    """The host that Nova's default CPU and RAM weighers would choose, by what is free on each; None = there is none."""
    free = {"free_vcpus": np.array(free_vcpus, float), "free_memory_mb": np.array(free_memory_mb, float)}
    return choose(RULES[NOVA], np.ones(len(free_vcpus), dtype=bool), free.__getitem__)


def most_free(snapshot: ClusterSnapshot, request: PlacementRequest, *, fresh_s: float) -> str | None:
    """The host that Nova's default CPU and RAM weighers would choose of those that can take the instance, which does
    not count where it is already; None = none can."""
    feasible, _ = filters.apply(snapshot, request, fresh_s=fresh_s)
    held = filters.FilterInput.of(snapshot, request, fresh_s)
    free = {
        "free_vcpus": snapshot.room_vcpus - held.vcpus,
        "free_memory_mb": snapshot.room_memory_mb - held.memory_mb,
    }
    fits = np.isin(np.arange(len(snapshot.hosts)), feasible)
    at = choose(RULES[NOVA], fits, free.__getitem__)
    return None if at is None else snapshot.hosts[at].id
