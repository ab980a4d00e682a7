"""What the agent reports of its host and its instances: all that is known, when it changes, and before any sample."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lab.processes import wait_until
from profiler.agent.announcement import EVERY_S, Announcer, _settings, machine_digest
from profiler.agent.http_client import HttpClient, parse_url
from profiler.agent.loop import Log
from profiler.agent.push import Pusher
from profiler.agent.spool import Spool
from profiler.backends.host_description import HostDescription, describe_host
from profiler.backends.lxc.listing import names_of
from profiler.observed import Instance, IsolationSettings, Pinning
from tests.profiler.api_double import Double, Reply, serving
from tests.profiler.fake_host import FakeHost
from tests.profiler.steady_backend import SteadyBackend
from tests.profiler.test_push import batch

TOPOLOGY = (  # as tools/xl/xl_info.c prints it: CPUs that are offline are left out
    "cpu_topology           :\ncpu:    core    socket     node\n"
    "  0:       0        0        0\n  2:       1        0        0\n"
    "  4:       0        1        1\n  6:       1        1        1\n"
    "device topology        :\ndevice           node\n0000:00:00.0      0\n"
    "numa_info              :\nnode:    memsize    memfree    distances\n   0:     16384       1000      10,20\n"
)
DOCKER_ID = "ab12" * 16


class Pinned(SteadyBackend):
    """Its instances may use CPU 1 only, or all of the host's four."""

    cpus: tuple[int, ...] = (1,)

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        return IsolationSettings(pinning=Pinning.all_on(self.cpus, instance.vcpus), cap_percent=50.0)


class Bench:
    """An announcer whose clock stands still unless it is moved."""

    def __init__(self, backend: SteadyBackend | None = None) -> None:
        self.now = 0.0
        self.backend = backend or SteadyBackend()
        self.said = io.StringIO()
        self.log = Log(self.said)
        described = HostDescription("kvm", 4, 1000.0, numa=((0, 1), (2, 3)), labels={"kernel": "6.1"})
        self.announcer = Announcer(lambda: described, self.log, version="1", clock=lambda: self.now, machine="m")

    def tell(self, seconds: float = 0.0) -> dict[str, Any]:
        """What is announced after so long, and arrives; empty = nothing."""
        self.now += seconds
        self.announcer.look(self.backend)
        body = self.announcer.due()
        if body is None:
            return {}
        self.announcer.done()
        return dict(json.loads(body))


def test_the_host_and_all_its_instances_are_reported() -> None:
    reported = Bench().tell()
    assert reported["host"] == {
        "id": "h1", "kind": "kvm", "pcpus": 4, "memory_mb": 1000.0, "numa": [[0, 1], [2, 3]],
        "labels": {"kernel": "6.1", "agent": "1"},
    }  # fmt: skip
    assert [instance["id"] for instance in reported["instances"]] == ["a"]
    assert (reported["machine"], reported["every_s"]) == ("m", EVERY_S)


def test_without_news_it_is_reported_once_a_minute() -> None:
    bench = Bench()
    assert bench.tell()
    assert [bool(bench.tell(10.0)) for _ in range(12)] == [number in (5, 11) for number in range(12)]


def test_arrivals_and_departures_are_reported_within_one_listing() -> None:
    bench = Bench()
    bench.tell()
    bench.backend.names = ("a", "b")
    assert bench.tell(5.0) == {}
    assert [instance["id"] for instance in bench.tell(5.0)["instances"]] == ["a", "b"]
    bench.backend.names = ()
    assert bench.tell(10.0)["instances"] == []


def test_settings_are_read_one_instance_at_a_time_and_reported_with_the_next_minute() -> None:
    bench = Bench(Pinned())
    bench.backend.names = ("a", "b")
    assert ["isolation" in instance for instance in bench.tell()["instances"]] == [True, False]
    assert bench.tell(10.0) == {}
    reported = [(instance["pinning"], instance["isolation"]) for instance in bench.tell(50.0)["instances"]]
    assert reported == [({"0": [1]}, {"cap_percent": 50.0})] * 2


def test_a_pinning_to_every_cpu_is_none() -> None:
    backend = Pinned()
    backend.cpus = (0, 1, 2, 3)
    assert Bench(backend).tell()["instances"][0]["pinning"] is None


def test_a_backend_that_fails_is_asked_again_and_unknown_values_are_left_out() -> None:
    class Broken(SteadyBackend):
        def list_instances(self) -> list[Instance]:
            raise OSError("libvirtd is away")

    bench = Bench(Broken())
    assert bench.tell() == {}
    assert "libvirtd is away" in bench.said.getvalue()
    bench.backend = SteadyBackend()
    assert bench.tell(10.0)


