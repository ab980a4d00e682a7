"""The libvirt backend on a host in memory: what it counts, and guests that come, go and hide."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from profiler.backends import BackendError, Counters
from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from profiler.backends.libvirt.guests import pinning, search_processes
from profiler.collectors import collect
from profiler.names import instance_id
from profiler.observed import Instance, Pinning
from profiler.parse.libvirt import parse_domain
from tests.profiler.libvirt_host import CRASHED, DIRECT, PAUSED, STARTED, UUID, LibvirtHost, domain_xml, open_backend

ONE_VCPU = {"libvirt vcpustats": [[1, UUID.format(1), "shop", {"vcpu.maximum": 1, "vcpu.0.time": 70}]]}


@pytest.fixture
def host() -> LibvirtHost:
    made = LibvirtHost()
    made.guest("shop", 1, net_bytes=8192, disk_bytes=4096)
    return made


@pytest.fixture
def backend(host: LibvirtHost) -> LibvirtBackend:
    """It has read the host once."""
    opened = open_backend(host)
    opened.read_counters()
    return opened


def _value(first: Counters, second: Counters, metric: str, instance: str | None = "shop") -> float:
    samples = collect(first, second).samples
    return next(sample.value for sample in samples if (sample.instance, sample.metric) == (instance, metric))


def test_a_guest_is_its_vcpu_threads(host: LibvirtHost) -> None:
    shop = open_backend(host).read_counters().instances["shop"]
    assert set(shop.tasks) == {"CPU 0", "CPU 1"}
    assert (shop.vcpus, shop.net_bytes, shop.disk_bytes) == (2, 8192, 4096)
    assert shop.gauges["rss_mb"] == pytest.approx(2.0)
    assert (shop.gauges["balloon_mb"], shop.gauges["swap_mb"]) == (256.0, 3.0)
    assert shop.further["major_faults"] == 0
    assert shop.absent.keys() == {"psi_io_us", "net_backlog_bytes"}  # no group and no queues on this fake


def test_other_threads_of_qemu_are_the_driver_domain(host: LibvirtHost) -> None:
    counters = open_backend(host).read_counters()
    assert counters.driver is not None
    assert counters.whole is not None
    assert set(counters.driver.tasks) == {"shop 100 qemu-system-x86"}
    assert counters.driver.vcpus == counters.whole.pcpus


def test_rates_of_a_guest_come_from_its_threads_and_the_statistics(host: LibvirtHost) -> None:
    backend = open_backend(host)
    first = backend.read_counters()
    host.later(2.0)
    host.thread(101, 1_001_000_000, 500_500_000, 30)
    host.guest("shop", 1, net_bytes=8192 + 40960, disk_bytes=4096 + 4096)
    host.thread(101, 1_001_000_000, 500_500_000, 30)
    second = backend.read_counters()
    assert _value(first, second, "cpu") == pytest.approx(50)
    assert _value(first, second, "waiting") == pytest.approx(25)
    assert _value(first, second, "block") == pytest.approx(125)
    assert _value(first, second, "execution") == pytest.approx(10)
    assert _value(first, second, "pages_exchanged") == pytest.approx(5.5)


@pytest.mark.parametrize("listed", [False, True], ids=["before its threads are listed", "after they were listed"])
def test_a_guest_that_ends_while_libvirt_still_lists_it_is_named(
    host: LibvirtHost, backend: LibvirtBackend, listed: bool
) -> None:
    if listed:
        for tid in (101, 102):
            host.files[f"/proc/{tid}/task/{tid}/schedstat"] = errno.ESRCH
            del host.files[f"/proc/{tid}/comm"]
    else:
        host.end(100)
    counters = backend.read_counters()
    assert counters.instances == {}
    assert counters.vanished == ("shop",)


def test_a_crashed_guest_is_named_and_a_paused_one_is_read(host: LibvirtHost) -> None:
    host.guest("broken", 2, state=CRASHED)
    host.guest("resting", 3, state=PAUSED)
    counters = open_backend(host).read_counters()
    assert counters.vanished == ("broken",)
    assert set(counters.instances) == {"shop", "resting"}


def test_a_guest_that_was_started_anew_is_another_one(host: LibvirtHost, backend: LibvirtBackend) -> None:
    host.gone("shop")
    host.guest("shop", 7)
    assert backend.read_counters().vanished == ("shop",)
    assert "shop" in backend.read_counters().instances


def test_a_number_that_now_belongs_to_another_process_is_not_read(host: LibvirtHost, backend: LibvirtBackend) -> None:
    host.end(100)
    host.process("shop", UUID.format(1), 100, started="99999")
    host.files["/proc/100/task/103/comm"] = "worker\n"
    assert STARTED != "99999"
    assert backend.read_counters().vanished == ("shop",)


def test_a_new_thread_of_qemu_joins_the_driver_domain(host: LibvirtHost, backend: LibvirtBackend) -> None:
    host.files["/proc/100/task/109/comm"] = host.files["/proc/109/comm"] = "vhost-100\n"
    host.thread(109, 7, 0, 1)
    driver = backend.read_counters().driver
    assert driver is not None
    assert driver.tasks["shop 109 vhost-100"].run_ns == 7


def test_a_thread_that_is_named_late_becomes_a_vcpu(host: LibvirtHost) -> None:
    host.files["/proc/102/comm"] = "qemu-system-x86\n"
    backend = open_backend(host)
    assert set(backend.read_counters().instances["shop"].tasks) == {"CPU 0"}
    host.files["/proc/102/comm"] = "CPU 1/KVM\n"
    found = [set(backend.read_counters().instances["shop"].tasks) for _ in range(31)]
    assert found[-1] == {"CPU 0", "CPU 1"}


def test_one_thread_for_all_vcpus_is_still_a_guest_with_two(host: LibvirtHost) -> None:
    host.files["/proc/101/comm"] = "ALL CPUs/TCG\n"
    host.files["/proc/102/comm"] = "worker\n"
    shop = open_backend(host).read_counters().instances["shop"]
    assert (set(shop.tasks), shop.vcpus) == ({"ALL CPUs"}, 2)


def test_a_hidden_process_leaves_cpu_from_libvirt_and_says_what_is_missing(host: LibvirtHost) -> None:
    host.end(100)
    host.values["libvirt vcpustats"] = [
        [1, UUID.format(1), "shop", {"vcpu.maximum": 4, "vcpu.0.time": 70, "vcpu.1.time": 30}]
    ]
    counters = open_backend(host).read_counters()
    shop = counters.instances["shop"]
    assert (shop.cpu_ns, shop.tasks, shop.net_bytes) == (100, {}, 8192)
    assert "run as root" in shop.absent["tasks"]
    assert counters.driver is None
    assert "1 instances are not seen" in counters.absent["driver"]
    assert counters.whole is not None
    assert (counters.whole.events, "run as root" in counters.whole.absent["events"]) == (None, True)


def test_a_process_that_may_not_be_read_is_hidden_not_gone(host: LibvirtHost, monkeypatch: Any) -> None:
    def names(_path: str) -> list[str]:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(host, "names", names)
    host.values |= ONE_VCPU
    shop = open_backend(host).read_counters().instances["shop"]
    assert "permission denied" in shop.absent["tasks"]


def test_a_guest_of_which_nothing_is_known_is_absent_with_the_reason(host: LibvirtHost) -> None:
    host.end(100)
    counters = open_backend(host).read_counters()
    assert counters.instances == {}
    assert "nothing answers here" in counters.absent["shop"]


def test_cpu_times_of_two_sources_are_not_subtracted(host: LibvirtHost) -> None:
    """From threads to libvirt and back: one reading without the instance each time, and no CPU of 0 %."""
    backend = open_backend(host)
    assert backend.read_counters().vanished == ()
    kept = dict(host.files)
    for tid in (100, 101, 102):
        host.files[f"/proc/{tid}/task/{tid}/schedstat"] = errno.EACCES
    host.values |= ONE_VCPU
    assert backend.read_counters().vanished == ("shop",)
    assert backend.read_counters().instances["shop"].cpu_ns == 70
    host.files = kept
    assert backend.read_counters().vanished == ("shop",)
    assert backend.read_counters().instances["shop"].cpu_ns is None


def test_a_kernel_without_scheduler_times_is_no_vanished_guest(host: LibvirtHost) -> None:
    for tid in (100, 101, 102):
        host.files[f"/proc/{tid}/task/{tid}/schedstat"] = errno.ENOENT
    host.values |= ONE_VCPU
    assert "CONFIG_SCHED_INFO" in open_backend(host).read_counters().instances["shop"].absent["tasks"]


def test_a_stale_pid_file_is_not_believed(host: LibvirtHost) -> None:
    host.files["/run/libvirt/qemu/shop.pid"] = "1\n"
    host.files["/proc/1/cmdline"] = "/sbin/init\0"
    host.values["libvirt processes"] = {UUID.format(1): 100}
    assert "shop" in open_backend(host).read_counters().instances


def test_a_search_finds_only_processes_that_libvirt_started(tmp_path: Path) -> None:
    commands = {
        "12": f"/usr/bin/qemu\0-uuid\0{UUID.format(1)}\0-display\0none\0",
        "13": f"/bin/sh\0-c\0qemu -uuid {UUID.format(2)}\0",
        "14": "",
        "15": "\udcff\0-uuid\0short\0",
    }
    for pid, command in commands.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(command.encode("utf-8", "surrogateescape"))
    (tmp_path / "16").mkdir()  # ends while it is looked at
    (tmp_path / "self").mkdir()
    assert search_processes(tmp_path) == {UUID.format(1): 12}


def test_the_host_is_searched_for_a_process_that_is_not_there_only_now_and_then(host: LibvirtHost) -> None:
    host.end(100)
    searches = 0
    plain = host.value

    def value(key: str, read: Any) -> Any:
        nonlocal searches
        searches += key == "libvirt processes"
        return plain(key, read)

    host.value = value  # type: ignore[method-assign]
    backend = open_backend(host)
    for _ in range(30):
        backend.read_counters()
    assert searches == 1
    backend.read_counters()
    assert searches == 2


def test_xml_is_read_once_for_each_start_of_a_guest(host: LibvirtHost, backend: LibvirtBackend) -> None:
    del host.values[f"libvirt xml {UUID.format(1)}"]
    backend.read_counters()
    labels = {"uuid": UUID.format(1)}
    assert backend.list_instances() == [Instance("shop", vcpus=2, memory_mb=1024.0, host="h1", labels=labels)]


def _io(host: LibvirtHost, read: int, written: int) -> None:
    host.files["/proc/100/io"] = (
        f"rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: {read}\nwrite_bytes: {written}\n"
        "cancelled_write_bytes: 0\n"
    )


def _asked_for_drives(backend: LibvirtBackend, monkeypatch: pytest.MonkeyPatch, host: LibvirtHost) -> list[bool]:
    """What the backend asks libvirt in its readings from now on."""
    asked: list[bool] = []

    def stats(_connection: LibvirtConnection, *, drives: bool) -> object:
        asked.append(drives)
        return list(host.domains.values())

    del host.values["libvirt domstats"]
    monkeypatch.setattr(LibvirtConnection, "stats", stats)
    monkeypatch.setattr(host, "value", lambda key, read: host.values[key] if key in host.values else read())
    backend.read_counters()
    backend.read_counters()
    return asked


@pytest.mark.parametrize(
    ("devices", "expected", "drives"),
    [(DIRECT, 320, False), (None, 4096, True)],
    ids=["direct disks by the kernel, which leaves QEMU alone", "drives behind the page cache by QEMU"],
)
def test_the_bytes_of_drives_are_counted(
    host: LibvirtHost, monkeypatch: pytest.MonkeyPatch, devices: str | None, expected: int, drives: bool
) -> None:
    if devices is not None:
        host.values[f"libvirt xml {UUID.format(1)}"] = domain_xml("shop", devices=devices)
    _io(host, 300, 20)
    backend = open_backend(host)
    for _ in range(2):
        assert backend.read_counters().instances["shop"].disk_bytes == expected
        host.later()
    assert _asked_for_drives(backend, monkeypatch, host) == [drives, drives]


def test_the_count_of_a_disk_does_not_change_its_source_in_the_middle(host: LibvirtHost) -> None:
    host.values[f"libvirt xml {UUID.format(1)}"] = domain_xml("shop", devices=DIRECT)
    host.files["/proc/100/io"] = errno.EACCES
    backend = open_backend(host)
    assert backend.read_counters().instances["shop"].disk_bytes == 4096
    _io(host, 300, 20)
    assert backend.read_counters().instances["shop"].disk_bytes == 4096


def test_a_count_of_the_kernel_that_is_refused_later_is_absent(host: LibvirtHost) -> None:
    host.values[f"libvirt xml {UUID.format(1)}"] = domain_xml("shop", devices=DIRECT)
    _io(host, 300, 20)
    backend = open_backend(host)
    backend.read_counters()
    host.files["/proc/100/io"] = errno.EACCES
    shop = backend.read_counters().instances["shop"]
    assert shop.disk_bytes is None
    assert "run as root" in shop.absent["disk_bytes"]


@pytest.mark.parametrize("name", ["a b", "-rf", "ü" * 200, "x" * 255, "a/b", "\udcff", "0"])
def test_guests_with_odd_names_are_read(name: str) -> None:
    host = LibvirtHost()
    host.guest(name, 3)
    host.values["libvirt processes"] = {UUID.format(3): 300}
    backend = open_backend(host)
    assert set(backend.read_counters().instances) == {instance_id(name)}
    assert [instance.id for instance in backend.list_instances()] == [instance_id(name)]


HANGS = TimeoutError(errno.ETIMEDOUT, "libvirt gave no answer in 3 s")


@pytest.mark.parametrize(
    "answer", [None, {}, [1], [[1, 2, 3, 4]], [["a", "b", "c", {}]], [[1, "u", "n", {}, 5]], HANGS]
)
def test_an_answer_that_is_no_list_of_domains_or_does_not_come_is_an_error(host: LibvirtHost, answer: object) -> None:
    backend = open_backend(host)
    host.values["libvirt domstats"] = answer
    problem = "no answer in 3 s" if answer is HANGS else "libvirt at fake:/// cannot be read"
    with pytest.raises(BackendError, match=problem):
        backend.read_counters()


def test_a_host_where_libvirt_does_not_answer_is_refused_at_once(host: LibvirtHost) -> None:
    host.values["libvirt version"] = OSError(errno.EIO, "Failed to connect socket")
    with pytest.raises(BackendError, match="Failed to connect socket"):
        open_backend(host)


def test_a_host_without_its_own_times_has_no_driver_domain(host: LibvirtHost) -> None:
    host.files["/proc/stat"] = "nonsense\n"
    counters = open_backend(host).read_counters()
    assert (counters.driver, counters.whole) == (None, None)
    assert "driver" in counters.absent
    assert "shop" in counters.instances


def test_settings_are_read_in_the_words_of_the_contract(host: LibvirtHost) -> None:
    settings = open_backend(host).read_isolation(Instance("shop"))
    assert str(settings.pinning) == "0:0-1|1:3"
    assert (settings.cap_percent, settings.weight, settings.disk_limit_mb_s) == (150.0, 512, 2.0)
    assert settings.network is not None
    assert (settings.network.mode, settings.network.rate_mbit, settings.network.ceil_mbit) == ("shared", 8.0, 16.0)


def test_the_whole_domains_quota_counts_where_it_is_lower(host: LibvirtHost) -> None:
    host.values[f"libvirt scheduler {UUID.format(1)}"] |= {"global_quota": 80_000}
    assert open_backend(host).read_isolation(Instance("shop")).cap_percent == 80.0


@pytest.mark.parametrize("quota", [-1, 0, 17_592_186_044_415, 18_446_744_073_709_551, 18_446_744_073_709_551_615])
def test_a_quota_that_stands_for_none_is_no_cap(host: LibvirtHost, quota: int) -> None:
    host.values[f"libvirt scheduler {UUID.format(1)}"] |= {"vcpu_quota": quota, "global_quota": quota}
    assert open_backend(host).read_isolation(Instance("shop")).cap_percent is None


def test_a_real_quota_counts_beside_one_that_stands_for_none(host: LibvirtHost) -> None:
    host.values[f"libvirt scheduler {UUID.format(1)}"] |= {"global_quota": 17_592_186_044_415}
    assert open_backend(host).read_isolation(Instance("shop")).cap_percent == 150.0


def test_weights_of_version_2_groups_are_on_their_own_scale(host: LibvirtHost) -> None:
    host.files["/proc/mounts"] = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    host.values[f"libvirt scheduler {UUID.format(1)}"] |= {"cpu_shares": 200}
    assert open_backend(host).read_isolation(Instance("shop")).weight == 512


def test_settings_that_cannot_be_read_are_none(host: LibvirtHost) -> None:
    host.values[f"libvirt xml {UUID.format(1)}"] = OSError(errno.ENOENT, "gone")
    host.values[f"libvirt scheduler {UUID.format(1)}"] = OSError(errno.EIO, "no cgroup CPU controller")
    settings = open_backend(host).read_isolation(Instance("shop"))
    assert (settings.pinning, settings.cap_percent, settings.weight, settings.network) == (None, None, None, None)


@pytest.mark.parametrize(
    ("backing", "default", "rule"),
    [
        ("<hugepages/>", "1048576", {"needs.hugepages_1gib": "1"}),
        ("<hugepages><page size='2' unit='MiB'/></hugepages>", "1048576", {"needs.hugepages_2mib": "512"}),
        ("<hugepages><page size='2048'/></hugepages>", "1048576", {"needs.hugepages_2mib": "512"}),
        ("<hugepages><page size='3' unit='MiB'/></hugepages>", "2048", {}),
        ("<nosharepages/>", "2048", {}),
    ],
)
def test_a_guest_of_huge_pages_needs_so_many(
    host: LibvirtHost, backing: str, default: str, rule: dict[str, str]
) -> None:
    host.files["/proc/meminfo"] = f"Hugepagesize:    {default} kB\n"
    xml = domain_xml("any", tuning=f"<memoryBacking>{backing}</memoryBacking>")
    host.values[f"libvirt xml {UUID.format(1)}"] = xml
    (guest,) = open_backend(host).list_instances()
    assert {name: text for name, text in guest.labels.items() if name.startswith("needs.")} == rule


@pytest.mark.parametrize(("mode", "stays"), [("host-passthrough", True), ("maximum", True), ("custom", False)])
def test_a_guest_with_the_whole_cpu_of_its_host_requires_such_a_one(host: LibvirtHost, mode: str, stays: bool) -> None:
    host.files["/proc/cpuinfo"] = "processor : 0\nmodel name : EPYC 7543\n\n"
    xml = domain_xml("any", tuning=f"<cpu mode='{mode}'><model>EPYC</model></cpu>")
    host.values[f"libvirt xml {UUID.format(1)}"] = xml
    (guest,) = open_backend(host).list_instances()
    assert guest.labels.get("require.cpu_model") == ("EPYC 7543" if stays else None)


@pytest.mark.parametrize(
    ("cpusets", "expected"),
    [(("0-1", "0-1"), None), (("0-1", "0"), Pinning(((), (0,)))), (("0", "1"), Pinning(((0,), (1,))))],
)
def test_a_vcpu_that_is_pinned_to_all_cpus_of_its_host_may_use_any(
    cpusets: tuple[str, str], expected: Pinning | None
) -> None:
    pins = "".join(f'<vcpupin vcpu="{at}" cpuset="{cpus}"/>' for at, cpus in enumerate(cpusets))
    xml = f"<domain><name>shop</name><memory>1024</memory><vcpu>2</vcpu><cputune>{pins}</cputune></domain>"
    assert pinning(parse_domain(xml, "shop"), range(2)) == expected
