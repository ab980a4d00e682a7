"""What was measured over time: means of equal steps, of samples and of roll-ups alike, and of which instance."""

from __future__ import annotations

from datetime import timedelta

import pytest

from advisor.domain import Histories, Host, Instance, Inventory
from advisor.errors import InvalidInput
from advisor.service import Advisor
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

HOSTS = tuple(Host(name, "kvm", pcpus=4, memory_mb=4096) for name in ("h1", "h2"))


@pytest.fixture
def filled(advisor: Advisor, clock: Clock) -> Advisor:
    """Two instances on h1, one of which was on h2 before, with ten minutes of samples until now."""
    there = (Instance("a", vcpus=1, memory_mb=1, host="h1"), Instance("b", vcpus=1, memory_mb=1, host="h1"))
    advisor.inventory.put(Inventory(HOSTS, there), mode="replace", generation=None)
    now = clock().timestamp()
    samples = [
        MetricSample(host, owner, scope, metric, value, now - 10 * number)  # type: ignore[arg-type]
        for number in range(60)
        for host, owner, scope, metric, value in (
            ("h1", "a", "instance", "cpu", 10.0 + number % 3),
            ("h1", "b", "instance", "cpu", 50.0),
            ("h1", "a", "driver_domain", "cpu", 7.0),
            ("h1", "a", "instance", "cpu_p95", 9.0),
            ("h1", None, "host", "event", 1000.0),
            ("h2", None, "host", "event", 1.0),
        )
    ]
    moved = [MetricSample("h2", "a", "instance", "cpu", 30.0, now - 1800 - 10 * number) for number in range(6)]
    for at in range(0, len(samples), 300):
        advisor.telemetry.ingest(samples[at : at + 300])
    advisor.telemetry.ingest(moved)
    return advisor


def of_victim(reported: Histories) -> set[tuple[str, str | None, str]]:
    return {(one.host, one.instance, one.metric) for one in reported.found}


def test_a_host_has_the_series_of_who_is_on_it_and_its_own(filled: Advisor) -> None:
    reported = filled.telemetry.histories(host="h1", since="1h")
    assert of_victim(reported) == {("h1", "a", "cpu"), ("h1", "b", "cpu"), ("h1", None, "event")}
    assert reported.step_s == 30.0
    mine = next(one for one in reported.found if one.instance == "a")
    assert set(mine.values[1:-1]) == {11.0}, "the mean of three windows"
    assert mine.unit == "%"
    assert all(reported.begin_s < at <= reported.end_s for at in mine.times)
    assert list(mine.times) == sorted(mine.times)
    with pytest.raises(InvalidInput, match="is not a time such as"):
        filled.telemetry.histories(host="h1", since="yesterday")


def test_an_instance_has_its_series_wherever_it_was_and_those_of_its_host_now(filled: Advisor) -> None:
    reported = filled.telemetry.histories(instance="a", since="1h")
    assert of_victim(reported) == {("h1", "a", "cpu"), ("h2", "a", "cpu"), ("h1", None, "event")}
    assert of_victim(filled.telemetry.histories(instance="a", since="10m")) == {
        ("h1", "a", "cpu"),
        ("h1", None, "event"),
    }
    assert filled.telemetry.histories(instance="ghost").found == ()
    assert filled.telemetry.histories(host="nowhere").found == ()


def test_what_is_rolled_up_stays_in_the_picture(filled: Advisor, clock: Clock) -> None:
    before = {one.instance: one for one in filled.telemetry.histories(host="h1", since="30d").found}
    clock.now += timedelta(days=8)
    assert filled.prune()["samples"] > 0
    after = {one.instance: one for one in filled.telemetry.histories(host="h1", since="30d").found}
    assert after.keys() == before.keys() == {"a", "b", None}
    assert after["b"].values == pytest.approx([50.0] * len(after["b"].values))
    assert sum(after["a"].values) / len(after["a"].values) == pytest.approx(11.0, abs=0.6)
