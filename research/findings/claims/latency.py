"""latency-sensitive-cloud-2010: jitter of CPU and disk, weights and caps, disks, HTB, and games and streams on a line.

Weights and caps are those of control groups, where the paper has Xen's credit scheduler.
"""

from __future__ import annotations

from collections.abc import Callable

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, against, change, first, gain, less, over, percent
from research.findings.claims.ec2 import medium, small
from research.findings.lab_runs import LabRun, LabRuns
from research.findings.verdicts import POINTS, SHARE, Region, around, below

ONE_CPU = "same"
# HTB counts frames of 1514 bytes of which TCP with time stamps carries 1448 as payload, which iperf3 reports.
FRAME_OVER_PAYLOAD = 1514 / 1448
CAPS = (10, 30, 50, 70, 90)  # of the measured one; its competitor has what is left of the CPU
HTB_RATES = (1.0, 10.0, 100.0, 500.0)
LINE_1 = "lab-game-uplink"


def beside(lab: LabRuns, *workloads: str, form: str | None = None) -> list[LabRun]:
    """Runs of these workloads, in one form where one is named."""
    return lab.runs(*workloads, where=lambda run: form in (None, run.form))


def lost(run: LabRun) -> float | None:
    """Throughput that the first member lost, in percent."""
    return percent(less(1.0, run.members[0].ratio()))


def moved(run: LabRun, outcome: str = "throughput") -> float | None:
    """Relative change of an outcome of the first member against its solo value."""
    return change(run.members[0].ratio(outcome), 1.0)


def grown(outcome: str) -> Callable[[LabRun], float | None]:
    """By how much of its solo value an outcome of the first member grew, in percent."""
    return lambda run: percent(moved(run, outcome))


def alone(lab: LabRuns, workload: str, dataset: str | None = None) -> list[LabRun]:
    """Solo runs of a workload as it is defined."""

    def fits(run: LabRun) -> bool:
        return run.run.startswith(f"solo:{workload}:") and dataset in (None, run.dataset)

    return lab.runs(workload, kind="solo", where=fits)


number("L1", "typical")(lambda lab: over(small(lab, "cpu-work"), first("median")))
number("L1", "outliers")(lambda lab: over(small(lab, "cpu-work"), first("max", 1e-3)))
number("L1", "local-variation", unit="coefficient of variation")(
    lambda lab: over(medium(lab, "cpu-work"), first("variation", 0.01))
)


@number("L2", "write-bandwidth-deviation")
def write_deviation(lab: LabRuns) -> Values | None:
    def widest(run: LabRun) -> float | None:
        reached = run.members[0].reached
        mean, least, most = (reached.get(f"write_sustained_{name}") for name in ("mean", "min", "max"))
        return None if not mean or least is None or most is None else 100 * max(mean - least, most - mean) / mean

    return over(beside(lab, "disk-probe", "disk-pairs-2"), widest)


@number("L2", "small-operation-spread")
def small_spread(lab: LabRuns) -> Values | None:
    def spread(run: LabRun) -> float | None:
        return gain(run.members[0].reached.get("read_small_p95"), run.members[0].reached.get("read_small_min"))

    return over(beside(lab, "disk-probe", "disk-pairs-2"), spread)


number("L2", "small-operation-max")(
    lambda lab: over(beside(lab, "disk-probe", "disk-pairs-2"), first("write_small_max"))
)


# L3: probes through routers, beside a neighbour that sends through them, too. Its own hops say what the paper's say of
# interface and routers; times of another network are shown and not judged.
def hopping(lab: LabRuns) -> list[LabRun]:
    return lab.runs("hops", "bulk")


@number("L3", "first-hop", unit="95th percentile over the median, as a change")
def first_hop(lab: LabRuns) -> Values | None:
    return over(hopping(lab), lambda run: change(first("hop1_p95")(run), first("hop1_median")(run)))


number("L3", "three-hops")(lambda lab: over(hopping(lab), first("sum_median")))
number("L3", "three-hops-spikes")(
    lambda lab: over(hopping(lab), lambda run: gain(first("sum_max")(run), first("sum_median")(run)))
)


def weighted(lab: LabRuns, weight: float) -> list[LabRun]:
    return lab.runs("cpu", "cpu-hog", where=lambda run: run.members[0].weight == weight)


