"""who-is-your-neighbor-2012: pairs of web servers on one CPU and one uplink, and where driver domain and guests run.

Platform I is a host whose guests share one CPU and one link. Here: servers on CPU 0 (form `same`), load generators on
CPU 1, a 1 Gbit/s uplink that HTB shares fairly. The driver domain is the kernel's own work for the instances.
"""

from __future__ import annotations

from statistics import fmean

from advisor.findings.estimates import Values, against, over
from advisor.findings.lab import Lab, LabRun
from advisor.findings.registry import number, order

PAIRS = {
    "1k+1k": ("web-1k", "web-1k"),
    "1k+10k": ("web-1k", "web-10k"),
    "1k+50k": ("web-1k", "web-50k"),
    "1k+100k": ("web-1k", "web-100k"),
    "30k+100k": ("web-30k", "web-100k"),
    "50k+100k": ("web-50k", "web-100k"),
    "100k+100k": ("web-100k", "web-100k"),
}
ONE_CPU, SHARED_SET = "same", "shared"
DRIVER_APART, DRIVER_BOTH = "driver-1", "driver-2"  # I/O work of the kernel on CPU 1, or on both; servers on CPU 0
GUESTS_BOTH = "guests-2"  # servers on both CPUs, the kernel's I/O work on CPU 1


def pair(lab: Lab, name: str, form: str = ONE_CPU) -> list[LabRun]:
    """Runs of a pair at full load in one form; those that share an uplink, as in the paper, where there are any."""

    def plain(run: LabRun) -> bool:
        return run.form == form and all(member.plain for member in run.members)

    def linked(run: LabRun) -> bool:
        return plain(run) and all(member.net_mode == "shared" for member in run.members)

    workloads = PAIRS.get(name) or tuple(f"web-{size}" for size in name.split("+"))
    return lab.runs(*workloads, where=linked) or lab.runs(*workloads, where=plain)


def combined(run: LabRun) -> float | None:
    """Sum of T/B."""
    ratios = [member.ratio() for member in run.members]
    return None if None in ratios else sum(ratio for ratio in ratios if ratio is not None)


def reached(run: LabRun, at: int = 0) -> float | None:
    return run.members[at].reached.get("throughput")


def ratio(run: LabRun, at: int = 0) -> float | None:
    """T/B of a member; of a pair of one workload with itself the mean of both, as the papers print one figure."""
    if len({member.workload for member in run.members}) == 1:
        score = combined(run)
        return None if score is None else score / len(run.members)
    return run.members[at].ratio()


def of_guests(run: LabRun, metric: str) -> float | None:
    """Mean of a metric over the instances."""
    values = [run.metric("instance", metric, member.instance) for member in run.members]
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def gain(value: float | None, base: float | None) -> float | None:
    """value / base, None where either is unknown or the base is nothing."""
    return None if value is None or not base else value / base


def change(value: float | None, base: float | None) -> float | None:
    """Relative change against a base, 0 = none."""
    factor = gain(value, base)
    return None if factor is None else factor - 1


def _by_pair(lab: Lab, names: tuple[str, ...], metric: str, scope: str) -> dict[str, Values | None]:
    def value(run: LabRun) -> float | None:
        return of_guests(run, metric) if scope == "instance" else run.metric(scope, metric)

    return {name: over(pair(lab, name), value) for name in names}


THREE = ("1k+1k", "1k+100k", "100k+100k")


@order("N3", "pair-order", "order of pairs")
def scores(lab: Lab) -> dict[str, Values | None]:
    return {name: over(pair(lab, name), combined) for name in PAIRS if name != "100k+100k"}


def _score(name: str) -> None:
    @number("N3", name, f"pair-{name.replace('+', '-')}-combined", unit="ratio")
    def score(lab: Lab) -> Values | None:
        return over(pair(lab, name), combined)


for _name in PAIRS:
    _score(_name)


