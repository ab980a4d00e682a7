"""What a read of another system changes in the inventory: compared with what is stored, and written in one go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from sqlalchemy import Connection

from advisor.domain import UUID, Host, Instance, Inventory, IsolationSettings
from advisor.errors import InvalidInput
from advisor.inventories import writes as cloud
from advisor.inventories.reading import STOPPED_LOAD, CpuShares, Facts, Reading
from advisor.render import check_labels
from advisor.render.names import cgroup_version
from advisor.store import counters, hosts, instances
from advisor.validation import check_value, fitted
from profiler.demand import Demand, Resource
from profiler.host_kinds import LABELS as HUGE_PAGES
from profiler.observed import REQUIRE_LABEL

T = TypeVar("T", Host, Instance)
AGENT = "agent"  # the source of what agents announce
SOURCE = "source"  # the label that says which system a host or an instance came from
_OWN_CLOUD = f"{REQUIRE_LABEL}{SOURCE}"  # of instances of a cloud that has a name
DOMAIN = "domain"  # label: the name of an instance on its hypervisor, where the inventory has another id


@dataclass(frozen=True, slots=True)
class SyncDiff:
    """Hosts and instances to be put because they are new or changed, ids of those that are gone, the hosts that the
    source named (`reported`), and in sentences what could not be taken."""

    hosts: tuple[Host, ...] = ()
    instances: tuple[Instance, ...] = ()
    gone_hosts: tuple[str, ...] = ()
    gone_instances: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether the inventory stays as it is."""
        return not any(self.sizes().values())

    def sizes(self) -> dict[str, int]:
        """How many are put and how many are gone."""
        return {name: len(getattr(self, name)) for name in ("hosts", "instances", "gone_hosts", "gone_instances")}


def compare(reading: Reading, stored: Inventory) -> SyncDiff:
    """What a reading changes. Fields that the source leaves out stay as they are stored.

    Only what carries the source's name in its label `source` can be gone. A listing that is empty makes nothing gone:
    more likely the account or the region is not the right one.
    """
    reading = _known_again(reading, stored.instances)
    left_out = list(reading.left_out)
    hosts_were = {host.id: host for host in stored.hosts}
    reported = _made(reading.hosts, lambda facts: _host(facts, hosts_were.get(facts["id"]), reading), left_out)
    hosts_now = {**hosts_were, **{host.id: host for host in reported}}
    were = {instance.id: instance for instance in stored.instances}
    running = _made(
        reading.instances, lambda facts: _instance(facts, were.get(facts["id"]), hosts_now, reading, left_out), left_out
    )
    not_taken = {str(facts["id"]) for facts in reading.instances} - {instance.id for instance in running}
    from_source = {
        instance.id
        for instance in stored.instances
        if instance.labels.get(SOURCE) == reading.source and (reading.covers is None or instance.host in reading.covers)
    }
    gone_ids = (reading.gone & were.keys()) | _announced_before(stored.instances, {instance.id for instance in running})
    if reading.every_instance and from_source:
        absent = from_source - {instance.id for instance in running} - reading.unclear - not_taken
        gone_ids |= absent if reading.instances or reading.gone or reading.unclear else frozenset()
    still = {instance.id: instance.host for instance in stored.instances if instance.id not in gone_ids} | {
        instance.id: instance.host for instance in running
    }
    unpinned = _no_longer_fitting(
        reported, stored.instances, gone_ids | not_taken | {instance.id for instance in running}, left_out
    )
    gone_hosts = _gone_hosts(reading, stored.hosts, {host.id for host in reported}, set(still.values()), left_out)
    return SyncDiff(
        hosts=tuple(host for host in reported if hosts_were.get(host.id) != host),
        instances=(*(instance for instance in running if were.get(instance.id) != instance), *unpinned),
        gone_hosts=gone_hosts,
        gone_instances=tuple(sorted(gone_ids)),
        reported=tuple({host.id: None for host in reported} | dict.fromkeys(sorted(reading.heard))),
        left_out=tuple(left_out),
    )


def write(
    connection: Connection,
    news: SyncDiff,
    generation: int,
    *,
    now: datetime,
    fresh: timedelta,
    again: timedelta | None = None,
) -> int:
    """Carry it out and return the generation; StaleGeneration when the inventory is not at `generation` any more.

    `again` is how long the next news of these hosts may take, see `hosts.heard`.
    """
    if not news.is_nothing:
        inventory = Inventory(hosts=news.hosts, instances=news.instances)
        generation = cloud.put_all(connection, inventory, mode="merge", generation=generation, now=now)
        counters.note_changes(connection, generation, "instance", news.gone_instances)
        counters.note_changes(connection, generation, "host", news.gone_hosts)
        for name in news.gone_instances:
            instances.delete(connection, name)
        for name in news.gone_hosts:
            hosts.delete(connection, name)
        instances.drop_pending(connection, news.gone_instances)
    note_heard(connection, news, now=now, fresh=fresh, again=again)
    return generation


