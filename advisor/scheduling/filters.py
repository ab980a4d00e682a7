"""Filters: which hosts can take an instance, and a reason with a stable code for every other host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import MEMORY_SHORT, Instance, PlacementRequest, Rejection
from advisor.domain.rules import NO_RULES, SOFT_AFFINITY, SOFT_ANTI_AFFINITY, has_of, needed, rules_of, value_of
from advisor.rounding import with_slack
from advisor.scheduling.pinning import new_vm_slot, profile_row, rows_by_host
from advisor.snapshot import ClusterSnapshot, promised_vcpus
from models.arrays import Bools, Floats, Ints
from models.physics.demands import demands, holds
from profiler.host_kinds import HOST_KINDS
from profiler.observed import format_cpus

ReasonOf = Callable[[int], str]  # the reason in words for a host position
_EXACT_FORMAT = ".10g"  # sizes in full, so that a need never looks like the free amount


@dataclass(frozen=True, slots=True)
class FilterInput:
    """A request to a cloud of H hosts, and what every instance but the requested one holds there.

    The instance may run on a host already; it is not counted. `vcpus`, `own` (pCPUs of dedicated vCPUs), `memory_mb`,
    `disk_gb`, `driver_cpus` and the number of `others` are (H,) each; `exclusive` (H,) = another instance requires the
    host for itself.
    """

    snapshot: ClusterSnapshot
    request: PlacementRequest
    fresh_s: float
    vcpus: Floats
    own: Floats
    memory_mb: Floats
    disk_gb: Floats
    driver_cpus: Floats
    others: Floats
    exclusive: Bools

    @classmethod
    def of(cls, snapshot: ClusterSnapshot, request: PlacementRequest, fresh_s: float) -> FilterInput:
        used = (snapshot.used_vcpus, snapshot.used_own, snapshot.used_memory_mb, snapshot.used_disk_gb)
        vcpus, own, memory_mb, disk_gb = (values.copy() for values in used)
        driver_asked, exclusive = snapshot.driver_asked, snapshot.exclusive
        other_count = snapshot.scenes.present.sum(axis=1).astype(np.float64)
        own_places = snapshot.where(request.instance.id)
        if own_places:
            driver_asked, exclusive = driver_asked.copy(), exclusive.copy()
        for host, slot in own_places:
            others_here = [resident for resident in snapshot.residents[host] if resident.id != request.instance.id]
            vcpus[host] = sum(promised_vcpus(snapshot.hosts[host], resident) for resident in others_here)
            own[host] = sum(resident.dedicated_vcpus for resident in others_here)
            memory_mb[host] = sum(resident.ordinary_memory_mb for resident in others_here)
            disk_gb[host] = sum(resident.disk_gb for resident in others_here)
            exclusive[host] = any(resident.exclusive for resident in others_here)
            other_count[host] = len(others_here)
            driver_asked[host, slot] = 0.0
        driver_cpus = driver_asked.sum(axis=1)
        return cls(snapshot, request, fresh_s, vcpus, own, memory_mb, disk_gb, driver_cpus, other_count, exclusive)

    @property
    def instance(self) -> Instance:
        return self.request.instance

    def at(self, names: Iterable[str]) -> Bools:
        """The hosts with these names, (H,)."""
        named = np.zeros(len(self.snapshot.hosts), dtype=bool)
        positions = (self.snapshot.index(name) for name in names)
        named[[position for position in positions if position is not None]] = True
        return named

    def beside(self, name: str) -> Bools:
        """The hosts with another instance of that name, (H,)."""
        hosts_with = np.zeros(len(self.snapshot.hosts), dtype=bool)
        if name != self.instance.id:
            hosts_with[[host for host, _ in self.snapshot.where(name)]] = True
        return hosts_with

    def members_of_groups(self) -> dict[int, tuple[str, str]]:
        """Host position → an instance there, and its anti-affinity group, of which no more may come there."""
        full = {}
        for group in self.instance.anti_affinity_groups:
            for host, residents in enumerate(self.others_by_host()):
                members = [one for one in residents if group in one.anti_affinity_groups]
                if len(members) >= min(one.anti_affinity_most for one in (self.instance, *members)) and members:
                    full[host] = members[0].id, group
        return full

    def others_by_host(self) -> Iterator[list[Instance]]:
        """The residents of each host but the instance itself."""
        for residents in self.snapshot.residents:
            yield [one for one in residents if one.id != self.instance.id]

    def companions(self) -> dict[int, str]:
        """Host position → another instance there of the instance's affinity group."""
        group, own_id = self.instance.affinity_group, self.instance.id
        return {
            host: resident.id
            for host, residents in enumerate(self.snapshot.residents if group else ())
            for resident in residents
            if resident.affinity_group == group and resident.id != own_id
        }

    def nowhere(self) -> Bools:
        """No host, (H,)."""
        return np.zeros(len(self.snapshot.hosts), dtype=bool)


