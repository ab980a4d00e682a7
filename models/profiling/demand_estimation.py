"""Demand from windows: one bounded state per instance and resource that takes windows one by one, and what it knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from models.data.demand_classes import DAY_ONE, PRIOR_HOURS, doubt, usual_spread
from profiler.demand import Demand, DemandOrigin, Resource

HOURS = 168  # of a week, in UTC; the first is Thursday 0:00-1:00, when the epoch began
PER_OCTAVE = 8  # bins of the histogram: a quantile is right to 9 % of itself
FIRST_BIN, LAST_BIN = -10 * PER_OCTAVE, 24 * PER_OCTAVE  # 0.001 CPUs to 16 TB/s
PRIOR_WINDOWS = 4.0  # what the class counts for where the spread is estimated
# Days that must have been seen before hours of the day, or of the week, are reported.
DAYS_FOR_HOURS, DAYS_FOR_WEEK = 0.9, 21.0
MORE_HOURS = 1.25  # of the day that must have been seen to be news
LEAST_COMMON = 24  # windows before a share with the others is reported
# Windows, of eight weeks, after which all that was seen counts half: what an instance did in spring says little of
# what it does in autumn. At least four weeks count then, which is enough for hours of the week.
MOST_WINDOWS = 16_128
# Of a window, in the resource's unit: more is a counter gone wrong, and would count for weeks.
LARGEST: Mapping[str, float] = {"net_mbit": 1e7, "disk_mb_s": 1e6, "mem_bw_mb_s": 1e7}
LEAST_EXECUTIONS = 100.0  # that a mean burst is reported by
NEWS_OF_BURSTS = 1.25  # a mean burst that grew or shrank by so much is news
_MOST_LAG = 0.99  # above it a constant would look like a trend


@dataclass(frozen=True, slots=True)
class Window:
    """The demand of one window: when it ended (s since the epoch), and CPUs or the resource's unit.

    `others_in_step` is the mean of the cloud's other instances in the same window, each over its own mean; None =
    unknown. `ran` are the CPUs that it used and `executions` how often in a second it was given one, 0 = not counted.
    """

    time_s: float
    demand: float
    others_in_step: float | None = None
    ran: float = 0.0
    executions: float = 0.0


@dataclass(slots=True)
class Tally:
    """What all windows of one instance and resource have taught; its size does not grow with their number.

    Beyond MOST_WINDOWS all counts are halved, so that what is older counts less. Mean and squares by Welford's method;
    `bins` count windows by the logarithm of their demand; `sums` and `counts` are of the hours of the week; `lagged`
    are co-moments of a window and the next one, `shared` of a window and every instance's: number, both means, both
    squares, products. `bursts` are the seconds that it ran, and how often it was given a CPU for them.
    """

    resource: Resource = "cpu"
    window_s: float = 300.0
    n: float = 0.0
    mean: float = 0.0
    squares: float = 0.0
    least: float = math.inf
    most: float = 0.0
    first_s: float = math.inf
    last_s: float = -math.inf
    last: float = 0.0
    bins: dict[int, float] = field(default_factory=dict)
    sums: list[float] = field(default_factory=lambda: [0.0] * HOURS)
    counts: list[float] = field(default_factory=lambda: [0.0] * HOURS)
    lagged: list[float] = field(default_factory=lambda: [0.0] * 6)
    shared: list[float] = field(default_factory=lambda: [0.0] * 6)
    bursts: list[float] = field(default_factory=lambda: [0.0] * 2)

    def add(self, window: Window) -> None:
        """Take one window; the lag counts between windows that follow each other. ValueError where it is none."""
        value = window.demand
        if not (math.isfinite(value) and value >= 0 and math.isfinite(window.time_s)):
            raise ValueError(f"a window with a demand of {value} at {window.time_s} is none")
        if self.n and 0 < window.time_s - self.last_s < 1.5 * self.window_s:
            _co_moments(self.lagged, self.last, value)
        if window.others_in_step is not None:
            self.compare(value, window.others_in_step)
        if window.executions > 0 and math.isfinite(window.ran):
            for at, rate in enumerate((window.ran, window.executions)):
                self.bursts[at] += rate * self.window_s
        self.n += 1
        change = value - self.mean
        self.mean += change / self.n
        self.squares += change * (value - self.mean)
        self.least, self.most = min(self.least, value), max(self.most, value)
        at = bin_of(value)
        self.bins[at] = self.bins.get(at, 0) + 1
        hour = int(window.time_s - self.window_s / 2) // 3600 % HOURS
        self.sums[hour] += value
        self.counts[hour] += 1
        self.first_s = min(self.first_s, window.time_s)
        if window.time_s > self.last_s:
            self.last_s, self.last = window.time_s, value
        if self.n > MOST_WINDOWS:
            self._halve()

    def compare(self, demand: float, others_in_step: float) -> None:
        """Note how busy the others were in a window, where that is known only after the window was added."""
        if math.isfinite(others_in_step):
            _co_moments(self.shared, demand, others_in_step)

    def _halve(self) -> None:
        """Let all that was seen count half; means, quantiles and correlations stay as they are."""
        self.n /= 2
        self.squares /= 2
        self.bins = {at: count / 2 for at, count in self.bins.items()}
        self.sums = [one / 2 for one in self.sums]
        self.counts = [one / 2 for one in self.counts]
        for held in (self.lagged, self.shared):
            held[0], held[3:] = held[0] / 2, [one / 2 for one in held[3:]]
        self.bursts = [one / 2 for one in self.bursts]
        self.first_s = (self.first_s + self.last_s) / 2

    @property
    def burst_ms(self) -> float | None:
        """The mean CPU time between being given a CPU and leaving it; None where too little was counted."""
        ran_s, executions = self.bursts
        return 1000 * ran_s / executions if executions >= LEAST_EXECUTIONS else None

    @property
    def days(self) -> float:
        """Days between the first window and the last."""
        return max(self.last_s - self.first_s, 0.0) / 86_400 if self.n else 0.0

    def quantile(self, share: float) -> float:
        """The demand that this share of the windows stays below, linear within a bin; 0 without windows."""
        below, before = share * self.n, 0.0
        for at in sorted(self.bins):
            count = self.bins[at]
            if before + count >= below:
                low, high = border(at), border(at + 1)
                value = low + (high - low) * max(below - before, 0.0) / count
                return min(max(value, self.least), self.most)
            before += count
        return self.most


def tally(windows: Iterable[Window], *, resource: Resource = "cpu", window_s: float = 300.0) -> Tally:
    """The tally of windows in order of time."""
    found = Tally(resource, window_s)
    for window in windows:
        found.add(window)
    return found


def demanded_cpus(run: float, wait: float, vcpus: float, threads: float | None = None) -> float:
    """CPUs that an instance would use if nothing held it back, from what it ran and waited; all in CPUs.

    Who had time to spare has done the work that came, and who was always ready would have run all the time; who thinks
    between bursts lies between. So run / (1 - wait * ready), with the parts of its vCPUs' time in which it waited and
    in which it was ready (ran or waited). Run + wait takes all queueing for work (decision 81).

    Of an instance with fewer busy `threads` than vCPUs it is the time of these: one thread that is always ready demands
    one CPU on any number of vCPUs (decision 158). None = they were not counted.
    """
    most = min(threads, vcpus) if threads is not None and threads > 0 else vcpus
    ready = (run + wait) / most
    if ready >= 1:
        return float(min(max(most, run), vcpus))
    return min(run / (1 - wait / most * ready), float(vcpus))


def from_trace(demands: Sequence[float], *, vcpus: int | None = None) -> Demand:
    """Demand for CPUs from one value per five minutes, the first from midnight. ValueError when there is none."""
    windows = (Window((at + 1) * 300.0, float(value)) for at, value in enumerate(demands))
    return estimated(tally(windows), vcpus=vcpus, origin="trace")


def estimated(known: Tally, *, vcpus: int | None = None, origin: DemandOrigin = "measured") -> Demand:
    """What the tally says, within `vcpus` for CPU.

    The variance between windows counts the class's as PRIOR_WINDOWS windows of its own, so that two windows that
    happen to be alike do not look certain. ValueError without windows.
    """
    if known.n == 0:
        raise ValueError(f"demand for {known.resource}: there are no windows")
    most = float(vcpus) if vcpus is not None and known.resource == "cpu" else math.inf
    mean = min(known.mean, most)  # threads of the emulator may run and wait beside the vCPUs
    guess = max(usual_spread(mean, most), 1e-3 if known.resource == "cpu" else 0.0)
    variance = (known.squares + PRIOR_WINDOWS * guess**2) / (known.n - 1 + PRIOR_WINDOWS)
    lag = lag_one(known.lagged)
    p50, p95, p99 = (min(known.quantile(share), most) for share in (0.50, 0.95, 0.99))
    return Demand(
        mean=mean,
        resource=known.resource,
        spread=math.sqrt(variance),
        p50=p50,
        p95=p95,
        p99=p99,
        window_s=known.window_s,
        autocorrelation_s=known.window_s / -math.log(lag) if lag is not None and lag > 0 else None,
        hours=_hours(known),
        seen_hours=_seen_hours(known),
        common=common_share(known.shared),
        windows=known.n,
        burst_ms=known.burst_ms,
        doubt=doubt(known.n, math.sqrt(variance), mean, DAY_ONE.lag_one if lag is None else lag, known.days),
        origin=origin,
    )


class Estimate(NamedTuple):
    """The fields of a Demand, not checked."""

    mean: float
    resource: Resource = "cpu"
    spread: float = 0.0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    window_s: float = 300.0
    autocorrelation_s: float | None = None
    hours: Sequence[float] = ()
    seen_hours: Sequence[float] = ()
    common: float | None = None
    windows: float = 0.0
    doubt: float = 0.0
    open_loop: float | None = None
    burst_ms: float | None = None
    origin: DemandOrigin = "given"


def is_news(before: Demand | Estimate | None, now: Demand | Estimate) -> bool:
    """Whether it differs by more than the noise: its mean by half its doubt; spread, p95 or hours by a tenth; its
    bursts by a quarter; or a quarter more of the day was seen."""
    if before is None or before.origin != now.origin or before.window_s != now.window_s:
        return True
    noise = max(0.5 * now.doubt, 0.01 * max(before.mean, now.mean, 1e-3))
    if abs(now.mean - before.mean) > noise or now.doubt < 0.5 * before.doubt:
        return True
    pairs = [(before.spread, now.spread), (before.p95 or 0.0, now.p95 or 0.0)]
    if any(abs(new - old) > max(0.1 * max(old, new), noise) for old, new in pairs):
        return True
    if abs((before.common or 0.0) - (now.common or 0.0)) > 0.1 or len(before.hours) != len(now.hours):
        return True
    if _other_bursts(before.burst_ms, now.burst_ms):
        return True
    hours_then, hours_now = (sum(count > 0 for count in one.seen_hours) for one in (before, now))
    if hours_now > MORE_HOURS * hours_then or bool(hours_then) != bool(hours_now):
        return True
    if not now.hours or now.mean <= 0:
        return False
    of_an_hour = now.spread / now.mean / math.sqrt(max(now.windows / len(now.hours), 1.0))  # one standard error
    return any(abs(new - old) > max(0.1, of_an_hour) for old, new in zip(before.hours, now.hours, strict=True))


def _other_bursts(before: float | None, now: float | None) -> bool:
    if not before or not now:
        return bool(before) != bool(now)
    return not 1 / NEWS_OF_BURSTS < now / before < NEWS_OF_BURSTS


def others_in_step(demands: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """Of one window, each instance's others: the mean of their demand over their own mean, at least two of them.

    `demands` are (demand, own mean) by instance; one without a mean yet says nothing of the others.
    """
    ratios = {name: value / mean for name, (value, mean) in demands.items() if mean > 0}
    total, count = sum(ratios.values()), len(ratios)
    found = {}
    for name in demands:
        others = count - (name in ratios)
        if others >= 2:
            found[name] = (total - ratios.get(name, 0.0)) / others
    return found


def bin_of(value: float) -> int:
    """Where the histogram counts a demand."""
    return min(max(math.floor(math.log2(value) * PER_OCTAVE), FIRST_BIN), LAST_BIN) if value > 0 else FIRST_BIN - 1


def border(at: int) -> float:
    """Where a bin begins."""
    return 2.0 ** (at / PER_OCTAVE) if at >= FIRST_BIN else 0.0


def _co_moments(held: list[float], x: float, y: float) -> None:
    """Update n, both means, both squares and the products of deviations by one pair (Welford)."""
    n = held[0] = held[0] + 1
    dx, dy = x - held[1], y - held[2]
    held[1] += dx / n
    held[2] += dy / n
    held[3] += dx * (x - held[1])
    held[4] += dy * (y - held[2])
    held[5] += dx * (y - held[2])


def _correlation(held: Sequence[float]) -> float | None:
    n, _, _, xx, yy, xy = held
    if n < 3 or xx <= 0 or yy <= 0:
        return None
    return min(max(xy / math.sqrt(xx) / math.sqrt(yy), -1.0), 1.0)


def lag_one(lagged: Sequence[float]) -> float | None:
    """The lag-1 correlation; None below eight pairs, of which it would be mostly noise."""
    found = _correlation(lagged) if lagged[0] >= 8 else None
    return None if found is None else min(found, _MOST_LAG)


def common_share(shared: Sequence[float]) -> float | None:
    """The share of the variance that goes with every instance's, less what as many windows show by chance."""
    n, r = shared[0], _correlation(shared)
    if n < LEAST_COMMON or r is None:
        return None
    return max(1 - (1 - r * r) * (n - 1) / (n - 2), 0.0) if r > 0 else 0.0


def _hours(known: Tally) -> tuple[float, ...]:
    """Factors of the mean, mean 1, of 24 or 168 hours: each drawn to a day without hours by PRIOR_HOURS windows."""
    if known.days < DAYS_FOR_HOURS or known.mean <= 0:
        return ()
    number = HOURS if known.days >= DAYS_FOR_WEEK else 24
    factors = []
    for hour in range(number):
        total, count = sum(known.sums[hour::number]), sum(known.counts[hour::number])
        factors.append((total / known.mean + PRIOR_HOURS) / (count + PRIOR_HOURS))
    scale = number / sum(factors)
    return tuple(factor * scale for factor in factors)


def _seen_hours(known: Tally) -> tuple[float, ...]:
    """Windows in each hour of the day, of CPUs, and only while no whole day was seen."""
    if known.resource != "cpu" or known.days >= DAYS_FOR_HOURS:
        return ()
    return tuple(sum(known.counts[hour::24]) for hour in range(24))
