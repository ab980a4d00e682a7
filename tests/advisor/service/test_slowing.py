"""Which instance slows which: by the run queue where it is watched, by correlation where only windows are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.domain import STOPPED_AT, Host, Instance, Inventory
from advisor.errors import NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry.antagonists import LEAST_SAMPLES
from profiler.observed import IsolationSettings, MetricSample, Pinning
from tests.advisor.service.service_clock import Clock

HOST = Host("h1", "kvm", pcpus=4, memory_mb=4096)
WINDOWS = 120
SHARED = IsolationSettings(pinning=Pinning(((0,),)))
APART = IsolationSettings(pinning=Pinning(((1,),)))


@pytest.fixture
def pressed(advisor: Advisor, clock: Clock) -> Advisor:
    """Ten hours of windows in which `victim` waits when `hog` runs, as `apart` does in the same ones elsewhere."""
    there = (
        Instance("victim", vcpus=1, memory_mb=1, host="h1", settings=SHARED),
        Instance("hog", vcpus=1, memory_mb=1, host="h1", settings=SHARED, labels={"domain": "instance-7"}),
        Instance("calm", vcpus=1, memory_mb=1, host="h1", settings=SHARED),
        Instance("apart", vcpus=1, memory_mb=1, host="h1", settings=APART),
    )
    advisor.inventory.put(Inventory((HOST,), there), mode="replace", generation=None)
    random = np.random.default_rng(1)
    busy = random.uniform(0, 90, WINDOWS)
    series = {
        "victim": (np.full(WINDOWS, 30.0), 1 + 0.2 * busy + random.normal(0, 1, WINDOWS).clip(-1)),
        "hog": (busy, np.full(WINDOWS, 2.0)),
        "calm": (random.uniform(0, 20, WINDOWS), np.full(WINDOWS, 1.0)),
        "apart": (busy, np.full(WINDOWS, 0.0)),
    }
    begin = clock().timestamp() // 300 * 300 - 300 * WINDOWS
    advisor.telemetry.ingest(
        [
            MetricSample("h1", name, "instance", metric, float(values[at]), begin + 300 * at + 10)
            for at in range(WINDOWS)
            for name, both in series.items()
            for metric, values in zip(("cpu", "waiting"), both, strict=True)
        ]
    )
    return advisor


def test_windows_name_the_one_that_shares_a_cpu_and_runs_while_it_waits(pressed: Advisor) -> None:
    reported = pressed.telemetry.slowing("h1")
    (one,) = [pair for pair in reported.found if pair.victim == "victim"]
    assert (one.neighbour, one.source) == ("hog", "correlation")
    assert 0.1 < one.loss < 0.35
    assert one.chance is not None
    assert one.chance < 1e-6
    assert reported.windows == WINDOWS
    assert reported.watched == ()


def test_the_run_queue_wins_over_a_correlation(pressed: Advisor, clock: Clock) -> None:
    pressed.telemetry.slowing("h1")
    clock.turn(400)
    watched = (("waited_for_host", 1.0), ("waited_for:instance-7", 2.0), ("waited_for:calm", 5.0))
    batch = [
        MetricSample("h1", "victim", "instance", metric, value, clock().timestamp() - 5 - 10 * number)
        for number in range(LEAST_SAMPLES)
        for metric, value in watched
    ]
    assert pressed.telemetry.ingest(batch)["dropped"] == ()
    reported = pressed.telemetry.slowing("h1")
    mine = [(pair.neighbour, pair.source) for pair in reported.found if pair.victim == "victim"]
    assert mine == [("calm", "run queue"), ("hog", "run queue")]  # the name on the hypervisor is that of hog
    assert reported.watched == ("victim",)


def test_a_neighbour_that_was_there_for_moments_is_not_named(pressed: Advisor, clock: Clock) -> None:
    clock.turn(400)
    batch = [
        MetricSample("h1", "victim", "instance", metric, value, clock().timestamp() - 5 - 10 * number)
        for number in range(2 * LEAST_SAMPLES)
        for metric, value in (("waited_for_host", 1.0), ("waited_for:calm", 5.0), ("waited_for:instance-7", 40.0))
        if metric != "waited_for:instance-7" or number < LEAST_SAMPLES - 1
    ]
    assert pressed.telemetry.ingest(batch)["dropped"] == ()
    reported = pressed.telemetry.slowing("h1")
    assert [pair.neighbour for pair in reported.found if pair.victim == "victim"] == ["calm"]


def test_an_instance_that_no_source_reports_any_more_is_no_antagonist(pressed: Advisor) -> None:
    hog = pressed.inventory.instance("hog")
    pressed.inventory.put_instance(replace(hog, labels={**hog.labels, STOPPED_AT: "2026-01-02T03:00:00+00:00"}))
    assert "hog" not in {pair.neighbour for pair in pressed.telemetry.slowing("h1").found}


def test_an_antagonist_is_a_known_instance_and_no_metric_of_a_profile(pressed: Advisor, clock: Clock) -> None:
    waited_for = [
        MetricSample("h1", "victim", "instance", f"waited_for:{name}", 5.0, clock().timestamp())
        for name in ("stranger", "calm")
    ]
    ((_, reason),) = pressed.telemetry.ingest(waited_for)["dropped"]
    assert reason == "unknown instance 'stranger'"
    own = pressed.telemetry.profile("victim", since="12h").windows.own
    assert "cpu" in own
    assert not any("waited_for" in metric for metric in own)


def test_a_host_that_is_not_there_and_samples_that_are_elsewhere_are_reported(
    pressed: Advisor, settings: Settings
) -> None:
    with pytest.raises(NotFound, match="there is no host h9"):
        pressed.telemetry.slowing("h9")
    with Advisor(settings.model_copy(update={"prometheus_url": "http://127.0.0.1:1"})) as other:
        reported = other.telemetry.slowing("h1")
    assert reported.elsewhere
    assert reported.found == ()
