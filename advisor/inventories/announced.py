"""What an agent reports of its host and its instances, compared with what is stored.

Several sources may tell of one thing. What was written down by hand or over REST wins, then the system that is synced
(such as OpenStack), then the agent, which fills in what the others leave open. Where an instance runs is another
matter: a file says where it was, so there the agent comes before it. The label `source` says where a thing is from, and
`source.FIELD` which single fields the agent filled in.

A token that is bound to a host speaks for what is on that host by another source's word, or by its own announcement
that no other host contests: the UUID must be that of the instance, and its former host must no longer report it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from advisor.domain import (
    ANNOUNCED,
    MOST_ANNOUNCED,
    STOPPED_AT,
    UUID,
    Announced,
    Announcement,
    Host,
    Instance,
    IsolationSettings,
)
from advisor.errors import Conflict, InvalidInput
from advisor.inventories.reading import STOPPED_LOAD, Facts
from advisor.inventories.sync import AGENT, DOMAIN, SOURCE, SyncDiff, fitting
from advisor.render import check_labels
from advisor.validation import check_value, fitted
from profiler import host_kinds
from profiler.host_kinds import as_said
from profiler.observed import format_cpus

T = TypeVar("T", Host, Instance)
MACHINE, DISAGREEMENT, LEFT_OUT = "machine", "disagreement", "left_out"
MOST_MALFORMED = 100  # sentences of one answer about what cannot be read
GONE_AFTER = timedelta(hours=1)  # an instance that is not seen keeps its place for so long; a move takes less
_BARE_HOST, _BARE_INSTANCE = Host("h", "kvm", 1, 1.0), Instance("i")  # the fields that are not stated
_OF_CONTAINERS = 1000.0  # vCPUs for each CPU: a container without a limit may use every CPU, and is promised none
_ALIKE = 0.1  # two sources may differ by so much of the larger: firmware keeps some memory for itself
_ALWAYS_SAID = ("kind", "pcpus", "vcpus")  # no source leaves them open …
_COMPARED = (*_ALWAYS_SAID, "memory_mb")  # … and a difference of these is reported
# Labels that the service sets itself, or that say who may change what; no agent may.
_RESERVED = frozenset({SOURCE, STOPPED_AT, MACHINE, DISAGREEMENT, LEFT_OUT, DOMAIN})
_OF_CPUS = ("cpu_ids", "isolated_cpus", "numa", "siblings")  # what is said of single CPUs of a host
_OWN_HOST_LABELS = frozenset(
    {"kernel", "cpu_model", "sockets", "links", "disks", "xen", "scheduler", "cgroup_version", "agent", MACHINE}
    | {label for label in host_kinds.LABELS if label.startswith(host_kinds.HAS)}
    | {f"{name}_by_node" for name in host_kinds.PAGES_MB}
)


@dataclass(frozen=True, slots=True)
class Around:
    """What is stored around an announcement: its host (None = new), the instances there or reported, the hosts of
    those, and which hosts are silent. `owners` are the ids of instances by their UUID."""

    host: Host | None
    instances: Mapping[str, Instance]
    hosts: Mapping[str, Host]
    silent: frozenset[str]
    owners: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Notes:
    """What cannot be taken, and where sources disagree."""

    left_out: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)


def compare(announcement: Announcement, around: Around, now: datetime) -> tuple[SyncDiff, Announced]:
    """What is to be written, and what becomes of an announcement.

    Conflict where another machine that is not silent goes by the name of the host.
    """
    if len(announcement.instances) > MOST_ANNOUNCED:
        message = f"{len(announcement.instances)} instances on one host, at most {MOST_ANNOUNCED} are taken"
        raise InvalidInput(message, field="instances")
    _check_machine(announcement, around)
    notes = _Notes()
    malformed = _sentences([one.sentence for one in announcement.malformed])
    notes.left_out += malformed
    announcement = _without_reserved(announcement, notes)
    bare = _host(announcement, around.host, notes)
    kinds: dict[str, list[str]] = {name: [] for name in ANNOUNCED}
    put: list[Instance] = []
    refused = 0
    names: set[str] = set()
    all_facts = [_known_as(reported_facts, around) for reported_facts in announcement.instances]
    unclear = _unclear(announcement, around)
    evicted, room = _room(bare.id, {str(facts["id"]) for facts in all_facts} | unclear, around)
    for facts in all_facts:
        name = str(facts["id"])
        if name in names:
            notes.left_out.append(f"{name} is reported twice")
            continue
        names.add(name)
        former = around.instances.get(name)
        arrives = former is None or former.host != bare.id
        if arrives and room <= 0:
            refused += 1
            continue
        try:
            instance = _instance(facts, bare, around, announcement.bound, notes)
        except (ValueError, InvalidInput) as error:
            notes.left_out.append(str(error))
            continue
        if instance is None or instance == former:
            continue
        put.append(instance)
        room -= arrives
        kinds["new" if former is None else "moved" if former.host not in {None, bare.id} else "changed"].append(name)
    known = names | unclear
    for instance in around.instances.values():
        if instance.host == bare.id and instance.id not in known:
            kind, left = _no_longer_reported(bare, instance, now, notes, at_once=instance.id in evicted)
            kinds[kind] += [] if left == instance else [instance.id]
            if left is not None and left != instance:
                put.append(left)
    if refused:
        notes.left_out.append(
            f"{refused} more on {bare.id} are left out: at most {MOST_ANNOUNCED} on one host are kept"
        )
    host = _marked(_marked(bare, DISAGREEMENT, notes.differing), LEFT_OUT, malformed)
    diff = SyncDiff(
        hosts=() if host == around.host else (host,),
        instances=tuple(put),
        gone_instances=tuple(sorted(kinds["gone"])),
        reported=(host.id,),
        left_out=tuple(notes.left_out),
    )
    by_kind = {name: tuple(sorted(ids)) for name, ids in kinds.items()}
    return diff, Announced(**by_kind, notes=(*notes.left_out, *notes.differing))


def owners(instances: Iterable[Instance]) -> dict[str, str]:
    """Ids of these by the UUID that their label has."""
    return {instance.labels[UUID]: instance.id for instance in instances if instance.labels.get(UUID)}


def _sentences(sentences: list[str]) -> list[str]:
    more = len(sentences) - MOST_MALFORMED
    return sentences if more <= 0 else [*sentences[:MOST_MALFORMED], f"{more} more cannot be read"]


def _unclear(announcement: Announcement, around: Around) -> frozenset[str]:
    """Ids of those on the host that a malformed instance may be: they are as they are stored, and not stopped. One
    without an id and a UUID may be any of them."""
    malformed = [one for one in announcement.malformed if not one.of_host]
    named = {one.id for one in malformed} | {one.uuid for one in malformed}
    any_of_them = any(not (one.id or one.uuid) for one in malformed)
    return frozenset(
        one.id
        for one in around.instances.values()
        if one.host == announcement.host_id
        and (any_of_them or named & {one.id, one.labels.get(DOMAIN, one.id), one.labels.get(UUID, one.id)})
    )


def _without_reserved(announcement: Announcement, notes: _Notes) -> Announcement:
    """Without labels that only the service and other sources set."""

    def plain(facts: Facts) -> Facts:
        labels = facts.get("labels", {})
        reserved = sorted(name for name in labels if name in _RESERVED or name.startswith(f"{SOURCE}."))
        if not reserved:
            return facts
        notes.left_out.append(f"{facts['id']}: the label {reserved[0]} is reserved, and is dropped")
        return {**facts, "labels": {name: text for name, text in labels.items() if name not in reserved}}

    return replace(
        announcement, host=plain(announcement.host), instances=[plain(facts) for facts in announcement.instances]
    )


def _room(host: str, names: Collection[str], around: Around) -> tuple[frozenset[str], int]:
    """How many more instances the host may have, of MOST_ANNOUNCED in all, and which must go at once for that: those of
    its agent that it no longer reports and that only keep their place, the longest stopped first."""
    here = [instance for instance in around.instances.values() if instance.host == host]
    arriving = len(set(names) - {instance.id for instance in here})
    missing = sorted(
        (one for one in here if one.id not in names and one.labels.get(SOURCE) == AGENT),
        key=lambda one: (one.labels.get(STOPPED_AT, "~"), one.id),
    )
    too_many = max(len(here) + arriving - MOST_ANNOUNCED, 0)
    evicted = frozenset(one.id for one in missing[:too_many])
    return evicted, MOST_ANNOUNCED - len(here) + len(evicted)


def _known_as(facts: Facts, around: Around) -> Facts:
    """With the id of the inventory: clouds such as Nova know a VM by the UUID of its domain, and so does libvirt where
    two VMs have one name."""
    labels = facts.get("labels", {})
    uuid, namesake = labels.get(UUID), around.instances.get(str(facts["id"]))
    if uuid not in around.instances or (namesake is not None and namesake.labels.get(UUID, uuid) == uuid):
        return facts
    return {**facts, "id": uuid, "labels": {**labels, DOMAIN: facts["id"]}}


def _check_machine(announcement: Announcement, around: Around) -> None:
    known = around.host.labels.get(MACHINE) if around.host else None
    if known and announcement.machine not in {"", known} and announcement.host_id not in around.silent:
        message = (
            f"another machine already announces itself as {announcement.host_id}: give each its own name with --host, "
            "or wait until the former one has been silent for some minutes"
        )
        raise Conflict(message, field="machine")


def _host(announcement: Announcement, former: Host | None, notes: _Notes) -> Host:
    labels = dict(announcement.host.get("labels", {}))
    if announcement.machine:
        labels[MACHINE] = announcement.machine
    plain = {name: value for name, value in announcement.host.items() if name not in {"labels", *_OF_CPUS}}
    facts = {**plain, **_cpus(announcement.host, former, announcement.host_id, notes)}
    own = former is None or _is_agents(former, "")
    if (facts.get("kind") if own else former and former.kind) == "lxc":
        facts["cpu_overcommit"] = _OF_CONTAINERS
    if former is None:
        for name in ("kind", "pcpus", "memory_mb"):
            if name not in facts:
                message = f"host {announcement.host_id} is new and its {name} could not be read; put the host first"
                raise InvalidInput(message, field=f"host.{name}")
        host = Host(**facts, labels={**labels, SOURCE: AGENT})
    else:
        others_labels = {name: text for name, text in former.labels.items() if name not in _OWN_HOST_LABELS}
        # Of a label that others may use, too, the agent's word counts only where the host is its own.
        labels = {**others_labels, **labels} if _is_agents(former, "") else {**labels, **others_labels}
        host = _merged(replace(former, labels=labels), _one_clock(facts, former), _BARE_HOST, notes)
    if host != former:
        check_value(host)
        check_labels(host)
    return host


def _one_clock(facts: Facts, former: Host) -> Facts:
    """Without a turbo clock where the nominal one that it belongs to is not that of the inventory.

    libvirt and some clouds report the clock of the moment, beside which any turbo looks far away.
    """
    nominal = former.cpu_mhz
    if _is_agents(former, "cpu_mhz") or nominal is None or _is_alike(nominal, facts.get("cpu_mhz", 0.0)):
        return facts
    others = {name: value for name, value in facts.items() if name != "turbo_mhz"}
    return {**others, "turbo_mhz": None} if _is_agents(former, "turbo_mhz") else others


def _cpus(facts: Facts, former: Host | None, name: str, notes: _Notes) -> Facts:
    """What the agent says of single CPUs, without CPUs that the host does not have by its count and their numbers."""

    def is_agents(field_name: str) -> bool:
        return former is None or _is_agents(former, "") or _is_agents(former, field_name)

    pcpus = facts.get("pcpus", 0) if is_agents("pcpus") or former is None else former.pcpus
    if not pcpus:
        return {}
    cpu_ids = tuple(facts.get("cpu_ids", ()))
    if former is not None and former.cpu_ids and not is_agents("cpu_ids"):
        cpu_ids = former.cpu_ids
    elif cpu_ids and (
        len(cpu_ids) != pcpus or (former and not is_agents("driver_cpus") and {*former.driver_cpus} - {*cpu_ids})
    ):
        notes.left_out.append(f"the CPU numbers {format_cpus(cpu_ids)} of {name} do not fit its {pcpus} CPUs")
        cpu_ids = ()
    there = frozenset(cpu_ids or range(pcpus))
    known: dict[str, Any] = {"cpu_ids": cpu_ids}
    if former is not None and former.driver_cpus and is_agents("driver_cpus"):
        known["driver_cpus"] = tuple(cpu for cpu in former.driver_cpus if cpu in there)
    isolated, numa = tuple(facts.get("isolated_cpus", ())), tuple(facts.get("numa", ()))
    siblings = tuple(facts.get("siblings", ()))
    absent = {cpu for cpus in (isolated, *numa, *siblings) for cpu in cpus} - there
    if absent:
        notes.left_out.append(f"{name} has no CPU {format_cpus(frozenset(absent))}, which its agent names")
    known["isolated_cpus"] = tuple(cpu for cpu in isolated if cpu in there)
    known["numa"], siblings = (
        tuple(tuple(cpu for cpu in group if cpu in there) for group in groups) for groups in (numa, siblings)
    )
    try:
        _, known["siblings"] = as_said("", pcpus, cpu_ids, known["numa"], siblings)
    except ValueError as error:
        notes.left_out.append(f"which CPUs of {name} share a core: {error}")
        known["siblings"] = ()
    return {field: value for field, value in known.items() if value or is_agents(field)}


def _instance(facts: Facts, host: Host, around: Around, bound: bool, notes: _Notes) -> Instance | None:
    """The instance as it is now, None = this word of it does not count."""
    former = around.instances.get(str(facts["id"]))
    labels = _own_labels(facts, host, around, notes)
    settings = replace(IsolationSettings(), **facts.get("settings", {}))
    plain = {name: value for name, value in facts.items() if name not in {"labels", "settings"}}
    if former is None:
        instance = Instance(**plain, host=host.id, settings=settings, labels={**labels, SOURCE: AGENT})
    else:
        if former.host != host.id and not _may_move(former, labels, host, around, bound, notes):
            return None
        instance = _awake(former)
        if former.host != host.id:  # a pin ends with its host and does not hold on another one
            instance = replace(instance, host=host.id, settings=replace(instance.settings, pinning=None))
            instance = _filled_in(instance, ["host"])
        instance = _merged(instance, plain, _BARE_INSTANCE, notes)
        is_own = _is_agents(former, "")
        instance = replace(instance, labels={**instance.labels, **labels} if is_own else {**labels, **instance.labels})
        if "settings" in facts and (_is_agents(instance, "settings") or instance.settings == IsolationSettings()):
            instance = replace(
                instance, settings=replace(settings, network=settings.network or instance.settings.network)
            )
            instance = instance if instance.settings == IsolationSettings() else _filled_in(instance, ["settings"])
        instance = replace(instance, demand=fitting(instance.demand, instance.vcpus))
    if instance == former and host == around.host:  # most are as they were
        return instance
    instance, note = fitted(host, instance)
    notes.left_out += [note] if note else []
    if instance == former:
        return instance
    check_value(instance)
    check_labels(instance)
    return instance


def _own_labels(facts: Facts, host: Host, around: Around, notes: _Notes) -> dict[str, str]:
    """Its labels, without a UUID by which an instance elsewhere is known."""
    labels = dict(facts.get("labels", {}))
    owner = around.instances.get(around.owners.get(labels.get(UUID, ""), ""))
    if owner is not None and owner.id != facts["id"] and owner.host not in {None, host.id}:
        notes.differing.append(f"{facts['id']} has the UUID of {owner.id} on {owner.host}; it counts without one")
        del labels[UUID]
    return labels


def _may_move(
    former: Instance, labels: Mapping[str, str], host: Host, around: Around, bound: bool, notes: _Notes
) -> bool:
    """Whether this host's word counts for an instance that is stored elsewhere, or nowhere."""
    stored_uuid, uuid = former.labels.get(UUID, former.id if DOMAIN in labels else None), labels.get(UUID)
    where = former.host or "no host"
    if stored_uuid and uuid and stored_uuid != uuid:
        notes.differing.append(
            f"{former.id} on {host.id} is not the {former.id} on {where} (their UUIDs differ); rename one of them"
        )
        return False
    source, agents = former.labels.get(SOURCE, ""), _is_agents(former, "host")
    if source and not agents and (bound or former.host is not None):
        notes.differing.append(f"{former.id} runs here, but {source} says that it is on {where}")
        return False
    if former.host is None:
        return True
    stored_host = around.hosts.get(where)
    has_agent = stored_host is not None and stored_host.labels.get(MACHINE, "") != "" and where not in around.silent
    released = STOPPED_AT in former.labels
    if has_agent and not released:
        notes.differing.append(f"{former.id} is also reported by {where}; it moves here when {where} no longer has it")
        return False
    same_uuid = bool(uuid) and uuid == stored_uuid
    if bound and not (same_uuid and (agents or released)) and not (agents and released and not (uuid or stored_uuid)):
        says = "no UUID shows that it is the same" if agents else "it was written down there"
        notes.differing.append(f"{former.id} runs here, but it is on {where}, and {says}: move it in the inventory")
        return False
    return True


