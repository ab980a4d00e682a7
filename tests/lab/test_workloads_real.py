"""Every kind of workload for real: its programs in instances of the lab, its outcomes, and nothing left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from lab.fields import Fields
from lab.workloads import KINDS
from tests.lab.lab_commands import measure, table

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(os.geteuid() != 0, reason="the lab makes control groups and network namespaces: needs root"),
]
SERVED: dict[str, dict[str, object]] = {
    "web": {"kind": "web", "size_kb": 10, "load": 0.05},
    "bulk": {"kind": "bulk"},
    "udp": {"kind": "bulk", "transport": "udp", "streams": 2, "load": 0.1},
    "keys": {"kind": "key-value", "keys": 500},
    "stream": {"kind": "stream", "clients": 2},
}
ALONE: dict[str, dict[str, object]] = {
    "mix": {"kind": "disk-mix", "pairs": 2, "files": 1},
    "game": {"kind": "game", "bots": 2},
    "map": {"kind": "game-map", "changes": 2, "cache": "cold"},
    "share": {"kind": "probe", "probe": "cpu-share"},
    "rtt": {"kind": "probe", "probe": "rtt", "samples": 10, "options": ["--per-second", "20", "--udp"]},
}


def _skip_without_tools(workloads: Mapping[str, Mapping[str, object]]) -> None:
    made = [KINDS[str(entry["kind"])].of(Fields("c", name, dict(entry))) for name, entry in workloads.items()]
    missing = sorted({tool for workload in made for tool in workload.tools if shutil.which(tool) is None})
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def _measure(workloads: Mapping[str, Mapping[str, object]], path: Path) -> dict[str, dict[str, float]]:
    """All of them at once and each alone, for a second; outcomes beside the others by workload and name."""
    _skip_without_tools(workloads)
    document = {
        "name": "kinds", "platform": "test-host", "seconds": 1, "warmup_s": 0.3, "rounds": 1, "workloads": workloads,
        "groups": [{"members": list(workloads)}], "pinnings": {"apart": {"cpus": ["0"], "clients": "1"}},
    }  # fmt: skip
    campaign = path / "c.yaml"
    campaign.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert measure(campaign, path / "data", path / "state", within_s=100)["rounds"] == 1
    assert [entry.name for entry in (path / "state").iterdir()] == ["lock"]
    assert _running_below(path) == []
    reached: dict[str, dict[str, float]] = {name: {} for name in workloads}
    for row in table(path / "data", "outcomes"):
        if row["run"].startswith("apart:"):
            reached[row["workload"]][row["outcome"]] = float(row["value"])
    return reached


def _running_below(path: Path) -> list[str]:
    """Processes whose folder is one of the instances'."""
    running = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            folder = str((entry / "cwd").readlink())
            if folder.startswith(str(path)):
                running.append(f"{(entry / 'comm').read_text().strip()} in {folder}")
    return running


@pytest.mark.measured
def test_servers_of_every_kind_tell_what_they_reached(tmp_path: Path) -> None:
    reached = _measure(SERVED, tmp_path)
    assert all(outcomes["throughput"] > 0 for outcomes in reached.values())
    for name in ("web", "keys"):
        assert 0 < reached[name]["latency_mean_ms"] <= reached[name]["latency_p95_ms"] * 5
    assert 0 <= reached["web"]["timeouts_percent"] <= 100
    assert "retransmits" in reached["bulk"]
    assert {"jitter_ms", "lost"} <= set(reached["udp"])
    assert reached["stream"]["throughput"] < 2 * 1.05 * 1.15  # no client gets more than the server's pace
    assert 0 < reached["stream"]["quality"] <= 100


@pytest.mark.measured
def test_disks_games_and_probes_tell_what_they_reached(tmp_path: Path) -> None:
    reached = _measure(ALONE, tmp_path)
    mix = reached["mix"]
    assert mix["throughput"] == pytest.approx(mix["read_throughput"] + mix["write_throughput"], rel=1e-3)
    assert reached["game"]["timeouts_percent"] < 100
    # qstat reports whole milliseconds, of other queries of the same seconds on a CPU that four others use
    assert reached["game"]["latency_mean_ms"] == pytest.approx(reached["game"]["qstat_latency_mean"], abs=150)
    assert reached["map"]["runtime_s"] == pytest.approx(1 / reached["map"]["throughput"], rel=1e-3)
    assert 0 < reached["share"]["throughput"] <= 100
    assert reached["rtt"]["samples"] + reached["rtt"]["lost"] <= 10
    assert reached["rtt"]["latency_mean_ms"] > 0