number("L4", "equal-weights")(lambda lab: over(weighted(lab, 256), lambda run: percent(run.members[0].ratio())))
number("L4", "latency-cpu-equal-weights: cpu", unit="ratio")(
    lambda lab: over(weighted(lab, 256), lambda run: run.members[0].ratio())
)
number("L4", "latency-cpu-weight-ratio-10: cpu", unit="ratio")(
    lambda lab: over(weighted(lab, 2560), lambda run: run.members[0].ratio())
)
number("L4", "latency-cpu-weight-ratio-10: cpu-hog", unit="ratio")(
    lambda lab: over(weighted(lab, 2560), lambda run: run.members[1].ratio())
)
number("L4", "share-gain-at-ratio-10")(
    lambda lab: over(weighted(lab, 2560), lambda run: percent(change(run.members[0].ratio(), run.members[1].ratio())))
)


@number("L4", "weight-is-not-share", unit="of the ratio of weights", agree=below(1 - SHARE))
def share_of_weights(lab: LabRuns) -> Values | None:
    """The ratio of what both got, over that of their weights; 1 = a weight is a share."""

    def part(run: LabRun) -> float | None:
        first_one, other = run.members
        weights = gain(first_one.weight, other.weight or 256.0)
        return gain(gain(first_one.ratio(), other.ratio()), weights)

    return over(weighted(lab, 2560), part)


def capped(lab: LabRuns, cap: float) -> list[LabRun]:
    return lab.runs("cpu", "cpu-hog", where=lambda run: run.members[0].cap_percent == cap)


def all_caps(lab: LabRuns) -> list[LabRun]:
    """Runs under every cap, of which a round gives one value: their mean."""
    return [run for cap in CAPS for run in capped(lab, cap)]


def _of_uncapped(lab: LabRuns, cap: float, *, solo: bool) -> Values | None:
    """Throughput under a cap, beside the hog or alone, over that of the same program alone on that CPU without one."""

    def share(run: LabRun, base: LabRun) -> float | None:
        member = run.members[0]
        reached = member.solo if solo else member.reached
        return gain(reached.get("throughput"), base.members[0].reached.get("throughput"))

    return against(capped(lab, cap), alone(lab, "cpu"), share)


def _capped_rows(cap: int) -> None:
    @number("L5", f"latency-cpu-cap-{cap}-competitor: cpu", unit="ratio")
    def with_competitor(lab: LabRuns) -> Values | None:
        return _of_uncapped(lab, cap, solo=False)

    @number("L5", f"latency-cpu-cap-{cap}-idle: cpu", unit="ratio")
    def without_competitor(lab: LabRuns) -> Values | None:
        return _of_uncapped(lab, cap, solo=True)


for _cap in (10, 90):
    _capped_rows(_cap)


@number("L5", "linear", unit="points off the cap", agree=Region(high=POINTS))
def off_the_cap(lab: LabRuns) -> Values | None:
    """How far the share is off the cap, alone, as a mean of all caps."""

    def off(run: LabRun, base: LabRun) -> float | None:
        share = gain(run.members[0].solo.get("throughput"), base.members[0].reached.get("throughput"))
        points = less(percent(share), run.members[0].cap_percent)
        return None if points is None else abs(points)

    return against(all_caps(lab), alone(lab, "cpu"), off)


number("L5", "competitor-effect", unit="relative change")(lambda lab: over(all_caps(lab), moved))


def one_pair_streams(lab: LabRuns) -> list[LabRun]:
    """Sequential reads and writes beside one pair: the paper's benchmark does both, and its throughput is of both."""
    runs = [beside(lab, workload, "disk-pairs-1") for workload in ("disk-stream", "disk-stream-write")]
    return [run for found in runs for run in found] if all(runs) else []


number("L6", "one-pair-throughput")(lambda lab: over(one_pair_streams(lab), lost))
number("L6", "latency-disk-1-pair-throughput: disk-stream", unit="ratio")(
    lambda lab: over(one_pair_streams(lab), lambda run: run.members[0].ratio())
)
number("L6", "one-pair-read-latency")(
    lambda lab: over(beside(lab, "disk-read-1k", "disk-pairs-1"), grown("latency_mean_ms"))
)
number("L6", "one-pair-write-latency")(
    lambda lab: over(beside(lab, "disk-write-1k", "disk-pairs-1"), grown("latency_mean_ms"))
)


