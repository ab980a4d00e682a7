"""Real containers, each metric against a source that the backend does not read."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.processes import call, wait_until
from models.profiling.demand_estimation import demanded_cpus
from profiler.backends import Counters, LxcBackend
from profiler.backends.linux import namespace_id, veths_by_namespace
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.collectors import Collected, collect
from tests.profiler.contract import check_whole
from tests.profiler.real_container import GATEWAY, RealContainers

pytestmark = pytest.mark.lab
BUSY = ["perl", "-e", "1 while 1"]
IDLE = ["sleep", "600"]
DATAGRAMS, PAYLOAD = 3000, 1000
HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP
SENDS = [
    "perl", "-e",
    "use Socket; select(undef, undef, undef, 1.5);"
    "socket(my $s, AF_INET, SOCK_DGRAM, 0); my $to = pack_sockaddr_in(9, inet_aton($ARGV[0]));"
    "for (1..$ARGV[1]) { send($s, 'x' x $ARGV[2], 0, $to); select(undef, undef, undef, 0.001) unless $_ % 20 }"
    "sleep 600", GATEWAY, str(DATAGRAMS), str(PAYLOAD),
]  # fmt: skip
STREAMS = [
    "perl", "-e",
    "use Socket; socket(my $s, AF_INET, SOCK_DGRAM, 0); my $to = pack_sockaddr_in(9, inet_aton($ARGV[0]));"
    "while (1) { send($s, 'x', 0, $to); select(undef, undef, undef, 0.001) }", GATEWAY,
]  # fmt: skip
READS = [  # Python: around the page cache, one request after the other
    "-c",
    "import mmap, os, sys; file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT); page = mmap.mmap(-1, 4096)\n"
    "while True: os.preadv(file, [page], int.from_bytes(os.urandom(2), 'little') % 4096 * 4096)",
]  # fmt: skip
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def containers(tmp_path: Path) -> Iterator[RealContainers]:
    with RealContainers(tmp_path) as made:
        yield made


@pytest.fixture
def backend() -> Iterator[LxcBackend]:
    made = LxcBackend(host="here")
    yield made
    made.close()


def _settled(pid: int, program: str) -> None:
    """Wait until a process has become its program: it joins group and namespace before."""
    wait_until(lambda: program in Path(f"/proc/{pid}/comm").read_text(), 60)


def _values(collected: Collected, instance: str) -> dict[str, float]:
    (row,) = [row for row in collected.rows if (row.instance, row.scope) == (instance, "instance")]
    return dict(row.values)


def _two(backend: LxcBackend, seconds: float) -> tuple[Counters, Counters]:
    first = backend.read_counters()
    time.sleep(seconds)
    return first, backend.read_counters()


def _ticks_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


@pytest.mark.measured
def test_the_contract_holds_on_real_containers(containers: RealContainers, backend: LxcBackend) -> None:
    names = {containers.add("one", BUSY), containers.add("two", IDLE)}
    for pid, program in zip(containers.pids, ("perl", "sleep"), strict=True):
        _settled(pid, program)
    first, second = _two(backend, 1.0)
    listed = [instance.id for instance in backend.list_instances()]
    assert listed == sorted(listed)
    assert names <= set(listed)
    assert names <= set(second.instances)
    collected = collect(first, second)
    check_whole(first, second, collected)
    for name in names:
        values = _values(collected, name)
        assert values["cpu"] + values["waiting"] + values["block"] == pytest.approx(100, abs=1)
        assert values["pages_exchanged"] >= 0
    for instance in backend.list_instances():
        if instance.id in names:
            assert str(backend.read_isolation(instance).pinning) == "0:0"


@pytest.mark.measured
def test_cpu_is_what_the_process_itself_is_charged(containers: RealContainers, backend: LxcBackend) -> None:
    name = containers.add("busy", BUSY)
    _settled(containers.pids[0], "perl")
    first, charged_s = backend.read_counters(), _ticks_s(containers.pids[0])
    time.sleep(2.0)
    second, after_s = backend.read_counters(), _ticks_s(containers.pids[0])
    used_s = _values(collect(first, second), name)["cpu"] / 100 * (second.monotonic_s - first.monotonic_s)
    assert used_s > 0.2
    assert used_s == pytest.approx(after_s - charged_s, abs=5 * TICK_S)


@pytest.mark.measured
def test_two_busy_containers_wait_for_each_other_on_one_cpu(containers: RealContainers, backend: LxcBackend) -> None:
    names = [containers.add("one", BUSY), containers.add("two", BUSY)]
    for pid in containers.pids:
        _settled(pid, "perl")
    collected = collect(*_two(backend, 2.0))
    values = [_values(collected, name) for name in names]
    assert sum(each["cpu"] for each in values) < 102
    assert all(each["waiting"] > 40 for each in values)
    assert all(each["block"] < 20 for each in values)  # waiting is counted when it ends: the last turn is not in it
    assert all(each["execution"] > 20 for each in values)  # they take turns


@pytest.mark.measured
def test_an_idle_container_blocks_and_does_not_wait(containers: RealContainers, backend: LxcBackend) -> None:
    name = containers.add("idle", IDLE)
    _settled(containers.pids[0], "sleep")
    values = _values(collect(*_two(backend, 1.0)), name)
    assert values["block"] > 99
    assert values["cpu"] + values["waiting"] < 1


@pytest.mark.measured
def test_pages_are_the_bytes_that_were_sent(containers: RealContainers, backend: LxcBackend) -> None:
    name = containers.add("net", SENDS)
    _settled(containers.pids[0], "perl")
    statistics = Path(f"/sys/class/net/{containers.interface('net')}/statistics")
    before = int((statistics / "rx_bytes").read_text())
    first = backend.read_counters()
    wait_until(lambda: int((statistics / "rx_packets").read_text()) >= DATAGRAMS, 60)
    second = backend.read_counters()
    counted = (first.instances[name].net_bytes, second.instances[name].net_bytes)
    assert None not in counted
    sent = DATAGRAMS * (PAYLOAD + HEADERS)
    assert counted[1] - counted[0] == sent  # type: ignore[operator]
    assert int((statistics / "rx_bytes").read_text()) - before == sent
    seconds = second.monotonic_s - first.monotonic_s
    values = _values(collect(first, second), name)
    read = values["disk_mb_s"] * 1e6 * seconds  # of the program's libraries, where no program needed them before
    pages = values["pages_exchanged"] * seconds
    assert pages == pytest.approx((sent + read) / 4096, rel=0.02)


def test_the_kernel_tells_the_hosts_end_of_a_containers_pair(containers: RealContainers) -> None:
    containers.add("net", IDLE)
    _settled(containers.pids[0], "sleep")
    number = namespace_id(containers.pids[0])
    assert veths_by_namespace()[str(number)] == [containers.interface("net")]


@pytest.mark.measured
def test_events_are_the_softirqs_of_the_host(containers: RealContainers, backend: LxcBackend) -> None:
    containers.add("net", STREAMS)
    _settled(containers.pids[0], "perl")
    time.sleep(0.3)
    backend.read_counters()
    before = _softirqs()
    first, second = _two(backend, 1.0)
    after = _softirqs()
    (host,) = [row for row in collect(first, second).rows if row.scope == "host"]
    events = host.values["event"] * (second.monotonic_s - first.monotonic_s)
    assert events > 200
    assert events == pytest.approx(after - before, rel=0.1)  # what came between the two files and the two readings


def _softirqs() -> int:
    """Network and block softirqs of all CPUs, from the table that counts them per CPU."""
    rows = (line.split() for line in Path("/proc/softirqs").read_text().splitlines()[1:])
    return sum(sum(map(int, counts)) for name, *counts in rows if name in ("NET_TX:", "NET_RX:", "BLOCK:"))


def test_pressure_is_given_exactly_where_the_kernel_counts_it(containers: RealContainers, backend: LxcBackend) -> None:
    name = containers.add("idle", IDLE)
    _settled(containers.pids[0], "sleep")
    unified = find_mounts(LiveSource()).get("unified", "/nowhere")
    shown = True
    try:
        Path(unified, f"cotenant-lab-{name}", "cpu.pressure").read_text()
    except OSError:
        shown = False
    instance = backend.read_counters().instances[name]
    assert ("psi_cpu_us" in instance.further) == shown
    assert ("psi_cpu_us" in instance.absent) != shown


def test_an_ended_container_is_let_go_though_the_backend_stays(containers: RealContainers, backend: LxcBackend) -> None:
    name = containers.add("gone", IDLE)
    _settled(containers.pids[0], "sleep")
    host_end = Path(f"/sys/class/net/{containers.interface('gone')}")
    for _ in range(3):
        assert name in backend.read_counters().instances
        time.sleep(0.05)
    held = [link for link in _open_files() if name in link]
    assert held  # its group's files are kept open while it lives
    assert not [link for link in _open_files() if "/net/dev" in link and str(os.getpid()) not in link]
    containers.remove()
    assert name in backend.read_counters().vanished  # others on this host may end at the same time
    assert name not in backend.read_counters().instances
    assert not [link for link in _open_files() if name in link]
    assert wait_until(lambda: not host_end.exists(), 60)  # the kernel takes namespaces down by the way


def _open_files() -> list[str]:
    found: list[str] = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return found


def _sent(interface: str, frames: int, size: int) -> None:
    """Send frames to the other end of an interface, past all of the network but the interface's own queue."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind((interface, 0x0800))
        for _ in range(frames):
            with contextlib.suppress(OSError):  # the queue is full
                wire.send(b"\xff" * 12 + b"\x08\x00" + bytes(size - 14))


