"""Which containers run together in the real measurement of contention: a plan of mixes, and the work of each container.

Everything follows from seeds, so that a plan and its work can be made again. Seconds stand for minutes: demand changes
from second to second here, as it changes from window to window on a cloud.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from models.arrays import Floats
from research.contention.host_spec import HostSpec, InstanceSpec

Kind = Literal["open", "trace", "batch", "closed", "hog"]
Sizes = Literal["exponential", "lognormal", "fixed"]
Family = Literal["two_cpus", "one_cpu", "bandwidth_groups", "policies"]

WARM_UP_S = 1
MEASURED_S = 8
SPARE_S = 1  # that the work goes on after the measured time
WINDOW_S = 1.0  # one value of a demand series holds so long
KINDS: tuple[Kind, ...] = ("open", "trace", "batch", "closed")
_ODDS = (1.0, 1.5, 0.5, 1.0)  # parameters of a Dirichlet distribution: how much of each kind a mix has
LOADS = (0.30, 1.30)  # of all CPUs, together
PLACEMENTS = ("random_a", "random_b", "even_means", "sorted_means")
_LOGNORMAL_SIGMA = 1.0
_HOG_S = 1.0  # CPU time of one of a hog's jobs, which follow each other without a pause


@dataclass(frozen=True, slots=True)
class PlannedContainer:
    """`demand` holds CPUs per second of the whole run, warm-up included: constant but for kind `trace`.

    `period_s` and `phase_s` of a batch: every so often `period_s` times its demand arrives at once, one job per vCPU.
    """

    spec: InstanceSpec
    kind: Kind
    sizes: Sizes
    demand: tuple[float, ...]
    seed: int
    period_s: float = 0.0
    phase_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MixHost:
    """A group of containers on CPUs of the machine; `quota_cpus` is its CPU bandwidth, None = whole CPUs."""

    id: str
    cpus: tuple[int, ...]
    containers: tuple[PlannedContainer, ...]
    quota_cpus: float | None = None
    period_ms: int = 100

    @property
    def capacity_cpus(self) -> float:
        return float(len(self.cpus)) if self.quota_cpus is None else self.quota_cpus

    def spec(self) -> HostSpec:
        """The host as a prediction sees it; a host made of CPU bandwidth counts the CPUs that it may use."""
        return HostSpec(self.id, len(self.cpus), tuple(each.spec for each in self.containers), WINDOW_S)


@dataclass(frozen=True, slots=True)
class Mix:
    """What runs at one time. `instances` names a set of containers that several mixes distribute differently."""

    id: str
    family: Family
    seed: int
    hosts: tuple[MixHost, ...]
    instances: str = ""
    placement: str = ""
    repeat: int = 0
    beside: str = ""  # `idle_hogs`: hogs of the idle scheduling class run beside it


def plan(seed: int, *, two_cpus: int, one_cpu: int, sets: int, repeats: int, idle: int) -> list[Mix]:
    """All runs in interleaved order.

    `two_cpus` runs of one host, `one_cpu` runs of two hosts, `sets` of containers in four placements each; `repeats` of
    the first kind once more, and `idle` of them once more with hogs of the idle class beside.
    """
    rng = np.random.default_rng(seed)
    whole = [_two_cpus(f"w{number:03d}", new_seed(rng)) for number in range(two_cpus)]
    single = [_one_cpu(f"s{number:03d}", new_seed(rng)) for number in range(one_cpu)]
    groups = [mix for number in range(sets) for mix in _placed(f"g{number:03d}", new_seed(rng))]
    again = [_again(mix, 1, "") for mix in whole[:repeats]] + [_again(mix, 2, "idle_hogs") for mix in whole[:idle]]
    everything = [*whole, *single, *groups, *again]
    return [everything[index] for index in rng.permutation(len(everything))]


def jobs(container: PlannedContainer, seconds: float) -> Floats:
    """Work of one container: rows of (seconds, CPU seconds), as `replay_jobs.c` reads them.

    Open loop: arrival after the start. Closed loop: thinking before the job. The same container gives the same rows.
    """
    rng = np.random.default_rng(container.seed)
    spec = container.spec
    burst_s = spec.burst_ms / 1e3
    if container.kind == "hog":
        return np.array([[0.0, _HOG_S]])
    if container.kind == "batch":
        first = container.phase_s % container.period_s
        times = np.repeat(np.arange(first, seconds, container.period_s), spec.vcpus)
        return np.column_stack([times, np.full(len(times), burst_s)]) if len(times) else _nothing(seconds)
    if container.kind == "closed":
        count = max(64, math.ceil(2 * seconds / burst_s))
        busy = min(spec.demand_cpus / spec.vcpus, 0.999)
        think_s = burst_s * (1 / busy - 1)
        return np.column_stack([rng.exponential(think_s, count), draw_sizes(rng, container.sizes, burst_s, count)])
    times = _arrivals(rng, np.array(container.demand) / burst_s, seconds)
    return (
        np.column_stack([times, draw_sizes(rng, container.sizes, burst_s, len(times))])
        if len(times)
        else _nothing(seconds)
    )


def offered_cpus(container: PlannedContainer, begin_s: float, end_s: float) -> list[float]:
    """CPUs that it asks for in each second from `begin_s` on: what arrives then, or what a closed loop uses alone."""
    edges = np.arange(begin_s, end_s + 0.5)
    if container.kind == "hog":
        return [container.spec.demand_cpus] * (len(edges) - 1)
    work = jobs(container, end_s + SPARE_S)
    if container.kind != "closed":
        return [float(value) for value in np.histogram(work[:, 0], edges, weights=work[:, 1])[0]]
    workers = container.spec.vcpus
    used = np.zeros(len(edges))
    for number in range(workers):  # each begins at a place of its own, as in replay_jobs.c
        mine = np.roll(work, -number * (len(work) // workers), axis=0)
        begins_and_ends = np.cumsum(mine.ravel())
        used += np.interp(edges, begins_and_ends, np.repeat(np.cumsum(mine[:, 1]), 2) - np.where(
            np.arange(mine.size) % 2 == 0, np.repeat(mine[:, 1], 2), 0.0
        ))  # fmt: skip
    return [float(value) for value in np.diff(used)]


def mix_record(mix: Mix) -> dict[str, Any]:
    """The mix as JSON, with what each container asks for; no cap and no quota are null."""
    begin, end = WARM_UP_S, WARM_UP_S + MEASURED_S
    return {
        "run": mix.id, "family": mix.family, "seed": mix.seed, "instances": mix.instances,
        "placement": mix.placement, "repeat": mix.repeat, "beside": mix.beside,
        "hosts": [
            {
                "id": host.id, "cpus": list(host.cpus), "capacity_cpus": host.capacity_cpus,
                "quota_cpus": host.quota_cpus, "period_ms": host.period_ms, "window_s": WINDOW_S,
                "containers": [_container_record(each, begin, end) for each in host.containers],
            }
            for host in mix.hosts
        ],
    }  # fmt: skip


def instance_spec(container: Mapping[str, Any]) -> InstanceSpec:
    """The instance of one container of a line of the runs; KeyError, TypeError or ValueError when it is not one."""
    spec = container["spec"]
    cap = spec["cap_cpus"]
    return InstanceSpec(**{**spec, "cap_cpus": math.inf if cap is None else float(cap), "pin": tuple(spec["pin"])})


def host_spec(host: Mapping[str, Any]) -> HostSpec:
    """One host of a line of the runs; errors as of `instance_spec`."""
    containers = tuple(instance_spec(each) for each in host["containers"])
    return HostSpec(str(host["id"]), len(host["cpus"]), containers, float(host["window_s"]))


def _container_record(container: PlannedContainer, begin_s: float, end_s: float) -> dict[str, Any]:
    spec = container.spec
    offered = offered_cpus(container, begin_s, end_s)
    return {
        "spec": {
            "id": spec.id, "vcpus": spec.vcpus, "demand_cpus": round(spec.demand_cpus, 6), "loop": spec.loop,
            "burst_ms": round(spec.burst_ms, 4), "spread_cpus": round(spec.spread_cpus, 6), "common": spec.common,
            "weight": spec.weight, "cap_cpus": None if math.isinf(spec.cap_cpus) else round(spec.cap_cpus, 4),
            "pin": list(spec.pin),
        },
        "kind": container.kind, "sizes": container.sizes, "seed": container.seed,
        "period_s": container.period_s, "phase_s": round(container.phase_s, 4),
        "series_cpus": [round(value, 4) for value in container.demand] if container.kind == "trace" else None,
        "offered_cpus": [round(value, 5) for value in offered],
    }  # fmt: skip


def new_seed(rng: np.random.Generator) -> int:
    return int(rng.integers(1 << 31))


def _again(mix: Mix, repeat: int, beside: str) -> Mix:
    return Mix(f"{mix.id}r{repeat}", mix.family, mix.seed, mix.hosts, repeat=repeat, beside=beside)


def _two_cpus(name: str, seed: int) -> Mix:
    rng = np.random.default_rng(seed)
    return Mix(name, "two_cpus", seed, (_host(rng, "h0", (0, 1), int(rng.integers(10, 61))),))


def _one_cpu(name: str, seed: int) -> Mix:
    rng = np.random.default_rng(seed)
    hosts = tuple(_host(rng, f"h{cpu}", (cpu,), int(rng.integers(10, 31))) for cpu in (0, 1))
    return Mix(name, "one_cpu", seed, hosts)


def _host(rng: np.random.Generator, name: str, cpus: tuple[int, ...], size: int) -> MixHost:
    total = float(rng.uniform(*LOADS)) * len(cpus)
    hogs = int(rng.integers(1, 3)) if total > 0.7 * len(cpus) and rng.random() < 0.3 else 0
    vcpus = rng.choice([1, 2], size, p=[0.75, 0.25])
    vcpus[:hogs] = 1
    means = rng.lognormal(0.0, 0.7, size - hogs)
    rest = max(total - hogs, 0.15 * len(cpus))
    demands = [1.0] * hogs + list(np.minimum(means / means.sum() * rest, 0.7 * vcpus[hogs:]))
    odds = rng.dirichlet(_ODDS)
    if rng.random() < 0.5:  # lumps of work that arrive together would be nearly everywhere
        odds = np.where([kind == "batch" for kind in KINDS], 0.0, odds)
        odds /= odds.sum()
    kinds: list[Kind] = ["hog" for _ in range(hogs)]
    kinds += [KINDS[index] for index in rng.choice(len(KINDS), size - hogs, p=odds)]
    weights = _weights(rng, size)
    caps, pins = rng.random() < 0.3, len(cpus) > 1 and rng.random() < 0.25
    series = _Series(rng, common=float(rng.choice([0.0, 0.3, 0.7])))
    batches_together = bool(rng.random() < 0.5)
    containers = []
    for number in range(size):
        demand = float(demands[number])
        cap = max(0.05, demand * float(rng.uniform(1.2, 3.0))) if caps and rng.random() < 0.33 else math.inf
        pin = ((0,) if rng.random() < 0.6 else (1,)) if pins and rng.random() < 0.33 else ()
        containers.append(
            _container(
                rng, f"{name}.c{number}", kinds[number], demand, int(vcpus[number]), weights[number], cap, pin, series,
                together=batches_together,
            )
        )  # fmt: skip
    return MixHost(name, cpus, tuple(containers))


def _weights(rng: np.random.Generator, size: int) -> list[float]:
    how = rng.random()
    if how < 0.5:
        return [256.0] * size
    choices = [64.0, 256.0] if how < 0.65 else [256.0, 1024.0] if how < 0.8 else [64.0, 128.0, 256.0, 512.0, 1024.0]
    return [float(value) for value in rng.choice(choices, size)]


class _Series:
    """Demand of the containers of one mix, second by second: what all have in common, and what is each one's own."""

    def __init__(self, rng: np.random.Generator, common: float) -> None:
        self.common = common
        self._correlation = float(rng.uniform(0.3, 0.9))
        self._shared = self._wave(rng)

    def _wave(self, rng: np.random.Generator) -> Floats:
        values = np.empty(WARM_UP_S + MEASURED_S)
        values[0] = rng.normal()
        for second in range(1, len(values)):
            innovation = rng.normal() * math.sqrt(1 - self._correlation**2)
            values[second] = self._correlation * values[second - 1] + innovation
        return values

    def draw(self, rng: np.random.Generator, mean: float, spread: float, most: float) -> tuple[float, ...]:
        """Lognormal series of this mean and spread, at most `most`."""
        own = self._wave(rng)
        normal = math.sqrt(self.common) * self._shared + math.sqrt(1 - self.common) * own
        sigma = math.sqrt(math.log1p((spread / mean) ** 2))
        return tuple(float(value) for value in np.minimum(mean * np.exp(sigma * normal - sigma**2 / 2), most))


