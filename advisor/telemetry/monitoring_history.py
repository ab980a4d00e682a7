"""Demand over time from what other systems have watched for weeks: PromQL by presets, or a system's own history.

A preset says what an exporter calls things: a query for each resource (CPUs, Mbit/s, MB/s), and by which labels series
name instances. CPU demand is what was used, and more where waiting is reported.
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

from advisor import plug_ins
from advisor.domain import Instance, ids_by_name, spoken
from advisor.errors import InvalidInput
from advisor.inventories.systems import GuestHistory
from advisor.telemetry.series_store import Scraped
from models.profiling.demand_estimation import LARGEST, Tally, Window, demanded_cpus, estimated
from models.profiling.windows import shapes
from profiler.backends.lxc.listing import names_in_group
from profiler.demand import RESOURCES, Demand, Resource

PRESETS = Path(__file__).parent / "presets"
WINDOW_S = 300
ENOUGH = 12  # windows, an hour of them, before a history says anything
_PART = timedelta(days=1)  # of a query: Prometheus gives at most 11,000 points of a series
_EXTRA = ("waiting", "throttled")
_MOST_BYTES = 1 << 16
Progress = Callable[[int, int], None]  # parts read, of how many
Row = Mapping[float, float]  # end of a window → value


class WatchedSeries(Protocol):
    """A store of a monitoring system: gives what a query of a preset means, every `step_s` s from `begin` to `end`."""

    def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]: ...


@dataclass(frozen=True, slots=True)
class Preset:
    """What one exporter calls things: queries by resource, `waiting` and `throttled` (both in CPUs) beside them.

    `labels` name instances: the first by which one is known counts. `a.b` is the text of both with a dot between. A
    text that begins with a slash is a control group, and names what runs in it.
    """

    name: str
    about: str
    labels: tuple[str, ...]
    queries: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MonitoringHistory:
    """Demands by instance and resource; names that no instance has (`unknown`), queries that gave nothing (`silent`),
    and in sentences what could not be read (`failed`)."""

    demands: Mapping[str, Mapping[Resource, Demand]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CloudHistory:
    """What a cloud's own services have watched, offered as an entry point of the group `cotenant.histories` under the
    name that operators type.

    Args:
        opened: Makes the store of a cloud (None = the one that the environment names), asked about these instances.
        preset: What it calls things; None = it is a Prometheus, asked by any preset for `--cloud`.
    """

    opened: Callable[[str | None, Sequence[Instance]], WatchedSeries]
    preset: Preset | None = None


def keeps_metrics(source: str) -> bool:
    """Whether this names a service of a cloud that an installed package asks by names of its own."""
    return source in plug_ins.names(plug_ins.HISTORIES) and _cloud_history(source).preset is not None


def opened_history(source: str, cloud: str | None, instances: Sequence[Instance]) -> tuple[Preset, WatchedSeries]:
    """The store that a package asks under this name, and what that calls things; InvalidInput where there is none."""
    offered = _cloud_history(source)
    if offered.preset is None:
        raise InvalidInput(f"{source} is asked by a preset: name that, with --cloud", field="source")
    return offered.preset, offered.opened(cloud, instances)


def opened_prometheus(cloud: str, instances: Sequence[Instance]) -> WatchedSeries:
    """The Prometheus of a cloud; InvalidInput where no installed package knows one."""
    for name in plug_ins.names(plug_ins.HISTORIES):
        offered = _cloud_history(name)
        if offered.preset is None:
            return offered.opened(cloud, instances)
    plug_ins.check_installed(plug_ins.HISTORIES, "aetos", "cloud", "--cloud")
    raise InvalidInput("no installed package knows the Prometheus of a cloud", field="cloud")


def _cloud_history(name: str) -> CloudHistory:
    offered: CloudHistory = plug_ins.load(plug_ins.HISTORIES, name, "source", "source")
    return offered


def preset_names() -> tuple[str, ...]:
    """The presets that come with Cotenant."""
    return tuple(sorted(file.stem for file in PRESETS.glob("*.toml")))


def load_preset(name: str) -> Preset:
    """A preset by its name, or from a file that ends in .toml; InvalidInput says what is wrong with it."""
    file = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    if not name.endswith(".toml") and name not in preset_names():
        plug_ins.check_installed(plug_ins.HISTORIES, name, "preset")
        message = f"preset {name[:60]!r} is none of {', '.join(preset_names())}, nor a file that ends in .toml"
        raise InvalidInput(message, field="preset")
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InvalidInput(f"{file} has more than {_MOST_BYTES >> 10} KiB", field="preset")
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}", field="preset") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{file} is no TOML: {error}", field="preset") from error
    return _checked(file, document)


def _checked(file: Path, document: Mapping[str, object]) -> Preset:
    labels, queries = document.get("labels"), document.get("queries")
    if not isinstance(labels, list) or not labels or not all(isinstance(label, str) and label for label in labels):
        raise InvalidInput(f"{file}, field labels: must be a list of names of labels", field="labels")
    if not isinstance(queries, Mapping):
        raise InvalidInput(f"{file}, field queries: must be a table of PromQL by resource", field="queries")
    for name, query in queries.items():
        if name not in (*RESOURCES, *_EXTRA):
            allowed = ", ".join((*RESOURCES, *_EXTRA))
            raise InvalidInput(f"{file}, field queries.{name}: is none of {allowed}", field=f"queries.{name}")
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput(f"{file}, field queries.{name}: must be PromQL", field=f"queries.{name}")
    if not queries.keys() & set(RESOURCES):
        raise InvalidInput(f"{file}, field queries: has none of {', '.join(RESOURCES)}", field="queries")
    return Preset(
        file.stem, str(document.get("about", "")), tuple(labels), {str(k): str(v) for k, v in queries.items()}
    )


def read(
    store: WatchedSeries,
    preset: Preset,
    watched: Iterable[Instance],
    *,
    since_s: float,
    now: datetime,
    progress: Progress = lambda _done, _of: None,
) -> MonitoringHistory:
    """The demand of every instance that the store has watched for an hour at least.

    SeriesUnavailable where it does not answer or refuses a query.
    """
    instances = list(watched)
    vcpus = {instance.id: instance.vcpus for instance in instances}
    owners = _SeriesOwners(preset.labels, _by_name(instances))
    tallies: dict[tuple[str, Resource], Tally] = {}
    answered: set[str] = set()
    borders = _borders(now, since_s)
    for at, (begin, end) in enumerate(borders):
        progress(at, len(borders))
        rows: dict[str, Mapping[str, Row]] = {}
        for name, query in preset.queries.items():
            series = list(store.range(query.replace("$window", f"{WINDOW_S}s"), begin, end, WINDOW_S))
            answered |= {name} if series else set()
            rows[name] = _rows(owners, series)
        for resource in RESOURCES:
            of_resource = rows.get(resource, {})
            if resource == "cpu":
                waiting, throttled = (rows.get(extra, {}) for extra in _EXTRA)
                of_resource = {
                    name: demanded(row, waiting.get(name, {}), throttled.get(name, {}), vcpus[name])
                    for name, row in of_resource.items()
                }
            teach(tallies, resource, of_resource)
    progress(len(borders), len(borders))
    demands = {name: demand for name, demand in learned(tallies, vcpus).items() if name not in owners.doubtful}
    return MonitoringHistory(demands, owners.unknown, tuple(sorted(preset.queries.keys() - answered)))


def learned(
    tallies: Mapping[tuple[str, Resource], Tally], vcpus: Mapping[str, int]
) -> Mapping[str, Mapping[Resource, Demand]]:
    """Demands by instance and resource, of those that were watched for an hour at least."""
    demands: dict[str, dict[Resource, Demand]] = defaultdict(dict)
    for (name, resource), tally in sorted(tallies.items()):
        if tally.n >= ENOUGH:
            demands[name][resource] = estimated(tally, vcpus=vcpus[name], origin="history")
    return dict(demands)


def _borders(now: datetime, since_s: float) -> Sequence[tuple[datetime, datetime]]:
    """Parts of the time up to now, each from one window's end to the last of its own."""
    step = timedelta(seconds=WINDOW_S)
    end = datetime.fromtimestamp(now.timestamp() // WINDOW_S * WINDOW_S, now.tzinfo)
    begin = end - timedelta(seconds=since_s // WINDOW_S * WINDOW_S) + step
    borders = []
    while begin <= end:
        borders.append((begin, min(begin + _PART - step, end)))
        begin += _PART
    return borders


class _SeriesOwners:
    """Finds of which instance a series is, and remembers names that no instance has."""

    def __init__(self, labels: Sequence[str], by_name: Mapping[str, str]) -> None:
        self._labels = [label.split(".") for label in labels]
        self._by_name = by_name
        self._strangers: set[str] = set()
        self._spaces: dict[str, dict[str, str]] = defaultdict(dict)  # by instance: its namespaces, a full name in each

    def instance(self, series: Scraped) -> str | None:
        names = list(self._names(series))
        owner = next((self._by_name[name] for name in names if name in self._by_name), None)
        space = series.labels.get("namespace", "")  # empty: its exporter knows of none
        if owner is not None and space:
            self._spaces[owner][space] = names[0]
        elif owner is None and names:
            self._strangers.add(names[0])
        return owner

    @property
    def doubtful(self) -> set[str]:
        """Instances by whose name several namespaces have an instance: which of them it is, is not known."""
        return {name for name, spaces in self._spaces.items() if len(spaces) > 1}

    @property
    def unknown(self) -> tuple[str, ...]:
        doubted = {name for instance in self.doubtful for name in self._spaces[instance].values()}
        return tuple(sorted(self._strangers | doubted))

    def _names(self, series: Scraped) -> Iterator[str]:
        for parts in self._labels:
            texts = [series.labels.get(part, "") for part in parts]
            if all(texts):
                text = ".".join(texts)
                yield from names_in_group(text) if text.startswith("/") else filter(None, [spoken(text)])


def _rows(owners: _SeriesOwners, scraped: Iterable[Scraped]) -> Mapping[str, Row]:
    """Values by instance; several series of one add up, but those of one control group are of two that watch it."""
    parts: dict[tuple[str, object], dict[float, float]] = defaultdict(dict)
    for series in scraped:
        name = owners.instance(series)
        if name is not None:
            part = parts[name, series.labels.get("id") or frozenset(series.labels.items())]
            for time_s, value in zip(series.times, series.values, strict=True):
                part[time_s] = max(part.get(time_s, 0.0), value)
    rows: dict[str, dict[float, float]] = defaultdict(dict)
    for (name, _), part in parts.items():
        row = rows[name]
        for time_s, value in part.items():
            row[time_s] = row.get(time_s, 0.0) + value
    return rows


def _by_name(instances: Sequence[Instance]) -> Mapping[str, str]:
    """Id by every name that another system may use; a name that two instances have says nothing."""
    return {name: next(iter(ids)) for name, ids in ids_by_name(instances).items() if len(ids) == 1}


def demanded(run: Row, waiting: Row, throttled: Row, vcpus: int) -> Row:
    """CPUs wanted; the time for which its own cap held it back is no waiting."""
    return {
        time_s: demanded_cpus(used, max(waiting.get(time_s, 0.0) - throttled.get(time_s, 0.0), 0.0), vcpus)
        for time_s, used in run.items()
    }


def teach(tallies: dict[tuple[str, Resource], Tally], resource: Resource, rows: Mapping[str, Row]) -> None:
    """Add windows in order of time, each beside what the others did then, over their own means of this part.

    What is more than anything can move is left out.
    """
    most = LARGEST.get(resource, math.inf)
    rows = {name: {time_s: value for time_s, value in row.items() if value <= most} for name, row in rows.items()}
    ratios: dict[float, list[float]] = defaultdict(list)
    means = {name: sum(row.values()) / len(row) for name, row in rows.items() if row}
    for name, row in rows.items():
        if means.get(name, 0.0) > 0:
            for time_s, value in row.items():
                ratios[time_s].append(value / means[name])
    totals = {time_s: (math.fsum(values), len(values)) for time_s, values in ratios.items()}
    for name, row in rows.items():
        tally = tallies.setdefault((name, resource), Tally(resource, float(WINDOW_S)))
        for time_s in sorted(row):
            total, number = totals.get(time_s, (0.0, 0))
            mean = means.get(name, 0.0)
            total, number = (total - row[time_s] / mean, number - 1) if mean > 0 else (total, number)
            tally.add(Window(time_s, row[time_s], total / number if number >= 2 else None))


# Demand over time from the history that a virtualization system keeps of its own guests: windows, and means before.
#
# A mean over half an hour shows how much and at which hour, and takes the shape of a half hour that was seen in windows
# (`models.profiling.windows`). Waiting is the least that pressure shows. Decision 83 says what this rests on.

_RESOURCES: tuple[Resource, ...] = ("cpu", "net_mbit", "disk_mb_s")
_Means = Sequence[tuple[float, float, float]]  # end, seconds, mean


def demands_of(
    histories: Iterable[GuestHistory],
    instances: Mapping[str, Instance],
    *,
    unknown: Sequence[str] = (),
    progress: Progress,
) -> MonitoringHistory:
    """The demand of every instance that its system has watched for an hour at least.

    `histories` are of these `instances`. What is common to instances is learned from windows only.
    """
    tallies: dict[tuple[str, Resource], Tally] = {}
    windows: dict[Resource, dict[str, Row]] = defaultdict(dict)
    failed: list[str] = []
    answered: set[str] = set()
    for at, history in enumerate(histories):
        progress(at, len(instances))
        failed += [history.failed] if history.failed else []
        answered |= history.windows.keys()
        instance = instances[history.name]
        for resource in _RESOURCES:
            row, means = _demanded(history, resource, instance)
            if row:
                windows[resource][history.name] = row
                most = float(instance.vcpus) if resource == "cpu" else math.inf
                tallies[history.name, resource] = _before(resource, row, means, most)
    progress(len(instances), len(instances))
    for resource, rows in windows.items():
        teach(tallies, resource, rows)
    demands = learned(tallies, {name: instance.vcpus for name, instance in instances.items()})
    silent = {*_RESOURCES, "waiting"} - answered if instances else set()
    return MonitoringHistory(demands, tuple(unknown), tuple(sorted(silent)), tuple(failed))


def _demanded(history: GuestHistory, resource: Resource, instance: Instance) -> tuple[Row, _Means]:
    """Windows and means of a resource; for CPUs with the waiting, unless the instance has a cap.

    Pressure is the time in which one task at least waited, so one CPU's worth of waiting at least. A task that its own
    cap holds back waits, too, and the two cannot be distinguished.
    """
    row, means = history.windows.get(resource, {}), history.means.get(resource, ())
    if resource != "cpu":
        most = LARGEST.get(resource, math.inf)
        possible = {time_s: value for time_s, value in row.items() if value <= most}
        return possible, [mean for mean in means if mean[2] <= most]
    capped = instance.settings.cap_percent is not None
    waiting = {} if capped else history.windows.get("waiting", {})
    waited = {} if capped else {end_s: mean for end_s, _, mean in history.means.get("waiting", ())}
    grown = demanded({end_s: mean for end_s, _, mean in means}, waited, {}, instance.vcpus)
    return demanded(row, waiting, {}, instance.vcpus), [(end_s, step_s, grown[end_s]) for end_s, step_s, _ in means]


def _before(resource: Resource, row: Row, means: _Means, most: float) -> Tally:
    """What the means before the first window teach, each in the shape of windows that were seen."""
    tally, half_hours = Tally(resource, float(WINDOW_S)), shapes(row, WINDOW_S)
    first_s = min(row) - WINDOW_S
    for end_s, step_s, mean in means:
        if end_s <= first_s:
            for time_s, value in half_hours.broken_down(end_s, step_s, mean, most).items():
                tally.add(Window(time_s, value))
    return tally
