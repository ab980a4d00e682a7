"""The CPU share probe on series with known answers, and for real: under a cap, beside a busy loop, and alone."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.probes.base import ProbeError, Progress
from profiler.probes.cpu_share import Jumps, calibrate, share, watch
from tests.probes.two_ends import StopOnce

ROOT = Path(__file__).parents[2]
MS = 1_000_000
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
# Joins a control group ("" = none), takes one CPU and a scheduling policy, and becomes the command line or a busy loop.
START = """
import os, signal, sys
group, cpu, policy, *arguments = sys.argv[1:]
if group:
    open(f"{group}/cgroup.procs", "w").write(str(os.getpid()))
os.sched_setaffinity(0, {int(cpu)})
if policy == "first":
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
if policy == "busy":
    signal.alarm(30)  # whatever happens to the test
    while True:
        pass
from profiler.cli import main
sys.exit(main(["probe", "cpu-share", "--json", *arguments]))
"""


def jumps(gaps_ms: list[tuple[float, float]], total_ms: float) -> Jumps:
    return Jumps([int(at * MS) for at, _ in gaps_ms], [int(long * MS) for _, long in gaps_ms], int(total_ms * MS), 1000)


def test_half_of_every_period_is_a_share_of_a_half() -> None:
    found = share(jumps([(at, 5.0) for at in range(0, 100, 10)], 100), MS)
    assert found["share"].value == pytest.approx(50)
    assert found["gaps"].value == 10
    assert found["gaps_per_s"].value == pytest.approx(100)
    assert found["median_gap"].value == pytest.approx(5)
    assert found["median_period"].value == pytest.approx(10)
    assert found["longest_gap"].value == pytest.approx(5)


def test_an_iteration_of_exactly_the_threshold_is_no_gap() -> None:
    found = share(jumps([(0, 1.0), (50, 0.5)], 100), MS)
    assert (found["share"].value, found["gaps"].value) == (100, 0)
    assert found["short_gaps_share"].value == pytest.approx(1.5)
    assert "median_gap" not in found  # of nothing is not zero


gaps = st.lists(st.floats(0.02, 500), max_size=50)


@given(gaps, st.floats(1, 1000), st.floats(0.02, 100))
def test_share_short_gaps_and_what_is_left_make_the_whole(lengths: list[float], busy: float, threshold: float) -> None:
    total = busy + sum(lengths)
    found = share(jumps([(i, length) for i, length in enumerate(lengths)], total), int(threshold * MS))
    longer = [length for length in lengths if int(length * MS) > int(threshold * MS)]
    assert 0 <= found["share"].value <= 100
    assert found["share"].value == pytest.approx(100 * (1 - sum(longer) / total), abs=0.01)
    assert found["share"].value - found["short_gaps_share"].value >= 100 * busy / total - 0.01
    bins = [quantity.value for name, quantity in found.items() if name.startswith("gaps_") and "_to_" in name]
    assert sum(bins) == found["gaps"].value == len(longer)


@given(gaps, st.floats(0.02, 100), st.floats(0.02, 100))
def test_a_higher_threshold_never_lowers_the_share(lengths: list[float], one: float, other: float) -> None:
    series = jumps([(i, length) for i, length in enumerate(lengths)], 1 + sum(lengths))
    low, high = (share(series, int(threshold * MS))["share"].value for threshold in sorted((one, other)))
    assert low <= high


def test_the_probe_knows_its_own_overhead_and_resolution() -> None:
    iteration_ns, resolution_ns = calibrate()
    assert 0 < resolution_ns <= iteration_ns < 100_000


def test_a_clock_that_stands_still_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler.probes.cpu_share.time", SimpleNamespace(perf_counter_ns=lambda: 5))
    with pytest.raises(ProbeError, match="too coarse"):
        calibrate()


def test_reads_are_counted_and_time_adds_up() -> None:
    before = time.perf_counter()
    found = watch(123_456, None, Progress())
    took = time.perf_counter() - before
    assert found.reads == 123_456
    assert 0 < found.total_ns / 1e9 <= took
    assert sum(found.lengths_ns) <= found.total_ns
    long = list(zip(found.starts_ns, found.lengths_ns, strict=True))
    assert all(start + length <= later for (start, length), (later, _) in pairwise(long))


def test_what_telling_the_progress_takes_is_not_counted() -> None:
    class Slow(Progress):
        def update(self, done: float) -> None:
            time.sleep(0.02)

    before = time.perf_counter()
    found = watch(200_000, None, Slow())
    reported_s = 9 * 0.02  # before every chunk but the first
    assert found.total_ns / 1e9 <= time.perf_counter() - before - reported_s


def test_a_stop_ends_a_long_watch() -> None:
    assert watch(10**9, None, StopOnce(0)).reads < 10**6


# For real

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes control groups")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of our own that wins against others on this machine."""
    name = f"cotenant-test-{secrets.token_hex(4)}"
    if (V1 / "cpu.shares").exists():
        path, weight = V1 / name, ("cpu.shares", "262144")
    elif "cpu" in (V2 / "cgroup.controllers").read_text().split() if (V2 / "cgroup.controllers").exists() else False:
        path, weight = V2 / name, ("cpu.weight", "10000")
    else:
        pytest.skip("needs the cpu controller")
    path.mkdir()
    try:
        (path / weight[0]).write_text(weight[1])
        yield path
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)


