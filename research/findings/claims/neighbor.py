"""who-is-your-neighbor-2012: pairs of web servers on one CPU and one uplink, and where driver domain and guests run.

Platform I is a host whose guests share one CPU and one link. Here: servers on CPU 0 (form `same`), load generators on
CPU 1, a 1 Gbit/s uplink that HTB shares fairly. The driver domain is the kernel's own work for the instances. Runs are
at full load but for the sweeps (lab-neighbor-loads), where a load is a share of what a server reaches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from statistics import fmean
from typing import TypeVar

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, against, change, gain, less, over, percent
from research.findings.lab_runs import LabRun, LabRuns
from research.findings.verdicts import DIRECTIONS, Region, above, below

ORDERED_PAIRS = ("1k+1k", "1k+10k", "1k+50k", "1k+100k", "30k+100k", "50k+100k")  # of N3
THREE = ("1k+1k", "1k+100k", "100k+100k")
ONE_CPU, SHARED_SET = "same", "shared"
DRIVER_APART, DRIVER_BOTH = "driver-1", "driver-2"  # I/O work of the kernel on CPU 1, or on both; servers on CPU 0
GUESTS_BOTH = "guests-2"  # servers on both CPUs, the kernel's I/O work on CPU 1
SWITCH_AND_EVENT = ("switch", "event")


def pair(lab: LabRuns, name: str, form: str = ONE_CPU) -> list[LabRun]:
    """Runs of `1k+100k` (web-1k beside web-100k) at full load in one form, on a shared uplink as in the paper."""

    def fits(run: LabRun) -> bool:
        return run.form == form and all(member.plain and member.net_mode == "shared" for member in run.members)

    return lab.runs(*(f"web-{size}" for size in name.split("+")), where=fits)


def pair_at(lab: LabRuns, name: str, load: float) -> list[LabRun]:
    """The same with both members at a part of what they reach alone; 1 = both saturated."""

    def fits(run: LabRun) -> bool:
        at_load = all(member.load == load and member.net_mode == "shared" for member in run.members)
        return run.form == ONE_CPU and at_load

    return pair(lab, name) if load >= 1 else lab.runs(*(f"web-{size}" for size in name.split("+")), where=fits)


def of_known(how: Callable[[Sequence[float]], float], values: Sequence[float | None]) -> float | None:
    """how(values), None where one of them is unknown."""
    known = [value for value in values if value is not None]
    return how(known) if len(known) == len(values) else None


def combined(run: LabRun) -> float | None:
    """Sum of T/B."""
    return of_known(fsum, [member.ratio() for member in run.members])


def reached(run: LabRun, at: int = 0) -> float | None:
    return run.members[at].reached.get("throughput")


def mean_reached(run: LabRun) -> float | None:
    return of_known(fmean, [reached(run, at) for at in range(len(run.members))])


def ratio(run: LabRun, at: int = 0) -> float | None:
    """T/B of a member; of a pair of one workload with itself the mean of both, as the papers print one figure."""
    if len({member.workload for member in run.members}) == 1:
        return of_known(fmean, [member.ratio() for member in run.members])
    return run.members[at].ratio()


def kilobytes(rate: float | None, size: float) -> float | None:
    """KB/s of a server of pages of this size."""
    return None if rate is None else size * rate


def response(run: LabRun, at: int) -> float | None:
    """Mean response time of a member in ms."""
    return run.members[at].reached.get("latency_mean_ms")


def loss(run: LabRun) -> float | None:
    """Throughput that the first member lost, in percent."""
    return percent(less(1.0, ratio(run)))


def of_guests(run: LabRun, metric: str) -> float | None:
    """Mean of a metric over the instances."""
    return of_known(fmean, [run.metric("instance", metric, member.instance) for member in run.members])


def show(
    finding: str, *situations: str, of: str, value: Callable[[LabRun], float | None], unit: str | None = None
) -> None:
    """Register a value of every run of a pair on one CPU."""

    @number(finding, *situations, unit=unit)
    def claim(lab: LabRuns) -> Values | None:
        return over(pair(lab, of), value)


def compare(
    finding: str,
    *situations: str,
    of: tuple[str, str],
    base: tuple[str, str],
    how: Callable[[LabRun, LabRun], float | None],
) -> None:
    """Register a value of every run of one pair and form and the base's run of the same round."""

    @number(finding, *situations)
    def claim(lab: LabRuns) -> Values | None:
        return against(pair(lab, *of), pair(lab, *base), how)