def _no_longer_reported(
    host: Host, instance: Instance, now: datetime, notes: _Notes, *, at_once: bool
) -> tuple[str, Instance | None]:
    """What becomes of one that its host does not report, and how it is then; None = it is gone, `at_once` or by now."""
    now_stopped = None if at_once else _missing(instance, now, notes)
    if now_stopped is None:
        return "gone", None
    left, note = fitted(host, now_stopped)
    notes.left_out += [note] if note else []
    return ("changed" if now_stopped == instance else "stopped"), left


def _missing(instance: Instance, now: datetime, notes: _Notes) -> Instance | None:
    """An instance that its host no longer reports: stopped at first, None = gone.

    One that was written down is only marked, so that another host's agent may claim it.
    """
    agents, stopped_at = _is_agents(instance, "host"), instance.labels.get(STOPPED_AT)
    if not agents:
        if instance.labels.get(SOURCE):
            return instance
        notes.differing.append(f"{instance.id} is written down here, but does not run")
    if stopped_at is None:
        labels = {**instance.labels, STOPPED_AT: now.isoformat(timespec="seconds")}
        return replace(instance, labels=labels, load=STOPPED_LOAD if agents else instance.load)
    if instance.labels.get(SOURCE) == AGENT and now - _time(stopped_at, now) >= GONE_AFTER:
        return None
    return instance