Pushing = tuple[Double, Bench, Spool, Pusher]


@pytest.fixture
def pushing(tmp_path: Path) -> Iterator[Pushing]:
    with serving() as double:
        bench = Bench()
        spool = Spool(tmp_path / "spool", 10**9, bench.log)
        wire = HttpClient(parse_url(f"{double.url}/cotenant/"), lambda: None, "test/1")
        yield double, bench, spool, Pusher(spool, wire, bench.log, lambda: 1.0, bench.announcer)
        wire.close()
        spool.close()


def _send_news_and_a_batch(bench: Bench, spool: Spool, pusher: Pusher) -> None:
    bench.announcer.look(bench.backend)
    spool.put(batch(1))
    assert spool.store()
    assert [pusher.step(), pusher.step(), pusher.step()] == [0.0, 0.0, None]


def test_residents_are_reported_before_their_measurements(pushing: Pushing) -> None:
    double, bench, spool, pusher = pushing
    _send_news_and_a_batch(bench, spool, pusher)
    assert double.paths == ["/cotenant/v1/announcements", "/cotenant/v1/samples"]


@pytest.mark.parametrize(("status", "words"), [(404, "older than its agents"), (409, "another machine"), (422, "mend")])
def test_a_server_that_takes_no_announcement_still_gets_samples(pushing: Pushing, status: int, words: str) -> None:
    double, bench, spool, pusher = pushing
    double.welcome = Reply(status, body=json.dumps({"detail": f"{words}, it says"}).encode())
    _send_news_and_a_batch(bench, spool, pusher)
    assert double.kept
    assert words in bench.said.getvalue()
    bench.now += EVERY_S
    assert pusher.step() == 0.0  # it tries again


def test_news_do_not_wait_for_a_window_to_end(pushing: Pushing) -> None:
    double, bench, _, pusher = pushing
    pusher.start()
    try:
        for number in (1, 2):  # what it finds when it starts, and what comes while it waits
            bench.now += EVERY_S
            bench.announcer.look(bench.backend)
            # It has been sent at a time of the bench's clock, which must not go on before that time is noted.
            sent = number, bench.now
            wait_until(lambda sent=sent: (len(double.announced), bench.announcer._delivered_s) == sent, 60)  # type: ignore[misc]
            assert len(double.announced) == number
    finally:
        pusher.stop(20.0)


def test_an_announcement_that_does_not_arrive_is_sent_again(pushing: Pushing) -> None:
    double, bench, _, pusher = pushing
    double.welcome = Reply(503, body=b"{}")
    bench.announcer.look(bench.backend)
    assert pusher.step() == 1.0
    double.welcome = Reply(body=b'{"notes": ["vcpus of a is 8 in the inventory, 4 here"]}')
    assert [pusher.step(), pusher.step()] == [0.0, None]
    assert len(double.announced) == 2
    assert "vcpus of a is 8 in the inventory" in bench.said.getvalue()


def _server() -> FakeHost:
    """Two sockets of two cores with two hyper-threads, two NUMA nodes, a bond of two links, an NVMe and a disk."""
    host = FakeHost()
    cpus = "/sys/devices/system/cpu"
    host.files |= {
        f"{cpus}/online": "0-7\n",
        f"{cpus}/cpu0/topology/thread_siblings_list": "0,4\n",
        f"{cpus}/cpu0/cpufreq/base_frequency": "2600000\n",
        "/proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 1 kB\n",
        "/proc/cpuinfo": "processor\t: 0\nmodel name\t: Xeon @ 2.50GHz\ncpu MHz\t\t: 1234.567\n\nprocessor\t: 1\n",
        "/proc/sys/kernel/osrelease": "6.1.0-21-amd64\n",
        "/sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
        "/sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
        "/proc/net/dev": "".join(
            f"{name}: {' '.join(['0'] * 16)}\n" for name in ("lo", "eno1", "eno2", "bond0", "tap1")
        ),
        "/sys/class/net/bond0/bonding/mode": "802.3ad 4\n",
        "/proc/diskstats": "".join(
            f" 8 0 {name} 1 2 3\n" for name in ("sda", "sda1", "nvme0n1", "nvme0n1p1", "loop0", "bcache0")
        ),
        "/sys/block/bcache0/size": "7906250000\n",
        "/sys/block/bcache0/slaves/sdb/dev": "8:16\n",
        "/sys/block/sda/size": "1953125000\n",
        "/sys/block/sda/queue/rotational": "1\n",
        "/sys/block/nvme0n1/size": "3906250000\n",
    }
    for link, mbit, state in (
        ("eno1", 10_000, "up"),
        ("eno2", 10_000, "down"),
        ("bond0", 20_000, "up"),
        ("tap1", 10, "up"),
    ):
        host.files[f"/sys/class/net/{link}/speed"] = f"{mbit}\n"
        host.files[f"/sys/class/net/{link}/operstate"] = f"{state}\n"
    for cpu in range(8):
        host.files |= {
            f"{cpus}/cpu{cpu}/topology/physical_package_id": f"{cpu // 2 % 2}\n",
            f"{cpus}/cpu{cpu}/cache/index0/level": "2\n",
            f"{cpus}/cpu{cpu}/cache/index0/size": "1024K\n",
            f"{cpus}/cpu{cpu}/cache/index0/shared_cpu_list": f"{cpu % 4},{cpu % 4 + 4}\n",
            f"{cpus}/cpu{cpu}/cache/index1/level": "3\n",
            f"{cpus}/cpu{cpu}/cache/index1/size": "16384K\n",
            f"{cpus}/cpu{cpu}/cache/index1/shared_cpu_list": "0-1,4-5\n" if cpu % 4 < 2 else "2-3,6-7\n",
        }
    host.links |= {f"/sys/class/net/eno{number}/device": "../pci" for number in (1, 2)}
    return host


