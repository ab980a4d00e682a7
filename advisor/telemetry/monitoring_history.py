"""Demand over time from a monitoring system that has watched the instances for weeks: PromQL by presets, as windows.

A preset says what an exporter calls things: a query for each resource (CPUs, Mbit/s, MB/s), and by which labels series
name instances. CPU demand is what was used, and more where waiting is told.
"""

from __future__ import annotations

import math
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from advisor.domain import Instance
from advisor.errors import InvalidInput
from advisor.telemetry.series_store import Scraped
from models.profiling.demand_estimation import Tally, Window, estimated, wanted_cpus
from profiler.demand import RESOURCES, Demand, Resource

PRESETS = Path(__file__).parent / "presets"
WINDOW_S = 300
ENOUGH = 12  # windows, an hour of them, before a history says anything
_PART = timedelta(days=1)  # of a query: Prometheus gives at most 11,000 points of a series
_EXTRA = ("waiting", "throttled")
_MOST_BYTES = 1 << 16
_NAMES = ("name", "uuid", "domain")  # labels of an instance by which another system may know it
Progress = Callable[[int, int], None]  # parts read, of how many
Row = Mapping[float, float]  # end of a window → value


class WatchedSeries(Protocol):
    """Who has watched: gives what a query of a preset means, every `step_s` seconds from `begin` to `end`."""

    def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]: ...


@dataclass(frozen=True, slots=True)
class Preset:
    """What one exporter calls things: queries by resource, `waiting` and `throttled` (both in CPUs) beside them.

    `labels` name instances, the first that is there counts.
    """

    name: str
    about: str
    labels: tuple[str, ...]
    queries: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MonitoringHistory:
    """What was found: demands by instance and resource, names that no instance has, queries that gave nothing, and in
    sentences what could not be read."""

    demands: Mapping[str, Mapping[Resource, Demand]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def preset_names() -> tuple[str, ...]:
    """The presets that come with Cotenant."""
    return tuple(sorted(file.stem for file in PRESETS.glob("*.toml")))


def load_preset(name: str) -> Preset:
    """A preset by its name, or from a file that ends in .toml; InvalidInput says what is wrong with it."""
    file = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not name.endswith(".toml") and name not in preset_names():
        message = f"preset {name[:60]!r} is none of {', '.join(preset_names())}, nor a file that ends in .toml"
        raise InvalidInput(message, field="preset")
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"{file} has more than {_MOST_BYTES >> 10} KiB", field="preset")
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", field="preset") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} is no TOML: {error}", field="preset") from error
    return _checked(file, told)


def _checked(file: Path, told: Mapping[str, object]) -> Preset:
    labels, queries = told.get("labels"), told.get("queries")
    if not isinstance(labels, list) or not labels or not all(isinstance(one, str) and one for one in labels):
        raise InvalidInput(f"{file}, field labels: must be a list of names of labels", field="labels")
    if not isinstance(queries, Mapping):
        raise InvalidInput(f"{file}, field queries: must be a table of PromQL by resource", field="queries")
    for name, query in queries.items():
        if name not in (*RESOURCES, *_EXTRA):
            known = ", ".join((*RESOURCES, *_EXTRA))
            raise InvalidInput(f"{file}, field queries.{name}: is none of {known}", field=f"queries.{name}")
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput(f"{file}, field queries.{name}: must be PromQL", field=f"queries.{name}")
    if not queries.keys() & set(RESOURCES):
        raise InvalidInput(f"{file}, field queries: has none of {', '.join(RESOURCES)}", field="queries")
    return Preset(file.stem, str(told.get("about", "")), tuple(labels), {str(k): str(v) for k, v in queries.items()})


