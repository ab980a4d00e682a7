"""Records of runs that never ran: what a campaign's runs would give, for tests of what is made of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lab.campaign import Campaign
from lab.measure import MetricValue, RunMeasurement
from lab.records import Record, RunConditions
from lab.schedule import Run, expand
from lab.usage_windows import UsageSeries
from lab.workloads import WorkloadResult


def record(
    campaign: Campaign, run: Run, number: int, factor: float = 1.0, *, windows: Sequence[float] = (),
    unsteady: tuple[str, ...] = (), around: RunConditions | None = None,
) -> Record:  # fmt: skip
    """A record as a run would give it: solo reaches 1000, each member of a pair half of it, times `factor`."""
    share = factor / len(run.placed)
    reached = {
        entry.instance: WorkloadResult(
            1000 * share, 2.0 / (share or 1), 3.0 / (share or 1), further={"retransmits": (7.0, "1/s")}
        )
        for entry in run.placed
    }
    values = [MetricValue(entry.instance, "instance", "cpu", 100 * share, "%") for entry in run.placed]
    values += [MetricValue(None, "driver_domain", "cpu", 7.0, "%"), MetricValue(None, "host", "event", 9.0, "1/s")]
    at_s = tuple(round(0.5 * (position + 1), 2) for position in range(len(windows)))
    series = UsageSeries(at_s, {entry.instance: {"cpu": tuple(windows)} for entry in run.placed} if windows else {})
    measured = RunMeasurement(
        "2026-01-01T00:00:00.000+00:00", 1.0, reached, tuple(values), {"web-1k.1": 55.0}, 0.0, 0.5, (), 1.25, unsteady,
        series, {0: 2.0, 1: 1.0},
    )  # fmt: skip
    units = {name: workload.unit for name, workload in campaign.workloads.items()}
    return Record.of(run, number, measured, {}, units, 1.5, around)


def one_round(campaign: Campaign, number: int, noise: float = 0.0, seed: int = 0) -> list[Record]:
    """All runs of a round; `noise` is the standard deviation of what each reached."""
    draw = random.Random(f"{seed} {number}")
    return [record(campaign, run, number, draw.gauss(1.0, noise)) for run in expand(campaign)]