# N2: one server alone. Two sizes are bound by the CPU, four by the network; 10 KB lies between (section 3.4).
CPU_SIZES, NET_SIZES = ("1k", "4k"), ("30k", "50k", "70k", "100k")
OTHER_SIZES = ("1k", "4k", "30k", "50k", "70k", "100k")
Of = TypeVar("Of")  # what distinguishes the runs of a round that are compared


def alone(lab: LabRuns, size: str) -> list[LabRun]:
    """Runs of one server alone on CPU 0 with its generator on CPU 1."""
    return lab.runs(f"web-{size}", kind="solo", where=lambda run: run.run == f"solo:web-{size}:0:1")


def of_rounds(runs: Mapping[Of, Sequence[LabRun]], how: Callable[[Mapping[Of, LabRun]], float | None]) -> Values | None:
    """A value of every round that has a run of each key; None where there is no such round."""
    by_round: dict[tuple[str, str], dict[Of, LabRun]] = {}
    for key, some in runs.items():
        for run in some:
            by_round.setdefault((run.dataset, run.repeat), {})[key] = run
    whole = [each for each in by_round.values() if len(each) == len(runs)]
    first = next(iter(runs))
    return over([each[first] for each in whole], lambda run: how(by_round[run.dataset, run.repeat]))


def of_sizes(lab: LabRuns, sizes: Sequence[str], how: Callable[[Mapping[str, LabRun]], float | None]) -> Values | None:
    """A value of every round in which servers of all these sizes ran alone."""
    return of_rounds({size: alone(lab, size) for size in sizes}, how)


def _less(metric: str) -> Callable[[Mapping[str, LabRun]], float | None]:
    """By how much less of a host's metric the CPU-bound have than the network-bound, at least, in percent."""

    def read(runs: Mapping[str, LabRun]) -> float | None:
        most = of_known(max, [runs[size].metric("host", metric) for size in CPU_SIZES])
        least = of_known(min, [runs[size].metric("host", metric) for size in NET_SIZES])
        return percent(less(1.0, gain(most, least)))

    return read


def _alone_rows(metric: str) -> None:
    @number("N2", f"{metric}-cpu-bound-lower")
    def lower(lab: LabRuns) -> Values | None:
        return of_sizes(lab, (*CPU_SIZES, *NET_SIZES), _less(metric))


for _metric in SWITCH_AND_EVENT:
    _alone_rows(_metric)


def _waiting_rows(statement: str, value: Callable[[LabRun], float | None]) -> None:
    """1 KB over 30 KB, which is what the printed factors are of."""

    @number("N2", statement)
    def longer(lab: LabRuns) -> Values | None:
        return of_sizes(lab, ("1k", "30k"), lambda runs: gain(value(runs["1k"]), value(runs["30k"])))


_waiting_rows("dom0-waiting-cpu-bound", lambda run: run.metric("driver_domain", "waiting"))
_waiting_rows("guest-waiting-cpu-bound", lambda run: of_guests(run, "waiting"))


number("N2", "guest-block-cpu-bound")(
    lambda lab: of_sizes(lab, CPU_SIZES, lambda runs: of_known(max, [of_guests(run, "block") for run in runs.values()]))
)


