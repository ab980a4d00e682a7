"""Schemas of announcements: an agent's host and the instances on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import ErrorDetails

from advisor.domain import MOST_ANNOUNCED, UUID, Announced, Announcement, Malformed
from api.schemas.base import (
    WHOLE,
    Amount,
    AnswerBody,
    Cpus,
    Id,
    Isolation,
    Labels,
    PinningMap,
    Positive,
    Schema,
    Text,
    Time,
    as_input,
    examples,
    in_words,
    to_settings,
)
from api.schemas.inventory import CPU_GROUPS, SIBLINGS, CpuList
from profiler.host_kinds import HostKind
from profiler.names import NO_CAP_PERCENT, real_limit
from profiler.observed import MAX_CPUS, DiskKind

_SKEW_S = 30.0  # a larger offset of a host's clock becomes a note
Seconds = Annotated[float, Field(strict=True, ge=1, le=86_400)]


class AnnouncedHost(Schema):
    """A host as its agent sees it; what it could not read is left out."""

    id: Id = Field(description="its name in the inventory")
    kind: HostKind | None = Field(default=None, description="the hypervisor; lxc stands for containers of any kind")
    pcpus: Cpus | None = Field(default=None, description="logical CPUs, hyper-threads counted")
    memory_mb: Positive | None = Field(default=None, description="memory in MB")
    threads_per_core: Annotated[int, Field(strict=True, ge=1, le=64), WHOLE] | None = Field(
        default=None, description="hyper-threads that share a core"
    )
    cpu_mhz: Positive | None = Field(default=None, description="nominal clock rate in MHz")
    turbo_mhz: Positive | None = Field(default=None, description="highest clock rate of a core in MHz")
    l2_mb: Positive | None = Field(default=None, description="one second-level cache in MB")
    l3_mb: Positive | None = Field(default=None, description="last-level caches of the whole host in MB")
    nic_mbit: Positive | None = Field(default=None, description="rate of the fastest link that is up, in Mbit/s")
    disk_kind: DiskKind = Field(default="", description="what the largest disk is")
    numa: list[CpuList] = Field(default=[], max_length=MAX_CPUS, description="pCPUs of each node; empty = one node")
    siblings: list[CpuList] = Field(default=[], max_length=MAX_CPUS, description=SIBLINGS)
    cpu_ids: CpuList = Field(default=[], description="numbers of its pCPUs where they have gaps; empty = from 0 on")
    isolated_cpus: CpuList = Field(default=[], description="pCPUs on which only what is pinned there runs")
    labels: Labels = Field(default={}, description="kernel, cpu_model, sockets, links, disks, agent")
    _malformed: Sequence[Malformed] = PrivateAttr(default=())

    @property
    def malformed(self) -> Sequence[Malformed]:
        """Fields that were sent and cannot be read."""
        return self._malformed

    def with_malformed(self, malformed: Sequence[Malformed]) -> AnnouncedHost:
        """The same host, of which these could not be read."""
        self._malformed = malformed
        return self


class AnnouncedInstance(Schema):
    """An instance that runs on the host; what could not be read is left out."""

    id: Id = Field(description="its name on the hypervisor, or the id that the inventory has")
    vcpus: Cpus | None = Field(default=None, description="virtual CPUs")
    memory_mb: Amount | None = Field(default=None, description="memory in MB")
    pinning: PinningMap | None = Field(default=None, description="which pCPUs each vCPU may use; null = any")
    isolation: Isolation | None = Field(default=None, description="what holds it back; null = not read yet")
    labels: Labels = Field(default={}, description="uuid, name, image, project, cgroup and what else is known")


def _or_malformed(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The instance, or what is wrong with it: the others of its host are taken all the same."""
    try:
        return handler(value)
    except ValidationError as error:
        facts = value if isinstance(value, dict) else {}
        labels = facts["labels"] if isinstance(facts.get("labels"), dict) else {}
        return replace(_malformed(error.errors()[0]), id=_known(facts.get("id")), uuid=_known(labels.get(UUID)))


