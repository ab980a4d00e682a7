"""An inventory as the document that `static` reads back, and the same with made-up names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from advisor.domain import Host, Instance, Inventory, IsolationSettings, WorkloadProfile
from advisor.domain.rules import ANY, EACH, HAS, LOCAL_STORAGE, NEEDS, NONE, PREFER, WINDOW, items
from advisor.errors import InvalidInput
from advisor.validation import write_whole
from profiler.demand import Demand
from profiler.host_kinds import PAGES_MB
from profiler.observed import MOVED_LABEL, NEVER_MOVE_LABEL, REQUIRE_LABEL, format_cpus

CPU_LISTS = ("driver_cpus", "cpu_ids", "isolated_cpus", "dedicated_cpus")
CPU_GROUPS = ("numa", "siblings")
SOURCE = "source"  # label: the system that something is from, with the name of the cloud where it has one
DIGITS = 6  # of numbers that were estimated
# Labels whose values say how a host works or what a rule is, and not what anything is called.
TECHNICAL = frozenset(
    {
        "render", "cgroup_version", "assumed", "anti_affinity_most", NEVER_MOVE_LABEL, MOVED_LABEL, WINDOW,
        LOCAL_STORAGE, "dirty_mb_s", "migration_mbit", *(f"{name}_by_node" for name in PAGES_MB),
    }
)  # fmt: skip
ABOUT_LABELS = (REQUIRE_LABEL, ANY, NONE, EACH, PREFER)  # before the name of a label of hosts
NAMED_WITHIN = (
    "aggregate.",
    "metadata.",
    "node.",
    "taint.",
    "tag.",
    "resource.",
    "sr.",
    "storage.",
    "network.",
    "trait.",
)  # before a name in a label's name
_COUNTED = re.compile(r"(.*?)([-_.]?\d*)\Z", re.DOTALL)


def text_of(inventory: Inventory, *, rename: bool) -> str:
    """What `cotenant snapshot` writes; InvalidInput where there is no host and no instance."""
    if not inventory.hosts and not inventory.instances:
        raise InvalidInput("there is no host and no VM to write; cotenant sync brings a cloud in")
    return written(renamed(inventory) if rename else inventory)


def write_text(path: Path, text: str) -> None:
    """Write what `text_of` made, whole or not at all; errors as of `write_whole`."""
    write_whole(path, text.encode(), "snapshot")


def written(inventory: Inventory) -> str:
    """The inventory as YAML; `static.load_inventory` reads the same hosts, instances and workloads from it.

    Numbers of demand keep six digits. Fields that have their usual value are left out.
    """
    document: dict[str, Any] = {
        "hosts": [_host(host) for host in inventory.hosts],
        "instances": [_instance(instance) for instance in inventory.instances],
        "workloads": [_workload(workload) for workload in inventory.workloads],
    }
    if isinstance(inventory.observed_at, datetime):
        document["observed_at"] = inventory.observed_at.isoformat()
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=2**16, allow_unicode=True)


def _host(host: Host) -> dict[str, Any]:
    lists = {name: format_cpus(getattr(host, name)) for name in CPU_LISTS if getattr(host, name)}
    groups = {name: [format_cpus(cpus) for cpus in each] for name in CPU_GROUPS if (each := getattr(host, name))}
    mappings = {name: dict(getattr(host, name)) for name in ("labels", "probed") if getattr(host, name)}
    return {**_plain(host, {*CPU_LISTS, *CPU_GROUPS, "labels", "probed"}), **lists, **groups, **mappings}


def _instance(instance: Instance) -> dict[str, Any]:
    labels = {"labels": dict(instance.labels)} if instance.labels else {}
    demand = {resource: _demand(one) for resource, one in instance.demand.items()}
    return {
        **_plain(instance, {"settings", "labels", "demand"}),
        **_settings(instance.settings),
        **labels,
        **({"demand": demand} if demand else {}),
    }


def _settings(settings: IsolationSettings) -> dict[str, Any]:
    found = _plain(settings, {"pinning", "network"})
    if settings.pinning is not None:
        found["pinning"] = str(settings.pinning)
    if settings.network is not None:
        found["network"] = _plain(settings.network, set())
    return found


def _demand(demand: Demand) -> dict[str, Any]:
    lists = {name: [_rounded(one) for one in getattr(demand, name)] for name in ("hours", "seen_hours")}
    given = _plain(demand, {"resource", *lists}) | {"mean": demand.mean}
    return {name: _rounded(value) for name, value in given.items()} | {
        name: values for name, values in lists.items() if values
    }


def _workload(workload: WorkloadProfile) -> dict[str, Any]:
    return {**_plain(workload, {"metrics"}), "metrics": dict(workload.metrics)}


def _plain(item: Any, apart: set[str]) -> dict[str, Any]:
    """Fields of a dataclass that have another value than usual."""
    found = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if field.name not in apart and (field.name in {"id", "vcpus", "mode"} or value != field.default):
            found[field.name] = value
    return {name: value for name, value in found.items() if value is not None}


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def renamed(inventory: Inventory) -> Inventory:
    """The inventory with made-up names of hosts, instances, workloads and platforms, and in labels.

    Equal names stay equal, and numbers at the end stay (`web-7` and `web-9` become `vm1-7` and `vm1-9`), because VMs
    are estimated from others of the same name. Texts of TECHNICAL labels stay.
    """
    hosts, instances, workloads, platforms, texts = _Names("host"), _Names("vm"), _Names("w"), _Names("p"), _Names("x")
    inside = _Names("n")

    def label(name: str) -> str:
        rule = next((one for one in ABOUT_LABELS if name.startswith(one)), None)
        if rule is not None:
            return rule + label(name.removeprefix(rule))
        start = next((one for one in NAMED_WITHIN if name.startswith(one)), None)
        return name if start is None else start + ".".join(map(inside.of, name.removeprefix(start).split(".")))

    def value(name: str, text: str) -> str:
        if name in {SOURCE, f"{REQUIRE_LABEL}{SOURCE}"}:  # the system, and the name of a cloud
            system, colon, cloud = text.partition(":")
            return f"{system}{colon}{texts.of(cloud)}"
        if name in TECHNICAL or name.startswith((NEEDS, HAS)) or text in {"true", "false"}:
            return text
        names = hosts if name.endswith(".id") and name.startswith(ABOUT_LABELS) else texts
        return ", ".join(map(names.of, items(text) or (text,)))

    def labels(given: Mapping[str, str]) -> dict[str, str]:
        return {label(name): value(name, text) for name, text in given.items()}

    return replace(
        inventory,
        hosts=tuple(
            replace(one, id=hosts.of(one.id), platform=platforms.of(one.platform), labels=labels(one.labels))
            for one in inventory.hosts
        ),
        instances=tuple(
            replace(
                one,
                id=instances.of(one.id),
                host=None if one.host is None else hosts.of(one.host),
                workload=None if one.workload is None else workloads.of(one.workload),
                labels=labels(one.labels),
            )
            for one in inventory.instances
        ),
        workloads=tuple(
            replace(one, name=workloads.of(one.name), platform=platforms.of(one.platform))
            for one in inventory.workloads
        ),
    )


class _Names:
    """Made-up names of one kind: a number for each stem, and the digits behind it."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._stems: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """The made-up name; no name stays none."""
        if name and name not in self._known:
            stem, number = _stem_of(name)
            made = f"{self._kind}{self._stems.setdefault(stem, len(self._stems) + 1)}{number}"
            if made in self._taken:  # web-7 and web_7 are two
                self._stems[name] = len(self._stems) + 1
                made = f"{self._kind}{self._stems[name]}"
            self._known[name] = made
            self._taken.add(made)
        return self._known.get(name, name)


def _stem_of(name: str) -> tuple[str, str]:
    found = _COUNTED.match(name)
    stem, number = (found[1], found[2]) if found else (name, "")
    # A uuid ends in digits as well: they say nothing, and would lead back to it.
    digits = number.lstrip("-_.")
    if len(digits) > 4 or not stem:
        return name, ""
    return (stem, f"-{digits}") if digits else (name, "")
