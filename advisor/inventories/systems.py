"""What a package offers so that `cotenant sync NAME` and `cotenant history NAME` can read a system."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from advisor.inventories.reading import InventorySource


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which system is read, as far as its name does not say it; None or empty = what the environment says.

    `cloud`: one of several clouds; `uris`: libvirt's hosts; `ca_file` and `fingerprint`: by which of its certificates a
    server is known.
    """

    cloud: str | None = None
    uris: tuple[str, ...] = ()
    ca_file: Path | None = None
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True)
class GuestHistory:
    """One guest: by metric (cpu and waiting in CPUs, net_mbit, disk_mb_s) its windows of five minutes (end → mean), and
    longer means (end, seconds, mean) in order of time; or why there are none. Values as read, not checked for sense."""

    name: str
    windows: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    means: Mapping[str, Sequence[tuple[float, float, float]]] = field(default_factory=dict)
    failed: str = ""


class HistorySource(Protocol):
    """What a system keeps of its own guests."""

    def guests(self) -> Mapping[str, Any]:
        """The guests that it lists, by the ids that a sync gives them; ValueError where the account is wrong, CallError
        (`advisor.inventories.calls`) where the other side does not answer."""
        ...

    def histories(self, guests: Mapping[str, Any], since_s: float, now_s: float) -> Iterator[GuestHistory]:
        """The history of each of these guests over the last `since_s` seconds before `now_s`."""
        ...


@dataclass(frozen=True, slots=True)
class InventorySystem:
    """A system, offered as an entry point of the group `cotenant.inventories` under the name that operators type:

        [project.entry-points."cotenant.inventories"]
        example = "cotenant_example:SYSTEM"

    with, in that module, `SYSTEM = InventorySystem(Example, takes=("cloud",))`, where `Example("west").read()` returns
    an `advisor.inventories.reading.Reading`.

    Args:
        source: Makes a source of the options that it takes, in this order; nothing is read yet.
        takes: Names of fields of SourceOptions. Another option is refused.
        partly: The source reads parts between whole reads, and takes the keyword `whole_every`.
        watched: It is a WatchedSource, which reports by itself what changes.
        history: Makes what reads its guests' history, of the same options; None = it keeps none.
    """

    source: Callable[..., InventorySource]
    takes: tuple[str, ...]
    partly: bool = False
    watched: bool = False
    history: Callable[..., HistorySource] | None = None
