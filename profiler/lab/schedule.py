"""A campaign as a list of runs: every group, the solo base case of every member, and each round's random order."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from profiler.lab.campaign import Campaign, Cpus, Member, PinningForm
from profiler.observed import Pinning, format_cpus

Kind = Literal["calibration", "solo", "group"]


@dataclass(frozen=True, slots=True)
class Placed:
    """A member on its CPUs. `solo_key` names the base case that it is compared with."""

    instance: str
    member: Member
    cpus: Cpus
    clients: Cpus | None  # None = it has no load generator
    solo_key: str

    @property
    def pinning(self) -> Pinning:
        return Pinning.all_on(self.cpus, self.member.vcpus)


@dataclass(frozen=True, slots=True)
class Run:
    """One thing to measure once per round; `run` is the same in all rounds."""

    kind: Kind
    run: str
    pinning: str
    placed: tuple[Placed, ...]


def expand(campaign: Campaign) -> tuple[Run, ...]:
    """All runs of one round: groups first, then the solo runs that they need, without an order that matters."""
    groups: list[Run] = []
    solos: dict[str, Run] = {}
    for group in campaign.groups:
        placed = tuple(
            _place(campaign, member, group.pinning, position) for position, member in enumerate(group.members)
        )
        run = ":".join([group.pinning.name, *(entry.member.label for entry in placed)])
        groups.append(Run("group", run, group.pinning.name, placed))
        for entry in placed:
            solos.setdefault(entry.solo_key, Run("solo", entry.solo_key, group.pinning.name, (entry,)))
    reference = campaign.pinnings[0]
    for name in campaign.workloads:  # profiles come from the first pinning form, whoever is grouped with whom
        members = [member for group in campaign.groups for member in group.members if member.workload == name]
        for member in {member.label: member for member in members}.values():
            entry = _place(campaign, member, reference, 0)
            solos.setdefault(entry.solo_key, Run("solo", entry.solo_key, reference.name, (entry,)))
    return (*groups, *solos.values())


def _place(campaign: Campaign, member: Member, form: PinningForm, position: int) -> Placed:
    cpus, clients = form.place(position)
    own = clients if campaign.workloads[member.workload].has_generator else None
    where = format_cpus(cpus) + (f":{format_cpus(own)}" if own is not None else "")
    return Placed(f"{member.label}.{position + 1}", member, cpus, own, f"solo:{member.label}:{where}")


def calibrations(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Saturated solo runs that part loads need first: load 0.5 means half of what was reached there."""
    found: dict[str, Run] = {}
    for run in runs:
        for entry in run.placed:
            if entry.member.load < 1.0:
                key = calibration_key(entry)
                found.setdefault(key, Run("calibration", key, run.pinning, (entry,)))
    return tuple(found.values())


def calibration_key(entry: Placed) -> str:
    """Which calibration holds the capacity of this member where it is placed."""
    return entry.solo_key.replace("solo:", "calibration:", 1).replace(f".load{entry.member.load:g}", "", 1)


def in_round(runs: tuple[Run, ...], seed: int, number: int) -> list[Run]:
    """The order of a round: random, and the same again for the same seed and round."""
    order = sorted(runs, key=lambda run: run.run)
    random.Random(f"{seed}:{number}").shuffle(order)  # noqa: S311 - an order, not a secret
    return order


def profile_keys(campaign: Campaign) -> frozenset[str]:
    """Solo runs that count as profiles: every member variant on the first place of the first pinning form."""
    reference = campaign.pinnings[0]
    members = {member for group in campaign.groups for member in group.members}
    return frozenset(_place(campaign, member, reference, 0).solo_key for member in members)
