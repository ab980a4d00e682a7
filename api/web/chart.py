"""Numbers → drawings as values: line charts, small bars of pressure, a strip of hosts; no HTML here."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from advisor.domain import Headroom, Histories, History, HostMemory, HostNow, ScorePoint, ScoreSource, VmScorePoint
from api.web import sorting
from profiler.metrics import EIGHT

MOST_LINES = 6  # as many as can be distinguished by colour and dashes
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 316.0, 8.0, 84.0  # of the lines, as charts.html draws the axes
SHARE = "share"
_WINDOW_S = 300.0  # of a score that is kept
_TITLES = {"cpu": "CPU", SHARE: "CPU delivered", "score": "Score"}
_SHARE_HELP = (
    "Run over run and wait, as measured; the thin line is what is predicted now. Time for which its own cap holds an "
    "instance back counts as waiting."
)


@dataclass(frozen=True, slots=True)
class ChartLine:
    """One series, drawn: its number `at` chooses colour and dashes; a `predicted` one is drawn thin."""

    name: str
    at: int
    path: str
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """The same in figures: last, mean, least and most."""

    name: str
    last: str
    mean: str
    least: str
    most: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric over time. `figures` has every instance, `lines` those with the highest means."""

    title: str
    unit: str
    help: str
    top: str
    begin: str
    end: str
    lines: tuple[ChartLine, ...]
    figures: tuple[Figures, ...]

    @property
    def words(self) -> str:
        """The chart in words, for readers who cannot see it."""
        shown = ", ".join(line.name for line in self.lines)
        unit = f" in {self.unit}" if self.unit else ""
        return f"{self.title}{unit} of {shown} from {self.begin} to {self.end}, at most {self.top}"


def charts(histories: Histories, names: Mapping[str, int]) -> tuple[Chart, ...]:
    """A chart for each of the eight metrics that was measured, in their order.

    `names` numbers the instances; the first MOST_LINES of them are drawn. The host's own series are drawn as number 0.
    """
    by_metric: dict[str, list[History]] = {}
    for history in histories.found:
        by_metric.setdefault(history.metric, []).append(history)
    return tuple(
        _chart(metric.name, metric.help, by_metric[metric.name], histories, names)
        for metric in EIGHT
        if metric.name in by_metric
    )


def shares(histories: Histories, names: Mapping[str, int], predicted: Mapping[str, float]) -> Chart | None:
    """What instances got of the CPU time that they wanted, run / (run + wait), beside what is predicted of each now.

    None where no instance's waiting was measured.
    """
    measured = share_histories(histories)
    if not measured:
        return None
    chart = _chart(SHARE, _SHARE_HELP, measured, histories, names, top=1.0)
    drawn = {line.name: line for line in chart.lines}
    predicted_lines = tuple(
        ChartLine(f"{name}, predicted", drawn[name].at, _level(share), predicted=True)
        for name, share in predicted.items()
        if name in drawn
    )
    return replace(chart, lines=(*chart.lines, *predicted_lines))


def share_histories(histories: Histories) -> list[History]:
    """Run / (run + wait) of each instance, step by step, where both were measured and are not both 0."""
    values_at = {
        (history.instance, history.metric): dict(zip(history.times, history.values, strict=True))
        for history in histories.found
    }
    measured = []
    for history in histories.found:
        if history.metric != "cpu" or history.instance is None:
            continue
        waiting = values_at.get((history.instance, "waiting"), {})
        pairs = [
            (at, run / (run + waiting[at]))
            for at, run in zip(history.times, history.values, strict=True)
            if at in waiting and run + waiting[at] > 0
        ]
        if pairs:
            times, values = zip(*pairs, strict=True)
            measured.append(History(history.host, history.instance, SHARE, "", times, values))
    return measured


def scores(history: Sequence[ScorePoint]) -> Chart | None:
    """Mean and lowest score of windows of five minutes; None where there are none."""
    known = [(point.time.timestamp(), point.mean, point.lowest) for point in history]
    if not known:
        return None
    times, means, lowest = zip(*known, strict=True)
    names = {"mean": 0, "lowest": 1}
    lines = [
        History("", name, "score", "", times, [value or 0.0 for value in values])
        for name, values in zip(names, (means, lowest), strict=True)
    ]
    span = Histories(times[0] - _WINDOW_S, times[-1], _WINDOW_S, tuple(lines))
    return _chart("score", "The score of VMs, 100 = uncontended, window by window.", lines, span, names, top=100.0)


def vm_scores(history: Sequence[VmScorePoint]) -> Chart | None:
    """The score of one VM window by window, where CPU delivered was measured and where it was predicted."""
    sources: dict[ScoreSource, int] = {"measured": 0, "predicted": 1}
    lines = [
        History("", source, "score", "", [point.time.timestamp() for point in of], [point.score for point in of])
        for source in sources
        if (of := [point for point in history if point.source == source])
    ]
    if not lines:
        return None
    span = Histories(history[0].time.timestamp() - _WINDOW_S, history[-1].time.timestamp(), _WINDOW_S, tuple(lines))
    names = {str(source): at for source, at in sources.items()}
    return _chart("score", "Its score, 100 = uncontended, window by window.", lines, span, names, top=100.0)


