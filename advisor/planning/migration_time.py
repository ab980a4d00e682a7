"""How long migrations take: limits that labels give, bandwidth, memory that is written meanwhile."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from advisor.domain import Band, Host, Instance, PlanRequest, PlanStep
from advisor.domain.rules import LOCAL_STORAGE
from advisor.snapshot import ClusterSnapshot

# Numbers in the labels of hosts and instances.


def label_number(labels: Mapping[str, str], name: str) -> float | None:
    """What a label says; None where that is no number from 0 on."""
    try:
        value = float(labels.get(name, ""))
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


# Limits of migrations: how many at once in all, per host and per rack, and how much network they may use.

NETWORK_LABEL = "migration_mbit"  # of a host: the speed of the network that its migrations use


@dataclass(frozen=True, slots=True)
class MigrationLimits:
    """At most `at_once` moves in a stage, `per_host` to or from one host, `per_rack` to or from one rack.

    A rack is one value of the label `rack_label`; hosts without it are in no rack. `host_mbit` and `rack_mbit` are the
    Mbit/s that all moves into, or out of, a host or a rack may use together. None = not limited.
    """

    at_once: int
    per_host: int = 1
    per_rack: int | None = None
    rack_label: str = "rack"
    host_mbit: float | None = None
    rack_mbit: float | None = None

    @classmethod
    def of(cls, request: PlanRequest) -> MigrationLimits:
        """As a request demands."""
        return cls(
            request.at_once,
            request.at_once_per_host,
            request.at_once_per_rack,
            request.rack_label,
            request.migration_mbit,
            request.rack_mbit,
        )

    def rack(self, host: Host) -> str:
        """The rack of a host, "" = none."""
        return host.labels.get(self.rack_label, "")

    def most(self, what: object) -> float:
        """How many moves may share this: "moves" = a stage, ("rack", name), or the position of a host."""
        if what == "moves":
            return self.at_once
        if isinstance(what, tuple):
            return math.inf if self.per_rack is None or not what[1] else self.per_rack
        return self.per_host

    def network_mbit(self, host: Host) -> float | None:
        """What moves may use of a host's network, None where its speed is not known."""
        return network_of(host, self.host_mbit)


def network_of(host: Host, most_mbit: float | None) -> float | None:
    """Mbit/s of a host's network for its moves, at most `most_mbit`; None where its speed is not known."""
    labelled = label_number(host.labels, NETWORK_LABEL)
    speeds = [speed for speed in (most_mbit, labelled or host.nic_mbit) if speed]
    return min(speeds, default=None)


DIRTY_LABEL = "dirty_mb_s"  # of an instance: MB of memory that it writes anew each second
# Where it is not known how fast memory is dirtied: as a share of what the network carries. Assumed; with half of it, a
# migration copies everything twice.
ASSUMED_DIRTY = Band(0.25, 0.0, 0.5)
MAX_PASSES = 30  # passes over the memory after which pre-copy gives up, as in Clark et al. (NSDI 2005)
MB_PER_MBIT = 1 / 8
PAUSE_S = 0.3  # what is left when the instance is paused may take so long: QEMU's default downtime limit


