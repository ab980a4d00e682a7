"""Random hosts for the simulator: 2 to 128 CPUs, 2 to 400 instances, 50 to 130 % of the CPUs wanted.

Mean demand per vCPU is lognormal around a level of the host's own (sigma 1.0; 1.22 over all VMs of the PlanetLab trace
by `trace_fit`, whose level is lower); the rest is drawn evenly over the ranges that the constants name. Spread ends at
0.6 of the mean, though half of the traces' VMs have more between five-minute windows (median 0.76 and 1.02).

A host's window is long beside its bursts, as minutes are beside milliseconds, and no longer than a simulation can pay:
`WINDOW_BURSTS` typical bursts on a large host, up to ten times as many on a small one, whose queue settles later.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from research.contention.host_spec import HostSpec, InstanceSpec, Loop
from research.contention.simulator import Bursts

CPUS = (2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
VCPUS = (1, 2, 4, 8, 16)
VCPUS_PARTS = (0.36, 0.24, 0.24, 0.12, 0.04)
LOAD = (0.5, 1.3)
UTILISATION = (0.08, 0.5)
UTILISATION_SIGMA = 1.0
HIGHEST_UTILISATION = 0.9
SPREAD = (0.0, 0.6)
COMMON = (0.0, 0.5)
BURST_MS = (2.0, 500.0)
TYPICAL_BURST_MS = (5.0, 200.0)
WINDOW_BURSTS = 100.0
MOST_INSTANCES = 400
WEIGHTS = (64.0, 128.0, 256.0, 512.0, 1024.0)


@dataclass(frozen=True, slots=True)
class RandomHost:
    """A host and how those of its instances burst that are not Poisson with exponential bursts."""

    spec: HostSpec
    bursts: Mapping[str, Bursts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Style:
    """What the instances of a host, or of the hosts of one cloud, have in common."""

    utilisation: float
    spread: float
    common: float
    burst_ms: float
    closed: float
    hogs: float
    batch: float
    heavy: float
    weights: str
    caps: float
    pins: str


def random_style(rng: np.random.Generator) -> Style:
    """A style at random: weights that differ stand in half of them, caps and pins in about a third each."""
    return Style(
        utilisation=_even_log(rng, *UTILISATION),
        spread=rng.uniform(*SPREAD),
        common=rng.uniform(*COMMON),
        burst_ms=_even_log(rng, *TYPICAL_BURST_MS),
        closed=float(rng.choice((0.0, 0.2, 0.5, 1.0), p=(0.4, 0.3, 0.2, 0.1))),
        hogs=float(rng.choice((0.0, 0.05, 0.15), p=(0.6, 0.25, 0.15))),
        batch=float(rng.choice((0.0, 0.1, 0.25), p=(0.5, 0.3, 0.2))),
        heavy=float(rng.choice((0.0, 0.3), p=(0.6, 0.4))),
        weights=str(rng.choice(("equal", "by size", "mixed"), p=(0.5, 0.2, 0.3))),
        caps=float(rng.choice((0.0, 0.3), p=(0.65, 0.35))),
        pins=str(rng.choice(("none", "nodes", "some nodes", "few CPUs"), p=(0.65, 0.15, 0.12, 0.08))),
    )


def random_host(
    name: str, seed: int, *, cpus: int | None = None, load: float | None = None, style: Style | None = None
) -> RandomHost:
    """A host drawn from the seed alone; `cpus`, `load` (part of the CPUs wanted) and `style` if they are given."""
    rng = np.random.default_rng(seed)
    cpus = cpus or int(rng.choice(CPUS))
    load = load or rng.uniform(*LOAD)
    style = style or random_style(rng)
    drawn: list[tuple[InstanceSpec, Bursts]] = []
    hogs = 0
    while len(drawn) < MOST_INSTANCES and (len(drawn) < 2 or _demanded(drawn) < load * cpus):
        one = _instance(f"vm-{len(drawn)}", rng, cpus, style)
        if one[0].loop == "hog":
            if hogs + one[0].vcpus > 0.4 * load * cpus:
                continue
            hogs += one[0].vcpus
        drawn.append(one)
    specs = _scaled([spec for spec, _ in drawn], load * cpus)
    specs = [_with_cap(spec, rng, style) for spec in specs]
    specs = _with_pins(specs, cpus, rng, style)
    longest = max(spec.burst_ms for spec in specs)
    bursts_per_window = min(max(WINDOW_BURSTS * 128 / cpus, WINDOW_BURSTS), 10 * WINDOW_BURSTS)
    window_s = max(bursts_per_window * style.burst_ms, 20.0 * longest) / 1000.0
    odd = {spec.id: bursts for spec, bursts in drawn if bursts != Bursts()}
    return RandomHost(HostSpec(name, cpus, tuple(specs), round(window_s, 2)), odd)


def random_cloud(name: str, seed: int) -> list[RandomHost]:
    """Eight hosts of one size with instances of one style, at loads spread over the range."""
    rng, hosts = np.random.default_rng(seed), 8
    cpus, style = int(rng.choice(CPUS)), random_style(rng)
    steps = (np.arange(hosts) + rng.random(hosts)) / hosts
    loads = LOAD[0] + (LOAD[1] - LOAD[0]) * rng.permutation(steps)
    seeds = rng.integers(2**32, size=hosts)
    return [
        random_host(f"{name}-{k}", int(seeds[k]), cpus=cpus, load=float(loads[k]), style=style) for k in range(hosts)
    ]


def _instance(name: str, rng: np.random.Generator, cpus: int, style: Style) -> tuple[InstanceSpec, Bursts]:
    fits = [k for k, size in enumerate(VCPUS) if size <= max(cpus // 2, 1)]
    parts = np.array([VCPUS_PARTS[k] for k in fits])
    vcpus = VCPUS[fits[int(rng.choice(len(fits), p=parts / parts.sum()))]]
    loop = _loop(rng, style)
    burst_ms = float(np.clip(style.burst_ms * rng.lognormal(0.0, 0.6), *BURST_MS))
    busy = float(np.clip(style.utilisation * rng.lognormal(0.0, UTILISATION_SIGMA), 0.01, HIGHEST_UTILISATION))
    demand = vcpus * (1.0 if loop == "hog" else busy)
    weight = {"equal": 256.0, "by size": 256.0 * vcpus, "mixed": float(rng.choice(WEIGHTS))}[style.weights]
    bursts = Bursts()
    if loop == "open" and rng.random() < style.batch:
        bursts = Bursts(law="constant", periodic=True)
        burst_ms = float(np.clip(4.0 * burst_ms, *BURST_MS))
    elif loop != "hog" and rng.random() < style.heavy:
        law, cv2 = (("hyperexponential", 4.0), ("lognormal", 3.0))[int(rng.integers(2))]
        bursts = Bursts(law="hyperexponential", cv2=cv2) if law == "hyperexponential" else Bursts("lognormal", cv2)
    spread = 0.0 if loop == "hog" else min(style.spread * rng.lognormal(0.0, 0.4), SPREAD[1]) * demand
    common = 0.0 if loop == "hog" else style.common
    return InstanceSpec(name, vcpus, demand, loop, round(burst_ms, 2), spread, common, weight), bursts


def _loop(rng: np.random.Generator, style: Style) -> Loop:
    if rng.random() < style.hogs:
        return "hog"
    return "closed" if rng.random() < style.closed else "open"


def _demanded(drawn: list[tuple[InstanceSpec, Bursts]]) -> float:
    return sum(spec.demand_cpus for spec, _ in drawn)


def _scaled(specs: list[InstanceSpec], demanded: float) -> list[InstanceSpec]:
    """The same instances, wanting `demanded` CPUs together as far as their sizes allow."""
    fixed = sum(spec.demand_cpus for spec in specs if spec.loop == "hog")
    flexible = {spec.id: spec.demand_cpus for spec in specs if spec.loop != "hog"}
    most = {spec.id: HIGHEST_UTILISATION * spec.vcpus for spec in specs}
    for _ in range(20):
        total = sum(flexible.values())
        if total <= 0:
            break
        factor = max(demanded - fixed, 0.05 * demanded) / total
        flexible = {name: min(demand * factor, most[name]) for name, demand in flexible.items()}
    return [
        spec
        if spec.loop == "hog"
        else replace(
            spec,
            demand_cpus=round(flexible[spec.id], 5),
            spread_cpus=round(spec.spread_cpus / spec.demand_cpus * flexible[spec.id], 5),
        )
        for spec in specs
    ]


def _with_cap(spec: InstanceSpec, rng: np.random.Generator, style: Style) -> InstanceSpec:
    if rng.random() >= style.caps:
        return spec
    factor = rng.uniform(0.2, 0.9) if spec.loop == "hog" else rng.uniform(1.1, 2.5)
    return replace(spec, cap_cpus=round(min(max(factor * spec.demand_cpus, 0.1), float(spec.vcpus)), 3))


def _with_pins(specs: list[InstanceSpec], cpus: int, rng: np.random.Generator, style: Style) -> list[InstanceSpec]:
    """NUMA-like nodes, mostly filled evenly; or a few instances on few CPUs, which every other instance may use,
    too."""
    if style.pins == "none" or cpus < 4:
        return specs
    if style.pins == "few CPUs":
        few = tuple(range(max(2, cpus // 8)))
        room = 0.8 * len(few)
        pinned = []
        for spec in specs:
            if spec.loop != "hog" and spec.vcpus <= len(few) and spec.demand_cpus < room and rng.random() < 0.5:
                room -= spec.demand_cpus
                pinned.append(replace(spec, pin=few))
            else:
                pinned.append(spec)
        return pinned
    nodes = 4 if cpus >= 32 and rng.random() < 0.5 else 2
    size = cpus // nodes
    filled = np.zeros(nodes)
    pinned = []
    for spec in specs:
        free = style.pins == "some nodes" and rng.random() < 0.5
        if free or spec.vcpus > size:
            pinned.append(spec)
            continue
        node = int(np.argmin(filled)) if rng.random() < 0.8 else int(rng.integers(nodes))
        filled[node] += spec.demand_cpus
        pinned.append(replace(spec, pin=tuple(range(node * size, (node + 1) * size))))
    return pinned


def _even_log(rng: np.random.Generator, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))
