"""What packages add to the service: entry points, those of its own distribution like those of others; and extras.

    [project.entry-points."cotenant.renderers"]
    example = "cotenant_example.commands"

Names are read without importing anything; one package is imported when it is asked for.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points, metadata
from importlib.util import find_spec
from typing import Any

from advisor.errors import InvalidInput

# Libraries that only some installations have, by the extra of pyproject.toml that installs them.

# A module of each library, and its name on the package index.
LIBRARIES: Mapping[str, Mapping[str, str]] = {
    "openstack": {"openstack": "openstacksdk"},
    "otel": {"opentelemetry.sdk": "opentelemetry-sdk"},
    "plots": {"matplotlib": "matplotlib"},
    "postgresql": {"psycopg": "psycopg"},
    "traces": {"pyarrow": "pyarrow"},
    "train": {"lightgbm": "lightgbm", "sklearn": "scikit-learn"},
}


def missing(extra: str) -> tuple[str, ...]:
    """The libraries of an extra that are not installed."""
    return tuple(name for module, name in LIBRARIES[extra].items() if find_spec(module) is None)


def require(extra: str, what: str) -> None:
    """InvalidInput where a library of an extra is not installed: `what` needs it, such as "a replay"."""
    if libraries := missing(extra):
        raise InvalidInput(f"{what} needs {' and '.join(libraries)}: {how_to_install(extra)}")


def how_to_install(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'cotenant[{extra}]'"


INVENTORIES = "cotenant.inventories"  # advisor.inventories.systems.InventorySystem: what `sync` and `history` read
EXECUTORS = "cotenant.executors"  # advisor.changes.controller.ExecutorKind: what `apply` changes
HISTORIES = "cotenant.histories"  # advisor.telemetry.monitoring_history.CloudHistory: metrics that a cloud keeps
MOVERS = "cotenant.movers"  # makes an advisor.changes.movers.Mover: where `migrate` moves instances
RENDERERS = "cotenant.renderers"  # advisor.render.whole.CloudTool: commands of a cloud
SCHEDULERS = "cotenant.schedulers"  # a sequence of api.routing.Route: the protocol of a scheduler
GROUPS = (INVENTORIES, EXECUTORS, HISTORIES, MOVERS, RENDERERS, SCHEDULERS)


def names(group: str) -> tuple[str, ...]:
    """The names that installed packages offer in a group, in order; none of them is imported."""
    return tuple(sorted(_entries(group)))


def load(group: str, name: str, what: str, field: str) -> Any:
    """What a package offers under a name; InvalidInput for `field` says why there is none. `what` it is: "source"."""
    entry = _entries(group).get(name)
    if entry is None:
        check_installed(group, name, field)
        raise InvalidInput(f"{what} {name[:60]!r} is none of {', '.join(names(group))}", field=field)
    for extra in entry.extras:
        if extra in LIBRARIES:
            require(extra, f"{what} {name}")
    try:
        return entry.load()
    except Exception as error:  # a package of others, and what it imports, may fail in any way
        message = f"{what} {name} cannot be loaded from {entry.value[:200]}: {error}"
        raise InvalidInput(message, field=field) from error


def check_installed(group: str, name: str, field: str, what: str | None = None) -> None:
    """InvalidInput where a package that is not installed offers this; `what` needs it, None = what has the name."""
    if name in _entries(group) or not (extra := _extra_with(name)):
        return
    if not any(
        extra in _entries(each) for each in GROUPS
    ):  # else it is there, and offers something else under the name
        raise InvalidInput(f"{what or name} needs a package of its own: {how_to_install(extra)}", field=field)


def _extra_with(name: str) -> str | None:
    """The extra whose package offers what has this name; None where it is none of a package's, as `plots` is."""
    of_package = re.compile(rf"cotenant[-[]([\w-]+)(?:\]|==\S+); extra == .{re.escape(name)}.")
    found = (of_package.fullmatch(needed) for needed in metadata("cotenant").get_all("Requires-Dist") or ())
    extras = [match[1] for match in found if match]
    return extras[0] if len(extras) == 1 else None


def _entries(group: str) -> Mapping[str, EntryPoint]:
    return _found(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _found(group: str, path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Once for each place where packages are looked for: it takes as long as a hundred hosts to check."""
    del path
    return {entry.name: entry for entry in entry_points(group=group)}