def note_heard(
    connection: Connection, news: SyncDiff, *, now: datetime, fresh: timedelta, again: timedelta | None = None
) -> None:
    """Note that these hosts were reported now; `again` as in `write`."""
    if hosts.heard(connection, dict.fromkeys(news.reported, now), now=now, fresh=fresh, again=again):
        counters.bump(connection, "sightings")


def stored(connection: Connection) -> tuple[Inventory, int]:
    """Hosts and instances as they are, and the generation that they are of."""
    inventory = Inventory(hosts=hosts.load_all(connection), instances=instances.load_all(connection))
    return inventory, counters.read(connection).inventory


def stored_around(connection: Connection, reading: Reading) -> tuple[Inventory, int]:
    """As `stored`, but only what a partial reading may touch."""
    names = {str(item["id"]) for item in reading.instances} | reading.gone
    reported = reading.gone_hosts | {str(item["id"]) for item in reading.hosts}  # whose CPUs may be others now
    nearby = {item.id: item for item in instances.on_hosts(connection, reported)}
    nearby |= {item.id: item for item in instances.get_many(connection, names)}
    host_ids = {str(item["id"]) for item in reading.hosts} | {str(item["host"]) for item in reading.instances}
    host_ids |= {item.host for item in nearby.values() if item.host} | reading.gone_hosts
    inventory = Inventory(hosts=hosts.get_many(connection, host_ids), instances=tuple(nearby.values()))
    return inventory, counters.read(connection).inventory


def _announced_before(stored: Sequence[Instance], reported: Collection[str]) -> frozenset[str]:
    """Ids of what an agent announced by its name, and a system now reports by its UUID, by which others know it."""
    return frozenset(
        instance.id
        for instance in stored
        if instance.labels.get(SOURCE) == AGENT
        and instance.labels.get(UUID) in reported
        and instance.labels[UUID] != instance.id
    )


def _known_again(reading: Reading, stored: Sequence[Instance]) -> Reading:
    """With the inventory's ids for instances that have a UUID: the id under which that UUID is stored, else its name,
    else, where another one has that name, the UUID itself.

    What an agent announced by its name is so the same instance for the source, and a name that turns up on a second
    host takes nothing from the first.
    """
    ids = {instance.id: instance.labels.get(UUID, "") for instance in stored}
    by_uuid = {uuid: name for name, uuid in ids.items() if uuid}
    uuids_by_name: dict[str, set[str]] = {}
    for facts in reading.instances:
        uuids_by_name.setdefault(str(facts["id"]), set()).add(str(facts.get("labels", {}).get(UUID, "")))

    def known(facts: Facts) -> Facts:
        name, uuid = str(facts["id"]), str(facts.get("labels", {}).get(UUID, ""))
        if not uuid:
            return facts
        own = uuid if uuid in ids else by_uuid.get(uuid)
        if own is None:
            own = uuid if len(uuids_by_name[name]) > 1 or ids.get(name) else name
        return facts if own == name else {**facts, "id": own, "labels": {DOMAIN: name, **facts["labels"]}}

    return replace(
        reading,
        instances=tuple(known(facts) for facts in reading.instances),
        unclear=frozenset(by_uuid.get(name, name) for name in reading.unclear),
    )


def _host(facts: Facts, former: Host | None, reading: Reading) -> Host:
    fields = {**facts, "labels": _labels(facts, former.labels if former else {}, reading)}
    if former is not None and "pcpus" in facts:
        fields = {**_cpus_left(former, facts), **fields}
    host = replace(former, **fields) if former else Host(**fields)
    if host != former:  # what is stored was checked
        check_value(host)
    _check_reported(host, facts)
    return host


def _cpus_left(former: Host, facts: Facts) -> Facts:
    """What is known of single CPUs of a host, for fields that its source leaves out: it must fit the CPUs reported
    now."""
    cpu_ids = tuple(facts.get("cpu_ids", former.cpu_ids if len(former.cpu_ids) == facts["pcpus"] else ()))
    now = cpu_ids or range(facts["pcpus"])
    kept = {
        name: tuple(cpu for cpu in getattr(former, name) if cpu in now) for name in ("driver_cpus", "isolated_cpus")
    }
    siblings = tuple(tuple(cpu for cpu in core if cpu in now) for core in former.siblings)
    return {**kept, "cpu_ids": cpu_ids, "siblings": siblings}


