"""`cotenant score`: the cloud, a host, and what is said where nothing runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.demand import Demand
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Two VMs that share one CPU on h1, a calm one alone on h2, and an empty host."""
    url = sqlite_with_tables(tmp_path / "scores.sqlite3")
    hosts = tuple(Host(name, "kvm", pcpus=1, memory_mb=4096) for name in ("h1", "h2", "h3"))
    wanted = {"a": ("h1", 1.0), "b": ("h1", 1.0), "calm": ("h2", 0.01)}
    there = tuple(
        Instance(name, vcpus=1, memory_mb=64, host=host, demand={"cpu": Demand(cpus)})
        for name, (host, cpus) in wanted.items()
    )
    with Advisor(Settings(database=url, state_dir=tmp_path)) as advisor:
        advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
        advisor.keep_scores()
    return url


def test_the_cloud_is_shown_by_host_the_lowest_first_with_vms_below_60(database: str) -> None:
    lines = cli_runs.run("score", "--database", database).stdout.splitlines()
    assert lines[1].split() == ["cloud", "3", "67", "50", "0", "0", "2", "0", "1"]
    assert lines[2].split() == ["h1", "2", "50", "50", "0", "0", "2", "0", "0"]
    assert lines[3].split()[:2] == ["h2", "1"]
    assert [line.split()[:4] for line in lines if line.startswith(("a ", "b "))] == [
        ["a", "h1", "50", "predicted"],
        ["b", "h1", "50", "predicted"],
    ]


def test_one_host_has_every_vm_of_it_and_json_has_the_history(database: str) -> None:
    found = json.loads(cli_runs.run("score", "h2", "--database", database, "--json").stdout)
    assert (found["host"], [vm["instance"] for vm in found["vms"]]) == ("h2", ["calm"])
    assert [point["mean"] for point in found["history"]] == [found["mean"]]
    assert cli_runs.run("score", "h3", "--database", database).stdout == "No VM runs on h3.\n"


def test_a_host_that_is_not_there_is_refused(database: str) -> None:
    answer = cli_runs.run("score", "nowhere", "--database", database)
    assert answer.exit_code != 0
    assert "nowhere" in answer.stderr


def test_one_vm_has_its_factors_and_its_history(database: str) -> None:
    found = json.loads(cli_runs.run("score", "--vm", "a", "--database", database, "--json").stdout)
    assert (found["instance"], found["now"]["host"], found["now"]["score"]) == ("a", "h1", 50.0)
    assert [(point["score"], point["source"]) for point in found["history"]] == [(50.0, "predicted")]
    shown = cli_runs.run("score", "--vm", "a", "--database", database).stdout.splitlines()
    assert shown[1].split()[:4] == ["a", "h1", "50", "predicted"]
    assert "the lowest score was 50" in shown[2]
    both = cli_runs.run("score", "h1", "--vm", "a", "--database", database)
    assert both.exit_code == 2
    assert cli_runs.run("score", "--vm", "nowhere", "--database", database).exit_code != 0
