"""Samples and colocations: taken once, dropped with a reason, and what they tell about hosts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.errors import Conflict, InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry.ingest import MOST_NAMES
from profiler.observed import Colocation, MetricSample, Outcome
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import sqlite_with_tables

REQUEST = PlacementRequest(Instance("new"), dry_run=True)


@pytest.fixture(autouse=True)
def _inventory(advisor: Advisor) -> None:
    advisor.inventory.put_host(Host("h1", "xen", 4, 8192))
    advisor.inventory.put_instance(Instance("i1", host="h1"))


@pytest.fixture
def sample(clock: Clock) -> MetricSample:
    return MetricSample("h1", "i1", "instance", "cpu", 30.0, clock.now.timestamp())


def test_a_batch_is_counted_and_sent_again_is_all_duplicates(advisor: Advisor, sample: MetricSample) -> None:
    batch = [sample, replace(sample, metric="event", scope="host", instance=None), replace(sample, value=99.0)]
    assert advisor.telemetry.ingest(batch) == {"accepted": 2, "duplicate": 1, "dropped": ()}
    assert advisor.telemetry.ingest(batch) == {"accepted": 0, "duplicate": 3, "dropped": ()}
    assert advisor.telemetry.ingest([]) == {"accepted": 0, "duplicate": 0, "dropped": ()}


def test_each_sample_that_is_not_taken_has_its_position_and_reason(advisor: Advisor, sample: MetricSample) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "unknown host 'h9'": {"host": "h9"},
        "unknown instance 'ghost'": {"instance": "ghost"},
        "value nan is not a finite number of at least 0": {"value": math.nan},
        "value inf is not a finite number of at least 0": {"value": math.inf},
        "value -1.0 is not a finite number of at least 0": {"value": -1.0},
        "time nan is not a time": {"time_s": math.nan},
        "time is 301 s in the future; check the clock of the host": {"time_s": sample.time_s + 301},
        "metric '' is not 1-255 letters, digits or ._:- characters (and not . or ..)": {"metric": ""},
        "metric 'a b' is not 1-255 letters, digits or ._:- characters (and not . or ..)": {"metric": "a b"},
        "scope 'galaxy' is none of instance, driver_domain, host": {"scope": "galaxy"},
    }
    answer = advisor.telemetry.ingest([sample, *(replace(sample, **changes) for changes in wrong.values())])
    assert answer["accepted"] == 1
    assert answer["dropped"] == tuple(enumerate(wrong, start=1))


def test_a_host_has_so_many_metrics_beside_those_of_the_agent_whoever_sends_them_and_when(
    advisor: Advisor, sample: MetricSample
) -> None:
    advisor.inventory.put_host(Host("h2", "xen", 4, 8192))
    own = [replace(sample, metric=name) for name in ("cpu", "cpu_p95", "llc_mb", "waited_for:i1")]
    for batch in range(3):
        made_up = [replace(sample, metric=f"mine-{batch}-{number}") for number in range(40)]
        counts = advisor.telemetry.ingest([*made_up, *own], only=None if batch else "h1")
        assert len(counts["dropped"]) == max(40 * (batch + 1) - MOST_NAMES, 0)
    assert counts["dropped"][0][1].startswith(f"h1 has {MOST_NAMES} metrics beside those of the agent")
    again = advisor.telemetry.ingest([replace(sample, metric="mine-0-0", time_s=sample.time_s + 60)])
    other = advisor.telemetry.ingest([replace(sample, host="h2", instance=None, scope="host", metric="new")])
    assert (again["accepted"], other["accepted"]) == (1, 1)


def test_a_batch_over_the_limit_is_refused_whole(settings: Settings, sample: MetricSample, tmp_path: Path) -> None:
    small = settings.model_copy(update={"max_batch": 2, "database": sqlite_with_tables(tmp_path / "small.sqlite3")})
    with Advisor(small) as advisor, pytest.raises(InvalidInput, match="3 samples in one batch, at most 2"):
        advisor.telemetry.ingest([sample] * 3)


def test_a_host_that_was_only_written_down_does_not_go_stale_and_a_dated_inventory_does(
    advisor: Advisor, clock: Clock
) -> None:
    clock.turn(30 * 86_400)
    assert [one.host for one in advisor.placements.place(REQUEST).recommendation.candidates] == ["h1"]
    cloud = Inventory((Host("h1", "xen", 4, 8192),), observed_at=clock.now)
    advisor.inventory.put(cloud, mode="merge", generation=None)
    clock.turn(3601)
    assert [one.code for one in advisor.placements.place(REQUEST).recommendation.rejected] == ["host.no_data"]


def test_a_host_not_heard_of_for_too_long_is_rejected_until_a_fresh_sample_makes_it_count_again(
    advisor: Advisor, clock: Clock, sample: MetricSample
) -> None:
    generation = advisor.inventory.generation()
    advisor.telemetry.ingest([sample])
    clock.turn(3601)
    answer = advisor.placements.place(REQUEST).recommendation
    assert answer.candidates == ()
    assert [(one.host, one.code) for one in answer.rejected] == [("h1", "host.no_data")]
    clock.turn(3600)
    for age_s, hosts in ((3601, []), (0, ["h1"])):
        sent = replace(sample, time_s=clock.now.timestamp() - age_s)
        assert advisor.telemetry.ingest([sent])["accepted"] == 1
        assert [one.host for one in advisor.placements.place(REQUEST).recommendation.candidates] == hosts
    assert advisor.inventory.generation() == generation


def test_a_host_that_keeps_sending_samples_never_goes_stale(
    advisor: Advisor, clock: Clock, sample: MetricSample
) -> None:
    for _ in range(50):
        clock.turn(600)
        advisor.telemetry.ingest([replace(sample, time_s=clock.now.timestamp())])
        assert len(advisor.placements.place(REQUEST).recommendation.candidates) == 1


OUTCOMES = (
    Outcome(Instance("a", workload="web"), "throughput", 1900.0, 1560.0, "req/s"),
    Outcome(Instance("b", workload="batch"), "throughput", 112.0, None, "req/s"),
)
COLOCATION = Colocation("run-1", "I", "1", OUTCOMES)


def test_a_colocation_is_taken_once_and_the_same_run_with_other_values_is_a_conflict(advisor: Advisor) -> None:
    assert advisor.outcomes.record_colocation(COLOCATION)
    assert not advisor.outcomes.record_colocation(COLOCATION)
    assert advisor.outcomes.record_colocation(replace(COLOCATION, repeat="2"))
    with pytest.raises(Conflict, match="run-1, repeat 1"):
        advisor.outcomes.record_colocation(replace(COLOCATION, driver_cpus=(0,)))


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (replace(COLOCATION, run=""), "run"),
        (replace(COLOCATION, repeat="x" * 256), "repeat"),
        (replace(COLOCATION, outcomes=()), "outcomes"),
        (replace(COLOCATION, outcomes=COLOCATION.outcomes[:1] * 2), "outcomes"),
        (replace(COLOCATION, outcomes=(replace(COLOCATION.outcomes[0], solo=math.nan),)), "outcomes[0].solo"),
        (replace(COLOCATION, outcomes=(replace(COLOCATION.outcomes[0], colocated=-1.0),)), "outcomes[0].colocated"),
    ],
)
def test_a_broken_colocation_is_refused_by_field(advisor: Advisor, broken: Colocation, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        advisor.outcomes.record_colocation(broken)
    assert caught.value.field == field
