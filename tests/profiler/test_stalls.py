"""What instances obtain of disks and networks: waits, drops and queues, on containers, libvirt and Xen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.backends import Backend, LxcBackend
from profiler.backends.stalls import CounterGrowth, TaskWaits
from profiler.collectors import collect
from profiler.parse.libvirt import parse_disk_times, parse_interfaces
from profiler.parse.proc import DiskTimes, InterfaceBytes, parse_blkio_ticks, parse_block_stat, parse_net_dev
from profiler.parse.text import ParseError
from profiler.parse.xen import parse_physical_device
from tests.profiler.fake_host import FakeHost
from tests.profiler.libvirt_host import LibvirtHost, open_backend
from tests.profiler.xen_host import Guest, XenHost, backend_on

# As Linux 6.1 prints them: a task that waited 3.2 s for its disk, and an NVMe disk.
TASK = (
    "4711 (fio (x) y) D 4700 4711 4711 0 -1 4194304 120 0 9 0 3 41 0 0 20 0 1 0 88211 7561216 512 "
    "18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 {} 0 0 0 0 0 0 0 0 0 0\n"
)
DISK = "  152017    41031 11243528    60311   431199   517721 42118290   771202        0   212344   846890    0    0    0    0    31207    15376\n"  # noqa: E501
UNIFIED = "cgroup /cg/cpu cgroup rw,cpu 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n"
PRESSURE = "some avg10=0.00 avg60=1.20 avg300=0.40 total={}\nfull avg10=0.00 avg60=0.10 avg300=0.00 total=1\n"


def test_a_tasks_wait_for_block_io_is_read_whatever_its_name() -> None:
    assert parse_blkio_ticks(TASK.format(320)) == 320
    assert parse_blkio_ticks(Path("/proc/self/stat").read_text()) >= 0
    with pytest.raises(ParseError, match="more than 39 numbers"):
        parse_blkio_ticks("1 (x) S 1 2 3")


def test_times_of_a_disk_are_those_of_all_kinds_of_requests() -> None:
    assert parse_block_stat(DISK) == DiskTimes(152017 + 431199 + 31207, (60311 + 771202 + 15376) * 1_000_000, 31207)
    before_4_18 = " ".join(DISK.split()[:11])
    assert parse_block_stat(before_4_18) == DiskTimes(152017 + 431199, (60311 + 771202) * 1_000_000)
    with pytest.raises(ParseError, match="11 numbers"):
        parse_block_stat("1 2 3")


def test_the_device_below_a_disk_of_xen_is_written_in_hexadecimal() -> None:
    assert parse_physical_device("fd:1a\n") == "253:26"
    with pytest.raises(ParseError):
        parse_physical_device("dm-3")


def test_drops_of_both_directions_count() -> None:
    line = "vnet0: 10 1 0 3 0 0 0 0 20 2 0 4 0 0 0 0\n"
    assert parse_net_dev(line) == {"vnet0": InterfaceBytes(10, 20, 7)}


def test_a_counter_that_begins_anew_goes_on_from_there() -> None:
    growth = CounterGrowth()
    seen = [growth.add(counts) for counts in ({"a": 100}, {"a": 130}, {"a": 7}, {"a": 9, "b": 50}, {"b": 51})]
    assert seen == [0, 30, 37, 39, 40]


def test_a_task_waits_no_longer_than_time_passes() -> None:
    waits = TaskWaits()
    seen = [waits.add({"1": 500}, 0.0)]  # what was before is not ours
    seen.append(waits.add({"1": 540, "2": 30, "3": 90_000}, 1.0))  # 2 is new, 3 was moved here
    seen.append(waits.add({"1": 3_269_514, "3": 90_010}, 2.0))
    assert seen == [0, 70, 80]


def _values(backend: Backend, later: Callable[[], None], name: str = "shop") -> dict[str, float]:
    """What is collected of an instance between two readings, with `later` between them."""
    first = backend.read_counters()
    later()
    (row,) = [
        row for row in collect(first, backend.read_counters()).rows if (row.instance, row.scope) == (name, "instance")
    ]
    return dict(row.values)


@pytest.fixture
def containers() -> FakeHost:
    """One container of version 2 with task 7, whose veth pair ends here as veth9."""
    host = FakeHost()
    host.version_2("lxc/shop", [7], 5)
    host.task(7, 5)
    host.files["/proc/7/task/7/stat"] = TASK.format(100)
    host.files["/proc/sys/kernel/task_delayacct"] = "1\n"
    host.files["/cg/lxc/shop/io.pressure"] = PRESSURE.format(1_000_000)
    host.files["/proc/7/net/dev"] = "eth0: 30 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
    host.files["/proc/net/dev"] = "veth9: 10 1 0 5 0 0 0 0 32 1 0 0 0 0 0 0\n"
    host.values = {
        "veths by namespace": {"3": ["veth9"]},
        "network namespace of 7": 3,
        "queues by interface": {"veth9": [3000, 20], "eth0": [99, 99]},
    }
    return host


def test_a_container_that_stalls_for_its_disk_and_loses_packets(containers: FakeHost) -> None:
    def later() -> None:
        containers.later(2.0)
        containers.files["/proc/7/task/7/stat"] = TASK.format(150)  # 0.5 s of 2
        containers.files["/cg/lxc/shop/io.pressure"] = PRESSURE.format(1_400_000)
        containers.files["/proc/net/dev"] = "veth9: 10 1 0 8 0 0 0 0 32 1 0 1 0 0 0 0\n"
        containers.values["queues by interface"] = {"veth9": [4500, 26], "eth0": [0, 999]}

    values = _values(LxcBackend(containers, host="h"), later)
    assert values["psi_io"] == pytest.approx(20.0)
    assert values["disk_wait"] == pytest.approx(25.0)
    assert values["net_drops"] == pytest.approx(5.0)  # 4 at the interface, 6 in its queue
    assert values["net_backlog_bytes"] == 4500
    assert "disk_request_ms" not in values


def test_a_queue_that_was_made_anew_loses_no_sample(containers: FakeHost) -> None:
    def later() -> None:
        containers.later(2.0)
        containers.values["queues by interface"] = {"veth9": [0, 2]}

    values = _values(LxcBackend(containers, host="h"), later)
    assert values["net_drops"] == 1.0
    assert values["cpu"] == 0.0


@pytest.mark.parametrize("switch", ["0\n", None])
def test_waits_that_the_kernel_does_not_count_are_absent_and_not_zero(containers: FakeHost, switch: str | None) -> None:
    del containers.files["/proc/sys/kernel/task_delayacct"]
    if switch:
        containers.files["/proc/sys/kernel/task_delayacct"] = switch
    shop = LxcBackend(containers, host="h").read_counters().instances["shop"]
    assert "disk_wait_us" not in shop.further
    assert "kernel.task_delayacct=1" in shop.absent["disk_wait_us"]


def test_a_kernel_from_before_the_switch_counts_where_its_first_process_has_waited(containers: FakeHost) -> None:
    del containers.files["/proc/sys/kernel/task_delayacct"]
    containers.files["/proc/1/stat"] = TASK.format(5)
    assert "disk_wait_us" in LxcBackend(containers, host="h").read_counters().instances["shop"].further


def test_stalls_are_read_in_the_first_two_readings_and_then_every_ten_seconds(containers: FakeHost) -> None:
    backend = LxcBackend(containers, host="h")
    seen: list[int] = []
    for second in range(13):
        containers.files["/cg/lxc/shop/io.pressure"] = PRESSURE.format(1_000_000 + second)
        seen.append(backend.read_counters().instances["shop"].further["psi_io_us"] - 1_000_000)
        containers.later()
    assert seen == [0, *[1] * 10, *[11] * 2]


def test_a_guest_of_libvirt_tells_how_long_its_requests_take() -> None:
    host = LibvirtHost()
    host.files["/proc/mounts"] = UNIFIED
    host.guest("shop", 1)
    group = "/machine.slice/machine-qemu\\x2d1\\x2dshop.scope"
    host.files["/proc/100/cgroup"] = f"1:cpu:/\n0::{group}/libvirt/emulator\n"
    for name in ("cpu", "io"):
        host.files[f"/cg/unified{group}/{name}.pressure"] = PRESSURE.format(0)
    host.values["queues by interface"] = {"vnet0": [0, 0]}

    def later() -> None:
        host.later(2.0)
        stats = host.domains["shop"][3]
        stats |= {"block.0.rd.reqs": 52, "block.0.rd.times": 300_000_000, "block.0.fl.reqs": 50}
        stats |= {"block.0.fl.times": 700_000_000, "net.0.tx.drop": 6}
        host.files[f"/cg/unified{group}/io.pressure"] = PRESSURE.format(500_000)
        host.values["queues by interface"] = {"vnet0": [1514, 2]}

    values = _values(open_backend(host), later)
    assert values["disk_wait"] == pytest.approx(50.0)
    assert values["disk_request_ms"] == pytest.approx(10.0)
    assert (values["disk_iops"], values["disk_flushes"]) == (25.0, 25.0)
    assert values["psi_io"] == pytest.approx(25.0)
    assert (values["net_drops"], values["net_backlog_bytes"]) == (4.0, 1514.0)


def test_a_qemu_without_a_group_of_its_own_has_no_pressure_of_its_own() -> None:
    host = LibvirtHost()
    host.files["/proc/mounts"] = UNIFIED
    host.guest("shop", 1)
    host.files["/proc/100/cgroup"] = "0::/user.slice/user-0.slice/session-1.scope\n"
    shop = open_backend(host).read_counters().instances["shop"]
    assert "psi_io_us" not in shop.further
    assert "no control group of version 2 of its own" in shop.absent["psi_io_us"]


def test_recorded_statistics_of_libvirt_hold_times_and_drops(libvirt_stats: dict[str, object]) -> None:
    assert parse_disk_times(libvirt_stats) == {"vda": DiskTimes(2, 1_560_347, 0)}
    assert parse_interfaces(libvirt_stats) == {"lab-tap0": InterfaceBytes(90_996, 8_488_966, 0)}
    del libvirt_stats["block.0.fl.times"]
    with pytest.raises(ParseError, match="no times of drive 0"):
        parse_disk_times(libvirt_stats)


def _xen(**devices: str) -> XenHost:
    host = XenHost(guests={0: Guest("Domain-0", 100.0), 1: Guest("shop", sectors=8), 2: Guest("other", sectors=8)})
    for domain, device in ((1, "fd:1"), (2, "fd:2")):
        base = f"/sys/devices/vbd-{domain}-51712"
        host.files |= {
            f"{base}/physical_device": f"{devices.get(f'domain{domain}', device)}\n",
            f"{base}/statistics/oo_req": "4\n",
            f"/sys/dev/block/253:{domain}/stat": DISK,
        }
    host.values["queues by interface"] = {"vif1.0": [0, 0]}
    return host


def test_a_guest_of_xen_whose_disk_takes_no_more_requests() -> None:
    host = _xen()
    later = DISK.replace("152017", "152117").replace("60311", "60811")  # 100 reads more, which took 0.5 s

    def wait() -> None:
        host.later(2.0)
        host.files |= {"/sys/dev/block/253:1/stat": later, "/sys/devices/vbd-1-51712/statistics/oo_req": "10\n"}
        host.values["queues by interface"] = {"vif1.0": [9000, 8]}

    values = _values(backend_on(host), wait)
    assert values["disk_queue_full"] == 3.0
    assert (values["disk_wait"], values["disk_request_ms"]) == (pytest.approx(25.0), pytest.approx(5.0))
    assert (values["disk_iops"], values["disk_flushes"]) == (50.0, 0.0)
    assert (values["net_drops"], values["net_backlog_bytes"]) == (4.0, 9000.0)


def test_times_of_a_disk_that_two_guests_share_belong_to_neither() -> None:
    shop = backend_on(_xen(domain2="fd:1")).read_counters().instances["shop"]
    assert "disk_wait_us" not in shop.further
    assert "several guests" in shop.absent["disk_wait_us"]
    assert shop.further["disk_queue_full"] == 0
