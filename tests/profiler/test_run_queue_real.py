"""The BPF program on real containers, beside what the kernel itself counts for them."""

from __future__ import annotations

import ctypes.util
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.backends import LxcBackend
from profiler.backends.linux import PROGRAM
from profiler.collectors import collect
from profiler.collectors.counter_deltas import difference
from profiler.collectors.windows import CAP, UNKNOWN, InstanceWaits, RunQueueWindow
from profiler.observed import IsolationSettings
from profiler.parse.proc import parse_run_queue
from tests.packaging import units
from tests.profiler.real_container import RealContainers

# The program remembers so many groups: those of other tests beside it would push out the ones asked for.
pytestmark = [pytest.mark.lab, pytest.mark.measured]
ROOT = Path(__file__).parents[2]
BUSY = ["perl", "-e", "1 while 1"]
# Waits of a moment at a time for a CPU: sleeps that end while the hog runs.
DOZES = ["perl", "-e", "select(undef, undef, undef, 0.002) while 1"]
CROWD = ["perl", "-e", "fork for 1..3; 1 while 1"]  # eight processes
IDLE = ["sleep", "600"]
SECONDS = 5.0


@pytest.fixture(scope="module")
def program() -> Path:
    """cotenant-run-queue, built as `make run-queue` does; the test skips where that or BPF is not possible."""
    if missing := [tool for tool in ("make", "clang", "cc") if shutil.which(tool) is None]:
        pytest.skip(f"needs {', '.join(missing)} (make run-queue installs them)")
    target = Path("build") / PROGRAM
    built = subprocess.run(["make", "-s", str(target)], check=False, cwd=ROOT, capture_output=True, text=True)
    if "fatal error" in built.stderr or "cannot find -l" in built.stderr:
        pytest.skip(f"needs libbpf-dev, libelf-dev and zlib1g-dev: {built.stderr.splitlines()[0]}")
    assert built.returncode == 0, built.stderr
    tried = subprocess.run([ROOT / target, "--check"], check=False, capture_output=True, text=True, timeout=60)
    if tried.returncode:
        pytest.skip(f"needs root and a kernel with BPF and BTF: {tried.stderr.strip()}")
    return ROOT / target


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[RealContainers]:
    with RealContainers(tmp_path) as made:
        yield made


def _lines(process: subprocess.Popen[str], until: float) -> Iterator[str]:
    """What the program prints until then, line by line; a line is printed each fifth of a second."""
    assert process.stdout is not None
    while time.monotonic() < until:
        if select.select([process.stdout], [], [], 1.0)[0] and (line := process.stdout.readline()):
            yield line


def _watched(program: Path, backend: LxcBackend) -> tuple[InstanceWaits, dict[tuple[str, str], float]]:
    """What the program saw between two readings of the backend, and seconds of those readings' metrics.

    "all waits" are those of all tasks, where `waiting` goes no further than the CPUs of the instance.
    """
    with subprocess.Popen([program, "--every", "0.2"], stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        try:
            next(_lines(process, time.monotonic() + 60))
            first, begun = backend.read_counters(), time.monotonic()
            window = RunQueueWindow()
            for line in _lines(process, begun + SECONDS):
                window.add(parse_run_queue(line))
            second = backend.read_counters()
        finally:
            process.terminate()
    collected = collect(first, second)
    seconds = second.monotonic_s - first.monotonic_s
    metrics = {
        (row.instance or "", name): value * seconds / 100
        for row in collected.rows
        if row.scope == "instance"
        for name, value in row.values.items()
    }
    metrics |= {
        (name, "all waits"): (deltas.wait_ns or 0) / 1e9 for name, deltas in difference(first, second).instances.items()
    }
    return window.waits_of(backend.scheduling_groups()), metrics


def test_waits_are_those_that_the_kernel_counts_and_are_charged_to_who_ran(
    program: Path, containers: RealContainers
) -> None:
    last = (os.cpu_count() or 1) - 1
    victim, hog = containers.add("victim", BUSY, last), containers.add("hog", BUSY, last)
    idle = containers.add("idle", IDLE, last)
    capped = containers.add("capped", BUSY, 0, IsolationSettings(cap_percent=20))
    time.sleep(1)
    waits, counted = _watched(program, LxcBackend(host="here"))
    waited = waits.waited_for

    def row(name: str) -> dict[str, float]:
        return {who: seconds for (waiting, who), seconds in waited.items() if waiting == name}

    # who computes all the time waits exactly while the other runs; a line of a fifth of a second may be on either side
    assert row(victim)[hog] == pytest.approx(counted[hog, "cpu"], rel=0.1, abs=0.3)
    assert row(hog)[victim] == pytest.approx(counted[victim, "cpu"], rel=0.1, abs=0.3)
    for name in (victim, hog):
        assert sum(row(name).values()) == pytest.approx(counted[name, "waiting"], rel=0.1, abs=0.3)
        assert not row(name).get(CAP)
        assert waits.percentiles[name]["run_queue_p50_us"] > 100  # a slice of the scheduler, at least
    assert row(idle) == {}
    assert idle not in {who for _, who in waited}
    assert row(capped)[CAP] == pytest.approx(counted[capped, "throttled"], rel=0.15, abs=0.3)
    assert sum(row(capped).values()) == pytest.approx(counted[capped, "waiting"], rel=0.1, abs=0.3)
    if last:  # on a CPU of its own
        assert hog not in row(capped)


def test_who_is_moved_while_it_waits_is_followed(program: Path, containers: RealContainers) -> None:
    crowd, other = containers.add("crowd", CROWD, None), containers.add("other", CROWD, None)
    time.sleep(1)
    waits, counted = _watched(program, LxcBackend(host="here"))
    for name, neighbour in ((crowd, other), (other, crowd)):
        row = {who: seconds for (victim, who), seconds in waits.waited_for.items() if victim == name}
        assert sum(row.values()) == pytest.approx(counted[name, "all waits"], rel=0.1, abs=1.0)
        assert row[neighbour] > 0
        assert row[name] > 0  # its own processes queue for each other, too
        assert row.get(UNKNOWN, 0.0) < 0.1 * sum(row.values())


def test_it_may_do_all_it_needs_as_an_unprivileged_user_with_the_capabilities_of_its_drop_in(program: Path) -> None:
    if shutil.which("systemd-analyze") is None or ctypes.util.find_library("seccomp") is None:
        pytest.skip("needs systemd-analyze and libseccomp (apt-get install systemd)")
    files = (
        units.PACKAGING / "cotenant-profiler.service",
        units.PACKAGING / "cotenant-profiler.service.d/run-queue.conf",
    )
    as_account = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    confined = [sys.executable, units.__file__, ",".join(map(str, files)), "--"]
    argv = [
        *as_account,
        "--inh-caps=+bpf,+perfmon",
        "--ambient-caps=+bpf,+perfmon",
        *confined,
        str(program),
        "--check",
    ]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_wakes_up_often_waits_for_who_computes_there(program: Path, containers: RealContainers) -> None:
    last = (os.cpu_count() or 1) - 1
    dozer, hog = containers.add("dozer", DOZES, last), containers.add("hog", BUSY, last)
    time.sleep(1)
    waits, counted = _watched(program, LxcBackend(host="here"))
    of_dozer = {who: seconds for (victim, who), seconds in waits.waited_for.items() if victim == dozer}
    assert of_dozer[hog] > 0
    assert sum(of_dozer.values()) <= counted[dozer, "waiting"] * 1.1 + 0.05
    assert "run_queue_p50_us" in waits.percentiles[dozer]