def _container(
    rng: np.random.Generator, name: str, kind: Kind, demand: float, vcpus: int, weight: float, cap: float,
    pin: tuple[int, ...], series: _Series, *, together: bool,
) -> PlannedContainer:  # fmt: skip
    sizes: Sizes = "lognormal" if rng.random() < 0.3 else "exponential"
    burst_ms = min(float(np.exp(rng.uniform(math.log(1.0), math.log(40.0)))), 1000 * demand)
    values = (demand,) * (WARM_UP_S + MEASURED_S)
    spread = common = period = phase = 0.0
    if kind == "trace":
        spread, common = demand * float(rng.uniform(0.3, 1.0)), series.common
        values = series.draw(rng, demand, spread, float(vcpus))
    elif kind == "batch":
        period = float(rng.choice([1.0, 2.0, 4.0]))
        phase = 0.0 if together else float(rng.uniform(0, period))
        sizes, burst_ms = "fixed", 1000 * demand * period / vcpus
    elif kind == "hog":
        sizes, burst_ms = "fixed", 1000 * _HOG_S
    loop: Literal["open", "closed", "hog"] = kind if kind in ("closed", "hog") else "open"
    spec = InstanceSpec(name, vcpus, demand, loop, burst_ms, spread, common, weight, cap, pin)
    return PlannedContainer(spec, kind, sizes, values, new_seed(rng), period, phase)


