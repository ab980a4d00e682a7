"""What an instance obtained: its share of CPU time and its stalls, by windows of five minutes."""

from __future__ import annotations

import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.errors import InvalidInput, NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock

WINDOWS = 20


@pytest.fixture
def measured(advisor: Advisor, clock: Clock) -> Advisor:
    """Twenty windows of four samples: in the last of them `shop` waits, stalls and loses packets."""
    there = tuple(Instance(name, vcpus=1, memory_mb=1, host="h1") for name in ("shop", "calm"))
    hosts = (Host("h1", "kvm", pcpus=4, memory_mb=4096),)
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
    begin = clock().timestamp() // 300 * 300 - 300 * WINDOWS
    for at in range(WINDOWS):
        bad = at == WINDOWS - 1
        values = {"cpu": 30.0, "waiting": 40.0 if bad else 0.0, "throttled": 10.0 if bad else 0.0}
        values |= {"psi_io": 60.0 if bad else 2.0, "net_drops": 8.0 if bad else 0.0, "disk_request_ms": 4.0}
        advisor.telemetry.ingest(
            [
                MetricSample("h1", "shop", "instance", metric, value, begin + 300 * at + 60 * sample)
                for metric, value in values.items()
                for sample in range(1, 5)
            ]
        )
    return advisor


def test_the_share_comes_first_its_worst_is_its_least_and_only_the_time_asked_for_counts(measured: Advisor) -> None:
    found = measured.telemetry.obtained("shop").outcomes
    assert [one.metric for one in found] == ["cpu_share", "throttled", "psi_io", "disk_request_ms", "net_drops"]
    share, _, pressure, request, drops = found
    assert (share.worst, share.windows) == (pytest.approx(0.5), WINDOWS)  # its own cap took 10 of the 40 %
    assert share.mean == pytest.approx(1 - 0.5 / WINDOWS)
    assert 0.97 < share.tail < 1
    assert (pressure.mean, pressure.worst, pressure.unit) == (pytest.approx(4.9), pytest.approx(60.0), "%")
    assert 2 < pressure.tail < 10
    assert (request.tail, request.unit) == (pytest.approx(4.0), "ms")
    assert drops.worst == pytest.approx(8.0)
    assert {one.windows for one in measured.telemetry.obtained("shop", since="30m").outcomes} <= {5, 6}


def test_who_was_not_measured_obtained_nothing_that_is_known(measured: Advisor) -> None:
    assert measured.telemetry.obtained("calm").outcomes == ()
    with pytest.raises(NotFound, match="there is no instance ghost"):
        measured.telemetry.obtained("ghost")
    with pytest.raises(InvalidInput):
        measured.telemetry.obtained("shop", since="yesterday")


def test_a_store_of_samples_that_is_down_leaves_it_unknown(measured: Advisor, settings: Settings) -> None:
    with Advisor(settings.model_copy(update={"prometheus_url": "http://127.0.0.1:1"})) as elsewhere:
        reported = elsewhere.telemetry.obtained("shop")
    assert (reported.outcomes, reported.elsewhere) == ((), True)
