"""Demand over time from the history that a virtualization system keeps of its own guests: windows, and means before.

A mean over half an hour tells how much and at which hour, and takes the shape of a half hour that was seen in windows
(`models.profiling.windows`). Waiting is the least that pressure tells. Decision 83 says what this rests on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from advisor.domain import Instance
from advisor.inventories.systems import GuestHistory
from advisor.telemetry.monitoring_history import WINDOW_S, MonitoringHistory, Progress, Row, demanded, learned, teach
from models.profiling.demand_estimation import LARGEST, Tally, Window
from models.profiling.windows import shapes
from profiler.demand import Resource

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