HOSTS_OF_A_SET = 8
_EACH = 6
QUOTA_CPUS = 0.2


def _placed(name: str, seed: int) -> list[Mix]:
    """One set of 48 containers on eight hosts of 0.2 CPU, in four placements."""
    rng = np.random.default_rng(seed)
    size = HOSTS_OF_A_SET * _EACH
    total = float(rng.uniform(0.45, 1.05)) * HOSTS_OF_A_SET * QUOTA_CPUS
    means = rng.lognormal(0.0, 0.8, size)
    demands = np.minimum(means / means.sum() * total, 0.9 * QUOTA_CPUS)
    kinds = [KINDS[index] for index in rng.choice(len(KINDS), size, p=[0.3, 0.4, 0.1, 0.2])]
    series = _Series(rng, common=float(rng.choice([0.0, 0.3, 0.7])))
    together = bool(rng.random() < 0.5)
    containers = [
        _container(rng, f"c{n}", kinds[n], float(demands[n]), 1, 256.0, math.inf, (), series, together=together)
        for n in range(size)
    ]
    period_ms, pinned = int(rng.choice([10, 100])), bool(rng.random() < 0.5)
    mixes = []
    for placement in PLACEMENTS:
        order = _order(rng, placement, [each.spec.demand_cpus for each in containers])
        hosts = tuple(
            MixHost(
                f"h{n}",
                (n % 2,) if pinned else (0, 1),
                tuple(containers[i] for i in order[n * _EACH : (n + 1) * _EACH]),
                QUOTA_CPUS,
                period_ms,
            )
            for n in range(HOSTS_OF_A_SET)
        )
        mixes.append(Mix(f"{name}-{placement}", "bandwidth_groups", seed, hosts, name, placement))
    return mixes