@dataclass(frozen=True, slots=True)
class MoveTimes:
    """Durations of the moves of a cloud whose moves share networks within `limits`."""

    snapshot: ClusterSnapshot
    limits: MigrationLimits

    def of(self, steps: Sequence[PlanStep]) -> tuple[PlanStep, ...]:
        """The same steps, moves with their duration; steps of one stage stand beside each other."""
        timed: list[PlanStep] = []
        for _, together in groupby(steps, key=lambda step: step.stage):
            stage = list(together)
            shares = Counter(link for step in stage for link in self._links(step))
            timed += [self._timed(step, shares) for step in stage]
        return tuple(timed)

    def _timed(self, step: PlanStep, shares: Counter[tuple[str, str]]) -> PlanStep:
        """A move has, of each network on its way, an equal part beside the others that pass there in its stage."""
        links = self._links(step)
        speeds = [self._speed(link) for link in links]
        if not links or None in speeds:
            return step
        mbit = min(speed / shares[link] for link, speed in zip(links, speeds, strict=True) if speed is not None)
        duration = copy_time(self._instance(step.instance), mbit * MB_PER_MBIT)
        if duration is None:
            late = (
                f"{step.instance} writes its memory faster than {mbit:,.0f} Mbit/s carry it: it has to be slowed down"
            )
            return replace(step, notes=(*step.notes, late))
        return replace(step, duration_s=duration)

    def _links(self, step: PlanStep) -> list[tuple[str, str]]:
        """The networks that a move passes: out of a host and into another, and so of their racks where they differ."""
        if step.action != "move" or step.source is None or step.host is None:
            return []
        source, target = self._host(step.source), self._host(step.host)
        if "lxc" in {source.kind, target.kind}:  # a container is stopped and started, not copied
            return []
        links = [("out", source.id), ("in", target.id)]
        racks = self.limits.rack(source), self.limits.rack(target)
        if self.limits.rack_mbit is not None and racks[0] != racks[1]:
            links += [(way, rack) for way, rack in zip(("rack out", "rack in"), racks, strict=True) if rack]
        return links

    def _speed(self, link: tuple[str, str]) -> float | None:
        way, name = link
        return self.limits.rack_mbit if way.startswith("rack") else self.limits.network_mbit(self._host(name))

    def _host(self, name: str) -> Host:
        return self.snapshot.hosts[self.snapshot.names.positions[name]]

    def _instance(self, name: str) -> Instance:
        return self.snapshot.names.placed[name]


def copy_time(instance: Instance, mb_s: float) -> Band | None:
    """Seconds of a pre-copy migration at so many MB/s; None where memory is written as fast as it is copied.

    Each pass copies what was written during the one before (Clark et al., NSDI 2005), until the rest can be copied in
    PAUSE_S. Where the label `dirty_mb_s` does not say how much that is, it is between nothing and half of the speed.
    """
    dirty_mb_s, disk_s = label_number(instance.labels, DIRTY_LABEL), copied_disk_mb(instance) / mb_s
    if dirty_mb_s is None:
        return Band(*(disk_s + _passes(instance.memory_mb, mb_s, share * mb_s) for share in _parts(ASSUMED_DIRTY)))
    if dirty_mb_s >= mb_s:
        return None
    seconds = disk_s + _passes(instance.memory_mb, mb_s, dirty_mb_s)
    return Band(seconds, seconds, seconds)


def copied_disk_mb(instance: Instance) -> float:
    """MB of its disk that a move copies, once: all of a disk on its host, nothing of one that both hosts reach."""
    local = instance.labels.get(LOCAL_STORAGE, "").lower() == "true"
    return instance.disk_gb * 1000 if local else 0.0


def _parts(band: Band) -> tuple[float, float, float]:
    return band.expected, band.lower, band.upper


def _passes(memory_mb: float, mb_s: float, dirty_mb_s: float) -> float:
    """The time of all passes over the memory."""
    total, rest = 0.0, memory_mb / mb_s
    for _ in range(MAX_PASSES):
        total += rest
        rest *= dirty_mb_s / mb_s
        if rest <= PAUSE_S:
            break
    return total + rest


def whole_time(steps: Sequence[PlanStep]) -> Band | None:
    """How long all stages take one after the other, each as long as its slowest move.

    None where nothing is copied or the duration of a move is not known.
    """
    stages: dict[int, list[Band]] = {}
    for step in steps:
        if step.action == "move" and step.host is not None:
            if step.duration_s is None:
                return None
            stages.setdefault(step.stage, []).append(step.duration_s)
    if not stages:
        return None
    expected, lower, upper = (
        sum(max(part) for part in parts)
        for parts in zip(*(tuple(zip(*map(_parts, bands), strict=True)) for bands in stages.values()), strict=True)
    )
    return Band(expected, lower, upper)