@number("N2", "events-10k-over-cpu-bound")
def events_of_10k(lab: LabRuns) -> Values | None:
    """Over 4 KB, which is what the printed figure is of."""
    return of_sizes(
        lab, ("10k", "4k"),
        lambda runs: percent(change(runs["10k"].metric("host", "event"), runs["4k"].metric("host", "event"))),
    )  # fmt: skip


def pages_alone(lab: LabRuns, size: str) -> Values | None:
    return of_sizes(lab, (size,), lambda runs: of_guests(runs[size], "pages_per_execution"))


number("N2", "pages-per-execution-best")(lambda lab: pages_alone(lab, "10k"))
number("N2", "pages-per-execution-large-files")(lambda lab: pages_alone(lab, "100k"))


@number("N2", "pages-per-execution-falls", unit="relative change")
def pages_from_10k(lab: LabRuns) -> Values | None:
    def fall(runs: Mapping[str, LabRun]) -> float | None:
        return change(*(of_guests(runs[size], "pages_per_execution") for size in ("100k", "10k")))

    return of_sizes(lab, ("10k", "100k"), fall)


order("N2", "pages-per-execution-highest")(lambda lab: {size: pages_alone(lab, size) for size in ("10k", *OTHER_SIZES)})


# N1: what a server alone uses up, its CPU or the line. The larger hosts of the paper and this one have 1 Gbit/s, the
# smallest has a tenth of it.
LINE_MBIT = 1000.0


def cpu_used(run: LabRun) -> float | None:
    """The part of the time in which a server alone is not blocked, in percent: then its CPU works, for it or for the
    packets that it waits behind. The driver domain's own time is that of both ends of the line, and is not added."""
    return less(100.0, of_guests(run, "block"))


def cpu_before_line(run: LabRun) -> float | None:
    """By how many points a server uses more of its CPU than of the line; above 0 its CPU is what binds it."""
    return less(cpu_used(run), percent(gain(run.metric("instance", "net_mbit", run.members[0].instance), LINE_MBIT)))


def bound_by(statement: str, sizes: Sequence[str], which: Callable[[Sequence[float]], float], agree: Region) -> None:
    """Register whether all these sizes are bound by one of the two: the one that is least so."""

    @number("N1", statement, unit="points of CPU over line", agree=agree)
    def claim(lab: LabRuns) -> Values | None:
        return of_sizes(lab, sizes, lambda runs: of_known(which, [cpu_before_line(run) for run in runs.values()]))


ALL_SIZES = ("1k", "4k", "10k", *NET_SIZES)
bound_by("class-1k-4k", CPU_SIZES, min, above(0.0))
bound_by("class-10k-100k", ("10k", *NET_SIZES), max, below(0.0))
bound_by("class-1k-100k-larger-hosts", ALL_SIZES, min, above(0.0))
bound_by("class-1m-larger-hosts", ("1m",), max, below(0.0))
number("N1", "cpu-1k-4k")(
    lambda lab: of_sizes(lab, CPU_SIZES, lambda runs: of_known(min, [cpu_used(run) for run in runs.values()]))
)
number("N1", "cpu-network-bound")(
    lambda lab: of_sizes(lab, ("10k", *NET_SIZES), lambda runs: of_known(max, [cpu_used(run) for run in runs.values()]))
)


def _by_pair(lab: LabRuns, names: Sequence[str], value: Callable[[LabRun], float | None]) -> dict[str, Values | None]:
    return {name: over(pair(lab, name), value) for name in names}


@order("N3", "pair-order", "order of pairs")
def scores(lab: LabRuns) -> dict[str, Values | None]:
    return _by_pair(lab, ORDERED_PAIRS, combined)


for _name in ORDERED_PAIRS:
    show("N3", _name, of=_name, value=combined, unit="ratio")


