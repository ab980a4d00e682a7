"""Differences and the eight formulas: what two readings give, and what they must not give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.backends import Counters, DomainCounters, HostCounters, RecordedBackend, TaskCounters
from profiler.collectors import Deltas, collect, difference, samples

SECOND_NS = 1_000_000_000


def _domain(tasks: Mapping[str, TaskCounters], cpu_ns: int | None, **more: int) -> DomainCounters:
    return DomainCounters(1, tasks, cpu_ns, net_bytes=more.get("net", 0), disk_bytes=more.get("disk", 0))


def _counters(at: float, instances: Mapping[str, DomainCounters]) -> Counters:
    driver = DomainCounters(1, {}, interrupt_ns=int(at * 0.2 * SECOND_NS), executions=int(at * 100))
    whole = HostCounters(int(at * 300), int(at * SECOND_NS), 0, 2)
    return Counters("h", 1000 + at, at, instances, driver, whole)


def _values(first: Counters, second: Counters) -> dict[tuple[str | None, str, str], float]:
    return {(s.instance, s.scope, s.metric): s.value for s in collect(first, second).samples}


ONE = TaskCounters(0, 0, 0)


def test_the_eight_metrics_of_a_known_second() -> None:
    begin = _counters(1.0, {"a": _domain({"1": ONE}, 0)})
    task = TaskCounters(300_000_000, 200_000_000, 50)
    end = _counters(2.0, {"a": _domain({"1": task}, 300_000_000, net=4096 * 90, disk=4096 * 10)})
    values = _values(begin, end)
    assert values["a", "instance", "cpu"] == pytest.approx(30)
    assert values["a", "instance", "waiting"] == pytest.approx(20)
    assert values["a", "instance", "block"] == pytest.approx(50)
    assert values["a", "instance", "execution"] == pytest.approx(50)
    assert values["a", "instance", "pages_exchanged"] == pytest.approx(100)
    assert values["a", "instance", "pages_per_execution"] == pytest.approx(2)
    assert values[None, "host", "event"] == pytest.approx(300)
    assert values[None, "host", "switch"] == pytest.approx(50)
    assert values[None, "driver_domain", "cpu"] == pytest.approx(20)
    assert values[None, "driver_domain", "pages_exchanged"] == pytest.approx(100)


def test_the_driver_domain_is_charged_by_pages_exchanged() -> None:
    begin = _counters(1.0, {"a": _domain({"1": ONE}, 0), "b": _domain({"2": ONE}, 0)})
    end = _counters(2.0, {"a": _domain({"1": ONE}, 0, net=4096 * 30), "b": _domain({"2": ONE}, 0, disk=4096 * 10)})
    values = _values(begin, end)
    assert values["a", "driver_domain", "cpu"] == pytest.approx(15)
    assert values["b", "driver_domain", "cpu"] == pytest.approx(5)


def test_recorded_neighbours_on_one_cpu_add_up_to_it(recording: Path) -> None:
    backend = RecordedBackend(recording)
    samples = collect(backend.read_counters(), backend.read_counters()).samples
    assert sum(s.value for s in samples if s.scope == "instance" and s.metric == "cpu") == pytest.approx(100, abs=3)


def test_a_counter_that_ran_backwards_drops_the_sample_and_counts_it() -> None:
    begin = _counters(1.0, {"a": _domain({"1": ONE}, 500)})
    end = _counters(2.0, {"a": _domain({"1": ONE}, 400)})
    collected = collect(begin, end)
    assert [(drop.instance, drop.reason) for drop in collected.drops] == [("a", "reset")]
    assert not [sample for sample in collected.samples if sample.instance == "a"]


def test_instances_that_came_or_went_are_counted_and_give_no_sample() -> None:
    begin = _counters(1.0, {"old": _domain({"1": ONE}, 0)})
    end = _counters(2.0, {"fresh": _domain({"1": ONE}, 0)})
    drops = {(drop.instance, drop.reason) for drop in difference(begin, end).drops}
    assert drops == {("old", "vanished"), ("fresh", "new")}


@pytest.mark.parametrize("gap", [0.0, -5.0, 301.0])
def test_a_clock_that_stood_jumped_or_slept_drops_the_whole_reading(gap: float) -> None:
    begin = _counters(400.0, {"a": _domain({"1": ONE}, 0)})
    end = replace(begin, monotonic_s=400.0 + gap)
    collected = collect(begin, end)
    assert [(drop.instance, drop.reason) for drop in collected.drops] == [(None, "clock")]
    assert collected.samples == ()


def test_an_idle_task_that_ends_does_no_harm() -> None:
    begin = _counters(1.0, {"a": _domain({"1": ONE, "2": ONE}, 0)})
    end = _counters(2.0, {"a": _domain({"1": TaskCounters(SECOND_NS // 2, 0, 5)}, SECOND_NS // 2)})
    assert collect(begin, end).drops == ()


def test_a_busy_task_that_ends_takes_the_task_metrics_with_it_but_not_the_cpu() -> None:
    begin = _counters(1.0, {"a": _domain({"1": ONE, "2": ONE}, 0)})
    end = _counters(2.0, {"a": _domain({"1": TaskCounters(1000, 0, 5)}, SECOND_NS // 2)})
    collected = collect(begin, end)
    assert [(drop.instance, drop.reason) for drop in collected.drops] == [("a", "tasks_ended")]
    metrics = {sample.metric for sample in collected.samples if sample.instance == "a" and sample.scope == "instance"}
    assert "cpu" in metrics
    assert not metrics & {"waiting", "block", "execution", "pages_per_execution"}
    assert any(absence.metric == "waiting" and "1 tasks ended" in absence.reason for absence in collected.absences)


def test_a_reused_task_number_starts_anew() -> None:
    begin = _counters(1.0, {"a": _domain({"1": TaskCounters(9 * SECOND_NS, 9, 900)}, 9 * SECOND_NS)})
    end = _counters(2.0, {"a": _domain({"1": TaskCounters(SECOND_NS // 4, 0, 5)}, 9 * SECOND_NS + SECOND_NS // 4)})
    assert _values(begin, end)["a", "instance", "execution"] == pytest.approx(5)


def test_a_task_that_was_moved_here_does_not_bring_its_past() -> None:
    begin = _counters(1.0, {"a": _domain({}, 0)})
    end = _counters(2.0, {"a": _domain({"1": TaskCounters(90 * SECOND_NS, 90, 9000)}, 0)})
    assert _values(begin, end)["a", "instance", "execution"] == 0


def test_a_metric_without_a_source_is_absent_with_its_reason_and_never_zero() -> None:
    hidden = replace(_domain({"1": ONE}, 0), net_bytes=None, absent={"net_bytes": "it uses the host's own network"})
    collected = collect(_counters(1.0, {"a": hidden}), _counters(2.0, {"a": hidden}))
    assert not [s for s in collected.samples if s.instance == "a" and s.metric == "pages_exchanged"]
    (absence,) = [absence for absence in collected.absences if absence.metric == "pages_exchanged"]
    assert absence.reason == "it uses the host's own network"


counts = st.integers(0, 10 * SECOND_NS)


@given(counts, counts, st.integers(1, 8), st.floats(0.05, 60))
def test_cpu_waiting_and_block_fill_the_virtual_cpus(cpu: int, wait: int, vcpus: int, seconds: float) -> None:
    deltas = Deltas(seconds, vcpus, cpu, wait, 1, 1, 0, 0)
    metrics = samples.of_instance(deltas)
    known = [metrics[name] or 0.0 for name in ("cpu", "waiting", "block")]
    assert min(known) >= 0
    assert sum(known) == pytest.approx(max(100 * vcpus, known[0]))


def test_own_tasks_queueing_for_each_other_are_not_waiting_when_the_instance_is_busy() -> None:
    four_on_one = samples.of_instance(Deltas(1.0, 1, SECOND_NS, 3 * SECOND_NS, 100, 100, 0, 0))
    assert (four_on_one["waiting"], four_on_one["block"]) == (0, 0)