def _without_malformed(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """The host without fields that are wrong; its id must be right."""
    try:
        return handler(value)
    except ValidationError as error:
        # Of labels only those that are wrong go.
        wrong = {one["loc"][: 2 if one["loc"][0] == "labels" else 1]: one for one in error.errors() if one["loc"]}
        if not wrong or ("id",) in wrong:
            raise
        facts = {name: one for name, one in value.items() if (name,) not in wrong}
        if isinstance(facts.get("labels"), dict):
            facts["labels"] = {name: one for name, one in facts["labels"].items() if ("labels", name) not in wrong}
        return handler(facts).with_malformed([_malformed(one, "host") for one in wrong.values()])


def _malformed(error: ErrorDetails, *within: str) -> Malformed:
    reason = "there is no such field" if error["type"] == "extra_forbidden" else in_words(error)
    return Malformed(_place((*within, *error["loc"])), reason, of_host="host" in within)


def _place(steps: Sequence[int | str]) -> str:
    return ".".join(str(step)[:80] for step in steps)


def _known(name: Any) -> str:
    return name if isinstance(name, str) else ""


OneAnnounced = Annotated[AnnouncedInstance, WrapValidator(_or_malformed)]


class AnnouncementBody(Schema):
    """What this host is, and its instances: all of them, as one that is not named is not there.

    A malformed instance is left out and named in the answer's notes, and so is a malformed field of the host.
    """

    model_config = examples(
        {
            "host": {"id": "h3", "kind": "kvm", "pcpus": 8, "memory_mb": 65536},
            "instances": [{"id": "shop-3", "vcpus": 2, "memory_mb": 4096, "isolation": {"cap_percent": 150}}],
            "machine": "7d3bbd9b2ab7d0f3",
            "every_s": 60,
            "time": "2026-01-31T12:00:00Z",
        }
    )

    host: Annotated[AnnouncedHost, WrapValidator(_without_malformed)] = Field(description="the host")
    instances: Annotated[list[OneAnnounced], Field(max_length=MOST_ANNOUNCED)] = Field(
        description="everything that runs there; an empty list = nothing does"
    )
    machine: Text = Field(default="", description="distinguishes two machines of one name; empty = unknown")
    every_s: Seconds = Field(default=60.0, description="seconds until the next announcement")
    time: Time = Field(description="the clock of the host")

    @as_input
    def to_domain(self) -> Announcement:
        """As facts: what is left out is not known, and what is malformed is named."""
        host = {name: value for name, value in self.host if value not in (None, "", [])}
        malformed = [replace(one, id=self.host.id) for one in self.host.malformed]
        instances = []
        for position, reported in enumerate(self.instances):
            one = reported if isinstance(reported, Malformed) else _facts(reported)
            if isinstance(one, Malformed):
                field = f"instances.{position}.{one.field}".rstrip(".")
                malformed.append(replace(one, field=field))
            else:
                instances.append(one)
        for name in CPU_GROUPS:
            if name in host:
                host[name] = tuple(tuple(sorted(set(cpus))) for cpus in host[name])
        host |= {name: tuple(sorted(set(host[name]))) for name in ("cpu_ids", "isolated_cpus") if name in host}
        return Announcement(
            host=host,
            instances=instances,
            machine=self.machine,
            every_s=self.every_s,
            time=self.time,
            malformed=malformed,
        )


def _facts(instance: AnnouncedInstance) -> dict[str, Any] | Malformed:
    facts: dict[str, Any] = {"id": instance.id, "labels": instance.labels}
    facts |= {name: value for name in ("vcpus", "memory_mb") if (value := getattr(instance, name)) is not None}
    if instance.isolation is not None:
        try:
            settings = to_settings(instance.isolation, instance.pinning)
        except ValueError as error:
            return Malformed("isolation", str(error), instance.id, instance.labels.get(UUID, ""))
        facts["settings"] = {
            "pinning": settings.pinning,
            "cap_percent": real_limit(settings.cap_percent, NO_CAP_PERCENT),  # older agents send libvirt's sentinel
            "weight": settings.weight,
            "network": settings.network,
            "disk_limit_mb_s": settings.disk_limit_mb_s,
        }
    return facts


class AnnouncementAnswer(AnswerBody):
    """What became of an announcement, by ids of instances."""

    host: str = Field(description="the host")
    new: list[str] = Field(description="instances that were not known")
    changed: list[str] = Field(description="instances of another size, with other settings, or that run again")
    moved: list[str] = Field(description="instances that were on another host")
    stopped: list[str] = Field(description="instances that are not there any more; their place is kept for an hour")
    gone: list[str] = Field(description="instances that were stopped for an hour, and are deleted")
    notes: list[str] = Field(description="what was not taken, and where this and another source disagree")

    @classmethod
    def of(cls, host: str, result: Announced, *, offset_s: float) -> AnnouncementAnswer:
        """From the domain; `offset_s` is how far the clock of the host is ahead."""
        notes = list(result.notes)
        if abs(offset_s) > _SKEW_S:
            where = "ahead" if offset_s > 0 else "behind"
            notes.append(f"the clock of {host} is {abs(offset_s):.0f} s {where}")
        lists = {name: list(getattr(result, name)) for name in ("new", "changed", "moved", "stopped", "gone")}
        return cls(host=host, notes=notes, **lists)