def _awake(former: Instance) -> Instance:
    """What was stopped and is seen again runs again; any other load is from another source."""
    if STOPPED_AT not in former.labels:
        return former
    labels = {name: text for name, text in former.labels.items() if name != STOPPED_AT}
    return replace(former, labels=labels, load=1.0 if former.load == STOPPED_LOAD else former.load)


def _merged(former: T, facts: Facts, bare: T, notes: _Notes) -> T:
    """With the facts that the agent may report of it: all of its own, and elsewhere what is not stated."""
    own_fields = {entry.name for entry in fields(former)}
    changed: dict[str, Any] = {}
    filled: list[str] = []
    for name in sorted(facts.keys() & own_fields - {"id", "host"}):
        stored, value = getattr(former, name), facts[name]
        if _is_agents(former, "") or _is_agents(former, name):
            changed[name] = value
        elif stored == getattr(bare, name) and name not in _ALWAYS_SAID:
            changed[name] = value
            filled.append(name)
        elif name in _COMPARED and not _is_alike(stored, value):
            notes.differing.append(f"{name} of {former.id} is {_shown(stored)} in the inventory, {_shown(value)} here")
    return _filled_in(replace(former, **changed), filled)


def _filled_in(item: T, names: Iterable[str]) -> T:
    """With the note that the agent says so of these fields, where the whole is not its own anyway."""
    if _is_agents(item, ""):
        return item
    return replace(item, labels={**item.labels, **{f"{SOURCE}.{name}": AGENT for name in names}})


def _is_agents(item: Host | Instance, name: str) -> bool:
    """Whether the agent reports all of it, or of this field."""
    return item.labels.get(SOURCE) == AGENT or (bool(name) and item.labels.get(f"{SOURCE}.{name}") == AGENT)


def _marked(host: Host, label: str, sentences: Sequence[str]) -> Host:
    """With one of the sentences, and how many more there are, in a label; without the label where there is none."""
    labels = {name: text for name, text in host.labels.items() if name != label}
    if sentences:
        more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
        labels[label] = (min(sentences)[: 250 - len(more)]) + more
    return replace(host, labels=labels)


def _is_alike(stored: Any, value: Any) -> bool:
    if isinstance(stored, str):
        return bool(stored == value)
    return bool(abs(stored - value) <= _ALIKE * max(abs(stored), abs(value)))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _time(text: str, now: datetime) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return now - GONE_AFTER