@number("L6", "many-pairs-read-latency")
def disk_many_read(lab: LabRuns) -> Values | None:
    """Share of small reads lost: the reading under which it is a degradation like that of throughput."""
    return over(beside(lab, "disk-read-1k", "disk-pairs-4"), lost)


number("L6", "many-pairs-write-throughput", "abstract-worst", "conclusion-worst")(
    lambda lab: over(beside(lab, "disk-stream-write", "disk-pairs-4"), lost)
)
number("L6", "latency-disk-many-pairs-write-throughput: disk-stream-write", unit="ratio")(
    lambda lab: over(beside(lab, "disk-stream-write", "disk-pairs-4"), lambda run: run.members[0].ratio())
)


@number("L6", "more-pairs", unit="relative change")
def disk_more_pairs(lab: LabRuns) -> Values | None:
    return against(
        beside(lab, "disk-stream-write", "disk-pairs-4"), beside(lab, "disk-stream-write", "disk-pairs-2"),
        lambda run, base: change(first("throughput")(run), first("throughput")(base)),
    )  # fmt: skip


def sending_at(lab: LabRuns, rate_mbit: float, mode: str, other: str = "bulk") -> list[LabRun]:
    """Runs of a bulk sender with a class of that rate beside another sender."""

    def fits(run: LabRun) -> bool:
        return run.members[0].net_mode == mode and run.members[0].net_rate_mbit == rate_mbit

    return lab.runs("bulk", other, where=fits)


@number("L7", "sustained-rate")
def off_the_rate(lab: LabRuns) -> Values | None:
    """How far the sent rate is off its limit, in percent, at the limit where it is farthest."""

    def off(run: LabRun) -> float | None:
        part = change(first("throughput", FRAME_OVER_PAYLOAD)(run), run.members[0].net_rate_mbit)
        return None if part is None else 100 * abs(part)

    return over([run for rate in HTB_RATES for run in sending_at(lab, rate, "dedicated")], off, max)


number("L7", "guaranteed-rate", unit="of the guarantee", agree=Region(low=1 - SHARE))(
    lambda lab: over(sending_at(lab, 300, "shared"), first("throughput", FRAME_OVER_PAYLOAD / 300))
)


number("L7", "slack", unit="of the link while the other needs little", agree=Region(low=1 - SHARE))(
    lambda lab: over(sending_at(lab, 300, "shared", "stream"), first("throughput", FRAME_OVER_PAYLOAD / 1000))
)


# The paper's example: 3 Mbit/s, of which 1 and 2 are guaranteed. The rates are Mbit/s on any machine, so that they are
# judged, by the 10 % within which the paper found limits kept.
EXAMPLE_LINK = "lab-htb-3mbit"


def _example_rows(statement: str, label: str, at: int, rate: float, *, alone: bool) -> None:
    """The rate of one of the two senders, while the other sends or is silent."""

    @number("L7", statement, agree=around(rate, SHARE * rate))
    def sent(lab: LabRuns) -> Values | None:
        def rate_of(run: LabRun) -> float | None:
            member = run.members[at]
            found = (member.solo if alone else member.reached).get("throughput")
            return None if found is None else FRAME_OVER_PAYLOAD * found

        def here(run: LabRun) -> bool:
            return run.dataset == EXAMPLE_LINK and f":{label}:" in f"{run.run}:"

        return over(lab.runs("bulk", "bulk", where=here), rate_of)


_example_rows("example-first-of-two", "bulk.shared1", 0, 1.0, alone=False)
_example_rows("example-second-of-two", "bulk.shared1", 1, 2.0, alone=False)
_example_rows("example-other-silent", "bulk.shared1", 0, 3.0, alone=True)
_example_rows("example-capped-slack", "bulk.shared1-2.5", 0, 2.5, alone=True)


