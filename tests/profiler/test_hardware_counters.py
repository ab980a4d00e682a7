"""Hardware counters: resctrl's groups, libvirt's perf events and monitors, and perf events that are counted here."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.processes import wait_until
from profiler.agent.further_counters import HardwareWatch
from profiler.agent.loop import Log
from profiler.backends import LxcBackend, ThreadedBackend
from profiler.backends.hardware_counters import HARDWARE, SOFTWARE, CacheCounters, PerfCounters, ResctrlReader
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.collectors import collect
from profiler.parse.libvirt import parse_hardware
from profiler.parse.proc import parse_monitor
from profiler.parse.text import ParseError
from tests.profiler.fake_host import FakeHost
from tests.profiler.libvirt_host import LibvirtHost, open_backend

CPU_CLOCK, SWITCHES = 0, 3  # software events of include/uapi/linux/perf_event.h


def _group(host: FakeHost, path: str, tasks: str, occupancy: tuple[str, str], moved: tuple[str, str]) -> None:
    """A group of resctrl on a host with two sockets, as Documentation/filesystems/resctrl.rst shows it."""
    host.files[f"/sys/fs/resctrl{path}/tasks"] = tasks
    for socket in (0, 1):
        domain = f"/sys/fs/resctrl{path}/mon_data/mon_L3_0{socket}"
        host.files[f"{domain}/llc_occupancy"] = f"{occupancy[socket]}\n"
        host.files[f"{domain}/mbm_total_bytes"] = f"{moved[socket]}\n"


@pytest.fixture
def monitored() -> FakeHost:
    """`web` has a control group with a monitoring group in it, as libvirt makes them; `shop` has a monitoring group."""
    host = FakeHost()
    host.files["/sys/fs/resctrl/info/L3_MON/num_rmids"] = "176\n"
    host.files["/sys/fs/resctrl/info/L3_MON/mon_features"] = "llc_occupancy\nmbm_total_bytes\n"
    _group(host, "", "1\n2\n", ("9", "9"), ("9", "9"))
    _group(host, "/mon_groups/anything", "101\n102\n", ("1048576", "2097152"), ("1000000", "0"))
    _group(host, "/qemu-1-web", "201\n202\n", ("4194304", "0"), ("7000000", "1000000"))
    _group(host, "/qemu-1-web/mon_groups/qemu-1-web-vcpus_0", "201\n", ("1048576", "0"), ("3000000", "0"))
    return host


THREADS = {"shop": (101, 102), "web": (201, 202), "lost": (301,)}


def test_groups_are_reported_by_their_threads_and_none_counts_twice(monitored: FakeHost) -> None:
    absent: dict[str, str] = {}
    found = ResctrlReader(monitored).read(THREADS, absent)
    assert found == {"shop": CacheCounters(3 << 20, 0), "web": CacheCounters(4 << 20, 0)}
    assert "its threads and no others" in absent["lost"]


def test_a_group_that_two_share_belongs_to_neither(monitored: FakeHost) -> None:
    assert ResctrlReader(monitored).read({"a": (101,), "b": (102,)}, {}) == {}


def test_half_of_its_threads_are_not_the_instance(monitored: FakeHost) -> None:
    assert ResctrlReader(monitored).read({"shop": (101, 102, 103, 104)}, {}) == {}


@pytest.mark.parametrize("word", ["Unavailable", "Error", "Unassigned", "-1", ""])
def test_what_the_hardware_does_not_say_is_absent(monitored: FakeHost, word: str) -> None:
    with pytest.raises(ParseError):
        parse_monitor(word)
    monitored.files["/sys/fs/resctrl/mon_groups/anything/mon_data/mon_L3_01/mbm_total_bytes"] = word
    assert ResctrlReader(monitored).read({"shop": (101, 102)}, {}) == {"shop": CacheCounters(3 << 20, None)}


def _guests() -> LibvirtBackend:
    """A backend that has read two guests whose vCPUs are the threads above."""
    host = LibvirtHost()
    host.guest("shop", 1)
    host.guest("web", 2)
    backend = open_backend(host)
    backend.read_counters()
    assert isinstance(backend, ThreadedBackend)
    return backend


def test_a_window_tells_what_was_occupied_and_moved_in_it(monitored: FakeHost) -> None:
    log = io.StringIO()
    watch = HardwareWatch(monitored, Log(log))
    watch.look(_guests())
    first = watch.close_window(10.0)
    assert {(key[0], key[2]) for key in first} == {("shop", "llc_mb"), ("web", "llc_mb")}
    _group(monitored, "/mon_groups/anything", "101\n102\n", ("1048576", "0"), ("41000000", "60000000"))
    second = watch.close_window(10.0)
    assert second["shop", "instance", "mem_bw_mb_s"].mean == pytest.approx(10.0)
    assert second["shop", "instance", "llc_mb"].mean == 1.0
    assert not log.getvalue()


def test_a_host_without_any_of_it_tells_nothing() -> None:
    watch = HardwareWatch(FakeHost(), Log(io.StringIO()))
    watch.look(_guests())
    assert watch.close_window(10.0) == {}


# As `virsh domstats --perf --cpu-total --memory` prints them (libvirt: src/libvirt-domain.c).
MONITORS = {
    "perf.cpu_cycles": 4_000_000_000, "perf.instructions": 1_000_000_000,
    "cpu.time": 7, "cpu.cache.monitor.count": 2,
    "cpu.cache.monitor.0.name": "vcpus_0", "cpu.cache.monitor.0.vcpus": "0", "cpu.cache.monitor.0.bank.count": 2,
    "cpu.cache.monitor.0.bank.0.id": 0, "cpu.cache.monitor.0.bank.0.bytes": 1 << 20,
    "cpu.cache.monitor.0.bank.1.id": 1, "cpu.cache.monitor.0.bank.1.bytes": 1 << 20,
    "cpu.cache.monitor.1.name": "vcpus_1", "cpu.cache.monitor.1.vcpus": "1", "cpu.cache.monitor.1.bank.count": 1,
    "cpu.cache.monitor.1.bank.0.id": 0, "cpu.cache.monitor.1.bank.0.bytes": 2 << 20,
    "memory.bandwidth.monitor.count": 1, "memory.bandwidth.monitor.0.name": "vcpus_0-1",
    "memory.bandwidth.monitor.0.vcpus": "0-1", "memory.bandwidth.monitor.0.node.count": 2,
    "memory.bandwidth.monitor.0.node.0.id": 0, "memory.bandwidth.monitor.0.node.0.bytes.total": 10_208_067_584,
    "memory.bandwidth.monitor.0.node.0.bytes.local": 4_807_114_752,
    "memory.bandwidth.monitor.0.node.1.id": 1, "memory.bandwidth.monitor.0.node.1.bytes.total": 0,
}  # fmt: skip


def test_monitors_of_libvirt_count_where_they_hold_all_vcpus() -> None:
    read = parse_hardware(MONITORS, 2)
    assert (read.cycles, read.instructions) == (4_000_000_000, 1_000_000_000)
    assert (read.cache_bytes, read.memory_bytes) == (4 << 20, 10_208_067_584)
    some = parse_hardware(MONITORS, 4)
    assert (some.cache_bytes, some.memory_bytes) == (None, None)


def test_a_monitor_of_all_vcpus_stands_for_those_of_some() -> None:
    more = {
        "cpu.cache.monitor.count": 3, "cpu.cache.monitor.2.vcpus": "0-1", "cpu.cache.monitor.2.bank.count": 1,
        "cpu.cache.monitor.2.bank.0.bytes": 5 << 20,
    }  # fmt: skip
    assert parse_hardware(MONITORS | more, 2).cache_bytes == 5 << 20


def test_recorded_statistics_without_any_of_it_give_none(libvirt_stats: dict[str, object]) -> None:
    read = parse_hardware(libvirt_stats, 1)
    assert (read.cycles, read.instructions, read.cache_bytes, read.memory_bytes) == (None,) * 4


def test_a_guest_of_libvirt_tells_cycles_per_instruction_and_bandwidth() -> None:
    host = LibvirtHost()
    host.guest("shop", 1)
    host.domains["shop"][3].update(MONITORS)
    backend = open_backend(host)
    first = backend.read_counters()
    host.later(2.0)
    host.domains["shop"][3] |= {
        "perf.cpu_cycles": 7_000_000_000, "perf.instructions": 3_000_000_000,
        "memory.bandwidth.monitor.0.node.1.bytes.total": 400_000_000,
    }  # fmt: skip
    (row,) = [
        row for row in collect(first, backend.read_counters()).rows if (row.instance, row.scope) == ("shop", "instance")
    ]
    assert (row.values["cpi"], row.values["llc_mb"]) == (1.5, 4.0)
    assert row.values["mem_bw_mb_s"] == pytest.approx(200.0)


@pytest.fixture
def busy() -> Iterator[int]:
    """A process that computes and never waits by itself."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.lab
