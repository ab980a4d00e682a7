"""Watcher's strategies beside Cotenant: what they are given of a cluster, and Watcher itself where a Python has it."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from advisor.domain import Host, Instance, Inventory
from profiler.demand import Demand
from research.arena.clusters import SimulatedCluster
from research.arena.rebalances import by_cotenant
from research.benchmarks.watcher.__main__ import AUDITS, CONSOLIDATE_95, PAIRS, main, paired
from research.benchmarks.watcher.asked import (
    WatcherAudit,
    WatcherError,
    by_watcher,
    identity,
    model_xml,
    readings,
)

PYTHON = os.environ.get("COTENANT_TEST_WATCHER_PYTHON")
needs_watcher = pytest.mark.skipif(PYTHON is None, reason="COTENANT_TEST_WATCHER_PYTHON names no Python with Watcher")


def cluster(busy: float) -> SimulatedCluster:
    """A host of eight CPUs with three instances of four vCPUs, one like it with one, and an empty one."""
    places = ("h1", "h1", "h1", "h2")
    some = (Instance(f"vm-{at}", 4, 4096.0, host=host, demand={"cpu": Demand(busy)}) for at, host in enumerate(places))
    hosts = (Host(f"h{at}", "kvm", 8, 65_536.0, cpu_overcommit=2.0) for at in (1, 2, 3))
    return SimulatedCluster.of(Inventory(tuple(hosts), tuple(some)), seed=1)


def test_the_model_says_who_is_where_and_what_hosts_may_promise() -> None:
    root = ElementTree.fromstring(model_xml(cluster(1.0)))
    there = {node.get("hostname"): [one.get("name") for one in node.findall("Instance")] for node in root}
    assert there == {"h1": ["vm-0", "vm-1", "vm-2"], "h2": ["vm-3"], "h3": []}
    assert {(node.get("vcpus"), node.get("vcpu_ratio"), node.get("memory_ratio")) for node in root} == {
        ("8", "2.0", "1.0")
    }


def test_readings_are_the_same_means_that_cotenant_gets_and_no_host_is_more_than_full() -> None:
    reported = readings(cluster(3.2))
    assert reported["instance_cpu_usage"][identity("vm-3")] == pytest.approx(80.0)
    assert [reported["host_cpu_usage"][identity(host)] for host in ("h1", "h2", "h3")] == [
        100.0,
        pytest.approx(40.0),
        0.0,
    ]
    assert reported["host_ram_usage"][identity("h1")] == 3 * 4096 * 1024
    assert set(reported["instance_root_disk_size"].values()) == {10.0}


def test_cotenant_consolidates_where_watchers_strategies_are_asked_for_fewer_hosts() -> None:
    idle = cluster(0.2)
    found = by_cotenant(idle, None, "consolidate")
    assert (len(set(idle.places.values())), found.judged()["hosts"], found.moves) == (2, 1, 1)


def test_a_watcher_that_fails_is_reported_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no module named watcher >&2\nexit 3\n", encoding="ascii")
    python.chmod(0o755)
    with pytest.raises(WatcherError, match="dummy ended with 3: no module named watcher"):
        by_watcher(cluster(1.0), WatcherAudit("dummy"), python)
    assert main(["--watcher-python", str(python), "--seeds", "1"]) == 1
    assert capsys.readouterr().err == "workload_stabilization ended with 3: no module named watcher\n"


def test_differences_are_paired_by_cluster() -> None:
    def rows(*short: float) -> list[dict[str, float]]:
        return [{"simulated short, %": one, "hosts": 2 * one} for one in short]

    names = {name for pair in PAIRS for name in pair}
    found = {**dict.fromkeys(names, rows(5, 7, 9)), CONSOLIDATE_95: rows(4, 5, 6)}
    last = paired(found).splitlines()[-1]
    assert last.startswith(f"{CONSOLIDATE_95} less vm_workload_consolidation: simulated short, % -2.00 [")
    assert "; hosts -4.00 [" in last


@needs_watcher
@pytest.mark.parametrize("name", [name for name in AUDITS if name != "workload_balance"])  # it finds no host below 25 %
def test_watchers_own_strategies_answer_about_the_cluster(name: str) -> None:
    busy = cluster(2.4)
    wanted = by_watcher(busy, AUDITS[name], Path(str(PYTHON)))
    assert wanted.moves == sum(wanted.cluster.places[one] != host for one, host in busy.places.items()) > 0
    assert wanted.judged()["hosts"] == (1 if name == "vm_workload_consolidation" else 3)
    assert wanted.cpu_seconds < wanted.seconds
