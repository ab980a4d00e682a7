"""What the agent of a host tells of it and of who is on it, and what became of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

UUID = "uuid"  # label: what tells two instances of one name apart
STOPPED_AT = "stopped_at"  # label: since when no source reports it; it keeps its place for an hour
MOST_ANNOUNCED = 5_000  # instances on one host
PATIENCE = 5  # announcements that may be missing before the silence of a host counts …
LEAST_PATIENCE = timedelta(minutes=5)  # … and at least so long
ANNOUNCED = ("new", "changed", "moved", "stopped", "gone")  # what may happen to an instance


@dataclass(frozen=True, slots=True)
class Malformed:
    """A field of an announcement that cannot be read, with the id and the UUID of its instance as far as these can."""

    field: str
    reason: str
    id: str = ""
    uuid: str = ""
    of_host: bool = False

    @property
    def sentence(self) -> str:
        """What is left out for it, and why."""
        what = f"{self.field} of {self.id}" if self.of_host else f"instance {self.id[:60]}".rstrip()
        where = "" if self.of_host else f"{self.field}: "
        text = f"{what} is left out, {where}{self.reason}"
        return "".join(char if char.isprintable() else "�" for char in text)[:300]


@dataclass(frozen=True, slots=True)
class Announcement:
    """What the agent of one host tells: facts of it and of all that run there, what is not known left out.

    `machine` tells two machines of one name apart, empty = unknown. News come every `every_s` seconds. `bound`: the
    sender's token speaks for this host only. `malformed` is what cannot be read; whatever is stored of it stays.
    """

    host: Mapping[str, Any]
    instances: Sequence[Mapping[str, Any]]
    machine: str
    every_s: float
    time: datetime
    bound: bool = False
    malformed: Sequence[Malformed] = ()

    @property
    def host_id(self) -> str:
        """The host that it is about."""
        return str(self.host["id"])

    def names(self) -> set[str]:
        """Every id that an instance of it may have in the inventory."""
        return {str(instance["id"]) for instance in self.instances} | self.uuids()

    def uuids(self) -> set[str]:
        """The UUIDs of its instances, where these are known."""
        uuids = {instance.get("labels", {}).get(UUID) for instance in self.instances}
        return {uuid for uuid in uuids if uuid}

    @property
    def again(self) -> timedelta:
        """How long the next one may take."""
        return max(PATIENCE * timedelta(seconds=self.every_s), LEAST_PATIENCE)


@dataclass(frozen=True, slots=True)
class Announced:
    """What became of an announcement, by ids of instances. `notes` are sentences for who runs the agent."""

    new: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