def read(
    store: WatchedSeries,
    preset: Preset,
    there: Iterable[Instance],
    *,
    since_s: float,
    now: datetime,
    progress: Progress = lambda _done, _of: None,
) -> MonitoringHistory:
    """The demand of every instance that the store has watched for an hour at least.

    SeriesUnavailable where it does not answer or refuses a query.
    """
    instances = list(there)
    by_name, vcpus = _by_name(instances), {one.id: one.vcpus for one in instances}
    tallies: dict[tuple[str, Resource], Tally] = {}
    unknown: set[str] = set()
    answered: set[str] = set()
    borders = _borders(now, since_s)
    for at, (begin, end) in enumerate(borders):
        progress(at, len(borders))
        found = {name: _rows(store, preset, query, begin, end) for name, query in preset.queries.items()}
        answered |= {name for name, rows in found.items() if rows}
        unknown |= {name for rows in found.values() for name in rows if name not in by_name}
        for resource in RESOURCES:
            known = {by_name[name]: row for name, row in found.get(resource, {}).items() if name in by_name}
            if resource == "cpu":
                extra = [{by_name[n]: row for n, row in found.get(e, {}).items() if n in by_name} for e in _EXTRA]
                known = {
                    name: wanted(row, extra[0].get(name, {}), extra[1].get(name, {}), vcpus[name])
                    for name, row in known.items()
                }
            teach(tallies, resource, known)
    progress(len(borders), len(borders))
    demands = learned(tallies, vcpus)
    return MonitoringHistory(demands, tuple(sorted(unknown)), tuple(sorted(preset.queries.keys() - answered)))


def learned(
    tallies: Mapping[tuple[str, Resource], Tally], vcpus: Mapping[str, int]
) -> Mapping[str, Mapping[Resource, Demand]]:
    """Demands by instance and resource, of those that were watched for an hour at least."""
    found: dict[str, dict[Resource, Demand]] = defaultdict(dict)
    for (name, resource), tally in sorted(tallies.items()):
        if tally.n >= ENOUGH:
            found[name][resource] = estimated(tally, vcpus=vcpus[name], origin="history")
    return dict(found)


def _borders(now: datetime, since_s: float) -> Sequence[tuple[datetime, datetime]]:
    """Parts of the time up to now, each from one window's end to the last of its own."""
    step = timedelta(seconds=WINDOW_S)
    end = datetime.fromtimestamp(now.timestamp() // WINDOW_S * WINDOW_S, now.tzinfo)
    begin = end - timedelta(seconds=since_s // WINDOW_S * WINDOW_S) + step
    found = []
    while begin <= end:
        found.append((begin, min(begin + _PART - step, end)))
        begin += _PART
    return found


def _rows(store: WatchedSeries, preset: Preset, query: str, begin: datetime, end: datetime) -> Mapping[str, Row]:
    """Values by the name that the series give to instances; several series of one name add up."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for one in store.range(query.replace("$window", f"{WINDOW_S}s"), begin, end, WINDOW_S):
        name = _name(preset, one)
        if name:
            row = found[name]
            for time_s, value in zip(one.times, one.values, strict=True):
                row[time_s] = row.get(time_s, 0.0) + max(value, 0.0)
    return found


def _name(preset: Preset, series: Scraped) -> str:
    return next((text for label in preset.labels if (text := series.labels.get(label))), "")


def _by_name(instances: Sequence[Instance]) -> Mapping[str, str]:
    """Id by every name that another system may use; a name that two instances have says nothing."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in instances:
        for name in {one.id, *(one.labels[label] for label in _NAMES if one.labels.get(label))}:
            found[name].add(one.id)
    found |= {one.id: {one.id} for one in instances}  # its own id is never somebody else's name
    return {name: next(iter(who)) for name, who in found.items() if len(who) == 1}


def wanted(run: Row, waiting: Row, throttled: Row, vcpus: int) -> Row:
    """CPUs wanted; the time for which its own cap held it back is no waiting."""
    return {
        time_s: wanted_cpus(used, max(waiting.get(time_s, 0.0) - throttled.get(time_s, 0.0), 0.0), vcpus)
        for time_s, used in run.items()
    }


def teach(tallies: dict[tuple[str, Resource], Tally], resource: Resource, known: Mapping[str, Row]) -> None:
    """Add windows in order of time, each beside what the others did then, over their own means of this part."""
    ratios: dict[float, list[float]] = defaultdict(list)
    means = {name: sum(row.values()) / len(row) for name, row in known.items() if row}
    for name, row in known.items():
        if means.get(name, 0.0) > 0:
            for time_s, value in row.items():
                ratios[time_s].append(value / means[name])
    totals = {time_s: (math.fsum(values), len(values)) for time_s, values in ratios.items()}
    for name, row in known.items():
        tally = tallies.setdefault((name, resource), Tally(resource, float(WINDOW_S)))
        for time_s in sorted(row):
            total, number = totals.get(time_s, (0.0, 0))
            mean = means.get(name, 0.0)
            total, number = (total - row[time_s] / mean, number - 1) if mean > 0 else (total, number)
            tally.add(Window(time_s, row[time_s], total / number if number >= 2 else None))
