"""What an agent tells of its host and of who is on it, compared with what is stored.

Several sources may tell of one thing. What was written down by hand or over REST wins, then the system that is synced
(OpenStack, CloudStack …), then the agent, which fills in what the others leave open. Where an instance runs is another
matter: a file says where it was, so there the agent comes before it. The label `source` says where a thing is from, and
`source.FIELD` which single fields the agent filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from advisor.domain import ANNOUNCED, MOST_ANNOUNCED, UUID, Announced, Announcement, Host, Instance, IsolationSettings
from advisor.errors import Conflict, InvalidInput
from advisor.inventories.reading import STOPPED_LOAD, Facts
from advisor.inventories.sync import AGENT, DOMAIN, SOURCE, SyncDiff
from advisor.render import check_labels
from advisor.validation import check_value, misfit
from profiler.demand import Demand, Resource

T = TypeVar("T", Host, Instance)
STOPPED_AT, MACHINE, DISAGREEMENT = "stopped_at", "machine", "disagreement"
GONE_AFTER = timedelta(hours=1)  # an instance that is not seen keeps its place for so long; a move takes less
_BARE_HOST, _BARE_INSTANCE = Host("h", "kvm", 1, 1.0), Instance("i")  # what a field is that nobody has said
_OF_CONTAINERS = 1000.0  # vCPUs for each CPU: a container without a limit may use every CPU, and is promised none
_ALIKE = 0.1  # two sources may differ by so much of the larger: firmware keeps some memory for itself
_ALWAYS_SAID = ("kind", "pcpus", "vcpus")  # no source leaves them open …
_COMPARED = (*_ALWAYS_SAID, "memory_mb")  # … and a difference of these is told
_OWN_HOST_LABELS = frozenset({"kernel", "cpu_model", "sockets", "links", "disks", "xen", "scheduler", "agent", MACHINE})


@dataclass(frozen=True, slots=True)
class Around:
    """What is stored around an announcement: its host (None = new), who is there or is told of, the hosts of those, and
    which hosts are silent."""

    host: Host | None
    instances: Mapping[str, Instance]
    hosts: Mapping[str, Host]
    silent: frozenset[str]


@dataclass(slots=True)
class _Notes:
    """What cannot be taken, and where sources disagree."""

    left_out: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)


def compare(told: Announcement, around: Around, now: datetime) -> tuple[SyncDiff, Announced]:
    """What is to be written, and what becomes of an announcement.

    Conflict where another machine that is not silent goes by the name of the host.
    """
    if len(told.instances) > MOST_ANNOUNCED:
        message = f"{len(told.instances)} instances on one host, at most {MOST_ANNOUNCED} are taken"
        raise InvalidInput(message, field="instances")
    _check_machine(told, around)
    notes = _Notes()
    bare = _host(told, around.host, notes)
    kinds: dict[str, list[str]] = {name: [] for name in ANNOUNCED}
    put: list[Instance] = []
    names: set[str] = set()
    for one in told.instances:
        facts = _known_as(one, around)
        name = str(facts["id"])
        if name in names:
            notes.left_out.append(f"{name} is told twice")
            continue
        names.add(name)
        try:
            former, instance = around.instances.get(name), _instance(facts, bare, around, notes)
        except (ValueError, InvalidInput) as error:
            notes.left_out.append(str(error))
            continue
        if instance is None or instance == former:
            continue
        put.append(instance)
        kinds["new" if former is None else "moved" if former.host not in {None, bare.id} else "changed"].append(name)
    for instance in around.instances.values():
        if instance.host == bare.id and instance.id not in names:
            now_stopped = _missing(instance, now, notes)
            if now_stopped is None:
                kinds["gone"].append(instance.id)
            elif now_stopped != instance:
                kinds["stopped"].append(instance.id)
                put.append(now_stopped)
    host = _with_disagreement(bare, notes.differing)
    news = SyncDiff(
        hosts=() if host == around.host else (host,),
        instances=tuple(put),
        gone_instances=tuple(sorted(kinds["gone"])),
        told=(host.id,),
        left_out=tuple(notes.left_out),
    )
    by_kind = {name: tuple(sorted(ids)) for name, ids in kinds.items()}
    return news, Announced(**by_kind, notes=(*notes.left_out, *notes.differing))


def _known_as(facts: Facts, around: Around) -> Facts:
    """With the id of the inventory: Nova and CloudStack know a VM by the UUID of its domain, and so does libvirt where
    two VMs have one name."""
    labels = facts.get("labels", {})
    uuid, namesake = labels.get(UUID), around.instances.get(str(facts["id"]))
    if uuid not in around.instances or (namesake is not None and namesake.labels.get(UUID, uuid) == uuid):
        return facts
    return {**facts, "id": uuid, "labels": {**labels, DOMAIN: facts["id"]}}


def _check_machine(told: Announcement, around: Around) -> None:
    known = around.host.labels.get(MACHINE, "") if around.host else ""
    if known and told.machine and known != told.machine and told.host_id not in around.silent:
        message = (
            f"another machine already announces itself as {told.host_id}: give each its own name with --host, "
            "or wait until the former one has been silent for some minutes"
        )
        raise Conflict(message, field="machine")


def _host(told: Announcement, former: Host | None, notes: _Notes) -> Host:
    labels = {**told.host.get("labels", {}), **({MACHINE: told.machine} if told.machine else {})}
    facts = {name: value for name, value in told.host.items() if name != "labels"}
    own = former is None or _is_agents(former, "")
    if (facts.get("kind") if own else former and former.kind) == "lxc":
        facts["cpu_overcommit"] = _OF_CONTAINERS
    if former is None:
        for name in ("kind", "pcpus", "memory_mb"):
            if name not in facts:
                message = f"host {told.host_id} is new and its {name} could not be read; put the host first"
                raise InvalidInput(message, field=f"host.{name}")
        host = Host(**facts, labels={**labels, SOURCE: AGENT})
    else:
        kept = {name: text for name, text in former.labels.items() if name not in _OWN_HOST_LABELS}
        # Of a label that others may use, too, the agent's word counts only where the host is its own.
        labels = {**kept, **labels} if _is_agents(former, "") else {**labels, **kept}
        host = _merged(replace(former, labels=labels), facts, _BARE_HOST, notes)
    if host != former:
        check_value(host)
        check_labels(host)
    return host


def _instance(facts: Facts, host: Host, around: Around, notes: _Notes) -> Instance | None:
    """The instance as it is now, None = this word of it does not count."""
    former = around.instances.get(str(facts["id"]))
    labels = dict(facts.get("labels", {}))
    settings = replace(IsolationSettings(), **facts.get("settings", {}))
    plain = {name: value for name, value in facts.items() if name not in {"labels", "settings"}}
    if former is None:
        made = Instance(**plain, host=host.id, settings=settings, labels={**labels, SOURCE: AGENT})
    else:
        if former.host not in {None, host.id} and not _may_move(former, labels, host, around, notes):
            return None
        made = _awake(former)
        if former.host != host.id:  # a pin ends with its host: nobody has said that it holds on another one
            made = replace(made, host=host.id, settings=replace(made.settings, pinning=None))
            made = _filled_in(made, ["host"])
        made = _merged(made, plain, _BARE_INSTANCE, notes)
        mine = _is_agents(former, "")
        made = replace(made, labels={**made.labels, **labels} if mine else {**labels, **made.labels})
        if "settings" in facts and (_is_agents(made, "settings") or made.settings == IsolationSettings()):
            made = replace(made, settings=replace(settings, network=settings.network or made.settings.network))
            made = made if made.settings == IsolationSettings() else _filled_in(made, ["settings"])
        made = replace(made, demand=_fitting(made.demand, made.vcpus))
    if made == former and host == around.host:  # most are as they were
        return made
    problem = misfit(host, [made])
    if problem:
        made = replace(made, settings=replace(made.settings, pinning=None))
    check_value(made)
    check_labels(made)
    return made


def _may_move(former: Instance, labels: Mapping[str, str], host: Host, around: Around, notes: _Notes) -> bool:
    """Whether this host's word counts for an instance that is stored elsewhere."""
    known, told = former.labels.get(UUID, former.id if DOMAIN in labels else None), labels.get(UUID)
    where = str(former.host)
    if known and told and known != told:
        notes.left_out.append(
            f"{former.id} on {host.id} is not the {former.id} on {where} (their UUIDs differ); rename one of them"
        )
        return False
    source = former.labels.get(SOURCE, "")
    if source and not _is_agents(former, "host"):
        notes.differing.append(f"{former.id} runs here, but {source} says that it is on {where}")
        return False
    there = around.hosts.get(where)
    has_agent = there is not None and there.labels.get(MACHINE, "") != "" and where not in around.silent
    if has_agent and _is_agents(former, "host") and STOPPED_AT not in former.labels:
        notes.left_out.append(f"{former.id} is also told by {where}; it moves here when {where} no longer has it")
        return False
    return True