def _over_others(first: Sequence[str], others: Sequence[str], least: bool) -> Callable[[LabRuns], Values | None]:
    """The combined score of some pairs over that of other pairs in the same round: the least of the first over the most
    of the others, or the most over the least."""
    ends: tuple[Callable[[Sequence[float]], float], ...] = (min, max) if least else (max, min)

    def factor(runs: Mapping[str, LabRun]) -> float | None:
        one, other = (
            of_known(end, [combined(runs[name]) for name in names])
            for end, names in zip(ends, (first, others), strict=True)
        )
        return gain(one, other)

    return lambda lab: of_rounds({name: pair(lab, name) for name in (*first, *others)}, factor)


WORST = ORDERED_PAIRS[:2]
number("N3", "pair-best", unit="x the next", agree=above(1.0))(
    _over_others(("1k+100k",), (*WORST, "1k+50k", *ORDERED_PAIRS[4:]), True)
)
number("N3", "pair-second", unit="x the next", agree=above(1.0))(
    _over_others(("1k+50k",), (*WORST, *ORDERED_PAIRS[4:]), True)
)
number("N3", "pair-worst", unit="x the next", agree=below(1.0))(_over_others(WORST, ORDERED_PAIRS[2:], False))
number("N4", "least-competition", unit="x the next", agree=above(1.0))(
    _over_others(("1k+100k",), ("1k+1k", "100k+100k"), True)
)
show("N7", "1k-net-io", of="1k+100k", value=reached)
show("N7", "100k-net-io", of="1k+100k", value=lambda run: kilobytes(reached(run, 1), 100))

show("N3", "pair-1k-100k-combined", of="1k+100k", value=combined)

for _finding, _run in (("N4", "neighbor-1-1k-100k"), ("N7", "neighbor-1-1k-100k-net-io")):
    show(_finding, f"{_run}: web-1k", of="1k+100k", value=lambda run: ratio(run, 0), unit="ratio")
    show(_finding, f"{_run}: web-100k", of="1k+100k", value=lambda run: ratio(run, 1), unit="ratio")
show("N4", "1k-loss", of="1k+100k", value=loss)
show("N4", "100k-of-solo", of="1k+100k", value=lambda run: percent(ratio(run, 1)))
compare(
    "N4", "1k-over-1k-1k", of=("1k+100k", ONE_CPU), base=("1k+1k", ONE_CPU),
    how=lambda run, base: gain(reached(run), mean_reached(base)),
)  # fmt: skip
compare(
    "N4", "100k-over-100k-100k", of=("1k+100k", ONE_CPU), base=("100k+100k", ONE_CPU),
    how=lambda run, base: percent(change(reached(run, 1), mean_reached(base))),
)  # fmt: skip


def _cpu_points(run: LabRun, base: LabRun) -> float | None:
    """What the driver domain and the first guest together got more than beside one like it, as the paper says it."""
    first = run.metric("instance", "cpu", run.members[0].instance)
    beside = of_known(fsum, [run.metric("driver_domain", "cpu"), first])
    alike = of_known(fsum, [base.metric("driver_domain", "cpu"), of_guests(base, "cpu")])
    return less(beside, alike)


compare("N4", "extra-cpu", of=("1k+100k", ONE_CPU), base=("1k+1k", ONE_CPU), how=_cpu_points)

show("N5", "neighbor-1-1k-1k: web-1k", of="1k+1k", value=ratio, unit="ratio")
show("N5", "1k-loss", of="1k+1k", value=loss)
show("N5", "dom0-waiting", of="1k+1k", value=lambda run: run.metric("driver_domain", "waiting"))
show("N5", "guest-waiting", of="1k+1k", value=lambda run: of_guests(run, "waiting"))
show("N5", "dom0-cpu-highest", of="1k+1k", value=lambda run: run.metric("driver_domain", "cpu"))
show("N5", "cpu-share", of="1k+1k", value=lambda run: of_guests(run, "cpu"))


@order("N5", "waiting-longest")
@order("N6", "waiting-lowest")
def waiting(lab: LabRuns) -> dict[str, Values | None]:
    return _by_pair(lab, THREE, lambda run: of_guests(run, "waiting"))