@pytest.mark.parametrize(
    ("mounts", "version"),
    [
        ("cgroup /cg/cpu cgroup rw,cpu,cpuacct 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n", "1"),
        ("cgroup2 /cg cgroup2 rw 0 0\n", "2"),
        ("cgroup /cg/freezer cgroup rw,freezer 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n", "2"),
        ("tmpfs /tmp tmpfs rw 0 0\n", None),
    ],
    ids=["hybrid with cpu in version 1", "version 2", "version 1 without cpu", "none"],
)
@pytest.mark.parametrize("backend", ["libvirt", "lxc"])
def test_a_host_says_in_which_version_of_control_groups_its_weights_are(
    backend: str, mounts: str, version: str | None
) -> None:
    host = _server()
    host.files["/proc/mounts"] = mounts
    assert describe_host(backend, host).labels.get("cgroup_version") == version


def test_a_host_is_described_by_its_files_as_far_as_they_go() -> None:
    labels = {
        "kernel": "6.1.0-21-amd64", "cpu_model": "Xeon @ 2.50GHz", "sockets": "2", "links": "bond0:20000 eno1:10000",
        "disks": "nvme0n1:nvme:2000 sda:hdd:1000",
    }  # fmt: skip
    assert describe_host("libvirt", _server()) == HostDescription(
        "kvm", pcpus=8, memory_mb=1024.0, threads_per_core=2, cpu_mhz=2600.0, l2_mb=1.0, l3_mb=32.0, nic_mbit=20_000.0,
        disk_kind="nvme", numa=((0, 1, 4, 5), (2, 3, 6, 7)), labels=labels,
    )  # fmt: skip
    assert describe_host("lxc", FakeHost()) == HostDescription("lxc")  # it shows nothing


def test_pools_of_huge_pages_are_described_by_size_and_node() -> None:
    host = FakeHost()
    host.files["/proc/meminfo"] = "MemTotal:       16777216 kB\nMemFree: 1 kB\n"
    folders = ["/sys/kernel/mm/hugepages", *(f"/sys/devices/system/node/node{node}/hugepages" for node in (0, 1))]
    counts = {2048: (1000, 600, 400), 1048576: (2, 0, 2), 65536: (0, 0, 0)}
    for size, pages in counts.items():
        for folder, count in zip(folders, pages, strict=True):
            host.files[f"{folder}/hugepages-{size}kB/nr_hugepages"] = f"{count}\n"
    described = describe_host("libvirt", host)
    assert described.memory_mb == 16384
    assert {name: text for name, text in described.labels.items() if "hugepages" in name} == {
        "has.hugepages_2mib": "1000", "hugepages_2mib_by_node": "600 400",
        "has.hugepages_1gib": "2", "hugepages_1gib_by_node": "0 2",
    }  # fmt: skip
    assert not any("hugepages" in name for name in describe_host("xen", host).labels)  # these are Dom0's own


