"""Real guests do the lab's work, where and within the limits that the run says, and their numbers are true."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.qdiscs import lab_qdiscs
from lab.workloads import CpuWorkload, DiskWorkload, WebWorkload
from lab.workloads.bulk import BulkWorkload
from tests.guests.guest_runs import Lab, busy, finish, over, place, start, tap_bytes, work
from tests.lab.qemu_accounts import allowed_cpus, cpu_seconds, qemu_threads

# the time of three tries, with guests booted anew for each
pytestmark = [pytest.mark.guests, pytest.mark.measured, pytest.mark.timeout(900)]

DISK_MB = 16


def test_web_and_cpu_work_give_outcomes_side_by_side(lab: Lab) -> None:
    with lab.host((place("web.1", (0,), (1,)), WebWorkload(1)), (place("cpu.2", (1,)), CpuWorkload())) as guests:
        web, cpu = work(guests, 2)
        qdiscs = lab_qdiscs(lab.registry)
        assert guests.circumstances()["guest_accelerator"] in ("kvm", "tcg")
    assert qdiscs is not None
    assert " dev uplink " in qdiscs.text
    assert web.throughput > 10
    assert web.latency_p95_ms is not None
    assert web.latency_mean_ms is not None
    assert 0 < web.latency_mean_ms < 2000
    assert cpu.throughput > 5


def test_disk_and_bulk_work_give_outcomes_and_go_through_the_guests_devices(lab: Lab) -> None:
    members = (
        (place("bulk.1", (0,), (1,)), BulkWorkload()),
        (place("disk.2", (1,)), DiskWorkload(DISK_MB, access="randwrite")),
    )
    with lab.host(*members) as guests:
        taps = tap_bytes(guests, 0)
        programs = [start(one, 3) for one in guests.running]
        backend = guests.backend()
        before = backend.read_counters()
        for program in programs:
            program.release()
        finish(programs)
        after = backend.read_counters()
        taps = tap_bytes(guests, 0) - taps
        bulk, disk = (
            one.workload.read(program.output(), None) for one, program in zip(guests.running, programs, strict=True)
        )
    assert bulk.throughput > 1
    assert disk.throughput > 0.1
    net = [reading.instances["bulk.1"].net_bytes or 0 for reading in (before, after)]
    assert taps > 1_000_000
    assert net[1] - net[0] == pytest.approx(taps, rel=0.01)
    # fio, inside the guest, wrote for three seconds at this rate (MB/s); QEMU, outside, counted what came through
    written = [reading.instances["disk.2"].disk_bytes or 0 for reading in (before, after)]
    assert written[1] - written[0] == pytest.approx(disk.throughput * 3e6, rel=0.25)


def test_vcpus_run_where_the_member_is_and_the_rest_of_qemu_on_the_drivers_cpus(lab: Lab) -> None:
    with lab.host((place("cpu.1", (1,)), CpuWorkload()), driver_cpus=(0,)) as guests:
        pid = guests.machines[0].process.pid
        used = cpu_seconds(Path(f"/proc/{pid}"))
        work(guests, 1)
        assert cpu_seconds(Path(f"/proc/{pid}")) > used + 0.3
        assert {allowed_cpus(task) for task in qemu_threads(pid, vcpus=True)} == {"1"}
        assert {allowed_cpus(task) for task in qemu_threads(pid, vcpus=False)} == {"0"}
    with lab.host((place("cpu.1", (0,)), CpuWorkload())) as guests:
        assert guests.machines[0].process.pid == pid  # it is the same guest, elsewhere
        assert {allowed_cpus(task) for task in Path(f"/proc/{pid}/task").iterdir()} == {"0"}


def test_two_vcpus_are_two_threads_that_both_work(lab: Lab) -> None:
    with lab.host((place("cpu.1", (0, 1), vcpus=2), CpuWorkload())) as guests:
        tasks = qemu_threads(guests.machines[0].process.pid, vcpus=True)
        before = [cpu_seconds(task) for task in tasks]
        work(guests, 2)
        assert len(tasks) == 2
        assert all(cpu_seconds(task) > start + 0.2 for task, start in zip(tasks, before, strict=True))


def test_a_cap_holds_for_the_whole_guest(lab: Lab) -> None:
    with lab.host((place("cpu.1", (1,), cap=30.0), CpuWorkload())) as guests:
        process = Path(f"/proc/{guests.machines[0].process.pid}")
        (one,) = guests.running
        program = start(one, 60)
        program.release()
        busy(guests)
        began, used = time.monotonic(), cpu_seconds(process)
        window = over(guests, 3)
        percent = 100 * (cpu_seconds(process) - used) / (time.monotonic() - began)
        program.stop(patience_s=0)
    assert 5 < percent < 33
    assert window.of("cpu.1", "cpu") < 33


def test_cpu_is_what_the_kernel_accounts_to_the_vcpu_threads(lab: Lab) -> None:
    """Taken outside and inside of the readings: the backend must lie between, but for two ticks of 10 ms."""
    with lab.host((place("cpu.1", (1,)), CpuWorkload())) as guests:
        (one,) = guests.running
        (thread,) = qemu_threads(guests.machines[0].process.pid, vcpus=True)
        program = start(one, 60)
        program.release()
        busy(guests)
        backend = guests.backend()
        outer = cpu_seconds(thread)
        first = backend.read_counters()
        inner = cpu_seconds(thread)
        time.sleep(2)
        inner = cpu_seconds(thread) - inner
        second = backend.read_counters()
        outer = cpu_seconds(thread) - outer
        program.stop(patience_s=0)
    (before,), (after,) = (list(reading.instances["cpu.1"].tasks.values()) for reading in (first, second))
    assert inner > 0.2
    assert inner - 0.02 <= (after.run_ns - before.run_ns) / 1e9 <= outer + 0.02


def test_an_idle_guest_is_blocked_and_a_loaded_one_has_all_eight_metrics(lab: Lab) -> None:
    with lab.host((place("web.1", (1,), (0,)), WebWorkload(100))) as guests:
        time.sleep(0.5)
        idle = over(guests, 1.5)
        (one,) = guests.running
        program = start(one, 60)
        program.release()
        busy(guests)
        loaded = over(guests, 2)
        program.stop(patience_s=0)
    assert idle.of("web.1", "block") > 60
    assert sum(loaded.of("web.1", metric) for metric in ("cpu", "waiting", "block")) == pytest.approx(100, abs=2)
    assert loaded.of("web.1", "cpu") > idle.of("web.1", "cpu")
    assert loaded.of(None, "event", "host") > 2 * idle.of(None, "event", "host")
    assert loaded.of("web.1", "pages_exchanged") > 100 * max(1.0, idle.of("web.1", "pages_exchanged"))
    assert loaded.of("web.1", "pages_per_execution") == pytest.approx(
        loaded.of("web.1", "pages_exchanged") / loaded.of("web.1", "execution")
    )
    assert loaded.of(None, "cpu", "driver_domain") > idle.of(None, "cpu", "driver_domain")
    assert loaded.of(None, "switch", "host") > 0