compare(
    "N5", "pages-per-execution-over-100k-100k", of=("1k+1k", ONE_CPU), base=("100k+100k", ONE_CPU),
    how=lambda run, base: gain(of_guests(run, "pages_per_execution"), of_guests(base, "pages_per_execution")),
)  # fmt: skip

show("N6", "neighbor-1-100k-100k: web-100k", of="100k+100k", value=ratio, unit="ratio")
# two servers that both ask for all they reach alone get no more from the load on at which they are held back
show("N6", "saturation-load", of="100k+100k", value=lambda run: percent(ratio(run)))
show("N6", "pages-per-execution", of="100k+100k", value=lambda run: of_guests(run, "pages_per_execution"))
show("N6", "dom0-block", of="100k+100k", value=lambda run: run.metric("driver_domain", "block"))
show("N6", "guest-block", of="100k+100k", value=lambda run: of_guests(run, "block"))


# Sweeps: both servers at the same load. Range II of the paper's Fig. 24 is 30 to 70 % load.
LOADS = (0.3, 0.5, 0.7, 1.0)
RANGE_II = (0.3, 0.5, 0.7)
Sweep = Mapping[float, LabRun]


def over_loads(lab: LabRuns, name: str, loads: Sequence[float], how: Callable[[Sweep], float | None]) -> Values | None:
    """A value of every round in which a pair ran at all these loads."""
    return of_rounds({load: pair_at(lab, name, load) for load in loads}, how)


@number("N6", "peak-load")
def load_of_most_switches(lab: LabRuns) -> Values | None:
    def most(sweep: Sweep) -> float | None:
        switches = {load: run.metric("host", "switch") for load, run in sweep.items()}
        known = {load: value for load, value in switches.items() if value is not None}
        return 100 * max(known, key=lambda load: known[load]) if len(known) == len(sweep) else None

    return over_loads(lab, "100k+100k", LOADS, most)


@number("N6", "plateau-load", unit="relative change of switches from 70 to 100 % load", agree=DIRECTIONS["flat"])
def plateau(lab: LabRuns) -> Values | None:
    ends = (0.7, 1.0)
    return over_loads(
        lab, "100k+100k", ends,
        lambda sweep: change(*(sweep[load].metric("host", "switch") for load in ends[::-1])),
    )  # fmt: skip


BELOW_HALF = (0.3, 0.5)


def at_loads(
    lab: LabRuns, names: Sequence[str], how: Callable[[Mapping[tuple[str, float], LabRun]], float | None]
) -> Values | None:
    """A value of every round in which all these pairs ran at 30 and 50 % load."""
    return of_rounds({(name, load): pair_at(lab, name, load) for name in names for load in BELOW_HALF}, how)


@number("N5", "pages-per-execution-highest-below-load", unit="x the next pair", agree=above(1.0))
def pages_per_execution_at_part_load(lab: LabRuns) -> Values | None:
    """Of (1k, 1k) over the higher of the other two pairs, at the load where that is least."""

    def least(runs: Mapping[tuple[str, float], LabRun]) -> float | None:
        pages = {key: of_guests(run, "pages_per_execution") for key, run in runs.items()}
        first, *others = THREE
        highest = {load: of_known(max, [pages[name, load] for name in others]) for load in BELOW_HALF}
        return of_known(min, [gain(pages[first, load], highest[load]) for load in BELOW_HALF])

    return at_loads(lab, THREE, least)


@number("N7", "100k-100k-ahead-below-load", unit="x the 100 KB server's beside 1 KB", agree=above(1.0))
def ahead_at_part_load(lab: LabRuns) -> Values | None:
    """Net I/O of the 100 KB server beside one like it over that beside 1 KB, at the load where that is least."""

    def least(runs: Mapping[tuple[str, float], LabRun]) -> float | None:
        factors = [
            gain(mean_reached(runs["100k+100k", load]), reached(runs["1k+100k", load], 1)) for load in BELOW_HALF
        ]
        return of_known(min, factors)

    return at_loads(lab, ("100k+100k", "1k+100k"), least)


