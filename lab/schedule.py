"""Expands a campaign to runs: all groups, the solo run of every member, and a random order for each round."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

from lab.campaign import Campaign, Cpus, Member, PinningForm
from profiler.observed import Pinning, format_cpus

Kind = Literal["calibration", "solo", "group"]
TUNING = "tuning"


@dataclass(frozen=True, slots=True)
class PlacedMember:
    """A member on its CPUs. `solo_key` names the base case that it is compared with."""

    instance: str
    member: Member
    cpus: Cpus
    clients: Cpus | None  # None = it has no load generator
    solo_key: str
    driver: Cpus | None = None

    @property
    def pinning(self) -> Pinning:
        return Pinning.all_on(self.cpus, self.member.vcpus)


@dataclass(frozen=True, slots=True)
class Run:
    """One thing to measure once per round; `run` is the same in all rounds."""

    kind: Kind
    run: str
    pinning: str
    placed: tuple[PlacedMember, ...]


def expand(campaign: Campaign) -> tuple[Run, ...]:
    """All runs of one round: the groups, then the solo runs that they need; `in_round` orders them.

    A group of one is its solo run. On/off, a group holds its own base cases: only profiles are measured alone.
    """
    groups: list[Run] = []
    solos: dict[str, Run] = {}
    for group in campaign.groups:
        placed = tuple(
            _place(campaign, member, group.pinning, position) for position, member in enumerate(group.members)
        )
        run = ":".join([group.pinning.name, *(entry.member.label for entry in placed)])
        if len(placed) > 1:
            groups.append(Run("group", run, group.pinning.name, placed))
        for entry in placed if campaign.on_off is None or len(placed) == 1 else ():
            solos.setdefault(entry.solo_key, Run("solo", entry.solo_key, group.pinning.name, (entry,)))
    for entry in _profiled(campaign):
        solos.setdefault(entry.solo_key, Run("solo", entry.solo_key, campaign.pinnings[0].name, (entry,)))
    return (*groups, *solos.values())


def _place(campaign: Campaign, member: Member, form: PinningForm, position: int) -> PlacedMember:
    cpus, clients = form.place(position)
    own = clients if campaign.workloads[member.workload].has_generator else None
    solo = solo_run(member.label, format_cpus(cpus), format_cpus(own or ()), format_cpus(form.driver or ()))
    return PlacedMember(f"{member.label}.{position + 1}", member, cpus, own, solo, form.driver)


def solo_run(label: str, cpus: str, clients: str, driver: str) -> str:
    """Name of the base case of a member in its place: its CPUs, those of its load generator, and of the driver domain.

    These are CPU lists such as `0-1`; the last two are empty where there is no generator or no `driver`.
    """
    return ":".join(["solo", label, cpus, *([clients] if clients else []), *([f"driver{driver}"] if driver else [])])


def calibrations(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Saturated solo runs that part loads need first: load 0.5 means half of what was reached there."""
    needed: dict[str, Run] = {}
    for run in runs:
        for entry in run.placed:
            if entry.member.load < 1.0:
                key = calibration_key(entry)
                needed.setdefault(key, Run("calibration", key, run.pinning, (_saturated(entry),)))
    return tuple(needed.values())


def _saturated(entry: PlacedMember) -> PlacedMember:
    """The same member at full load, under its name at full load."""
    part = f".load{entry.member.load:g}"
    member = replace(entry.member, load=1.0, label=entry.member.label.replace(part, "", 1))
    return replace(entry, member=member, instance=entry.instance.replace(part, "", 1))


def tunings(campaign: Campaign, runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Runs that find how long a state must last: each member of any group beside the campaign's `beside`."""
    if campaign.on_off is None or not campaign.on_off.tunes:
        return ()
    labels: dict[str, PlacedMember] = {}
    for run in runs:
        for entry in run.placed:
            labels.setdefault(tuning_key(entry.member), entry)
    form, beside = campaign.pinnings[0], campaign.members[campaign.on_off.beside]
    return tuple(
        Run("calibration", key, form.name, tuple(
            _place(campaign, member, form, position) for position, member in enumerate((entry.member, beside))
        ))
        for key, entry in labels.items()
    )  # fmt: skip


def tuning_key(member: Member) -> str:
    """Which run found the length of states for this member."""
    return f"{TUNING}:{member.label}"


def calibration_key(entry: PlacedMember) -> str:
    """Which calibration holds the capacity of this member where it is placed."""
    return entry.solo_key.replace("solo:", "calibration:", 1).replace(f".load{entry.member.load:g}", "", 1)


def in_round(runs: tuple[Run, ...], seed: int, number: int) -> list[Run]:
    """The order of a round: random, and the same again for the same seed and round."""
    order = sorted(runs, key=lambda run: run.run)
    random.Random(f"{seed}:{number}").shuffle(order)  # noqa: S311 - an order, not a secret
    return order


def profile_keys(campaign: Campaign) -> frozenset[str]:
    """Solo runs that count as profiles."""
    return frozenset(entry.solo_key for entry in _profiled(campaign))


def _profiled(campaign: Campaign) -> list[PlacedMember]:
    """The members that are measured alone as profiles of their workloads: on the first place of the first pinning form.

    Every workload of any group as it is defined, and at the part loads that it has in a group with no other settings: a
    workload that a cap or a limit holds back is no profile.
    """
    profiled: dict[str, Member] = {}
    for member in (member for group in campaign.groups for member in group.members):
        base = campaign.members[member.workload]
        profiled.setdefault(base.label, base)
        if member.settings == base.settings:
            profiled.setdefault(member.label, member)
    return [_place(campaign, member, campaign.pinnings[0], 0) for member in profiled.values()]
