"""Demand from windows, a trace, one number and a class."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.demand_classes import PRIOR_HOURS, LogSums, completed, day_one, doubt, from_class, from_mean, log_of
from models.profiling import demand_estimation, tallies
from models.profiling.demand_estimation import (
    Estimate,
    Tally,
    Window,
    demanded_cpus,
    estimated,
    from_trace,
    is_news,
    others_in_step,
    tally,
)
from models.profiling.tallies import Tallies
from profiler.demand import RESOURCES, Demand
from tests.examples import examples

values = st.lists(st.floats(0, 64), min_size=1, max_size=60)


def _windows(demands: list[float]) -> list[Window]:
    return [Window((at + 1) * 300.0, value) for at, value in enumerate(demands)]


def _stored(known: Tally) -> bytes:
    return Tallies.of_tallies([known]).states()[0]


def _read(state: bytes) -> Tally:
    return Tallies.of(["cpu"], [state]).tally(0)


def _bursty(number: int, mean: float = 1.0, seed: int = 1) -> list[float]:
    return [float(value) for value in np.random.default_rng(seed).gamma(1.0, mean, number)]


@given(values)
def test_quantiles_of_any_windows_are_ordered_and_within_what_was_seen(demands: list[float]) -> None:
    found = estimated(tally(_windows(demands)))
    assert found.p50 is not None and found.p95 is not None and found.p99 is not None
    assert min(demands) <= found.p50 <= found.p95 <= found.p99 <= max(demands)


@given(values)
def test_the_order_of_windows_matters_to_the_autocorrelation_only(demands: list[float]) -> None:
    windows = _windows(demands)
    forward, backward = estimated(tally(windows)), estimated(tally(windows[::-1]))
    assert backward.mean == pytest.approx(forward.mean)
    assert backward.spread == pytest.approx(forward.spread)
    assert (backward.p50, backward.p95, backward.p99) == (forward.p50, forward.p95, forward.p99)
    assert backward.windows == forward.windows


@given(values, values)
def test_windows_taken_in_two_parts_with_the_store_between_teach_what_all_at_once_do(
    first: list[float], second: list[float]
) -> None:
    windows = _windows([*first, *second])
    known = _read(_stored(tally(windows[: len(first)])))
    for window in windows[len(first) :]:
        known.add(window)
    assert known == tally(windows)


def test_mean_and_spread_of_many_windows_are_those_of_numpy() -> None:
    demands = _bursty(2_000)
    found = from_trace(demands)
    assert found.mean == pytest.approx(np.mean(demands))
    assert found.spread == pytest.approx(np.std(demands), rel=0.01)
    assert found.p50 == pytest.approx(np.quantile(demands, 0.50), rel=0.05)
    assert found.p95 == pytest.approx(np.quantile(demands, 0.95), rel=0.05)
    assert (found.origin, found.windows) == ("trace", 2_000)


def test_what_is_kept_does_not_grow_with_the_number_of_windows() -> None:
    known = tally(_windows(_bursty(5_000)))
    before = len(_stored(known))
    for window in _windows(_bursty(5_000, seed=2)):
        known.add(Window(window.time_s + 1.5e6, window.demand))
    assert len(_stored(known)) < before + 1_000
    assert before < 10_000


@given(st.floats(1, 1e5), st.floats(1, 1e5), st.floats(0, 5), st.floats(0.01, 5), st.floats(0, 0.9), st.floats(0, 60))
def test_fewer_windows_never_leave_less_doubt(
    one: float, other: float, spread: float, mean: float, lag: float, days: float
) -> None:
    few, many = sorted((one, other))
    assert doubt(few, spread, mean, lag, days) >= doubt(many, spread, mean, lag, days)
    assert doubt(few, spread, mean, lag, days) >= doubt(few, spread, mean, lag, days + 1)


@given(st.lists(st.floats(0.01, 8), min_size=1, max_size=20))
def test_windows_seen_twice_as_often_do_not_raise_the_doubt(demands: list[float]) -> None:
    lagless = Tally()
    for at, value in enumerate(demands):
        lagless.add(Window(at * 3_600.0, value))
    twice = _read(_stored(lagless))
    for at, value in enumerate(demands):
        twice.add(Window(at * 3_600.0, value))
    assert estimated(twice).doubt <= estimated(lagless).doubt * (1 + 1e-9)


@given(st.floats(0.0, 1.0), st.integers(1, 64))
def test_one_number_keeps_its_mean_and_a_doubt(share: float, vcpus: int) -> None:
    found = from_mean(share * vcpus, vcpus)
    assert found.mean == share * vcpus
    assert found.doubt > 0
    assert found.windows == 0
    assert found.p99 is not None and found.p99 <= vcpus


@given(st.floats(0.001, 1.0), st.floats(0.001, 1.0), st.integers(1, 64))
def test_who_uses_more_of_its_vcpus_varies_less_in_proportion_and_never_beyond_them(
    some: float, other: float, vcpus: int
) -> None:
    calm, busy = (from_mean(share * vcpus, vcpus) for share in sorted((some, other)))
    assert busy.spread / busy.mean <= calm.spread / calm.mean * (1 + 1e-9)
    assert busy.spread**2 <= busy.mean * (vcpus - busy.mean) + 1e-9
    assert calm.spread == pytest.approx(vcpus * from_mean(calm.mean / vcpus, 1).spread), "what counts is the part"


@pytest.mark.parametrize(
    ("used", "least", "most"),
    # deviation over the mean of two traces' machines by their use of a vCPU: PlanetLab's day and Bitbrains' days
    [(0.033, 0.83, 1.60), (0.136, 0.73, 1.77), (0.36, 0.35, 1.06), (0.74, 0.16, 0.50)],
)
def test_a_mean_alone_varies_as_the_machines_of_two_traces_do(used: float, least: float, most: float) -> None:
    found = from_mean(used, 1)
    assert least <= found.spread / found.mean <= most


def test_one_number_is_more_doubtful_than_a_day_of_windows_and_less_than_a_size() -> None:
    measured = from_trace(_bursty(288), vcpus=8)
    assert from_mean(measured.mean, 8).doubt > measured.doubt
    assert day_one(8).doubt / day_one(8).mean > from_mean(measured.mean, 8).doubt / measured.mean


def test_one_number_above_the_vcpus_is_refused() -> None:
    with pytest.raises(ValueError, match="above 2 vCPUs"):
        from_mean(2.5, 2)


def test_what_a_given_demand_leaves_out_comes_from_its_class() -> None:
    found = completed(Demand(0.4, spread=0.2, p95=0.9), 2)
    assert (found.mean, found.spread, found.p95) == (0.4, 0.2, 0.9)
    assert found.p50 is not None and found.p99 is not None and found.p50 <= 0.9 <= found.p99
    assert found.doubt > 0


def test_a_given_high_quantile_tells_the_spread_before_the_class_does() -> None:
    assert completed(Demand(0.4, p95=0.4 + 1.6449 * 0.1), 2).spread == pytest.approx(0.1, rel=1e-3)
    assert completed(Demand(0.4, p99=0.4 + 2.3263 * 0.1), 2).spread == pytest.approx(0.1, rel=1e-3)
    assert completed(Demand(0.4, p50=0.3), 2).spread == completed(Demand(0.4), 2).spread


@given(st.floats(0.01, 1.0), st.floats(0.02, 1.0))
def test_a_given_p95_below_what_the_class_says_of_p50_still_gives_ordered_quantiles(p95: float, mean: float) -> None:
    completed(Demand(mean, p95=p95), 1)  # Demand refuses quantiles that do not grow


def test_others_in_steps_share_of_the_variance_is_found() -> None:
    rng = np.random.default_rng(3)
    common, own = rng.normal(size=2_000), rng.normal(size=2_000)
    demands = 10 + math.sqrt(0.4) * common + math.sqrt(0.6) * own
    known = tally(Window(at * 300.0, float(value), float(common[at])) for at, value in enumerate(demands))
    assert estimated(known).common == pytest.approx(0.4, abs=0.05)
    alone = tally(Window(at * 300.0, float(value), float(rng.normal())) for at, value in enumerate(demands))
    assert estimated(alone).common == pytest.approx(0.0, abs=0.01)


def test_others_in_step_is_without_the_instance_itself_and_without_who_has_no_mean() -> None:
    found = others_in_step({"a": (2.0, 1.0), "b": (1.0, 1.0), "c": (3.0, 1.0), "new": (5.0, 0.0)})
    assert found == {"a": 2.0, "b": 2.5, "c": 1.5, "new": 2.0}
    assert others_in_step({"a": (2.0, 1.0), "b": (1.0, 1.0)}) == {}


def test_the_autocorrelation_time_of_a_first_order_process_is_found() -> None:
    rng, value, demands = np.random.default_rng(4), 0.0, []
    for _ in range(5_000):
        value = 0.8 * value + rng.normal()
        demands.append(20 + value)
    assert from_trace(demands).autocorrelation_s == pytest.approx(300 / -math.log(0.8), rel=0.15)


def test_busy_hours_are_reported_after_days_and_shrunk_to_the_class() -> None:
    demands = [2.0 if at // 12 % 24 in range(9, 17) else 0.5 for at in range(288 * 5)]
    hours = from_trace(demands).hours
    assert len(hours) == 24
    assert sum(hours) / 24 == pytest.approx(1.0)
    assert hours[10] == pytest.approx(2.0, rel=0.15) and hours[10] < 2.0
    assert from_trace(demands[:240]).hours == ()  # of hours that were not seen nothing is known


def test_hours_that_were_seen_are_reported_until_a_whole_day_was_and_more_of_them_is_news() -> None:
    hour, two, day = (estimated(tally(_windows([1.0] * count))) for count in (12, 24, 288))
    assert hour.seen_hours == (12.0, *(0.0,) * 23)
    assert (sum(two.seen_hours), day.seen_hours) == (24.0, ())
    assert is_news(hour, two)
    assert not is_news(two, estimated(tally(_windows([1.0] * 25)[:24])))
    assert is_news(two, day)
    assert estimated(tally(_windows([1.0] * 12), resource="net_mbit")).seen_hours == ()


def test_windows_like_those_before_are_no_news_and_a_doubled_demand_is() -> None:
    known = tally(_windows(_bursty(2_000)))
    before = estimated(known)
    for window in _windows(_bursty(12, seed=5)):
        known.add(Window(window.time_s + 600_000, window.demand))
    assert not is_news(before, estimated(known))
    assert is_news(before, from_trace(_bursty(2_000, mean=2.0)))
    assert is_news(None, before)


def test_a_burst_is_what_ran_over_how_often_a_cpu_was_given() -> None:
    known = tally([Window(300.0, 0.5, ran=0.4, executions=40.0), Window(600.0, 0.5, ran=0.2, executions=20.0)])
    known.add(Window(900.0, 0.5))
    assert estimated(known).burst_ms == pytest.approx(10.0), "windows without a count do not change it"
    assert estimated(_read(_stored(known))).burst_ms == pytest.approx(10.0)
    assert estimated(tally([Window(300.0, 0.001, ran=0.001, executions=0.2)])).burst_ms is None, "60 are too few"


def test_other_bursts_are_news_and_nearly_the_same_are_not() -> None:
    def bursts(of_ms: float | None) -> Demand:
        return replace(estimated(tally(_windows([0.5] * 50))), burst_ms=of_ms)

    assert not is_news(bursts(10.0), bursts(11.0))
    assert is_news(bursts(10.0), bursts(13.0))
    assert is_news(bursts(13.0), bursts(10.0))
    assert is_news(bursts(None), bursts(10.0))


@given(st.floats(0, 4), st.floats(0, 4), st.integers(1, 4))
def test_what_is_wanted_is_what_ran_or_more_and_at_most_run_and_wait_or_the_vcpus(
    run: float, wait: float, vcpus: int
) -> None:
    run, wait = min(run, vcpus), min(wait, vcpus - min(run, vcpus))
    wanted = demanded_cpus(run, wait, vcpus)
    assert run - 1e-9 <= wanted <= min(run + wait, vcpus) + 1e-9


def test_who_is_always_ready_wants_all_and_who_has_time_to_spare_little_more_than_it_ran() -> None:
    assert demanded_cpus(0.3, 0.7, 1) == 1.0
    assert demanded_cpus(1.0, 5.0, 2) == 2.0  # threads of the emulator wait, too
    assert demanded_cpus(0.2, 0.1, 1) == pytest.approx(0.2, rel=0.05)
    assert demanded_cpus(0.4, 0.0, 1) == 0.4


@pytest.mark.parametrize("vcpus", [1, 2, 8, 64])
def test_one_thread_that_is_always_ready_wants_one_cpu_on_any_number_of_them(vcpus: int) -> None:
    assert demanded_cpus(0.33, 0.67, vcpus, 1.0) == pytest.approx(1.0, rel=0.01)
    assert demanded_cpus(0.2, 0.1, vcpus, 1.0) == pytest.approx(demanded_cpus(0.2, 0.1, 1))


@pytest.mark.parametrize(("run", "wait"), [(0.6, 0.4), (1.5, 2.5), (0.05, 0.9)])
def test_a_pool_of_threads_that_are_rarely_ready_wants_no_more_than_without_their_number(
    run: float, wait: float
) -> None:
    assert demanded_cpus(run, wait, 2, 40.0) == demanded_cpus(run, wait, 2)
    assert demanded_cpus(run, wait, 64, 40.0) < run * 1.1


@given(st.floats(0, 8), st.floats(0, 64), st.integers(1, 8), st.floats(1, 100))
def test_demand_by_threads_is_between_what_ran_and_run_plus_wait(
    run: float, wait: float, vcpus: int, threads: float
) -> None:
    run = min(run, vcpus)
    wanted = demanded_cpus(run, wait, vcpus, threads)
    assert run - 1e-9 <= wanted <= min(run + wait, vcpus) + 1e-9


def test_demand_is_within_the_vcpus() -> None:
    assert estimated(tally(_windows([3.0, 3.0])), vcpus=2).mean == 2.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_a_window_that_is_none_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="is none"):
        Tally().add(Window(0.0, value))


def test_without_windows_there_is_no_demand() -> None:
    with pytest.raises(ValueError, match="no windows"):
        from_trace([])


def _sums(*pairs: tuple[float, float]) -> LogSums:
    """Sums of instances, each of (mean in CPUs, vCPUs)."""
    total = LogSums()
    for mean, vcpus in pairs:
        total = total.plus(log_of(mean, vcpus))
    return total


def test_a_new_vm_is_drawn_towards_those_that_are_like_it_the_more_there_are() -> None:
    busy = [(3.0, 4.0)] * 20
    few, many = from_class(4, [_sums(busy[0])]), from_class(4, [_sums(*busy)])
    assert day_one(4).mean < few.mean < many.mean < 3.5
    assert many.doubt / many.mean < few.doubt / few.mean
    assert (many.origin, day_one(4).origin, many.windows) == ("class", "assumed", 0)


@given(st.lists(st.tuples(st.floats(0, 64), st.floats(0, 4)), min_size=30, max_size=80))
def test_a_tally_says_what_the_plain_formulas_say_of_all_windows(pairs: list[tuple[float, float]]) -> None:
    demands, others = np.array(pairs).T
    known = tally(Window((at + 1) * 300.0, float(value), float(others[at])) for at, value in enumerate(demands))
    assert known.mean == pytest.approx(demands.mean(), abs=1e-9)
    assert known.squares == pytest.approx(((demands - demands.mean()) ** 2).sum(), rel=1e-6, abs=1e-6)
    for held, one, other in ((known.lagged, demands[:-1], demands[1:]), (known.shared, demands, others)):
        plain = [
            len(one),
            one.mean(),
            other.mean(),
            _products(one, one),
            _products(other, other),
            _products(one, other),
        ]
        assert held == pytest.approx(plain, rel=1e-6, abs=1e-6)


def _products(one: Floats, other: Floats) -> float:
    return float(((one - one.mean()) * (other - other.mean())).sum())


@given(st.integers(0, 9999))
@settings(max_examples=examples(10))
def test_hours_are_the_shrunk_means_of_their_windows(seed: int) -> None:
    values = np.random.default_rng(seed).uniform(0.1, 8, 288 * 4)
    hour = np.arange(len(values)) * 300 // 3600 % 24
    plain = [
        (values[hour == one].sum() / values.mean() + PRIOR_HOURS) / ((hour == one).sum() + PRIOR_HOURS)
        for one in range(24)
    ]
    assert from_trace(values.tolist()).hours == pytest.approx(np.array(plain) / np.mean(plain))


@given(st.lists(st.floats(0.1, 8), min_size=40, max_size=80), st.floats(0.1, 8))
def test_beyond_the_most_windows_all_that_was_seen_counts_half(demands: list[float], later: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demand_estimation, "MOST_WINDOWS", len(demands) - 1)
        known = tally(_windows(demands))
    assert known.n == len(demands) / 2
    assert known.mean == pytest.approx(np.mean(demands))
    assert known.squares / known.n == pytest.approx(np.var(demands), abs=1e-9)
    assert known.quantile(0.5) == pytest.approx(tally(_windows(demands)).quantile(0.5))
    whole = tally(_windows(demands))
    for one in (known, whole):
        one.add(Window((len(demands) + 1) * 300.0, later))
    assert abs(known.mean - later) <= abs(whole.mean - later) + 1e-9, "what is new counts for more"


def test_an_instance_that_shrank_is_measured_within_its_vcpus() -> None:
    before = Demand(3.0, p50=2.5, p95=3.8, origin="measured")
    assert before.within(4) is before
    assert before.within(2) == Demand(2.0, p50=2.0, p95=2.0, origin="measured")
    assert Demand(300.0, "net_mbit").within(1).mean == 300.0


@settings(max_examples=examples(20))
@given(
    st.lists(st.sampled_from(RESOURCES), min_size=1, max_size=5),
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 2, 300, 3000]),  # windows since the last one: some are missing, some weeks
            st.lists(st.one_of(st.just(0.0), st.floats(1e-4, 64)), min_size=5, max_size=5),
            st.lists(st.booleans(), min_size=5, max_size=5),
            st.sampled_from([math.nan, 0.4, 1.0, 3.0]),
        ),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([7, 16_128]),
)
def test_tallies_side_by_side_are_those_of_each_by_itself(
    resources: list[Any], steps: list[tuple[int, list[float], list[bool], float]], most_windows: int
) -> None:
    """Value by value, whoever has a window when, with the store between any two windows and counts that are halved."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (demand_estimation, tallies):
            patch.setattr(module, "MOST_WINDOWS", most_windows)
        alone, together = [Tally(resource) for resource in resources], Tallies(resources)
        time_s = 1.7e9 // 300 * 300
        for missing, demand, there, others in steps:
            time_s += 300.0 * missing
            rows = np.flatnonzero(there[: len(resources)])
            for row in rows.tolist():
                if alone[row].n:
                    alone[row].compare(alone[row].last, others)
                alone[row].add(Window(time_s, demand[row], ran=demand[row], executions=100.0 * row))
            seen = rows[together.n[rows] > 0]
            together.compare(seen, together.last[seen], np.full(len(seen), others))
            values = np.array(demand)[rows]
            together.add(rows, time_s, values, values, np.array(100.0 * rows, np.float64))
            together = Tallies.of(resources, together.states())
            assert [together.tally(row) for row in range(len(resources))] == alone
        rows = np.flatnonzero(together.n)
        for row, found in zip(rows.tolist(), together.estimates(rows, [2] * len(rows)), strict=True):
            expected = estimated(alone[row], vcpus=2)
            assert found.hours == pytest.approx(expected.hours, rel=1e-12)
            as_checked = found._replace(hours=expected.hours, seen_hours=tuple(found.seen_hours))
            assert Demand(**as_checked._asdict()) == expected


@pytest.mark.parametrize("state", [b"\x02", b"\x01\x00", b"\x01" * 40])
def test_bytes_that_are_no_tally_are_refused(state: bytes) -> None:
    with pytest.raises(tallies.Unreadable):
        Tallies.of(["cpu"], [state])


def test_an_estimate_has_the_fields_of_a_demand_with_the_same_defaults() -> None:
    declared = {one.name: one.default for one in dataclasses.fields(Demand) if one.default is not dataclasses.MISSING}
    assert Estimate._fields == tuple(one.name for one in dataclasses.fields(Demand))
    assert Estimate._field_defaults == declared