@number("N7", "100k-range-ii-net-io")
def net_io_of_range_ii(lab: LabRuns) -> Values | None:
    return over_loads(
        lab, "1k+100k", RANGE_II,
        lambda sweep: of_known(fmean, [kilobytes(reached(run, 1), 100) for run in sweep.values()]),
    )  # fmt: skip


@number("N7", "100k-range-ii-flat", unit="relative change from 30 to 70 % load")
def net_io_in_range_ii(lab: LabRuns) -> Values | None:
    return over_loads(lab, "1k+100k", RANGE_II, lambda sweep: change(reached(sweep[0.7], 1), reached(sweep[0.3], 1)))


def _of_100k(run: LabRun, metric: str) -> float | None:
    """A metric of the 100 KB server beside the 1 KB one; of two alike their mean."""
    if len({member.workload for member in run.members}) == 1:
        return of_guests(run, metric)
    return run.metric("instance", metric, run.members[1].instance)


def _range_ii_rows(statement: str, pair_name: str, metric: str) -> None:
    """Means over range II."""

    @number("N7", statement)
    def mean_of_loads(lab: LabRuns) -> Values | None:
        return over_loads(
            lab, pair_name, RANGE_II,
            lambda sweep: of_known(fmean, [_of_100k(run, metric) for run in sweep.values()]),
        )  # fmt: skip


_range_ii_rows("100k-range-ii-waiting", "1k+100k", "waiting")
_range_ii_rows("100k-range-ii-cpu", "1k+100k", "cpu")
_range_ii_rows("100k-100k-range-ii-waiting", "100k+100k", "waiting")


@number("N7", "100k-100k-range-ii-waiting-gain")
def waiting_over_range_ii(lab: LabRuns) -> Values | None:
    return over_loads(
        lab, "100k+100k", RANGE_II,
        lambda sweep: gain(of_guests(sweep[0.7], "waiting"), of_guests(sweep[0.3], "waiting")),
    )  # fmt: skip


@number("N7", "100k-range-ii-block-gain")
def block_in_range_ii(lab: LabRuns) -> Values | None:
    """Points more than beside one like it, as a mean over range II."""
    beside, alike = "1k+100k", "100k+100k"

    def mean_more(runs: Mapping[tuple[str, float], LabRun]) -> float | None:
        blocked = {key: _of_100k(run, "block") for key, run in runs.items()}
        return of_known(fmean, [less(blocked[beside, load], blocked[alike, load]) for load in RANGE_II])

    runs = {(name, load): pair_at(lab, name, load) for name in (beside, alike) for load in RANGE_II}
    return of_rounds(runs, mean_more)


def _peak(lab: LabRuns, *metrics: str) -> Values | None:
    """(100k, 100k) over the higher of the other two pairs of the same round; of several host metrics the least."""

    def over_others(runs: Mapping[str, LabRun]) -> float | None:
        first, *others = (
            [run.metric("host", metric) for metric in metrics] for run in map(runs.__getitem__, THREE[::-1])
        )
        highest = [of_known(max, values) for values in zip(*others, strict=True)]
        return of_known(min, [gain(value, most) for value, most in zip(first, highest, strict=True)])

    return of_rounds({name: pair(lab, name) for name in THREE[::-1]}, over_others)


def _rows_of(metric: str) -> None:
    @order("N5", f"{metric}-lowest")
    def by_pair(lab: LabRuns) -> dict[str, Values | None]:
        return _by_pair(lab, THREE, lambda run: run.metric("host", metric))

    @number("N6", f"summary-{metric}-over-others")
    def factor(lab: LabRuns) -> Values | None:
        return _peak(lab, metric)

    @number("N6", f"peak-over-other-pairs-{metric}")
    def points(lab: LabRuns) -> Values | None:
        values = _peak(lab, metric)
        return values and values.each(lambda value: 100 * (value - 1))