def _instance(
    facts: Facts, former: Instance | None, hosts: Mapping[str, Host], reading: Reading, notes: list[str]
) -> Instance:
    """A pin ends with its host unless the source says that it holds on the new one, too. Where the host lacks CPUs of a
    pin, a sentence in `notes` says what is left of it."""
    host = hosts.get(facts["host"])
    if host is None:
        raise ValueError(f"instance {facts['id']} is on host {facts['host']}, which is not known")
    settings = former.settings if former else IsolationSettings()
    reported = dict(facts.get("settings", {}))
    if isinstance(reported.get("weight"), CpuShares):
        reported["weight"] = reported["weight"].weight(cgroup_version(host))
    settings = replace(settings, **reported) if reported else settings
    labels = _labels(facts, former.labels if former else {}, reading)
    labels.pop(_OWN_CLOUD, None)
    if ":" in reading.source and host.labels.get(SOURCE) == reading.source:
        labels[_OWN_CLOUD] = reading.source  # no system moves it to the hosts of another cloud
    fields = {**facts, "settings": settings, "labels": labels}
    if former is None:
        instance = Instance(**fields)
    else:
        # What was stopped and is not any more runs again; any other load is from another source.
        woken = {"load": 1.0} if former.load == STOPPED_LOAD and "load" not in facts else {}
        demand = fitting(former.demand, facts.get("vcpus", former.vcpus))
        instance = replace(former, **{"demand": demand, **fields, **woken})
        if former.host != instance.host and "pinning" not in facts.get("settings", {}):
            instance = replace(instance, settings=replace(settings, pinning=None))
    instance, note = fitted(host, instance)
    notes += [note] if note else []
    pinning = instance.settings.pinning
    if pinning is not None and all(cpus == tuple(host.cpus) for cpus in pinning.cpus):
        instance = replace(instance, settings=replace(instance.settings, pinning=None))
    if instance != former:  # what is stored was checked
        check_value(instance)
    _check_reported(instance, facts)
    return instance


def _no_longer_fitting(
    reported: Sequence[Host], stored: Sequence[Instance], apart_from: Collection[str], notes: list[str]
) -> list[Instance]:
    """Other instances with what is left of their pins, where their host no longer has all of the CPUs."""
    by_id = {host.id: host for host in reported}
    found = []
    for instance in stored:
        if instance.host in by_id and instance.id not in apart_from:
            left, note = fitted(by_id[instance.host], instance)
            if note:
                notes.append(note)
                found.append(left)
    return found


def fitting(demands: Mapping[Resource, Demand], vcpus: int) -> Mapping[Resource, Demand]:
    """The demands of an instance, those that were measured within the vCPUs that it has now."""
    return {
        resource: demand.within(vcpus) if demand.origin == "measured" else demand
        for resource, demand in demands.items()
    }


def _check_reported(item: Host | Instance, facts: Facts) -> None:
    """Labels that are reported now: one that is stored already is no reason to lose sight of a host."""
    if facts.get("labels"):
        check_labels(replace(item, labels=facts["labels"]))


def _labels(facts: Facts, former: Mapping[str, str], reading: Reading) -> dict[str, str]:
    prefixes = tuple(name for name in reading.own_labels if name.endswith("."))
    others_labels = {
        name: value
        for name, value in former.items()
        if name not in reading.own_labels
        and (name in HUGE_PAGES or not (prefixes and name.startswith(prefixes)))  # agents report these
    }
    return {**others_labels, **facts.get("labels", {}), SOURCE: reading.source}


def _made(rows: Sequence[Facts], make: Callable[[Facts], T], left_out: list[str]) -> list[T]:
    """What the domain's types accept, each id once; a sentence in `left_out` for each other."""
    made: dict[str, T] = {}
    for facts in rows:
        try:
            item = make(facts)
        except (ValueError, InvalidInput) as error:
            left_out.append(str(error))
            continue
        if item.id in made:
            left_out.append(f"{item.id} is reported twice")
        made[item.id] = item
    return list(made.values())


def _gone_hosts(
    reading: Reading, stored_hosts: Sequence[Host], reported: set[str], in_use: set[str | None], left_out: list[str]
) -> tuple[str, ...]:
    if reading.partial:
        return tuple(sorted((reading.gone_hosts & {host.id for host in stored_hosts}) - in_use))
    if not reading.every_host or not reading.hosts:
        return ()
    listed = {str(facts["id"]) for facts in reading.hosts}
    from_source = {host.id for host in stored_hosts if host.labels.get(SOURCE) == reading.source}
    absent = from_source - reported - listed
    left_out += [f"host {name} is gone, but still holds instances; it is kept" for name in sorted(absent & in_use)]
    return tuple(sorted(absent - in_use))
