"""The systems that `cotenant sync` can follow: entry points, those of this distribution like those of others."""

from __future__ import annotations

from advisor import plug_ins
from advisor.errors import InvalidInput
from advisor.inventories.reading import InventorySource
from advisor.inventories.systems import HistorySource, InventorySystem, SourceOptions

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