@number("N4", "neighbor-1-1k-100k: web-1k", unit="ratio")
@number("N7", "neighbor-1-1k-100k-net-io: web-1k", unit="ratio")
def mixed_1k(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+100k"), lambda run: ratio(run, 0))


@number("N4", "neighbor-1-1k-100k: web-100k", unit="ratio")
@number("N7", "neighbor-1-1k-100k-net-io: web-100k", unit="ratio")
def mixed_100k(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+100k"), lambda run: ratio(run, 1))


@number("N4", "1k-loss")
def mixed_1k_loss(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+100k"), lambda run: _loss(ratio(run, 0)))


@number("N4", "100k-of-solo")
def mixed_100k_share(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+100k"), lambda run: percent(ratio(run, 1)))


@number("N4", "1k-over-1k-1k")
def mixed_1k_gain(lab: Lab) -> Values | None:
    return against(pair(lab, "1k+100k"), pair(lab, "1k+1k"), lambda run, base: gain(reached(run), _mean_reached(base)))


@number("N4", "100k-over-100k-100k")
def mixed_100k_gain(lab: Lab) -> Values | None:
    return against(
        pair(lab, "1k+100k"), pair(lab, "100k+100k"),
        lambda run, base: percent(change(reached(run, 1), _mean_reached(base))),
    )  # fmt: skip


@number("N4", "extra-cpu")
def mixed_1k_cpu(lab: Lab) -> Values | None:
    def points(run: LabRun, base: LabRun) -> float | None:
        beside, alike = run.metric("instance", "cpu", run.members[0].instance), of_guests(base, "cpu")
        return None if beside is None or alike is None else beside - alike

    return against(pair(lab, "1k+100k"), pair(lab, "1k+1k"), points)


def _loss(value: float | None) -> float | None:
    return None if value is None else 100 * (1 - value)


def _mean_reached(run: LabRun) -> float | None:
    values = [reached(run, at) for at in range(len(run.members))]
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


@number("N5", "neighbor-1-1k-1k: web-1k", unit="ratio")
def alike_1k(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+1k"), ratio)


@number("N5", "1k-loss")
def alike_1k_loss(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+1k"), lambda run: _loss(ratio(run)))


@number("N5", "dom0-waiting")
def alike_1k_driver_waiting(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+1k"), lambda run: run.metric("driver_domain", "waiting"))


@number("N5", "guest-waiting")
def alike_1k_waiting(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+1k"), lambda run: of_guests(run, "waiting"))


@number("N5", "cpu-share")
def alike_1k_cpu(lab: Lab) -> Values | None:
    return over(pair(lab, "1k+1k"), lambda run: of_guests(run, "cpu"))


@order("N5", "waiting-longest")
@order("N6", "waiting-lowest")
def waiting(lab: Lab) -> dict[str, Values | None]:
    return _by_pair(lab, THREE, "waiting", "instance")


@order("N5", "event-lowest")
def events(lab: Lab) -> dict[str, Values | None]:
    return _by_pair(lab, THREE, "event", "host")


@order("N5", "switch-lowest")
def switches(lab: Lab) -> dict[str, Values | None]:
    return _by_pair(lab, THREE, "switch", "host")


@number("N5", "pages-per-execution-over-100k-100k")
def pages_per_execution_gain(lab: Lab) -> Values | None:
    return against(
        pair(lab, "1k+1k"), pair(lab, "100k+100k"),
        lambda run, base: gain(of_guests(run, "pages_per_execution"), of_guests(base, "pages_per_execution")),
    )  # fmt: skip


@number("N6", "neighbor-1-100k-100k: web-100k", unit="ratio")
def alike_100k(lab: Lab) -> Values | None:
    return over(pair(lab, "100k+100k"), ratio)


@number("N6", "saturation-load")
def alike_100k_load(lab: Lab) -> Values | None:
    return over(pair(lab, "100k+100k"), lambda run: percent(ratio(run)))


def _peak(lab: Lab, metric: str) -> Values | None:
    """Host metric of (100k, 100k) over the higher of the other two pairs, of the same round."""
    mixed = {run.repeat: run.metric("host", metric) for run in pair(lab, "1k+100k")}

    def over_others(run: LabRun, base: LabRun) -> float | None:
        others = [value for value in (base.metric("host", metric), mixed.get(run.repeat)) if value is not None]
        return gain(run.metric("host", metric), max(others)) if others else None

    return against(pair(lab, "100k+100k"), pair(lab, "1k+1k"), over_others)


def _as_percent(values: Values | None) -> Values | None:
    return values and Values(tuple(100 * (value - 1) for value in values.values), values.source)


@number("N6", "summary-event-over-others")
def event_peak(lab: Lab) -> Values | None:
    return _peak(lab, "event")


@number("N6", "summary-switch-over-others")
def switch_peak(lab: Lab) -> Values | None:
    return _peak(lab, "switch")


@number("N6", "peak-over-other-pairs-event")
def event_peak_percent(lab: Lab) -> Values | None:
    return _as_percent(_peak(lab, "event"))


@number("N6", "peak-over-other-pairs-switch")
def switch_peak_percent(lab: Lab) -> Values | None:
    return _as_percent(_peak(lab, "switch"))


@number("N15", "net-net")
def net_net(lab: Lab) -> Values | None:
    values = _peak(lab, "event")
    return values and Values(tuple(value - 1 for value in values.values), values.source)


@number("N6", "pages-per-execution")
def alike_100k_pages(lab: Lab) -> Values | None:
    return over(pair(lab, "100k+100k"), lambda run: of_guests(run, "pages_per_execution"))


@number("N6", "dom0-block")
def alike_100k_driver_block(lab: Lab) -> Values | None:
    return over(pair(lab, "100k+100k"), lambda run: run.metric("driver_domain", "block"))


@number("N6", "guest-block")
def alike_100k_block(lab: Lab) -> Values | None:
    return over(pair(lab, "100k+100k"), lambda run: of_guests(run, "block"))


@number("N9", "1k-shared-core-direction")
def more_shared_cores_1k(lab: Lab) -> Values | None:
    return _throughput_change(lab, "1k+1k", SHARED_SET, ONE_CPU)


@number("N9", "1m-shared-core-direction")
def more_shared_cores_1m(lab: Lab) -> Values | None:
    return _throughput_change(lab, "1m+1m", SHARED_SET, ONE_CPU)


@number("N10", "1k-pairs-switch-gain")
def more_cores_switches(lab: Lab) -> Values | None:
    return _metric_gain(lab, "1k+1k", "switch")


@number("N10", "1k-pairs-event-gain")
def more_cores_events(lab: Lab) -> Values | None:
    return _metric_gain(lab, "1k+1k", "event")


@number("N10", "1m-1m-switch-event-change")
def more_cores_1m(lab: Lab) -> Values | None:
    values = _metric_gain(lab, "1m+1m", "event")
    return values and Values(tuple(100 * abs(value - 1) for value in values.values), values.source)


def _metric_gain(lab: Lab, name: str, metric: str) -> Values | None:
    """A host metric with two shared CPUs over the same with one."""
    return against(
        pair(lab, name, SHARED_SET), pair(lab, name),
        lambda run, base: gain(run.metric("host", metric), base.metric("host", metric)),
    )  # fmt: skip


def _throughput_change(lab: Lab, name: str, form: str, base_form: str) -> Values | None:
    """Relative change of a pair's mean throughput from one form to another."""
    return against(
        pair(lab, name, form), pair(lab, name, base_form),
        lambda run, base: change(_mean_reached(run), _mean_reached(base)),
    )  # fmt: skip


@number("N11", "dom0-cpus-direction")
@number("N15", "dom0-cpus")
def more_driver_cpus_1k(lab: Lab) -> Values | None:
    return _throughput_change(lab, "1k+1k", DRIVER_BOTH, DRIVER_APART)


@number("N11", "guest-cpus-direction")
def more_guest_cpus_1k(lab: Lab) -> Values | None:
    return _throughput_change(lab, "1k+1k", GUESTS_BOTH, DRIVER_APART)


@number("N11", "1m-pinning-direction")
@number("N15", "net-cpu-assignment")
def pinning_1m(lab: Lab) -> Values | None:
    return _throughput_change(lab, "1m+1m", DRIVER_BOTH, DRIVER_APART)


@number("N11", "switch-event-direction")
def more_driver_cpus_switches(lab: Lab) -> Values | None:
    return against(
        pair(lab, "1k+1k", DRIVER_BOTH), pair(lab, "1k+1k", DRIVER_APART),
        lambda run, base: change(run.metric("host", "switch"), base.metric("host", "switch")),
    )  # fmt: skip


@number("N15", "cpu-cpu")
def cpu_cpu(lab: Lab) -> Values | None:
    """Waiting of (1k, 1k) against (1k, 100k)."""
    return against(
        pair(lab, "1k+1k"), pair(lab, "1k+100k"),
        lambda run, base: change(of_guests(run, "waiting"), of_guests(base, "waiting")),
    )  # fmt: skip


@order("N15", "cpu-net", "which pair contends least")
def least_contention(lab: Lab) -> dict[str, Values | None]:
    kinds = {"cpu+net": "1k+100k", "cpu+cpu": "1k+1k", "net+net": "100k+100k"}
    return {kind: over(pair(lab, name), combined) for kind, name in kinds.items()}