def start(group: str, policy: str, *arguments: str) -> subprocess.Popen[str]:
    cpu = str(max(os.sched_getaffinity(0)))
    return subprocess.Popen(
        [sys.executable, "-c", START, group, cpu, policy, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def values(running: subprocess.Popen[str]) -> tuple[dict[str, float], str]:
    with running:
        try:
            out, _ = running.communicate(timeout=60)
        finally:
            running.kill()
    document = json.loads(out)
    return {name: entry["value"] for name, entry in document["values"].items()}, " ".join(document["marks"])


@root
@pytest.mark.measured
def test_under_a_cap_of_half_a_cpu_the_share_is_half_and_gaps_follow_its_period(group: Path, tmp_path: Path) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text("50000 100000")
    else:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text("50000")
    raw = tmp_path / "raw.csv"
    found, marks = values(start(str(group), "", "--seconds", "3", "--raw", str(raw)))
    with raw.open(newline="") as text:
        rows = [(float(row["at_s"]) * 1e3, float(row["iteration_ms"])) for row in csv.DictReader(text)]
    long = [(at, length) for at, length in rows if length > 20]  # shorter ones are other programs on this machine
    assert found["share"] == pytest.approx(50, abs=5)
    assert found["longest_gap"] == max(length for _, length in long)
    assert len(long) == pytest.approx(30, abs=4)
    assert median(length for _, length in long) == pytest.approx(50, abs=15)
    ends = [at + length for at, length in long]  # the quota is given anew at the end of each
    assert median(later - end for end, later in pairwise(ends)) == pytest.approx(100, abs=5)
    assert found["accounted_share"] == pytest.approx(50, abs=5)
    assert "by this system's own account" in marks


@root
@pytest.mark.measured
def test_beside_a_busy_loop_the_share_is_about_half(group: Path) -> None:
    busy = start(str(group), "busy")
    try:
        time.sleep(0.3)
        found, _ = values(start(str(group), "", "--seconds", "1"))
    finally:
        busy.kill()
        busy.communicate()
    assert found["share"] == pytest.approx(50, abs=8)


@root
@pytest.mark.measured
def test_alone_the_share_is_nearly_the_whole_cpu() -> None:
    first = ["chrt", "-f", "10", "true"]
    if subprocess.run(first, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs leave to run before all others (SCHED_FIFO)")
    found, _ = values(start("", "first", "--count", "1000000"))  # before every other process, which is as good as alone
    assert found["share"] > 97
    assert found["reads"] == 1_000_000