number("L8", "alone")(lambda lab: over(alone(lab, "game-map"), first("runtime_s")))
number("L8", "disk-load")(lambda lab: over(beside(lab, "game-map", "disk-pairs-2"), grown("runtime_s")))
number("L8", "cpu-load")(
    lambda lab: over(beside(lab, "game-map", "cpu-hog", form=ONE_CPU), lambda run: run.members[0].ratio("runtime_s"))
)
number("L8", "disk-and-cpu-load")(
    lambda lab: over(beside(lab, "game-map", "cpu-hog", "disk-pairs-2"), lambda run: run.members[0].ratio("runtime_s"))
)


@number("L8", "cpu-diverted")
def diverted(lab: LabRuns) -> Values | None:
    """The hog's part of the CPU time of both, in percent."""

    def part(run: LabRun) -> float | None:
        game, hog = (run.metric("instance", "cpu", member.instance) for member in run.members)
        return None if game is None or hog is None else percent(gain(hog, game + hog))

    return over(beside(lab, "game-map", "cpu-hog", form=ONE_CPU), part)


def _inverse(runs: list[LabRun]) -> Values | None:
    return over(runs, lambda run: gain(1.0, run.members[0].ratio("runtime_s")))


number("L8", "latency-map-disk-other-cpu: game-map-load", unit="ratio")(
    lambda lab: _inverse(beside(lab, "game-map", "disk-pairs-2"))
)
number("L8", "latency-map-cpu-same-cpu: game-map-load", unit="ratio")(
    lambda lab: _inverse(beside(lab, "game-map", "cpu-hog", form=ONE_CPU))
)
number("L8", "latency-map-disk-and-cpu-same-cpu: game-map-load", unit="ratio")(
    lambda lab: _inverse(beside(lab, "game-map", "cpu-hog", "disk-pairs-2"))
)
number("L9", "alone")(lambda lab: over(alone(lab, "game", LINE_1), first("latency_mean_ms")))


@number("L9", "cpu-disk-load", unit="relative change")
def game_beside_load(lab: LabRuns) -> Values | None:
    def here(run: LabRun) -> bool:
        return run.dataset == LINE_1

    runs = [run for other in ("cpu-hog", "disk-pairs-2") for run in lab.runs("game", other, where=here)]
    return over(runs, lambda run: moved(run, "latency_mean_ms"))


def game_beside_bulk(lab: LabRuns, mode: str, outcome: str) -> Values | None:
    runs = lab.runs("game", "bulk", where=lambda run: run.dataset == LINE_1 and run.members[0].net_mode == mode)
    return over(runs, first(outcome))


number("L9", "no-tc-timeouts")(lambda lab: game_beside_bulk(lab, "", "timeouts_percent"))


def _game_order(statement: str, outcome: str) -> None:
    @order("L9", statement)
    def by_mode(lab: LabRuns) -> dict[str, Values | None]:
        return {mode: game_beside_bulk(lab, mode, outcome) for mode in ("shared", "dedicated")}


_game_order("shared-mean", "latency_mean_ms")
_game_order("shared-jitter", "jitter_ms")
_game_order("shared-timeouts", "timeouts_percent")


def stream_beside_bulk(lab: LabRuns, mode: str) -> list[LabRun]:
    return lab.runs("stream-4", "bulk", where=lambda run: run.members[0].net_mode == mode)


@number("L10", "alone-4")
def full_quality(lab: LabRuns) -> Values | None:
    """Of four clients' films, as many as arrived."""
    return over(alone(lab, "stream-4"), first("quality", 4 / 100))


number("L10", "alone-8")(lambda lab: over(alone(lab, "stream-8"), first("quality")))
number("L10", "net-hog")(lambda lab: over(stream_beside_bulk(lab, ""), lost))


@order("L10", "either-tc")
def stream_throughput(lab: LabRuns) -> dict[str, Values | None]:
    modes = {"none": "", "shared": "shared", "dedicated": "dedicated"}
    beside_bulk = {name: over(stream_beside_bulk(lab, mode), first("throughput")) for name, mode in modes.items()}
    return {"alone": over(alone(lab, "stream-4"), first("throughput")), **beside_bulk}


@order("L10", "jitter")
def stream_jitter(lab: LabRuns) -> dict[str, Values | None]:
    by_mode = {mode: over(stream_beside_bulk(lab, mode), first("jitter_ms")) for mode in ("shared", "dedicated")}
    return {"alone": over(alone(lab, "stream-4"), first("jitter_ms")), **by_mode}
