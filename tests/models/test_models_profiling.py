"""Profiles of phases: levels and intervals, solo or not, load, and when they are enough; one series is real."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.profile import WorkloadProfile
from models.profiling.profiles import (
    SOLO_CPU,
    DemandLevel,
    InstanceLimits,
    at_full_load,
    is_alike,
    load_levels,
    profile_windows,
    use,
)
from models.profiling.windows import FILLED, LEAST_WINDOWS, MeanEstimate, align, by_series, estimate
from profiler.observed import MetricSample
from tests.examples import examples
from tests.models.profiling_cases import BEGIN_S, PERIOD_S, cpu_samples, host_samples, profiled, recorded, resembling

BOUNDS = settings(max_examples=examples(50), deadline=None)
WHOLE = {
    ("driver_domain", "cpu"): 12.0,
    ("driver_domain", "waiting"): 1.0,
    ("host", "event"): 900.0,
    ("host", "switch"): 500.0,
    ("host", "steal"): 0.0,
    ("host", "busy"): 60.0,
}


# the real series


def test_the_phases_of_a_real_container_are_found_where_they_were() -> None:
    samples, doing = recorded()
    found = profiled(samples, "site")
    wanted = np.array([("idle", "web", "cpu", "beside").index(what) for what in doing])
    assert (found.labels == wanted).mean() >= 0.97
    edges = np.flatnonzero(np.diff(wanted)) + 1
    changes = np.flatnonzero(np.diff(found.labels)) + 1
    assert len(changes) == len(edges)
    assert np.abs(changes - edges).max() <= 1


def test_the_real_container_is_profiled_from_what_it_did_alone() -> None:
    samples, _ = recorded()
    idle, web, busy, beside = profiled(samples, "site").phases
    loads = [phase.load.method for phase in (idle, web, busy, beside)]
    assert loads == ["idle", "busiest", "saturated", "saturated"]
    assert [phase.solo for phase in (idle, web, busy, beside)] == [True, True, True, False]
    assert len(web.spans) == 2, "it served twice"
    assert web.metrics["net_mbit"].value == pytest.approx(218, rel=0.02)  # 2500 req/s of 10 KB and their headers
    assert beside.neighbours.keys() == {"neighbour"}
    assert beside.metrics["cpu"].value == pytest.approx(50, abs=1)  # two of them on one CPU
    assert busy.metrics["cpu"].value > 60
    assert "beside others" in beside.reasons[0]
    assert not any(phase.enough for phase in (idle, web, busy)), "a minute of each is needed, and was not measured"
    assert any("no instance" in remark for remark in busy.remarks), "other programs disturbed this host"


# levels and intervals


@BOUNDS
@given(st.integers(0, 1000))
def test_the_order_of_samples_does_not_matter(seed: int) -> None:
    samples = cpu_samples([20] * 20 + [80] * 20) + host_samples(WHOLE, 40)
    shuffled = random.Random(seed).sample(samples, len(samples))
    assert profiled(shuffled).phases == profiled(samples).phases


@BOUNDS
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=50), st.integers(0, 1000))
def test_a_mean_lies_in_its_interval_and_between_the_values(values: list[float], seed: int) -> None:
    found = estimate(np.array(values), np.zeros(len(values), dtype=np.int64))
    assert found is not None
    slack = 1e-9 * max(values)
    assert min(values) - slack <= found.value <= max(values) + slack
    assert 1 <= found.effective_windows <= len(values)
    if found.lower is not None and found.upper is not None:
        assert 0 <= found.lower <= found.value <= found.upper


def of_resembling(seed: int, windows: int, correlation: float) -> MeanEstimate | None:
    """Of values around 100 with a deviation of 10."""
    values = 100 + 10 * resembling(seed, windows, correlation=correlation)[:, 0]
    return estimate(values, np.zeros(windows, dtype=np.int64))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_intervals_shrink_with_more_windows(correlation: float) -> None:
    widths = []
    for windows in (30, 120, 480, 1920):
        made = [of_resembling(seed, windows, correlation) for seed in range(40)]
        widths.append(np.mean([one.upper - one.lower for one in made if one and one.upper and one.lower]))
    ratios = np.array(widths[:-1]) / widths[1:]
    assert ((ratios > 1.6) & (ratios < 2.6)).all(), "four times the windows, half the width"


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6, 0.8])
def test_nine_in_ten_intervals_hold_the_mean_also_where_windows_resemble_each_other(correlation: float) -> None:
    """Measured with 600 series of 360 windows: 0.92, 0.89, 0.90, 0.86 of them; without the correction 0.45 at 0.8."""
    hits = 0
    for seed in range(300):
        found = of_resembling(seed, 360, correlation)
        hits += found is not None and found.lower is not None and found.lower <= 100 <= float(found.upper or 0)
    assert 0.80 <= hits / 300 <= 0.97


def test_windows_that_resemble_each_other_are_worth_fewer() -> None:
    free, tied = (of_resembling(1, 400, correlation) for correlation in (0.0, 0.8))
    assert free is not None
    assert tied is not None
    assert free.effective_windows > 250
    assert tied.effective_windows < 120, "(1 - 0.8) / (1 + 0.8) of 400 is 44"


def test_without_any_value_there_is_no_estimate_and_one_value_has_no_interval() -> None:
    assert estimate(np.array([np.nan, np.nan]), np.zeros(2, dtype=np.int64)) is None
    single = estimate(np.array([3.0]), np.zeros(1, dtype=np.int64))
    assert single is not None
    assert (single.value, single.lower, single.upper) == (3.0, None, None)


# solo or not


def test_alone_the_driver_domain_and_the_host_belong_to_the_workload() -> None:
    phase = profiled(cpu_samples([40] * 40) + host_samples(WHOLE, 40)).phases[0]
    assert phase.solo
    assert phase.enough
    assert {"driver_domain.cpu", "driver_domain.waiting", "event", "switch"} <= phase.metrics.keys()
    assert not {"host.busy", "host.steal"} & phase.metrics.keys()
    profile = phase.profile("web", "p1")
    assert (profile.name, profile.platform, profile.origin) == ("web", "p1", "measured")
    assert profile.metrics["cpu"] == pytest.approx(40, rel=0.03)
    assert profile.get("driver_domain.cpu") == 12.0


def test_the_attributed_part_of_the_driver_domain_wins_over_the_whole() -> None:
    share = [MetricSample("h1", "i1", "driver_domain", "cpu", 9.0, BEGIN_S + PERIOD_S * n) for n in range(1, 41)]
    phase = profiled(cpu_samples([40] * 40) + host_samples(WHOLE, 40) + share).phases[0]
    assert phase.metrics["driver_domain.cpu"].value == 9.0


def test_beside_others_nothing_is_taken_that_cannot_be_distinguished() -> None:
    samples = cpu_samples([40] * 40) + cpu_samples([90] * 40, instance="i2") + host_samples(WHOLE, 40)
    phase = profiled(samples).phases[0]
    assert not phase.solo
    assert not phase.enough
    assert "beside others" in phase.reasons[0]
    assert phase.solo_windows == 0
    assert list(phase.neighbours) == ["i2"]
    assert not {"driver_domain.cpu", "event", "switch"} & phase.metrics.keys()


def test_solo_windows_alone_make_the_profile_where_there_are_enough() -> None:
    neighbour = [MetricSample("h1", "i2", "instance", "cpu", 90.0, BEGIN_S + PERIOD_S * n) for n in range(21, 61)]
    waits = cpu_samples([50] * 60)
    waits = [s if s.metric != "waiting" or s.time_s <= BEGIN_S + 200 else replace(s, value=40.0) for s in waits]
    phase = profiled(waits + neighbour).phases[0]
    assert phase.solo
    assert phase.solo_windows == 20
    assert phase.metrics["waiting"].value == 0.0, "waiting for the neighbour is not the workload's own"


@pytest.mark.parametrize(("others", "solo"), [(SOLO_CPU - 0.1, True), (SOLO_CPU + 0.1, False)])
def test_many_small_neighbours_count_together(others: float, solo: bool) -> None:
    small = [cpu_samples([others / 5] * 30, instance=f"n{number}", noise=0.0) for number in range(5)]
    phase = profiled(cpu_samples([40] * 30) + [sample for one in small for sample in one]).phases[0]
    assert phase.solo is solo


def test_a_neighbour_that_is_silent_for_a_moment_was_there() -> None:
    beside = cpu_samples([90] * 30, instance="i2")
    gone = {BEGIN_S + PERIOD_S * number for number in range(10, 10 + FILLED)}
    windows = align(by_series(cpu_samples([40] * 30) + [s for s in beside if s.time_s not in gone]), "i1")
    assert (windows.others["i2"] > 80).all()


def test_a_neighbour_that_left_was_not_there() -> None:
    windows = align(by_series(cpu_samples([40] * 30) + cpu_samples([90] * 10, instance="i2")), "i1")
    assert (windows.others["i2"][:10] > 80).all()
    assert (windows.others["i2"][10:] == 0).all()


# when it is enough


@pytest.mark.parametrize(("windows", "enough"), [(LEAST_WINDOWS - 1, False), (LEAST_WINDOWS + 8, True)])
def test_a_profile_needs_enough_windows(windows: int, enough: bool) -> None:
    phase = profiled(cpu_samples([40] * windows)).phases[0]
    assert phase.enough is enough
    assert (not phase.reasons) is enough


def test_a_profile_needs_enough_time() -> None:
    fast = [replace(sample, time_s=BEGIN_S + (sample.time_s - BEGIN_S) / 10) for sample in cpu_samples([40] * 40)]
    assert profiled(fast).phases[0].reasons == ("40 s inside the phase, 60 s are needed",)


def test_uncertain_metrics_are_named() -> None:
    phase = profiled(cpu_samples([5, 60, 10, 40, 15, 70, 5, 50] * 3, noise=0.1)).phases[0]
    assert not phase.enough
    assert any("too uncertain" in reason and "cpu" in reason for reason in phase.reasons)


def test_a_host_that_is_held_back_itself_is_remarked() -> None:
    samples = cpu_samples([40] * 40) + host_samples({**WHOLE, ("host", "steal"): 5.0, ("host", "busy"): 160.0}, 40)
    phase = profiled(samples).phases[0]
    assert "5.0 % steal" in phase.remarks[0]
    assert "108 % of a CPU" in phase.remarks[1]


def test_an_instance_that_moved_is_profiled_where_it_is_now() -> None:
    moved = [replace(sample, time_s=sample.time_s + 1000) for sample in cpu_samples([60] * 30, host="h2")]
    found = profiled(cpu_samples([30] * 20) + moved)
    assert found.host == "h2"
    assert found.notes == ("20 windows on host h1 are left out",)
    assert len(found.labels) == 30


def test_missing_windows_are_reported_and_part_the_spans() -> None:
    samples = [s for s in cpu_samples([40] * 60) if not BEGIN_S + 200 < s.time_s <= BEGIN_S + 400]
    found = profiled(samples)
    assert found.notes == ("20 of 60 windows are missing",)
    spans = [(span.begin.timestamp(), span.end.timestamp()) for span in found.phases[0].spans]
    assert spans == [(BEGIN_S, BEGIN_S + 200), (BEGIN_S + 400, BEGIN_S + 600)]


def test_an_unmeasured_instance_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing was measured of instance ghost"):
        align(by_series(cpu_samples([1.0])), "ghost")
    with pytest.raises(ValueError, match="on host h9"):
        align(by_series(cpu_samples([1.0])), "i1", "h9")


@BOUNDS
@given(
    st.lists(
        st.builds(
            MetricSample,
            host=st.sampled_from(["h1", "h2"]),
            instance=st.sampled_from(["i1", "i2", None]),
            scope=st.sampled_from(["instance", "driver_domain", "host"]),
            metric=st.sampled_from(["cpu", "waiting", "block", "pages_exchanged", "cpu_p95", "busy", "x"]),
            value=st.floats(0, 1e308) | st.sampled_from([0.0, 1e-300, 50.0, 1e300]),
            time_s=st.floats(0, 1e9) | st.integers(0, 60).map(float),
        ),
        min_size=1,
        max_size=80,
    )
)
def test_whatever_was_stored_gives_a_profile_or_a_reason(samples: list[MetricSample]) -> None:
    try:
        found = profiled(samples)
    except ValueError:
        assert not any(sample.instance == "i1" and sample.scope == "instance" for sample in samples)
        return
    assert sum(phase.windows for phase in found.phases) == len(found.labels)
    assert sum(phase.share for phase in found.phases) == pytest.approx(1)
    for phase in found.phases:
        assert np.isfinite([one.value for one in phase.metrics.values()]).all()
        assert phase.enough is not bool(phase.reasons)
        assert "cpu_p95" not in phase.metrics


# load


@pytest.mark.parametrize(
    ("metrics", "limits", "method", "value"),
    [
        ({"cpu": 97.0}, InstanceLimits(100.0), "saturated", 1.0),
        ({"cpu": 60.0, "waiting": 38.0}, InstanceLimits(100.0), "saturated", 1.0),
        ({"cpu": 49.0, "waiting": 0.0}, InstanceLimits(50.0, is_cap=True), "saturated", 1.0),
        ({"cpu": 20.0, "net_mbit": 97.0}, InstanceLimits(100.0, net_mbit=100.0), "saturated", 1.0),
        ({"cpu": 20.0, "disk_mb_s": 20.0}, InstanceLimits(100.0, disk_mb_s=20.0), "saturated", 1.0),
        ({"cpu": 60.0}, InstanceLimits(100.0), "busiest", 1.0),
        ({"cpu": 0.3, "pages_exchanged": 2.0}, InstanceLimits(100.0), "idle", 0.0),
        ({"rss_mb": 30.0}, InstanceLimits(100.0), "unknown", None),
    ],
)
def test_a_load_says_how_it_was_found(
    metrics: dict[str, float], limits: InstanceLimits, method: str, value: float | None
) -> None:
    (load,) = load_levels([DemandLevel(metrics, solo=True)], limits)
    assert (load.method, load.value) == (method, value)


def test_part_load_is_measured_against_the_same_work_when_saturated() -> None:
    found = profiled(cpu_samples([40] * 30 + [99] * 30, noise=0.01))
    part, full = found.phases
    assert (full.load.method, full.load.sure) == ("saturated", "high")
    assert (part.load.method, part.load.sure) == ("relative", "fair")
    assert part.load.value == pytest.approx(0.4, abs=0.02)


def test_other_work_is_no_measure_of_load() -> None:
    levels = [
        DemandLevel({"cpu": 30.0, "pages_exchanged": 9000.0}, solo=True),
        DemandLevel({"cpu": 100.0, "pages_exchanged": 0.0}, solo=True),
    ]
    assert not is_alike(*levels)
    web, batch = load_levels(levels, InstanceLimits(100.0))
    assert (web.method, web.lower, web.upper) == ("busiest", 0.3, 1.0)
    assert batch.method == "saturated"


def test_time_beside_others_is_no_reference() -> None:
    levels = [DemandLevel({"cpu": 30.0}, solo=False), DemandLevel({"cpu": 60.0}, solo=False)]
    assert [load.method for load in load_levels(levels, InstanceLimits(100.0))] == ["unknown", "unknown"]


@BOUNDS
@given(st.lists(st.floats(2.5, 100), min_size=1, max_size=6))
def test_loads_lie_in_their_ranges_and_follow_the_demand(cpus: list[float]) -> None:
    levels = [DemandLevel({"cpu": cpu, "pages_exchanged": 50 * cpu}, solo=True) for cpu in cpus]
    loads = load_levels(levels, InstanceLimits(100.0))
    for load in loads:
        assert load.value is not None
        assert 0 <= (load.lower or 0) <= load.value <= (load.upper or 0) <= 1
    ordered = sorted(zip(cpus, loads, strict=True), key=lambda pair: pair[0])
    values = [load.value or 0 for _, load in ordered]
    assert values == sorted(values)


def test_full_load_is_extrapolated_in_proportion_and_within_limits_only_where_it_was_seen() -> None:
    levels = [
        DemandLevel({"cpu": 40.0, "net_mbit": 40.0}, solo=True),
        DemandLevel({"cpu": 99.0, "net_mbit": 99.0}, solo=True),
    ]
    part, full = load_levels(levels, InstanceLimits(100.0))
    measured = WorkloadProfile(
        "w",
        {
            "cpu": 40.0, "waiting": 3.0, "block": 57.0, "pages_exchanged": 1000.0, "pages_per_execution": 4.0,
            "rss_mb": 64.0, "event": 10.0, "driver_domain.cpu": 8.0, "net_mbit": 40.0, "psi_cpu": 1.0,
        },
    )  # fmt: skip
    scaled = at_full_load(measured, part, InstanceLimits(100.0, net_mbit=70.0), 1.0)
    assert scaled is not None
    assert scaled.origin == "extrapolated"
    growth = 99 / 40
    assert scaled.metrics == pytest.approx(
        {
            "cpu": 99.0, "block": 1.0, "pages_exchanged": 1000 * growth, "pages_per_execution": 4.0, "rss_mb": 64.0,
            "event": 10 * growth, "driver_domain.cpu": 8 * growth, "net_mbit": 70.0,
        }
    )  # fmt: skip
    assert at_full_load(measured, full, InstanceLimits(100.0), 1.0) is None
    (alone,) = load_levels(levels[:1], InstanceLimits(100.0))
    assert at_full_load(measured, alone, InstanceLimits(100.0), 1.0) is None, (
        "it is not known where it would have ended"
    )


def test_use_is_unknown_where_limits_are() -> None:
    assert use(DemandLevel({"cpu": 50.0, "net_mbit": 5.0}, solo=True), InstanceLimits()) == {}


def test_vcpus_are_measured_and_given_only_where_they_cannot_be() -> None:
    samples = cpu_samples([97] * 30)
    assert profiled(samples).vcpus == 1.0
    bare = [sample for sample in samples if sample.metric not in {"waiting", "block"}]
    windows = align(by_series(bare), "i1")
    assert profile_windows(windows).vcpus is None
    assert profile_windows(windows).phases[0].load.method == "busiest"
    given_two = profile_windows(windows, vcpus=2.0)
    assert given_two.vcpus == 2.0
    assert given_two.phases[0].load.lower == pytest.approx(0.485, abs=0.01)