def ranked(histories: Histories) -> dict[str, int]:
    """Numbers the instances of a host, the largest mean use of CPU first: those that matter are drawn."""
    cpu = {
        history.instance: _mean(history.values)
        for history in histories.found
        if history.metric == "cpu" and history.instance
    }
    names = sorted(
        {history.instance for history in histories.found if history.instance},
        key=lambda name: (-cpu.get(name, 0.0), name),
    )
    return {name: at for at, name in enumerate(names)}


def _chart(
    metric: str,
    help_text: str,
    measured: Sequence[History],
    histories: Histories,
    names: Mapping[str, int],
    top: float | None = None,
) -> Chart:
    ordered = sorted(measured, key=lambda history: (names.get(history.instance or "", -1), history.host))
    drawn = [history for history in ordered if names.get(history.instance or "", 0) < MOST_LINES]
    top = top or _round_up(max((max(history.values) for history in drawn), default=0.0))
    lines = tuple(
        ChartLine(_name(history), names.get(history.instance or "", 0), _path(history, histories, top))
        for history in drawn
    )
    figures = tuple(
        Figures(
            _name(history),
            *(
                _figure(value)
                for value in (history.values[-1], _mean(history.values), min(history.values), max(history.values))
            ),
        )
        for history in ordered
    )
    begin, end = (_moment(at, histories) for at in (histories.begin_s, histories.end_s))
    return Chart(
        _TITLES.get(metric, metric.replace("_", " ").capitalize()),
        measured[0].unit,
        help_text,
        _figure(top),
        begin,
        end,
        lines,
        figures,
    )


def _path(history: History, histories: Histories, top: float) -> str:
    """The line through the middles of the steps; a step between two breaks is a dot.

    It breaks where more than one step is missing beyond the usual distance: an agent that pushes every two minutes
    leaves steps of half a minute empty.
    """
    span = histories.end_s - histories.begin_s
    points = [
        (
            round(_LEFT + (_RIGHT - _LEFT) * (at - histories.step_s / 2 - histories.begin_s) / span, 1),
            round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value / top, 0.0), 1.0), 1),
        )
        for at, value in zip(history.times, history.values, strict=True)
    ]
    gaps = [after - before for before, after in pairwise(history.times)]
    longest = 2.5 * max(histories.step_s, median(gaps or [0.0]))
    breaks = [True, *(gap > longest for gap in gaps), True]
    return "".join(
        f"{'M' if begins else 'L'}{x:g} {y:g}{'h.1' if ends else ''}"
        for (x, y), begins, ends in zip(points, breaks, breaks[1:], strict=False)
    )


def _level(value: float) -> str:
    """A line across the chart at this value of 0 to 1."""
    y = round(_BOTTOM - (_BOTTOM - _TOP) * min(max(value, 0.0), 1.0), 1)
    return f"M{_LEFT:g} {y:g}H{_RIGHT:g}"


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    if not 0 < value < math.inf:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9)), 10 * power)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _name(history: History) -> str:
    return history.instance or f"host {history.host}"


def _moment(at: float, histories: Histories) -> str:
    span = histories.end_s - histories.begin_s
    form = "%H:%M UTC" if span < 86_400 else "%m-%d %H:%M UTC" if span == 86_400 else "%Y-%m-%d"
    return f"{datetime.fromtimestamp(at, UTC):{form}}"


# Pressure → small bars with their figure in words; no HTML here.

WIDTH = 100.0  # of a bar, in its own units; demand for all of a resource fills it
FULL, HIGH = 1.0, 0.7  # above these an instance must wait; queues grow long (a choice: at 0.7 an M/M/1 queue holds 2.3)
NAMES: Mapping[str, str] = {
    "cpu": "CPU",
    "driver_domain": "Driver domain",
    "nic": "NIC",
    "disk": "Disk",
    "memory": "Memory bandwidth",
}


@dataclass(frozen=True, slots=True)
class Bar:
    """One resource of a host; `figure` is empty where its capacity is not known."""

    name: str
    level: str  # good, fair or bad
    length: float
    figure: str
    words: str
    peak: float | None = None  # length at busy times; None = not known
    peak_figure: str = ""


def bars(pressure: Mapping[str, float | None], cpu_peak: float) -> tuple[Bar, ...]:
    """Demand for each resource, in the order of `pressure`; `cpu_peak` is the demand for CPUs at busy times."""
    return tuple(
        _bar(NAMES.get(name, name), value, cpu_peak if name == "cpu" else None) for name, value in pressure.items()
    )