def test_cpus_that_are_offline_or_isolated_are_described_by_their_numbers() -> None:
    host, cpus = _server(), "/sys/devices/system/cpu"
    host.files |= {
        f"{cpus}/online": "1-5,7\n", f"{cpus}/isolated": "6-7\n", "/sys/fs/cgroup/cpuset.cpus.isolated": "5\n",
        f"{cpus}/nohz_full": "4\n", f"{cpus}/cpu1/topology/thread_siblings_list": "1,5\n",
        f"{cpus}/cpu1/cpufreq/base_frequency": "2100000\n",
    }  # fmt: skip
    described = describe_host("libvirt", host)
    assert (described.pcpus, described.cpu_ids, described.isolated_cpus) == (6, (1, 2, 3, 4, 5, 7), (5, 7))
    assert described.numa == ((1, 4, 5), (2, 3, 7))
    assert (described.threads_per_core, described.cpu_mhz) == (2, 2100.0)


def _siblings(host: FakeHost, *lists: str) -> FakeHost:
    cpus = "/sys/devices/system/cpu"
    host.files |= {f"{cpus}/cpu{cpu}/topology/thread_siblings_list": f"{said}\n" for cpu, said in enumerate(lists)}
    host.files[f"{cpus}/online"] = f"0-{len(lists) - 1}\n"
    return host


def test_a_host_says_which_cpus_share_a_core_where_each_of_them_does() -> None:
    described = describe_host("libvirt", _siblings(FakeHost(), "0", "1-2", "1-2", "3", "4-5", "4-5"))
    assert (described.siblings, described.threads_per_core) == (((1, 2), (4, 5)), 2)
    described = describe_host("libvirt", _siblings(FakeHost(), "0-1", "0-1", "", "2-3"))
    assert (described.siblings, described.threads_per_core) == ((), 2)
    assert describe_host("libvirt", _siblings(FakeHost(), "0", "1")).threads_per_core == 1


_OF_FIRMWARE = {"cpu0/cpufreq/base_frequency": "", "cpu0/acpi_cppc/nominal_freq": "2000"}


@pytest.mark.parametrize(
    ("files", "clocks"),
    [
        ({"cpu0/cpufreq/cpuinfo_max_freq": "3700000"}, (2600.0, 3700.0)),
        ({"cpu0/cpufreq/cpuinfo_max_freq": "3700000", "intel_pstate/no_turbo": "0"}, (2600.0, 3700.0)),
        ({"cpu0/cpufreq/cpuinfo_max_freq": "3700000", "intel_pstate/no_turbo": "1"}, (2600.0, None)),
        ({"cpu0/cpufreq/cpuinfo_max_freq": "3700000", "cpu0/cpufreq/base_frequency": ""}, (3700.0, None)),
        ({"cpu0/cpufreq/cpuinfo_max_freq": "fast"}, (2600.0, None)),
        ({"cpu0/cpufreq/base_frequency": ""}, (2500.0, None)),
        (_OF_FIRMWARE | {"cpu0/cpufreq/cpuinfo_max_freq": "3675000"}, (2000.0, 3675.0)),
        (_OF_FIRMWARE | {"cpu0/cpufreq/cpuinfo_max_freq": "3675000", "cpufreq/boost": "0"}, (2000.0, None)),
        (_OF_FIRMWARE | {"cpu0/cpufreq/cpuinfo_max_freq": "2000000"}, (2000.0, None)),
    ],
    ids=[
        "both",
        "turbo on",
        "turbo off",
        "no nominal clock",
        "no number",
        "a virtual machine",
        "of firmware",
        "boost off",
        "boost not reported",
    ],
)
def test_the_highest_clock_is_reported_beside_the_nominal_one_or_not_at_all(
    files: Mapping[str, str], clocks: tuple[float, float | None]
) -> None:
    host = _server()
    host.files |= {f"/sys/devices/system/cpu/{name}": f"{text}\n" for name, text in files.items()}
    described = describe_host("libvirt", host)
    assert (described.cpu_mhz, described.turbo_mhz) == clocks


def test_of_24_cpus_of_which_16_are_isolated_8_are_for_who_is_not_pinned() -> None:
    host, cpus = FakeHost(), "/sys/devices/system/cpu"
    host.files |= {f"{cpus}/online": "0-23\n", f"{cpus}/isolated": "8-23\n"}
    described = describe_host("lxc", host)
    assert (described.pcpus, described.cpu_ids, described.isolated_cpus) == (24, (), tuple(range(8, 24)))


@pytest.mark.parametrize(
    ("pins", "reported"),
    [
        (((0, 1, 2, 3),), None),
        (((0, 1),), None),  # all that are not isolated
        (((2, 3),), {"0": [2, 3]}),
        (((2,), ()), {"0": [2], "1": []}),
        (((), ()), None),
    ],
)
def test_only_a_pin_that_holds_an_instance_back_is_reported(
    pins: tuple[tuple[int, ...], ...], reported: dict[str, list[int]] | None
) -> None:
    anywhere = (frozenset[int](), frozenset({0, 1, 2, 3}), frozenset({0, 1}))
    assert _settings(IsolationSettings(pinning=Pinning(pins)), anywhere)["pinning"] == reported


