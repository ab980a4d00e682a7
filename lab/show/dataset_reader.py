"""Reads a dataset directory: its tables strictly, as far as they exist, and dataset.yaml as plain text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.show.csv_reader import CsvLine, lines
from lab.show.dataset import (
    DatasetGroup,
    DatasetMember,
    Key,
    LabDataset,
    MeasuredOutcome,
    MemberVariant,
    Points,
    ReachedOutcome,
    RunInfo,
)
from profiler.files import MEGABYTE, load_yaml

_MOST_TEXT = 2000  # characters of one entry of dataset.yaml
_MOST_ENTRIES = 100


def read_dataset(directory: Path) -> LabDataset:
    """Read a dataset directory; LabError names file, line and column of what is wrong there."""
    infos = _infos(directory / "runs.csv")
    groups = _groups(directory / "colocations.csv", infos)
    if not any("throughput" in member.outcomes for group in groups for member in group.members):
        raise LabError(f"{directory / 'colocations.csv'} holds no throughput yet: let the lab finish a round")
    reached = tuple(_reached(directory / "outcomes.csv"))
    return LabDataset(
        str(directory), _about(directory / "dataset.yaml"), groups, infos, reached, _series(directory / "series.csv.gz")
    )


def _groups(path: Path, infos: Mapping[Key, RunInfo]) -> tuple[DatasetGroup, ...]:
    needed = ("run", "instance", "workload", "pinning", "outcome", "solo", "colocated", "repeat")
    rows: dict[Key, dict[str, list[CsvLine]]] = defaultdict(lambda: defaultdict(list))
    for line in lines(path, needed):
        rows[line.name("run"), line.whole("repeat")][line.name("instance")].append(line)
    groups: list[DatasetGroup] = []
    for (run, repeat), instances in rows.items():
        members = sorted(map(_member, instances.values()), key=lambda member: member.position)
        first = next(iter(instances.values()))[0]
        info = infos.get((run, repeat))
        groups.append(DatasetGroup(run, repeat, info.form if info else _form(first), tuple(members)))
    return tuple(groups)


def _form(line: CsvLine) -> str:
    """The pinning form, with which the lab's run names begin; datasets of another origin have the platform instead."""
    form, colon, _ = line.name("run").partition(":")
    return form if colon else line.text("platform") or "all"


def _member(rows: Sequence[CsvLine]) -> DatasetMember:
    first = rows[0]
    instance, workload = first.name("instance"), first.name("workload")
    label, dot, position = instance.rpartition(".")
    outcomes: dict[str, MeasuredOutcome] = {}
    for line in rows:
        name = line.name("outcome")
        if name in outcomes:
            line.wrong("outcome", f"stands twice for {instance} in this round")
        outcomes[name] = MeasuredOutcome(
            line.number_of("solo"), line.number_of("colocated"), line.text("unit"), line.number_of("ratio_se")
        )
    return DatasetMember(
        instance,
        workload,
        label if dot and position.isdecimal() else workload,
        _variant(first),
        first.text("pinning"),
        first.cpus("pinning"),
        first.text("driver_cpus"),
        outcomes,
    )


def _variant(line: CsvLine) -> MemberVariant:
    load, rate = line.number_of("load"), line.number_of("net_rate_mbit")
    network = line.text("net_mode")
    return MemberVariant(
        1.0 if load is None else load,
        line.number_of("cap_percent"),
        line.number_of("weight"),
        f"{network} {rate:g} Mbit/s" if network and rate else network,
        line.number_of("disk_limit_mb_s"),
    )


def _infos(path: Path) -> dict[Key, RunInfo]:
    rows: dict[Key, list[CsvLine]] = defaultdict(list)
    for line in lines(path, ("run", "repeat", "kind", "pinning", "disturbed"), optional=True):
        rows[line.name("run"), line.whole("repeat")].append(line)
    return {key: _info(key, of_run) for key, of_run in rows.items()}


def _info(key: Key, rows: Sequence[CsvLine]) -> RunInfo:
    first = rows[0]
    return RunInfo(
        *key,
        first.name("kind"),
        first.name("pinning"),
        first.moment("started"),
        first.number_of("steal_percent"),
        first.number_of("foreign_percent"),
        bool(first.mark("disturbed")),
        any(line.mark("unsteady") for line in rows),
        {line.text("instance"): line.text("clients") for line in rows},
        {line.text("instance"): speed for line in rows if (speed := line.number_of("cpu_speed")) is not None},
    )


def _reached(path: Path) -> Iterator[ReachedOutcome]:
    needed = ("run", "repeat", "instance", "workload", "outcome", "value", "unit")
    for line in lines(path, needed, optional=True):
        value = line.number_of("value", signed=True)
        if value is not None:
            yield ReachedOutcome(
                line.name("run"), line.whole("repeat"), line.name("instance"), line.name("workload"),
                line.name("outcome"), value, line.text("unit"),
            )  # fmt: skip


def _series(path: Path) -> dict[Key, dict[tuple[str, str], Points]]:
    series: dict[Key, dict[tuple[str, str], list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in lines(path, ("run", "repeat", "instance", "metric", "at_s", "value"), optional=True):
        at, value = line.number_of("at_s", signed=True), line.number_of("value")  # warm-up lies before 0
        if at is None or value is None:
            continue
        series[line.name("run"), line.whole("repeat")][line.name("instance"), line.name("metric")].append((at, value))
    return {key: {name: tuple(sorted(points)) for name, points in of_run.items()} for key, of_run in series.items()}


def _about(path: Path) -> dict[str, str]:
    """The entries of dataset.yaml as texts by name, nested ones joined into one line; empty where there is no file."""
    try:
        document = load_yaml(path, MEGABYTE)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:  # ValueError: not UTF-8, or a date such as 2026-99-99
        mark = getattr(error, "problem_mark", None)
        raise LabError(f"{path}{f', line {mark.line + 1}' if mark else ''}: not valid YAML") from None
    if not isinstance(document, dict):
        raise LabError(f"{path}: must be a mapping of name, origin, machine and more")
    entries = {str(key): value for key, value in document.items() if key != "circumstances"}
    inner = document.get("circumstances")
    if isinstance(inner, dict):
        entries |= {str(key): value for key, value in inner.items() if str(key) not in entries}
    return {_plain(key): _plain(_words(value)) for key, value in list(entries.items())[:_MOST_ENTRIES]}


def _words(value: Any) -> str:
    """A value as text: of a list or mapping one level. What is nested deeper the lab does not write: it is left out."""
    if isinstance(value, dict):
        return "; ".join(f"{key}: {inner}" for key, inner in value.items() if not isinstance(inner, dict | list))
    if isinstance(value, list):
        return ", ".join(str(inner) for inner in value if not isinstance(inner, dict | list))
    return "" if value is None else str(value)


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:_MOST_TEXT])