def _bar(name: str, value: float | None, peak: float | None) -> Bar:
    if value is None:
        return Bar(name, "good", 0.0, "", f"{name}: its capacity is not known")
    level = "bad" if value > FULL else "fair" if value > HIGH else "good"
    words = f"{name}: demand is {_bar_figure(value)} of capacity"
    bar = Bar(name, level, _length(value), _bar_figure(value), words)
    if not peak or peak <= value:
        return bar
    if peak > FULL and level == "good":
        bar = replace(bar, level="fair")
    return replace(
        bar, words=f"{words}, {_bar_figure(peak)} at busy times", peak=_length(peak), peak_figure=_bar_figure(peak)
    )


MEMORY_HIGH = 0.9  # of a host's memory: above it few new instances find room


def memory_bar(promised_mb: float, memory_mb: float, state: HostMemory | None = None) -> Bar:
    """The memory of a host's instances, over that of the host; stalls and swap in place of it where there are any."""
    part = promised_mb / max(memory_mb, 1.0)  # all of it may be huge pages
    level = "bad" if part > FULL else "fair" if part > MEMORY_HIGH else "good"
    words = f"Memory: {promised_mb / 1024:,.0f} of {memory_mb / 1024:,.0f} GB"
    bar = Bar("Memory", level, _length(part), _bar_figure(part), words)
    if state is None or not state.words:
        return bar
    figure = "swaps" if state.swaps else f"stalls {state.stalled:.0f} %"
    return replace(bar, level="bad" if state.is_short() else "fair", figure=figure, words=f"{words}; it {state.words}")


def kept_bar(share: float, level: str) -> Bar:
    """At what part of its uncontended speed an instance runs."""
    text = f"runs at {100 * share:.0f} % of its uncontended speed"
    return Bar("Relative throughput", level, _length(share), f"{share:.2f}", text)


def _length(value: float) -> float:
    return round(WIDTH * min(max(value, 0.0), 1.0), 1)


def _bar_figure(value: float) -> str:
    return f"{100 * value:.0f} %" if value < 10 else f"{value:.0f} ×"


@dataclass(frozen=True, slots=True)
class Room:
    """One resource of a host with the new VM: `before` is used already, `added` by the new VM; WIDTH is all."""

    name: str
    level: str
    before: float
    added: float
    figure: str
    words: str


def rooms(headroom: Headroom | None) -> tuple[Room, ...]:
    """How full CPUs, memory and network are; what is not known is said to be so."""
    if headroom is None:
        return ()
    parts = (("CPU", "cpu", "at busy times"), ("Memory", "memory", "promised"), ("Network", "nic", "at busy times"))
    return tuple(
        _room(name, 1 - getattr(headroom, field), getattr(headroom, f"{field}_before"), when)
        for name, field, when in parts
    )


def _room(name: str, after: float, left: float | None, when: str) -> Room:
    before = after if left is None else 1 - left
    if not (before or after):  # its capacity or use is not known: a measured use is never exactly 0
        return Room(name, "good", 0.0, 0.0, "–", f"{name} {when}: not known")
    level = "bad" if after > FULL else "fair" if after > HIGH else "good"
    start, end = _length(before), _length(after)
    figure = f"{100 * after:.0f} %"
    return Room(
        name,
        level,
        start,
        round(max(end - start, 0.0), 1),
        figure,
        f"{name} {when}: {100 * before:.0f} % before, {figure} with it",
    )


# Hosts → a strip of columns: height is demand for CPUs at busy times, colour the most affected instance; no HTML.

HEIGHT = 48.0  # of a column, in its own units; a host whose CPUs are all asked for fills it
_LEVELS = ("good", "fair", "bad")
NAMED = 24  # hosts of a strip that has names below its columns


@dataclass(frozen=True, slots=True)
class Cell:
    """One host."""

    name: str
    level: str  # good, fair or bad: of the most affected instance there; empty = the host is empty
    height: float
    over: bool  # demand at busy times exceeds its CPUs
    figure: str
    known: str  # of how many of its instances more than the size is known
    badge: str  # all, some or none
    words: str


def strip_counts(cells: Sequence[Cell]) -> Counter[str]:
    """The number of hosts of each level."""
    return Counter(cell.level for cell in cells)


def strip_cells(hosts: Sequence[HostNow]) -> tuple[Cell, ...]:
    """All hosts by name."""
    return tuple(_cell(host) for host in sorted(hosts, key=lambda host: host.host.id))


def _cell(now: HostNow) -> Cell:
    worst, count = now.worst, len(now.residents)
    level = ""
    if worst is not None:
        level = max((sorting.affected_level(resident) for resident in now.residents), key=_LEVELS.index)
    figure = f"{100 * now.cpu_peak:.0f} %"
    words = f"{now.host.id}: {figure} of the CPUs at busy times"
    if worst is None:
        words += ", empty"
    else:
        words += f"; most affected: {worst.instance.id}, at {100 * worst.expected:.0f} % of its uncontended speed"
        words += f"; more than the size is known for {now.known} of {count}"
    return Cell(
        now.host.id,
        level,
        round(HEIGHT * min(now.cpu_peak, 1.0), 1),
        now.cpu_peak > 1,
        figure,
        f"{now.known}/{count}",
        "all" if now.known == count else "some" if now.known else "none",
        words,
    )