def test_a_host_whose_name_is_no_id_tells_it_as_a_label() -> None:
    host = FakeHost()
    for name, labels in (("hyper-ß\n", {"name": "hyper-ß"}), ("kvm01\n", {})):
        host.files["/proc/sys/kernel/hostname"] = name
        assert describe_host("lxc", host).labels == labels


def test_dom0_asks_xen_what_the_host_is() -> None:
    host = _server()
    host.values["xl info"] = (
        "nr_cpus                : 64\nthreads_per_core       : 2\ncpu_mhz                : 2394.454\n"
        "total_memory           : 262143\nxen_version            : 4.17.3\nxen_scheduler          : credit2\n"
    )
    described = describe_host("xen", host)
    assert (described.kind, described.pcpus, described.memory_mb) == ("xen", 64, 262143.0)
    assert described.numa == ()  # Dom0 sees its own
    assert described.labels["xen"] == "4.17.3"


def test_dom0_asks_xen_for_the_numbers_of_cpus_where_they_may_have_gaps() -> None:
    host = _server()
    info = (
        "nr_cpus                : 4\nmax_cpu_id             : 7\nthreads_per_core       : 1\n"
        "cpu_mhz                : 2394.454\ntotal_memory           : 262143\nxen_version            : 4.17.3\n"
        "xen_scheduler          : credit2\n"
    )
    host.values |= {"xl info": info, "xl info -n": f"{info}{TOPOLOGY}"}
    described = describe_host("xen", host)
    assert (described.pcpus, described.cpu_ids, described.numa) == (4, (0, 2, 4, 6), ((0, 2), (4, 6)))
    host.values["xl info -n"] = f"{info}{TOPOLOGY}".replace("  2:", "  x:")
    assert describe_host("xen", host).cpu_ids == ()


def test_dom0_asks_xen_which_cpus_share_a_core() -> None:
    host = _server()
    info = (
        "nr_cpus                : 4\nmax_cpu_id             : 3\nthreads_per_core       : 2\n"
        "cpu_mhz                : 2394.454\ntotal_memory           : 262143\nxen_version            : 4.17.3\n"
        "xen_scheduler          : credit2\n"
    )
    table = "".join(
        f"  {cpu}:       {core}        {socket}        0\n"
        for cpu, (core, socket) in enumerate([(0, 0), (0, 0), (0, 1), (0, 1)])
    )
    topology = f"cpu_topology           :\ncpu:    core    socket     node\n{table}"
    host.values |= {"xl info": info, "xl info -n": f"{info}{topology}"}
    described = describe_host("xen", host)
    assert (described.siblings, described.numa, described.cpu_ids) == (((0, 1), (2, 3)), (), ())


def test_docker_and_podman_say_what_a_container_is() -> None:
    host = FakeHost()
    host.files[f"/var/lib/docker/containers/{DOCKER_ID}/config.v2.json"] = json.dumps(
        {"Name": "/shop", "Config": {"Image": "nginx:1.27"}}
    )
    assert names_of(host, f"docker/{DOCKER_ID}") == {"name": "shop", "image": "nginx:1.27"}
    del host.files[f"/var/lib/docker/containers/{DOCKER_ID}/config.v2.json"]
    reported = json.dumps({"name": "db", "image-name": "postgres:17"})
    listed = json.dumps([{"id": "cd" * 32}, {"id": DOCKER_ID, "metadata": reported}])
    host.files["/var/lib/containers/storage/overlay-containers/containers.json"] = listed
    assert names_of(host, f"machine.slice/libpod-{DOCKER_ID}.scope") == {"name": "db", "image": "postgres:17"}
    assert names_of(host, "lxc/shop") == {}


@pytest.mark.parametrize("garbage", ["", "[]", "{", '[{"id": "' + DOCKER_ID + '", "metadata": 7}]', "[" * 100_000])
def test_garbage_in_the_files_of_container_programs_names_no_container(garbage: str) -> None:
    host = FakeHost()
    host.files["/var/lib/containers/storage/overlay-containers/containers.json"] = garbage
    assert names_of(host, f"libpod-{DOCKER_ID}.scope") == {}


def test_the_machine_is_distinguished_without_its_id(tmp_path: Path) -> None:
    file = tmp_path / "machine-id"
    file.write_text("8e3f6a7c11d24a5a9d1b6b3f0c2e4d5f\n")
    assert re.fullmatch(r"[0-9a-f]{16}", machine_digest(file))
    assert machine_digest(tmp_path / "none") == ""