FilterCheck = Callable[[FilterInput], tuple[Bools, ReasonOf]]  # refused hosts, (H,), and their reasons


def _enabled(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    return ~inputs.snapshot.enabled, lambda _: "the host is disabled"


def _kind(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    wanted = inputs.request.constraints.kind
    other = np.array([wanted not in {None, kind} for kind in HOST_KINDS])
    hosts = inputs.snapshot.hosts
    refused = other[inputs.snapshot.scenes.kind]
    return refused, lambda host: f"needs a {wanted} host, this one is {hosts[host].kind}"


def _labels(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    wanted, rules = inputs.request.constraints.labels, rules_of(inputs.instance)
    hosts = inputs.snapshot.hosts
    if not wanted and rules == NO_RULES:
        return inputs.nowhere(), lambda _: ""
    both = [name for name, value in wanted.items() if value not in rules.any_of.get(name, (value,))]
    if both:
        needs = " or ".join(rules.any_of[both[0]])
        needed = f"{inputs.instance.id} requires the label {both[0]}={needs}, the question asks for {wanted[both[0]]}"
        return ~inputs.nowhere(), lambda _: needed

    def says(host: int) -> str:
        labels = hosts[host].labels
        name = min((name for name, value in wanted.items() if labels.get(name) != value), default="")
        return f"needs label {name}={wanted[name]}, has {labels.get(name, 'none')}" if name else broken[host]

    broken = [rules.refusal(host) for host in hosts]
    missing = [not wanted.items() <= host.labels.items() for host in hosts]
    return np.array(missing, dtype=bool) | np.array([bool(why) for why in broken], dtype=bool), says


def _exclude(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    return inputs.at(inputs.request.constraints.exclude), lambda _: "the request excludes this host"


def _never_move(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    own = [inputs.snapshot.hosts[host].id for host, _ in inputs.snapshot.where(inputs.instance.id)]
    if not inputs.instance.never_moves or not own:
        return inputs.nowhere(), lambda _: ""
    return ~inputs.at(own), lambda _: f"{inputs.instance.id} has the label never_move and is on {own[0]}"


def _affinity(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    beside = {name: inputs.beside(name) for name in inputs.request.constraints.affinity}
    refused = inputs.nowhere()
    for has_it in beside.values():
        refused |= ~has_it
    companions = inputs.companions()
    if companions:
        refused |= ~inputs.at(inputs.snapshot.hosts[host].id for host in companions)

    def says(host: int) -> str:
        missing = next((name for name in beside if not beside[name][host]), None)
        if missing is not None:
            return f"{missing} is not on this host"
        first = min(companions)
        where = inputs.snapshot.hosts[first].id
        return f"{companions[first]} of the same affinity group {inputs.instance.affinity_group} is on {where}"

    return refused, says


def _anti_affinity(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    beside = {name: inputs.beside(name) for name in inputs.request.constraints.anti_affinity}
    members = inputs.members_of_groups()
    refused = inputs.at(inputs.snapshot.hosts[host].id for host in members)
    for has_it in beside.values():
        refused |= has_it

    def says(host: int) -> str:
        named = next((name for name in beside if beside[name][host]), None)
        if named is not None:
            return f"{named} is on this host"
        member, group = members[host]
        return f"{member} of the same anti-affinity group {group} is on this host"

    return refused, says


def _exclusive(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    def says(host: int) -> str:
        others = [resident for resident in inputs.snapshot.residents[host] if resident.id != inputs.instance.id]
        exclusive_id = next((resident.id for resident in others if resident.exclusive), None)
        if exclusive_id is not None:
            return f"{exclusive_id} requires a host for itself"
        return f"{inputs.instance.id} requires a host for itself, and {others[0].id} is on this one"

    return inputs.exclusive | (inputs.instance.exclusive & (inputs.others > 0)), says


def _vcpus(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    room, hosts, scenes = inputs.snapshot.room_vcpus, inputs.snapshot.hosts, inputs.snapshot.scenes
    instance, pinning = inputs.instance, inputs.instance.settings.pinning
    needs = np.where(scenes.dedicated.any(axis=1), instance.shared_vcpus, instance.vcpus)
    pcpus = scenes.pcpus if pinning is not None else inputs.snapshot.shared_pcpus
    on_shared = np.array([not host.isolates(pinning) for host in hosts], dtype=bool) if pinning is not None else True

    def says(host: int) -> str:
        shared = " shared" if hosts[host].dedicated_cpus else ""
        if needs[host] > pcpus[host]:
            is_all = bool(shared) or pcpus[host] == hosts[host].pcpus
            of_all = "" if is_all else f", {hosts[host].pcpus} with isolated ones"
            return f"needs {needs[host]}{shared} vCPUs, the host has {pcpus[host]:g}{shared} pCPUs{of_all}"
        limit = f"at overcommit {hosts[host].cpu_overcommit:g}"
        return f"needs {needs[host]}{shared} vCPUs, {_left(room[host], inputs.vcpus[host])} {limit}"

    too_many = (needs > pcpus) | (on_shared & (inputs.vcpus + needs > with_slack(room)))
    return (needs > 0) & too_many, says


def _own_cpus(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    needs, used, room = inputs.instance.dedicated_vcpus, inputs.own, inputs.snapshot.room_own
    refused = (needs > 0) & (used + needs > room)
    return refused, lambda host: f"needs {needs} pCPUs of its own, {max(room[host] - used[host], 0):g} are free"


def _memory_short(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    """Hosts that are short of memory by what their agents measured, unless the instance is there already."""
    hosts = inputs.snapshot.hosts
    short = np.array([MEMORY_SHORT in host.labels for host in hosts], dtype=bool)
    placed = inputs.snapshot.names.placed.get(inputs.instance.id)
    if placed is not None and placed.host is not None:
        short &= ~inputs.at([placed.host])
    return short, lambda host: f"it is short of memory: it {hosts[host].labels[MEMORY_SHORT]}"


def _memory(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    needs, room, used = inputs.instance.ordinary_memory_mb, inputs.snapshot.room_memory_mb, inputs.memory_mb
    refused = used + needs > with_slack(room)
    return refused, lambda host: f"needs {needs:{_EXACT_FORMAT}} MB, {_left(room[host], used[host], ' MB')}"


def _disk(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    needs, room, used = inputs.instance.disk_gb, inputs.snapshot.room_disk_gb, inputs.disk_gb
    refused = used + needs > with_slack(room)
    return refused, lambda host: f"needs {needs:{_EXACT_FORMAT}} GB of disk, {_left(room[host], used[host], ' GB')}"


def _counted(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    needs = rules_of(inputs.instance).needs
    if not needs:
        return inputs.nowhere(), lambda _: ""
    texts = []
    for host, others in zip(inputs.snapshot.hosts, inputs.others_by_host(), strict=True):
        has, used = has_of(host), needed(others)
        lacking = [name for name, some in needs.items() if used[name] + some > with_slack(has.get(name, 0.0))]
        name = min(lacking, default="")
        left = max(has.get(name, 0.0) - used[name], 0.0)
        texts.append(f"needs {needs[name]:g} of {name}, {left:g} of {has.get(name, 0.0):g} are free" if name else "")
    return np.array([bool(text) for text in texts], dtype=bool), lambda host: texts[host]


def _left(room: float, used: float, unit: str = "") -> str:
    if used > with_slack(room):
        return f"{used:{_EXACT_FORMAT}}{unit} are promised already where {room:{_EXACT_FORMAT}}{unit} may be"
    return f"{room - used:{_EXACT_FORMAT}}{unit} free"


def _pins(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    pinning, hosts = inputs.instance.settings.pinning, inputs.snapshot.hosts
    named = pinning.named if pinning else frozenset()
    if not named:
        return inputs.nowhere(), lambda _: ""
    absent = [host.lacks(named) for host in hosts]
    refused = np.array([bool(cpus) for cpus in absent], dtype=bool)
    return refused, lambda at: f"pinned to pCPU {format_cpus(absent[at])}, the host has {hosts[at].shown_cpus}"


def _driver_domain(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    would_ask, used, room = _driver_asked(inputs), inputs.driver_cpus, inputs.snapshot.room_driver_cpus

    def says(host: int) -> str:
        return (
            f"would ask its driver domain for {would_ask[host]:.2f} CPUs, {used[host]:.2f} are asked for already where "
            f"{room[host]:g} may be at overcommit {inputs.snapshot.hosts[host].driver_overcommit:g}"
        )

    return (would_ask > 0) & (used + would_ask > with_slack(room)), says


def _driver_asked(inputs: FilterInput) -> Floats:
    """The instance's demand on the driver domain of each host when it is alone, in CPUs, 0 = none or unknown; (H,).

    In a container it is 0: the kernel does that work in the container's time (`models.physics.demands`).
    """
    snapshot, instance = inputs.snapshot, inputs.instance
    cpus_asked = np.zeros(len(snapshot.hosts))
    hosts = np.flatnonzero(holds(snapshot.scenes.kind, "has_driver_domain"))
    table, row, _ = profile_row(snapshot, inputs.request)
    rows = rows_by_host(snapshot, hosts, instance, table, row)
    if any(np.isfinite(table.column(key)[rows]).any() for key in ("driver_domain.cpu", "pages_exchanged")):
        scenes = replace(snapshot.scenes.take(hosts), table=table)
        slot = new_vm_slot(scenes, snapshot, hosts, instance, row)
        alone = replace(scenes, **{name: values[:, None] for name, values in slot.items()})
        cpus_asked[hosts] = demands(alone).driver[:, 0]
    return cpus_asked


def _fresh(inputs: FilterInput) -> tuple[Bools, ReasonOf]:
    age, allowed = inputs.snapshot.age_s, inputs.snapshot.allowed_age_s(inputs.fresh_s)

    def says(host: int) -> str:
        when = "the age of its data is unknown" if age[host] == np.inf else f"it was last seen {age[host]:.0f} s ago"
        return f"no fresh data: {when}, at most {allowed[host]:.0f} s are allowed"

    return (age > allowed) & (not inputs.request.constraints.allow_stale), says


CHECKS: tuple[tuple[str, FilterCheck], ...] = (
    ("host.disabled", _enabled),
    ("constraint.kind", _kind),
    ("constraint.label", _labels),
    ("constraint.exclude", _exclude),
    ("constraint.never_move", _never_move),
    ("constraint.affinity", _affinity),
    ("constraint.anti_affinity", _anti_affinity),
    ("constraint.exclusive", _exclusive),
    ("capacity.vcpus", _vcpus),
    ("capacity.dedicated", _own_cpus),
    ("host.memory_short", _memory_short),
    ("capacity.memory", _memory),
    ("capacity.disk", _disk),
    ("capacity.counted", _counted),
    ("capacity.pinning", _pins),
    ("capacity.driver_domain", _driver_domain),
    ("host.no_data", _fresh),
)
OTHER_CODES = (
    "host.unknown",
    "constraint.soft",
    *(f"limit.{who}{kind}" for kind in ("", "_latency", "_time_short") for who in ("new_vm", "neighbour")),
)
CODES = (*(code for code, _ in CHECKS), *OTHER_CODES)


def soft_broken(snapshot: ClusterSnapshot, instance: Instance) -> Ints:
    """How many soft rules of an instance each host would break, (H,): its preferred hosts, and its soft groups."""
    broken = np.zeros(len(snapshot.hosts), dtype=np.int64)
    for name, wanted in rules_of(instance).prefers.items():
        broken += np.array([value_of(host, name) not in wanted for host in snapshot.hosts], dtype=np.int64)
    for label, is_apart in ((SOFT_ANTI_AFFINITY, True), (SOFT_AFFINITY, False)):
        if group := instance.labels.get(label):
            there = [
                any(one.labels.get(label) == group and one.id != instance.id for one in residents)
                for residents in snapshot.residents
            ]
            if any(there):
                broken += np.array([member == is_apart for member in there], dtype=np.int64)
    return broken


def preferred(
    snapshot: ClusterSnapshot, instance: Instance, feasible: Sequence[int]
) -> tuple[list[int], tuple[Rejection, ...]]:
    """Those of the feasible hosts that break the fewest soft rules, and why the others come after them."""
    broken = soft_broken(snapshot, instance)[list(feasible)] if len(feasible) else np.zeros(0, dtype=np.int64)
    if not broken.any():
        return list(feasible), ()
    kept = [host for host, count in zip(feasible, broken, strict=True) if count == broken.min()]
    why = "keeps fewer soft rules (prefer_any, soft_affinity, soft_anti_affinity) than another host that can take it"
    others = sorted({snapshot.hosts[host].id for host in feasible} - {snapshot.hosts[host].id for host in kept})
    return kept, tuple(Rejection(name, "constraint.soft", why) for name in others)


def apply(
    snapshot: ClusterSnapshot, request: PlacementRequest, *, fresh_s: float
) -> tuple[list[int], tuple[Rejection, ...]]:
    """Positions of the hosts that can take the instance, and the first reason for every other host in question.

    When the request names hosts, only those are in question (rule 5); a named host that does not exist is rejected.
    """
    inputs = FilterInput.of(snapshot, request, fresh_s)
    remaining = inputs.at(request.hosts) if request.hosts is not None else ~inputs.nowhere()
    rejected: list[Rejection] = []
    for code, check in CHECKS:
        if not remaining.any():
            break
        refused, says = check(inputs)
        rejected_hosts = np.flatnonzero(remaining & refused).tolist()
        remaining[rejected_hosts] = False
        rejected += [Rejection(snapshot.hosts[host].id, code, says(host)) for host in rejected_hosts]
    unknown = {name for name in request.hosts or () if snapshot.index(name) is None}
    rejected += [Rejection(name, "host.unknown", "there is no host of this name") for name in unknown]
    return np.flatnonzero(remaining).tolist(), tuple(sorted(rejected, key=lambda rejection: rejection.host))
