"""What a package offers so that `cotenant sync` and `history` can read a system, and the systems that are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from advisor import plug_ins
from advisor.errors import InvalidInput
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


# The systems that `cotenant sync` can follow: entry points, those of this distribution like those of others.

_WRITTEN = {"cloud": "--cloud", "uris": "--uri", "ca_file": "--ca-file", "fingerprint": "--fingerprint"}


def sources() -> tuple[str, ...]:
    """The names of all systems that are installed, in order; none of them is imported."""
    return plug_ins.names(plug_ins.INVENTORIES)


def open_source(
    name: str, *, cloud: str | None = None, options: SourceOptions | None = None, whole_every: int = 10
) -> InventorySource:
    """A source that nothing has been read of yet; InvalidInput when there is none of that name, or it takes no such
    option. `cloud` is short for the option of that name."""
    if whole_every < 1:
        raise InvalidInput(f"whole_every {whole_every} is below 1", field="whole_every")
    system = _system(name)
    taken = _taken(name, system, options or SourceOptions(cloud=cloud))
    return system.source(*taken, **({"whole_every": whole_every} if system.partly else {}))


def open_history(name: str, options: SourceOptions | None = None) -> HistorySource:
    """What reads the history that a system keeps of its guests; InvalidInput as of `open_source`, and for one that
    keeps none."""
    system = _system(name)
    if system.history is None:
        raise InvalidInput(f"{name} keeps no history of its guests", field="source")
    return system.history(*_taken(name, system, options or SourceOptions()))


def is_watched(name: str) -> bool:
    """Whether a system reports by itself what changes."""
    return name in sources() and _system(name).watched


def keeps_history(name: str) -> bool:
    """Whether a system keeps a history of its guests."""
    return name in sources() and _system(name).history is not None


def check_installed(name: str) -> None:
    """InvalidInput where this is the name of a system whose package is an extra that is not installed."""
    plug_ins.check_installed(plug_ins.INVENTORIES, name, "source")


def _system(name: str) -> InventorySystem:
    """Import one system: only what is asked for, for openstacksdk takes a second."""
    system: InventorySystem = plug_ins.load(plug_ins.INVENTORIES, name, "source", "source")
    return system


def _taken(name: str, system: InventorySystem, options: SourceOptions) -> tuple[object, ...]:
    """The options that a system takes, in its order; InvalidInput for another one."""
    for option, written in _WRITTEN.items():
        if getattr(options, option) and option not in system.takes:
            known = ", ".join(sorted(_WRITTEN[taken_option] for taken_option in system.takes))
            raise InvalidInput(f"{written} does not go with {name}, which takes {known}", field=option)
    return tuple(getattr(options, option) for option in system.takes)
