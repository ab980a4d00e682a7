"""`cotenant doctor`: what was not measured and what is short by an absolute measure is said, not only anomalies."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import Host, Instance, MetricSample
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables

HOUR = 3600.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database=sqlite_with_tables(tmp_path / "own.sqlite3"), state_dir=tmp_path)


@pytest.fixture
def cloud(settings: Settings) -> Iterable[Advisor]:
    """Three hosts, two containers on each."""
    with Advisor(settings) as advisor:
        for number in (1, 2, 3):
            host = f"node{number}"
            advisor.inventory.put_host(Host(host, "lxc", pcpus=4, memory_mb=8192, cpu_overcommit=64.0))
            for letter in "ab":
                advisor.inventory.put_instance(Instance(f"job{number}{letter}", vcpus=4, memory_mb=64, host=host))
        yield advisor


def _measured(
    advisor: Advisor, host: str, of_instances: dict[str, tuple[float, float, float]], ago_s: float = 60.0
) -> None:
    """Ten windows: `cpu`, `waiting` and `throttled` of each instance in % of one CPU."""
    now = time.time()
    batch = [
        MetricSample(host, name, "instance", metric, value, now - ago_s - 30.0 * step)
        for name, values in of_instances.items()
        for metric, value in zip(("cpu", "waiting", "throttled"), values, strict=True)
        for step in range(10)
    ]
    for start in range(0, len(batch), 100):
        advisor.telemetry.ingest(batch[start : start + 100])


def _doctor(settings: Settings) -> tuple[int, dict[str, Any], str]:
    found = cli_runs.run("doctor", "--database", settings.database, "--json")
    words = cli_runs.run("doctor", "--database", settings.database)
    assert words.exit_code == found.exit_code
    return found.exit_code, json.loads(found.stdout), " ".join(words.stdout.split())


IDLE = (20.0, 0.5, 0.0)


def test_hosts_that_sent_no_measurement_are_counted_and_named(cloud: Advisor, settings: Settings) -> None:
    _measured(cloud, "node2", {"job2a": IDLE, "job2b": IDLE})
    code, found, words = _doctor(settings)
    assert code == 1
    assert found["unmeasured"] == ["node1", "node3"]
    assert (found["hosts"], found["instances"], found["measured_instances"]) == (3, 6, 2)
    assert "2 of 3 hosts" in words and "node1, node3" in words


def test_instances_that_get_little_of_their_cpu_time_are_a_problem_without_any_prediction(
    cloud: Advisor, settings: Settings
) -> None:
    _measured(cloud, "node1", {"job1a": (25.0, 75.0, 0.0), "job1b": (60.0, 240.0, 0.0)})
    _measured(cloud, "node2", {"job2a": IDLE, "job2b": (90.0, 10.0, 0.0)})
    _measured(cloud, "node3", {"job3a": (30.0, 170.0, 168.0), "job3b": (0.5, 2.0, 0.0)})
    code, found, _ = _doctor(settings)
    assert code == 1
    assert [(one["instance"], one["host"], one["share"]) for one in found["starved"]] == [
        ("job1b", "node1", pytest.approx(0.2)),
        ("job1a", "node1", pytest.approx(0.25)),
    ]
    assert (found["unmeasured"], len(found["problems"])) == ([], 1), found["problems"]


def test_a_host_whose_agent_stopped_is_named_though_another_source_still_reports_it(
    cloud: Advisor, settings: Settings
) -> None:
    for number in (1, 2):
        _measured(cloud, f"node{number}", {f"job{number}a": IDLE})
    _measured(cloud, "node3", {"job3a": IDLE}, ago_s=HOUR)
    cloud.inventory.put_host(replace(cloud.inventory.host("node3"), enabled=False))  # and its silence was noted
    code, found, _ = _doctor(settings)
    assert code == 1
    assert found["stopped"] + found["silent"] == ["node3"]


def test_where_nothing_is_wrong_the_sentence_says_what_was_looked_at(cloud: Advisor, settings: Settings) -> None:
    for number in (1, 2, 3):
        _measured(cloud, f"node{number}", {f"job{number}a": IDLE})
    code, found, words = _doctor(settings)
    assert (code, found["problems"]) == (0, [])
    assert "3 hosts" in words and "3 of 6 instances" in words


def test_a_service_without_hosts_is_not_well(settings: Settings) -> None:
    with Advisor(settings):
        pass
    code, found, _ = _doctor(settings)
    assert (code, found["hosts"], len(found["problems"])) == (1, 0, 1)


def test_measurements_in_another_store_are_not_called_absent(cloud: Advisor, settings: Settings) -> None:
    with Advisor(settings.model_copy(update={"prometheus_url": "http://127.0.0.1:9"})) as advisor:
        found = advisor.cloud.checkup()
    assert (found.unmeasured, found.problems, found.elsewhere) == ((), (), True)
    assert "not looked at" in found.looked_at