@pytest.mark.skipif(not shutil.which("tc"), reason="needs tc (apt-get install iproute2)")
def test_what_a_full_queue_drops_and_holds_is_what_tc_says(containers: RealContainers, backend: LxcBackend) -> None:
    name, interface = containers.add("net", IDLE), containers.interface("net")
    _settled(containers.pids[0], "sleep")
    call(["tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", "800bit", "burst", "2000", "limit", "5000"])
    first = backend.read_counters()
    _sent(interface, 50, 1000)
    second = backend.read_counters()
    (queue,) = json.loads(call(["tc", "-s", "-j", "qdisc", "show", "dev", interface]))
    values = _values(collect(first, second), name)
    assert queue["drops"] > 20
    assert values["net_drops"] * (second.monotonic_s - first.monotonic_s) == pytest.approx(queue["drops"])
    assert values["net_backlog_bytes"] == queue["backlog"] > 2000


@pytest.fixture
def counted_delays() -> Iterator[None]:
    """The kernel counts how long tasks wait that begin from now on."""
    switch = Path("/proc/sys/kernel/task_delayacct")
    if not switch.exists():
        pytest.skip("this kernel counts no delays of tasks (CONFIG_TASK_DELAY_ACCT, Linux 5.14)")
    before = switch.read_text()
    switch.write_text("1")
    yield
    switch.write_text(before)


