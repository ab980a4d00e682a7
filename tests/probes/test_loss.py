"""Probe loss: real paths without loss, with a bottleneck that drops, and with ends that are scheduled off."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.probes.base import ProbeError
from profiler.probes.loss import PROBE, read_report
from profiler.probes.throughput import pack
from tests.probes.two_ends import (
    FAR,
    joined,
    needs_namespaces,
    needs_tun,
    numbers,
    responder,
    run,
    shape,
    values,
)

CPU = Path("/sys/fs/cgroup/cpu")
needs_cap = pytest.mark.skipif(
    not (CPU / "cpu.cfs_quota_us").exists() or not os.access(CPU, os.W_OK),
    reason="needs a control group hierarchy (version 1) with CPU caps",
)
# Loads a line by bursts: 0.2 s at twice its rate, every second. Numbers on stdout how many packets it sent.
BURSTS = """
import socket, sys, time
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); end.connect((sys.argv[1], 9)); packet = bytes(1200)
begin = time.monotonic(); sent = 0
while (now := time.monotonic() - begin) < float(sys.argv[2]):
    if now % 1 < 0.2:
        try: end.send(packet)
        except OSError: pass
        sent += 1
    time.sleep(max(0, begin + now + 0.00024 - time.monotonic()))
"""


@contextlib.contextmanager
def capped(percent: int) -> Iterator[Path]:
    """A control group that may use so much of one CPU, in periods of 100 ms."""
    group = CPU / f"cotenant-test-loss-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(percent * 1000))
        yield group
    finally:
        group.rmdir()


@pytest.mark.measured
def test_a_path_without_loss_has_none_and_no_duration() -> None:
    result, run_ = run("loss", "--seconds", "1.5")
    found = numbers(result)
    assert (found["frequency"], found["probe_loss"], found["packet_loss"]) == (0, 0, 0)
    assert "duration" not in found
    assert found["probes"] == pytest.approx(300 * 0.52, rel=0.35)  # 52 % of the slots take part in an experiment
    assert len(run_.series) == found["probes"]
    assert min(float(delay or 0) for delay in run_.series.columns["delay_ms"]) >= 0


@needs_namespaces
@pytest.mark.lab
@pytest.mark.measured
def test_a_bottleneck_that_drops_for_a_fifth_of_the_time_is_seen() -> None:
    with joined() as ends, responder(*ends.inside(ends.far), listen=FAR) as (_, port):
        shape(ends.near, "tbf", "rate", "20mbit", "burst", "4k", "latency", "20ms")
        load = [*ends.inside(ends.near), sys.executable, "-c", BURSTS, FAR, "9"]
        with subprocess.Popen(load) as bursts:
            # Eight times an episode begins or ends: with the default of 0.3 a run in four has none of them in a basic
            # experiment, and so no duration.
            document = ends.probe(port, "loss", "--seconds", "4", "--probability", "1")
            bursts.kill()
    found = values(document)
    assert 0.5 < found["probe_loss"] < 30
    assert 5 <= found["frequency_strict"] <= 30  # 20 % less the filling of the queue
    assert found["frequency_strict"] <= found["frequency"] <= 50  # with 50 ms around each loss on top
    assert 20 < found["duration_basic"] < 1000  # 200 ms, and twice 50 ms


@needs_namespaces
@needs_tun
@needs_cap
@pytest.mark.lab
@pytest.mark.measured
def test_beside_a_busy_loop_under_a_cap_the_estimate_is_high_though_hardly_a_probe_is_lost_and_that_is_marked() -> None:
    """The paper's false positives: one packet in 400 is lost, the receiver gets 40 % of a CPU beside a busy loop."""
    with capped(40) as group, joined(relay=True, drop_every=400) as ends:
        far, loop = responder(*ends.inside(ends.far), listen=FAR), [sys.executable, "-c", "while True: pass"]
        with far as (served, port), subprocess.Popen(loop) as busy:
            for member in (busy.pid, served.pid):
                (group / "cgroup.procs").write_text(str(member))
            document = ends.probe(port, "loss", "--seconds", "4")
            busy.kill()
    found = values(document)
    assert found["packet_loss"] < 1
    assert found["frequency"] > 10
    assert found["frequency"] > 4 * found["frequency_strict"]
    assert found["gap_share_far"] > 5
    assert any("do not trust the estimate" in mark for mark in document["marks"])  # type: ignore[attr-defined]


def test_the_basic_algorithm_makes_experiments_of_two_slots_only() -> None:
    """Of the improved one half have three, which as rare as here hardly ever overlap."""
    rare = "--seconds", "1", "--slot-ms", "0.5", "--probability", "0.02"
    for algorithm, most in (("basic", 2.0), ("improved", 3.0)):
        result, _ = run("loss", *rare, "--algorithm", algorithm)
        experiments, probes = (result.values[name].value for name in ("experiments", "probes"))
        assert most - 1 < probes / experiments <= most


REPORT: dict[str, object] = {"dropped": 0, "gap_percent": 0.0, "gaps": 0, "longest_gap_ms": 0.0}


@pytest.mark.parametrize("block", [b"", b"123", pack([3, 1, 2]), pack([1 << 40])])
def test_a_report_that_makes_no_sense_is_a_sentence(block: bytes) -> None:
    with pytest.raises(ProbeError, match="makes no sense"):
        read_report(REPORT, block)


@pytest.mark.parametrize("missing", REPORT)
def test_what_a_report_does_not_tell_is_not_taken_for_zero(missing: str) -> None:
    with pytest.raises(ProbeError, match=f"makes no sense: {missing} must be"):
        read_report({name: value for name, value in REPORT.items() if name != missing}, pack([0]))


def test_of_a_packet_that_came_twice_the_first_counts() -> None:
    assert read_report(REPORT, pack([2, 5, 5, 100, 200, 100, 200])).read_ns == {5: 100}


@pytest.mark.measured
def test_losses_that_the_far_end_was_asked_for_are_counted() -> None:
    result, run_ = run("loss", "--seconds", "2", "--drop-one-in", "20")
    assert 1 < result.values["packet_loss"].value < 15
    assert result.circumstances["drop_one_in"] == "20"
    assert len(PROBE.draw(run_).axes) == 1