for _metric in SWITCH_AND_EVENT:
    _rows_of(_metric)


@number("N15", "net-net")
def net_net(lab: LabRuns) -> Values | None:
    values = _peak(lab, *SWITCH_AND_EVENT)
    return values and values.each(lambda value: value - 1)


def throughput_change(run: LabRun, base: LabRun) -> float | None:
    """Relative change of a pair's mean throughput."""
    return change(mean_reached(run), mean_reached(base))


def _changes(run: LabRun, base: LabRun) -> list[float | None]:
    return [change(run.metric("host", name), base.metric("host", name)) for name in SWITCH_AND_EVENT]


def both_grew(run: LabRun, base: LabRun) -> float | None:
    """Relative change of switches or of events, whichever grew less."""
    return of_known(min, _changes(run, base))


def either_moved(run: LabRun, base: LabRun) -> float | None:
    """Change of switches or of events up or down, whichever is larger, in percent."""
    return of_known(lambda known: 100 * max(abs(value) for value in known), _changes(run, base))


# N9, N10: all CPUs of the host shared by every instance against one; the paper has three and four
TWO_1K, TWO_1M = ("1k+1k", SHARED_SET), ("1m+1m", SHARED_SET)
compare("N9", "1k-shared-core-direction", of=TWO_1K, base=("1k+1k", ONE_CPU), how=throughput_change)
compare("N9", "1m-shared-core-direction", of=TWO_1M, base=("1m+1m", ONE_CPU), how=throughput_change)
compare(
    "N10", "1k-pairs-switch-gain", of=TWO_1K, base=("1k+1k", ONE_CPU),
    how=lambda run, base: gain(run.metric("host", "switch"), base.metric("host", "switch")),
)  # fmt: skip
compare(
    "N10", "1k-pairs-event-gain", of=TWO_1K, base=("1k+1k", ONE_CPU),
    how=lambda run, base: gain(run.metric("host", "event"), base.metric("host", "event")),
)  # fmt: skip
compare("N10", "1m-1m-switch-event-change", of=TWO_1M, base=("1m+1m", ONE_CPU), how=either_moved)

APART_1K, APART_1M = ("1k+1k", DRIVER_APART), ("1m+1m", DRIVER_APART)
for _finding, _statement in (("N11", "dom0-cpus-direction"), ("N15", "dom0-cpus")):
    compare(_finding, _statement, of=("1k+1k", DRIVER_BOTH), base=APART_1K, how=throughput_change)
compare("N11", "guest-cpus-direction", of=("1k+1k", GUESTS_BOTH), base=APART_1K, how=throughput_change)
for _finding, _statement in (("N11", "1m-pinning-direction"), ("N15", "net-cpu-assignment")):
    compare(_finding, _statement, of=("1m+1m", DRIVER_BOTH), base=APART_1M, how=throughput_change)
compare("N11", "switch-event-direction", of=("1k+1k", DRIVER_BOTH), base=APART_1K, how=both_grew)

compare(
    "N15", "cpu-cpu", of=("1k+1k", ONE_CPU), base=("1k+100k", ONE_CPU),
    how=lambda run, base: change(of_guests(run, "waiting"), of_guests(base, "waiting")),
)  # fmt: skip

show("N12", "1m-1m-response", of="1m+1m", value=lambda run: response(run, 0))
show("N12", "1k-1m-1m-response", of="1k+1m", value=lambda run: response(run, 1))


@order("N15", "cpu-net", "which pair contends least")
def least_contention(lab: LabRuns) -> dict[str, Values | None]:
    kinds = {"cpu+net": "1k+100k", "cpu+cpu": "1k+1k", "net+net": "100k+100k"}
    return {kind: over(pair(lab, name), combined) for kind, name in kinds.items()}
