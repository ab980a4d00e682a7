"""Scores of VMs: measured where a window is fresh, else predicted; kept for every window, and forgotten in time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain import CloudScores, Host, Instance, Inventory
from advisor.scheduling import scoring
from advisor.service import Advisor
from profiler.demand import Demand, Resource
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

NAN = float("nan")


def by_hand(throughput: float, delivered: float, measured: float, stalled: float) -> float:
    """The definition in docs/answers.md, one VM at a time."""
    cpu_predicted = 1.0 if np.isnan(delivered) else delivered
    if np.isnan(measured):
        before_memory = min(cpu_predicted, throughput)
    elif np.isnan(delivered):
        before_memory = min(measured, throughput)
    else:
        before_memory = measured * min(throughput / cpu_predicted, 1.0)
    return 100 * before_memory * (1 - (0.0 if np.isnan(stalled) else stalled))


@pytest.mark.parametrize(
    ("throughput", "delivered", "measured", "stalled", "score"),
    [
        (1.0, 1.0, NAN, NAN, 100.0),  # uncontended
        (0.7, 0.9, NAN, NAN, 70.0),
        (0.9, 0.7, NAN, NAN, 70.0),
        (0.7, NAN, NAN, NAN, 70.0),
        (0.72, 0.9, 0.5, NAN, 40.0),  # devices take a fifth beyond the CPU
        (0.7, 0.7, 1.0, NAN, 100.0),  # what was predicted of the CPU did not happen
        (0.7, NAN, 0.5, NAN, 50.0),
        (1.0, 1.0, 1.0, 0.25, 75.0),
        (1.02, 1.0, NAN, NAN, 100.0),
        (0.0, 0.0, NAN, NAN, 0.0),
    ],
)
def test_the_score_is_the_product_of_what_cpu_devices_and_memory_leave(
    throughput: float, delivered: float, measured: float, stalled: float, score: float
) -> None:
    found = scoring.score_factors(*(np.array([value]) for value in (throughput, delivered, measured, stalled)))
    assert found.scores[0] == pytest.approx(score)
    if throughput and throughput <= 1:
        assert found.scores[0] == pytest.approx(by_hand(throughput, delivered, measured, stalled))


def test_a_histogram_has_each_score_once_and_100_in_the_last_bucket() -> None:
    scores = np.array([0.0, 19.9, 20.0, 59.0, 60.0, 79.9, 80.0, 100.0])
    found = scoring.score_summary(scores, np.arange(8) < 3)
    assert (found.counts, found.measured, found.low) == ((2, 1, 1, 2, 2), 3, 4)
    assert (found.mean, found.lowest) == (pytest.approx(scores.mean()), 0.0)
    assert scoring.score_summary(np.zeros(0), np.zeros(0, dtype=bool)).mean is None


@pytest.fixture
def crowded(advisor: Advisor) -> Advisor:
    """Two VMs that want all of one CPU each on a host with one, a calm one on another host, and a stopped one."""
    hosts = tuple(Host(name, "kvm", pcpus=1, memory_mb=4096) for name in ("h1", "h2", "h3"))
    busy: dict[Resource, Demand] = {"cpu": Demand(1.0)}
    calm: dict[Resource, Demand] = {"cpu": Demand(0.1)}
    there = (
        Instance("a", vcpus=1, memory_mb=64, host="h1", demand=busy),
        Instance("b", vcpus=1, memory_mb=64, host="h1", demand=busy),
        Instance("calm", vcpus=1, memory_mb=64, host="h2", demand=calm),
        Instance("off", vcpus=1, memory_mb=64, host="h3", labels={"stopped_at": "2026-01-01T00:00:00Z"}),
    )
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
    return advisor


def send(advisor: Advisor, begin_s: float, of: dict[str, dict[str, float]], windows: int = 2) -> None:
    for window in range(windows):
        advisor.telemetry.ingest(
            [
                MetricSample("h1", name, "instance", metric, value, begin_s + 300 * window + 60 * sample)
                for name, metrics in of.items()
                for metric, value in metrics.items()
                for sample in range(5)
            ]
        )


def test_without_measurements_scores_are_predicted_and_say_so(crowded: Advisor) -> None:
    found: CloudScores = crowded.cloud.scores()
    assert set(found.instances) == {"a", "b", "calm"}
    for name, resident in ((one.instance.id, one) for host in crowded.cloud.now().hosts for one in host.residents):
        if name != "off":
            assert resident.delivered is not None
            assert found.instances[name].score == pytest.approx(100 * min(resident.expected, resident.delivered, 1.0))
    assert found.instances["a"].score == pytest.approx(50, abs=5)
    assert {one.source for one in found.instances.values()} == {"predicted"}
    assert found.cloud.instances == 3
    assert found.hosts["h1"].counts == (0, 0, 2, 0, 0)
    assert found.hosts["h2"].mean is not None
    assert found.hosts["h2"].mean > 90
    assert [host for host, _ in found.hosts_lowest_first] == ["h1", "h2"]
    assert [one.instance for one in found.lowest(5)] == ["a", "b"]


def test_a_fresh_window_takes_the_place_of_the_prediction_and_an_old_one_does_not(
    crowded: Advisor, clock: Clock
) -> None:
    begin_s = clock().timestamp() // 300 * 300 - 600
    metrics = {"cpu": 40.0, "waiting": 10.0, "psi_memory": 25.0}
    send(crowded, begin_s, {"a": metrics, "b": {"cpu": 30.0, "waiting": 40.0, "throttled": 10.0}})
    crowded.telemetry.ingest([MetricSample("h1", "a", "instance", "cpu", 40.0, begin_s + 661)])
    found = crowded.cloud.scores()
    a, b = found.instances["a"], found.instances["b"]
    assert (a.source, a.cpu, a.memory) == ("measured", pytest.approx(0.8), pytest.approx(0.75))
    assert a.score == pytest.approx(100 * 0.8 * a.devices * 0.75)
    assert (b.source, b.cpu, b.memory) == ("measured", pytest.approx(0.5), None)
    assert found.hosts["h1"].measured == 2
    clock.turn(1200)
    assert crowded.cloud.scores().instances["a"].source == "predicted"


def test_what_was_measured_on_another_host_says_nothing_where_it_is_now(crowded: Advisor, clock: Clock) -> None:
    begin_s = clock().timestamp() // 300 * 300 - 600
    send(crowded, begin_s, {"a": {"cpu": 40.0, "waiting": 10.0}})
    crowded.telemetry.ingest([MetricSample("h1", "a", "instance", "cpu", 40.0, begin_s + 661)])
    assert crowded.cloud.scores().instances["a"].source == "measured"
    there = crowded.inventory.instance("a")
    crowded.inventory.put_instance(replace(there, host="h2"))
    assert crowded.cloud.scores().instances["a"].source == "predicted"


def test_each_window_is_kept_once_and_forgotten_in_time(crowded: Advisor, clock: Clock) -> None:
    assert crowded.keep_scores()
    assert not crowded.keep_scores()
    clock.turn(300)
    assert crowded.keep_scores()
    cloud, of_host = crowded.cloud.score_history(), crowded.cloud.score_history("h1")
    now = crowded.cloud.scores()
    assert [point.buckets for point in cloud] == [now.cloud.buckets] * 2
    assert [point.buckets for point in of_host] == [now.hosts["h1"].buckets] * 2
    assert (cloud[1].time - cloud[0].time).total_seconds() == 300
    assert len(crowded.cloud.score_history(since="5m")) == 1
    clock.turn(8 * 86_400)
    crowded.prune()
    assert len(crowded.cloud.score_history(since="30d")) == 1  # of the cloud as long as means of samples; one step
    assert crowded.cloud.score_history("h1", since="30d") == ()
    clock.turn(100 * 86_400)
    crowded.prune()
    assert crowded.cloud.score_history(since="200d") == ()


def test_of_a_long_history_each_step_shows_its_lowest_window(crowded: Advisor, clock: Clock) -> None:
    for _ in range(4):
        crowded.keep_scores()
        clock.turn(300)
    assert len(crowded.cloud.score_history(since="1h")) == 4
    assert len(crowded.cloud.score_history(since="30d")) == 1  # steps of two hours


def test_each_vm_has_a_history_as_long_as_samples_are_kept(crowded: Advisor, clock: Clock) -> None:
    for _ in range(3):
        crowded.keep_scores()
        clock.turn(300)
    of_a = crowded.cloud.vm_score_history("a")
    assert [(point.score, point.source) for point in of_a] == [(50.0, "predicted")] * 3
    assert (of_a[1].time - of_a[0].time).total_seconds() == 300
    assert crowded.cloud.vm_score_history("off") == ()
    assert len(crowded.cloud.vm_score_history("a", since="30d")) == 1
    clock.turn(9 * 86_400)
    crowded.prune()
    assert crowded.cloud.vm_score_history("a", since="30d") == ()


def test_a_measured_score_that_stays_low_is_an_alarm_until_it_does_not(crowded: Advisor, clock: Clock) -> None:
    """Both VMs are predicted to have 50; only `a` is measured, at 40 and then at 90."""
    clock.turn(300 - clock().timestamp() % 300 + 90)  # a window is kept soon after its end

    def window(waiting: float) -> None:
        begin_s = clock().timestamp() // 300 * 300 - 300
        send(crowded, begin_s, {"a": {"cpu": 40.0, "waiting": waiting}}, windows=1)
        crowded.telemetry.ingest([MetricSample("h1", "a", "instance", "cpu", 40.0, begin_s + 361)])
        assert crowded.keep_scores()

    def entries() -> list[str]:
        return [entry.operation for entry in crowded.access.audit().items if "alarm" in entry.operation]

    for count in (1, 2, 3, 4):
        window(60.0)
        assert [one.instance for one in crowded.cloud.low_scores()] == (["a"] if count >= 3 else [])
        assert entries() == (["alarm.raise"] if count >= 3 else [])
        clock.turn(300)
    (alarm,) = crowded.cloud.low_scores()
    assert (alarm.windows, alarm.host, alarm.below) == (4, "h1", 60.0)
    window(2.0)
    assert crowded.cloud.low_scores() == ()
    assert entries() == ["alarm.end", "alarm.raise"]