def _order(rng: np.random.Generator, placement: str, demands: Sequence[float]) -> list[int]:
    """Containers host after host: at random; dealt out back and forth by mean; or the largest together."""
    if placement.startswith("random"):
        return [int(index) for index in rng.permutation(len(demands))]
    largest = sorted(range(len(demands)), key=lambda index: -demands[index])
    if placement == "sorted_means":
        return largest
    rows = [largest[i : i + HOSTS_OF_A_SET] for i in range(0, len(largest), HOSTS_OF_A_SET)]
    dealt = [row if turn % 2 == 0 else row[::-1] for turn, row in enumerate(rows)]
    return [row[host] for host in range(HOSTS_OF_A_SET) for row in dealt]


def draw_sizes(rng: np.random.Generator, sizes: Sizes, mean_s: float, count: int) -> Floats:
    """CPU seconds of so many jobs."""
    if sizes == "fixed":
        return np.full(count, mean_s)
    if sizes == "exponential":
        return rng.exponential(mean_s, count)
    return mean_s * rng.lognormal(-(_LOGNORMAL_SIGMA**2) / 2, _LOGNORMAL_SIGMA, count)


def _arrivals(rng: np.random.Generator, rates: Floats, seconds: float) -> Floats:
    """Poisson arrivals at `rates` per second, one rate for each second."""
    whole = min(len(rates), math.ceil(seconds))
    counts = rng.poisson(rates[:whole])
    times = np.repeat(np.arange(whole, dtype=float), counts) + rng.random(int(counts.sum()))
    return np.sort(times)


def _nothing(seconds: float) -> Floats:
    """One job beyond the end: a container without work in this run."""
    return np.array([[seconds + 1.0, 1e-6]])