def _missing(instance: Instance, now: datetime, notes: _Notes) -> Instance | None:
    """An instance that its host no longer tells of: stopped at first, None = gone."""
    if not _is_agents(instance, "host"):
        if not instance.labels.get(SOURCE):
            notes.differing.append(f"{instance.id} is written down here, but does not run")
        return instance
    stopped_at = instance.labels.get(STOPPED_AT)
    if stopped_at is None:
        stamp = now.isoformat(timespec="seconds")
        return replace(instance, load=STOPPED_LOAD, labels={**instance.labels, STOPPED_AT: stamp})
    if instance.labels.get(SOURCE) == AGENT and now - _time(stopped_at, now) >= GONE_AFTER:
        return None
    return instance


def _awake(former: Instance) -> Instance:
    """What was stopped and is seen again runs again; any other load is somebody else's word."""
    if STOPPED_AT not in former.labels:
        return former
    labels = {name: text for name, text in former.labels.items() if name != STOPPED_AT}
    return replace(former, labels=labels, load=1.0 if former.load == STOPPED_LOAD else former.load)


def _merged(former: T, facts: Facts, bare: T, notes: _Notes) -> T:
    """With the facts that the agent may tell of it: all of its own, and elsewhere what nobody has said."""
    known = {one.name for one in fields(former)}
    taken: dict[str, Any] = {}
    filled: list[str] = []
    for name in sorted(facts.keys() & known - {"id", "host"}):
        stored, value = getattr(former, name), facts[name]
        if _is_agents(former, "") or _is_agents(former, name):
            taken[name] = value
        elif stored == getattr(bare, name) and name not in _ALWAYS_SAID:
            taken[name] = value
            filled.append(name)
        elif name in _COMPARED and not _is_alike(stored, value):
            notes.differing.append(f"{name} of {former.id} is {_shown(stored)} in the inventory, {_shown(value)} here")
    return _filled_in(replace(former, **taken), filled)


def _filled_in(one: T, names: Iterable[str]) -> T:
    """With the note that the agent says so of these fields, where the whole is not its own anyway."""
    if _is_agents(one, ""):
        return one
    return replace(one, labels={**one.labels, **{f"{SOURCE}.{name}": AGENT for name in names}})


def _is_agents(one: Host | Instance, name: str) -> bool:
    """Whether the agent tells of all of it, or of this field."""
    return one.labels.get(SOURCE) == AGENT or (bool(name) and one.labels.get(f"{SOURCE}.{name}") == AGENT)


def _with_disagreement(host: Host, differing: Sequence[str]) -> Host:
    labels = {name: text for name, text in host.labels.items() if name != DISAGREEMENT}
    if differing:
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        labels[DISAGREEMENT] = (min(differing)[: 250 - len(more)]) + more
    return replace(host, labels=labels)


def _fitting(demand: Mapping[Resource, Demand], vcpus: int) -> Mapping[Resource, Demand]:
    return {resource: one.within(vcpus) if one.origin == "measured" else one for resource, one in demand.items()}


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