def test_events_of_a_thread_are_those_that_the_kernel_counts_elsewhere(busy: int) -> None:
    """Software events, for they need no hardware: switches beside those in `status`."""
    with closing(PerfCounters(((SOFTWARE, SWITCHES), (SOFTWARE, CPU_CLOCK)), thread=busy)) as counters:
        before, first = _switches(busy), counters.read()
        time.sleep(0.5)
        second, after = counters.read(), _switches(busy)
    assert 0 < second[1] - first[1] <= 1.5e9
    assert abs(second[0] - first[0] - (after - before)) <= 3


def _switches(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


@pytest.mark.lab
def test_events_of_a_control_group_are_those_of_who_is_in_it(busy: int) -> None:
    unified = find_mounts(LiveSource()).get("unified")
    if unified is None or os.geteuid():
        pytest.skip("needs a mounted tree of control groups of version 2, and root")
    group = Path(unified, f"cotenant-test-{os.getpid()}")
    group.mkdir()
    try:
        with closing(PerfCounters(((SOFTWARE, CPU_CLOCK),), group=str(group))) as counters:
            assert counters.read() == (0,)
            (group / "cgroup.procs").write_text(str(busy))
            assert wait_until(lambda: counters.read()[0] >= 50e6, 60)
            Path(unified, "cgroup.procs").write_text(str(busy))
    finally:
        group.rmdir()


def test_a_machine_without_hardware_counters_says_so_or_counts() -> None:
    try:
        with closing(PerfCounters(((HARDWARE, 0), (HARDWARE, 1)), thread=os.getpid())) as counters:
            assert all(counters.read())
    except OSError as error:
        assert "hardware counters" in str(error.strerror) or "permission denied" in str(error.strerror)


@pytest.mark.lab
@pytest.mark.skipif(not shutil.which("ip"), reason="needs ip (apt-get install iproute2)")
def test_a_window_of_the_agent_holds_a_ratio_of_two_events_of_a_container(tmp_path: Path) -> None:
    """The way of cycles per instruction, with two software events, one of which is the other: their ratio is 1."""
    from tests.profiler.real_container import RealContainers

    with RealContainers(tmp_path) as containers:
        name = containers.add("busy", ["perl", "-e", "1 while 1"])
        wait_until(lambda: "perl" in Path(f"/proc/{containers.pids[0]}/comm").read_text(), 60)
        backend = LxcBackend(host="here")
        watch = HardwareWatch(LiveSource(), Log(io.StringIO()), ((SOFTWARE, CPU_CLOCK), (SOFTWARE, CPU_CLOCK)))
        backend.read_counters()
        watch.look(backend)
        assert not [key for key in watch.close_window(1.0) if key[2] == "cpi"]
        deadline, found = time.monotonic() + 60, {}
        while (name, "instance", "cpi") not in found and time.monotonic() < deadline:
            time.sleep(0.3)
            found = watch.close_window(0.3)
        watch.close()
        backend.close()
        assert found[name, "instance", "cpi"].mean == pytest.approx(1.0, rel=0.05)
