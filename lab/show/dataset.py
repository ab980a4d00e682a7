"""A measured dataset as it was written: groups, rounds and outcomes. Nothing is computed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from lab.errors import LabError
from lab.schedule import solo_run

PAIR = 2
Key = tuple[str, int]
"""A run and its round."""
Points = tuple[tuple[float, float], ...]
"""(seconds since the measured time began, value); warm-up lies before 0."""


@dataclass(frozen=True, slots=True)
class MeasuredOutcome:
    """What an instance reached alone and beside others in the same round; None = not measured.

    `ratio_se` is the standard error of colocated / solo, which only on/off runs have.
    """

    solo: float | None
    colocated: float | None
    unit: str
    ratio_se: float | None = None

    @property
    def ratio(self) -> float | None:
        """Colocated over solo: for throughput T/B, 1.0 = as alone."""
        return None if not self.solo or self.colocated is None else self.colocated / self.solo


@dataclass(frozen=True, slots=True)
class MemberVariant:
    """With how much load and under which settings a member ran; None = not set. `network` is in words."""

    load: float
    cap_percent: float | None
    weight: float | None
    network: str
    disk_limit_mb_s: float | None


@dataclass(frozen=True, slots=True)
class DatasetMember:
    """One instance of one run; `label` is its workload with what differs from the workload's definition."""

    instance: str
    workload: str
    label: str
    variant: MemberVariant
    pinning: str
    cpus: frozenset[int]
    driver_cpus: str
    outcomes: Mapping[str, MeasuredOutcome]

    @property
    def is_plain(self) -> bool:
        return self.label == self.workload

    @property
    def position(self) -> tuple[int, str]:
        """Its place in the order of the campaign file, which is the last part of its name."""
        last = self.instance.rpartition(".")[2]
        return (int(last) if last.isdecimal() and len(last) < 9 else 0, self.instance)

    @property
    def ratio(self) -> float | None:
        """T/B of its throughput; None = not known."""
        throughput = self.outcomes.get("throughput")
        return throughput.ratio if throughput else None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """A row of runs.csv: one run of any kind in one round; None = unknown."""

    run: str
    repeat: int
    kind: str
    form: str
    started: datetime | None
    steal_percent: float | None
    foreign_percent: float | None
    disturbed: bool
    unsteady: bool
    clients: Mapping[str, str]
    speeds: Mapping[str, float]

    @property
    def key(self) -> Key:
        return self.run, self.repeat


@dataclass(frozen=True, slots=True)
class DatasetGroup:
    """Instances that shared the host in one round, in the campaign file's order."""

    run: str
    repeat: int
    form: str
    members: tuple[DatasetMember, ...]

    @property
    def key(self) -> Key:
        return self.run, self.repeat

    @property
    def is_pair(self) -> bool:
        return len(self.members) == PAIR


@dataclass(frozen=True, slots=True)
class ReachedOutcome:
    """A row of outcomes.csv: any outcome that a workload reported, also beyond those of the dataset format."""

    run: str
    repeat: int
    instance: str
    workload: str
    outcome: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class LabDataset:
    """A dataset directory. Only colocations.csv must be there; what comes from another file is empty without it.

    `series[run, round][instance, metric]` are the windows within a run.
    """

    directory: str
    about: Mapping[str, str]
    groups: tuple[DatasetGroup, ...]
    infos: Mapping[Key, RunInfo]
    reached: tuple[ReachedOutcome, ...]
    series: Mapping[Key, Mapping[tuple[str, str], Points]]

    def solo_key(self, group: DatasetGroup, member: DatasetMember) -> Key:
        """The run of the same round that the member is compared with; the lab names it by label and place."""
        info = self.infos.get(group.key)
        clients = info.clients.get(member.instance, "") if info else ""
        cpus = member.pinning.partition("|")[0].partition(":")[2]
        return solo_run(member.label, cpus, clients, member.driver_cpus), group.repeat

    def chosen(self, workloads: frozenset[str], form: str) -> LabDataset:
        """Only the groups of these workloads and of this pinning form; LabError when there are none."""
        known = {member.workload for group in self.groups for member in group.members}
        forms = {group.form for group in self.groups}
        if unknown := sorted(workloads - known):
            raise LabError(f"no workload is called {unknown[0]!r}: there are {', '.join(sorted(known))}")
        if form and form not in forms:
            raise LabError(f"no pinning form is called {form!r}: there are {', '.join(sorted(forms))}")
        if not workloads and not form:
            return self
        groups = tuple(
            group
            for group in self.groups
            if (not form or group.form == form)
            and (not workloads or all(member.workload in workloads for member in group.members))
        )
        if not groups:
            raise LabError("none of these workloads ran with another of them: name more of them, or another form")
        keys = {group.key for group in groups}
        keys |= {self.solo_key(group, member) for group in groups for member in group.members}
        infos = {key: info for key, info in self.infos.items() if key in keys}
        return replace(self, groups=groups, infos=infos)