@pytest.mark.measured
def test_who_only_reads_its_disk_waits_for_it_when_it_does_not_run(
    containers: RealContainers, backend: LxcBackend, counted_delays: None, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(4096) * 4096)
    os.sync()
    program = tmp_path / "reader"  # so that it has a name that its parent does not have
    program.symlink_to(Path(sys.executable).resolve())
    name = containers.add("disk", [str(program), *READS, str(file)])
    _settled(containers.pids[0], "reader")
    backend.read_counters()
    time.sleep(1.0)
    values = _values(collect(*_two(backend, 3.0)), name)
    assert values["disk_wait"] > 10
    assert values["disk_wait"] + values["cpu"] + values["waiting"] == pytest.approx(100, abs=15)


def test_one_busy_thread_wants_one_cpu_whatever_it_gets_of_two(containers: RealContainers, backend: LxcBackend) -> None:
    """Always ready is always ready on a quiet and on a busy machine, so nothing here depends on how busy it is."""
    names = [containers.add(f"loop{number}", BUSY, cpu=None) for number in range(2 * (os.cpu_count() or 1))]
    for pid in containers.pids:
        _settled(pid, "perl")
    values = _values(collect(*_two(backend, 10.0)), names[0])
    run, wait, vcpus = values["cpu"] / 100, values["waiting"] / 100, float(os.cpu_count() or 1)
    assert run < 0.9, "the others were to take CPU time from it"
    assert values["ready_threads"] == pytest.approx(1.0, abs=0.1)
    assert demanded_cpus(run, wait, vcpus, values["ready_threads"]) == pytest.approx(1.0, abs=0.1)
