"""Workloads: recorded outputs of their tools into outcomes, and the commands that they start."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import RECORDINGS

from profiler.lab.errors import RunError
from profiler.lab.network import htb_commands
from profiler.lab.workloads import Cpu, Disk, Memory, Site, Web, Workload
from profiler.observed import NetworkSettings

CASES: list[tuple[Workload, str, float | None]] = [
    (Web(), "wrk-1k.txt", None),
    (Web(), "httperf-2000.txt", 2000.0),
    (Cpu(), "sysbench-cpu.txt", None),
    (Memory(), "sysbench-memory.txt", None),
    (Disk(), "fio-randread.txt", None),
]


def _output(name: str) -> str:
    return (RECORDINGS / "tools" / name).read_text(encoding="utf-8")


def test_wrk_throughput_is_requests_over_its_own_duration() -> None:
    reached = Web().read(_output("wrk-1k.txt"), None)
    assert reached.throughput == pytest.approx(68047, rel=1e-3)
    assert reached.latency_mean_ms == pytest.approx(0.2065, rel=1e-2)
    assert reached.latency_p95_ms == pytest.approx(0.283)


def test_httperf_has_a_mean_and_no_percentile() -> None:
    reached = Web().read(_output("httperf-2000.txt"), 2000.0)
    assert reached.throughput == pytest.approx(2006, rel=1e-3)
    assert reached.outcomes().keys() == {"throughput", "latency_mean_ms"}


def test_sysbench_memory_is_told_in_megabytes() -> None:
    assert Memory().read(_output("sysbench-memory.txt"), None).throughput == pytest.approx(19299.26 * 1.048576)


def test_sysbench_cpu_has_all_three_outcomes() -> None:
    assert len(Cpu().read(_output("sysbench-cpu.txt"), None).outcomes()) == 3


def test_fio_reads_the_side_that_it_worked_on() -> None:
    output = _output("fio-randread.txt")
    assert Disk(access="randread").read(output, None).throughput > 1
    with pytest.raises(RunError, match="no request"):
        Disk(access="write").read(output, None)


@pytest.mark.parametrize("name", ["wrk-404.txt", "wrk-refused.txt"])
def test_a_server_that_does_not_serve_fails_the_run(name: str) -> None:
    with pytest.raises(RunError, match="wrk"):
        Web().read(_output(name), None)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 2000), st.text(max_size=10))
def test_a_broken_report_fails_the_run_and_nothing_else(
    case: tuple[Workload, str, float | None], cut: int, put: str
) -> None:
    workload, name, rate = case
    output = _output(name)
    with contextlib.suppress(RunError):
        workload.read(output[:cut] + put, rate)


@pytest.mark.parametrize(("workload", "name", "rate"), CASES)
def test_commands_are_argument_lists_with_whole_seconds(
    workload: Workload, name: str, rate: float | None, tmp_path: Path
) -> None:
    site = Site(0, tmp_path, tmp_path, "10.0.0.2", 1)
    for wanted in (rate, 100.0, None):
        command = workload.work(site, 1.0, wanted)
        assert all(isinstance(part, str) and part for part in command)


def test_a_part_load_web_server_needs_httperf_too() -> None:
    assert "httperf" not in Web().tools(1.0)
    assert "httperf" in Web().tools(0.5)


def test_disk_files_hold_data_and_are_made_once(tmp_path: Path) -> None:
    site = Site(1, tmp_path, tmp_path, "", 1)
    disk = Disk(file_mb=8)
    disk.prepare(site)
    (path,) = tmp_path.iterdir()
    before = path.stat()
    assert before.st_blocks * 512 >= 8 << 20  # not sparse: a hole is read without a disk
    disk.prepare(site)
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def test_unshaped_instances_get_no_qdisc() -> None:
    assert htb_commands("up", [("10.0.0.2", None), ("10.0.0.3", NetworkSettings("none"))], 1000) == []


def test_dedicated_classes_keep_to_their_rate_and_shared_ones_borrow_up_to_the_link() -> None:
    attached = [
        ("10.0.0.2", NetworkSettings("dedicated", 100.0)),
        ("10.0.0.3", NetworkSettings("shared", 200.0)),
    ]
    lines = htb_commands("up", attached, 1000)
    assert lines[0] == "qdisc add dev up root handle 1: htb"
    assert any("parent 1: classid 1:1 htb rate 1000000kbit ceil 1000000kbit" in line for line in lines)
    assert any("parent 1: classid 1:10 htb rate 100000kbit ceil 100000kbit" in line for line in lines)
    assert any("parent 1:1 classid 1:11 htb rate 200000kbit ceil 1000000kbit" in line for line in lines)
    assert sum(line.startswith("filter ") for line in lines) == 2
