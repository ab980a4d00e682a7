"""Whether the moves of a plan can be made, each at its moment, and which rules hold when all are done.

A check of its own, which shares no code with the planner: sizes and rules are read from the inventory and counted anew.
While an instance moves it is on both hosts. A move can be made if at its moment its host has room for it beside all
that are there, come and still leave, if its zone is that host's, and if it may move and meets none of those that it
must be apart from. Those that must be together may be apart on the way, and count at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from advisor.domain import Instance, Inventory
from research.arena.clusters import Places
from research.arena.rebalances import Stage

ZONE = "zone"
NEAR = 1e-6  # of sizes


@dataclass(frozen=True, slots=True)
class Checked:
    """`broken`: rules that do not hold after all moves and did before, and instances that never move and did;
    `impossible`: moves that could not be made at their moment; `over`: hosts that promise more than they may, after."""

    broken: int
    impossible: int
    over: int


def checked(inventory: Inventory, stages: Sequence[Stage]) -> Checked:
    """Make the moves stage by stage, those that could not be made as well, so that the end is as the plan says."""
    known = {one.id: one for one in inventory.instances}
    zones = {host.id: host.labels.get(ZONE, "") for host in inventory.hosts}
    rooms = {
        host.id: (host.cpu_overcommit * host.pcpus, host.memory_overcommit * host.memory_mb) for host in inventory.hosts
    }
    places = {one.id: str(one.host) for one in inventory.instances}
    before, impossible = broken(known, places, zones), 0
    held = _Held.of(known, places)
    for stage in stages:
        moving = [(known[name], host) for name, host in stage if places[name] != host]
        for one, host in moving:
            held.add(one, host)
        refused = {
            one.id
            for one, host in moving
            if not held.within(host, rooms[host])
            or one.never_moves
            or not _in_zone(one, zones[host])
            or held.meets(one, host)
        }
        for one, host in moving:
            held.take(one, places[one.id])
            places[one.id] = host
        impossible += len(refused)
    moved = {name for stage in stages for name, _ in stage}
    stayed = sum(known[name].never_moves for name in moved)
    over = sum(not held.within(host, room) for host, room in rooms.items())
    return Checked(len(broken(known, places, zones) - before) + stayed, impossible, over)


def broken(known: Mapping[str, Instance], places: Places, zones: Mapping[str, str]) -> set[tuple[str, str]]:
    """Rules that do not hold: instances out of their zone, groups that share a host, and pairs on several."""
    found = {("zone", name) for name, host in places.items() if not _in_zone(known[name], zones[host])}
    apart = Counter((group, places[one.id]) for one in known.values() for group in one.anti_affinity_groups)
    found |= {("apart", f"{group} on {host}") for (group, host), count in apart.items() if count > 1}
    together: dict[str, set[str]] = {}
    for one in known.values():
        if one.affinity_group:
            together.setdefault(one.affinity_group, set()).add(places[one.id])
    return found | {("together", group) for group, hosts in together.items() if len(hosts) > 1}


def _in_zone(one: Instance, zone: str) -> bool:
    return one.required_labels.get(ZONE, zone) == zone


@dataclass(slots=True)
class _Held:
    """What hosts hold: vCPUs and MB, and members of each anti-affinity group."""

    sizes: dict[str, list[float]]
    apart: Counter[tuple[str, str]]

    @classmethod
    def of(cls, known: Mapping[str, Instance], places: Places) -> _Held:
        held = cls({}, Counter())
        for name, host in places.items():
            held.add(known[name], host)
        return held

    def add(self, one: Instance, host: str, times: int = 1) -> None:
        size = self.sizes.setdefault(host, [0.0, 0.0])
        size[0] += times * one.vcpus
        size[1] += times * one.memory_mb
        for group in one.anti_affinity_groups:
            self.apart[group, host] += times

    def take(self, one: Instance, host: str) -> None:
        self.add(one, host, -1)

    def within(self, host: str, room: Iterable[float]) -> bool:
        return all(size <= most * (1 + NEAR) for size, most in zip(self.sizes.get(host, (0.0, 0.0)), room, strict=True))

    def meets(self, one: Instance, host: str) -> bool:
        return any(self.apart[group, host] > 1 for group in one.anti_affinity_groups)
