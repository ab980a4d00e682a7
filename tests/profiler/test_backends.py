"""Backends: one contract that each of them keeps, and what containers need beyond it."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_host import FakeHost

from profiler.backends import Backend, BackendError, LxcBackend, RecordedBackend
from profiler.backends.lxc import instance_id
from profiler.observed import Instance, check_id

DOCKER_ID = "ab12" * 16


def _version_1(_recording: Path) -> Backend:
    host = FakeHost()
    host.version_1("lxc/shop", [10, 11], 1_000_000_000)
    host.task(10, 600_000_000, 5, 3, 3)
    host.task(11, 400_000_000, 5, 3, 3)
    return LxcBackend(host, host="h1")


def _version_2(_recording: Path) -> Backend:
    host = FakeHost()
    host.version_2("lxc.payload.shop", [10], 1_000_000)
    host.task(10, 1_000_000_000, 5, 3, 3)
    return LxcBackend(host, host="h1")


BACKENDS: list[Callable[[Path], Backend]] = [_version_1, _version_2, RecordedBackend]


@pytest.fixture(params=BACKENDS, ids=["containers v1", "containers v2", "recorded"])
def backend(request: pytest.FixtureRequest, recording: Path) -> Backend:
    made: Backend = request.param(recording)
    return made


def test_instances_are_listed_in_order_of_their_ids(backend: Backend) -> None:
    names = [instance.id for instance in backend.list_instances()]
    assert names
    assert names == sorted(names)


def test_one_reading_holds_every_listed_instance(backend: Backend) -> None:
    counters = backend.read_counters()
    assert set(counters.instances) == {instance.id for instance in backend.list_instances()}
    assert counters.host == backend.host
    assert counters.vanished == ()


def test_counters_are_not_negative_and_every_missing_one_has_a_reason(backend: Backend) -> None:
    for domain in backend.read_counters().instances.values():
        for name in ("cpu_ns", "net_bytes", "disk_bytes"):
            value = getattr(domain, name)
            assert value is None or value >= 0
            by_tasks = all(task.io_bytes is not None for task in domain.tasks.values())
            assert value is not None or name in domain.absent or (name == "disk_bytes" and by_tasks)


def test_isolation_of_every_instance_can_be_read(backend: Backend) -> None:
    for instance in backend.list_instances():
        settings = backend.read_isolation(instance)
        assert settings.pinning is not None
        assert settings.weight is not None


def test_isolation_of_an_unknown_instance_says_so(backend: Backend) -> None:
    with pytest.raises(BackendError, match="nobody is not on this host"):
        backend.read_isolation(Instance("nobody"))


@pytest.mark.parametrize("make", [_version_1, _version_2], ids=["v1", "v2"])
def test_both_versions_give_the_same_settings(make: Callable[[Path], Backend], recording: Path) -> None:
    backend = make(recording)
    (instance,) = backend.list_instances()
    settings = backend.read_isolation(instance)
    assert instance.vcpus == 2
    assert settings.pinning is not None
    assert str(settings.pinning) == "0:0-1|1:0-1"
    assert (settings.cap_percent, settings.weight, settings.disk_limit_mb_s) == (150.0, 512, 2.0)


@pytest.mark.parametrize("make", [_version_1, _version_2], ids=["v1", "v2"])
def test_both_versions_give_the_same_counters(make: Callable[[Path], Backend], recording: Path) -> None:
    counters = make(recording).read_counters().instances["shop"]
    assert counters.cpu_ns == 1_000_000_000
    assert (counters.net_bytes, counters.disk_bytes) == (16_384, 4096)
    assert counters.further["system_ns"] == 500_000_000
    assert sum(task.run_ns for task in counters.tasks.values()) == 1_000_000_000


def test_containers_of_other_programs_are_found_by_their_groups() -> None:
    host = FakeHost()
    for path, tid in ((f"docker/{DOCKER_ID}", 1), (f"system.slice/docker-{'cd34' * 16}.scope", 2), ("lxc/a b", 3)):
        host.version_1(path, [tid], 5)
        host.task(tid, 5)
    host.version_1("system.slice/ssh.service", [4], 5)
    names = [instance.id for instance in LxcBackend(host, host="h").list_instances()]
    assert names == sorted([DOCKER_ID[:12], "cd34cd34cd34", instance_id("a b")])


def test_an_instance_that_vanishes_while_it_is_read_is_named_and_is_no_error() -> None:
    host = FakeHost()
    host.version_1("lxc/gone", [1], 5)
    host.files["/cg/cpuacct/lxc/gone/tasks"] = errno.ENODEV
    counters = LxcBackend(host, host="h").read_counters()
    assert counters.vanished == ("gone",)
    assert counters.instances == {}


def test_a_task_that_ends_while_it_is_read_is_left_out() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [1, 2], 5)
    host.task(1, 5)
    host.files["/proc/2/task/2/schedstat"] = errno.ESRCH
    assert set(LxcBackend(host, host="h").read_counters().instances["shop"].tasks) == {"1"}


def test_tasks_of_groups_inside_an_instance_count_for_it() -> None:
    host = FakeHost()
    host.version_2("lxc.payload.shop", [], 5)
    host.files["/cg/lxc.payload.shop/init.scope/cgroup.threads"] = "5\n"
    host.task(5, 5)
    assert set(LxcBackend(host, host="h").read_counters().instances["shop"].tasks) == {"5"}


def test_what_a_host_does_not_show_is_absent_with_the_reason() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [1], 5)
    host.task(1, 5)
    host.links["/proc/1/ns/net"] = "net:[1]"
    host.files["/cg/blkio/lxc/shop/blkio.throttle.io_service_bytes_recursive"] = "Total 0\n"
    host.files["/proc/1/task/1/io"] = errno.EACCES
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.net_bytes is None
    assert "host's own network" in shop.absent["net_bytes"]
    assert shop.disk_bytes is None
    assert "run as root" in shop.absent["disk_bytes"]
    assert "no such file" in shop.absent["psi_cpu_us"]


def test_block_io_comes_from_the_tasks_where_the_group_does_not_count_it() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [2], 5)
    host.task(2, 5)
    host.files["/cg/blkio/lxc/shop/blkio.throttle.io_service_bytes_recursive"] = "Total 0\n"
    host.files["/proc/2/task/2/io"] = "read_bytes: 4096\nwrite_bytes: 1\n"
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.tasks["2"].io_bytes == 4097
    assert "disk_bytes" not in shop.absent


def test_traffic_is_read_on_the_hosts_side_where_the_interface_is_known() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [1], 5)
    host.task(1, 5)
    host.files["/proc/net/dev"] = "veth9: 10 1 0 0 0 0 0 0 32 1 0 0 0 0 0 0\n"
    backend = LxcBackend(host, host="h", interfaces={"shop": "veth9"})
    assert backend.read_counters().instances["shop"].net_bytes == 42


def test_a_host_without_control_groups_says_what_to_do() -> None:
    host = FakeHost()
    host.files["/proc/mounts"] = "proc /proc proc rw 0 0\n"
    with pytest.raises(BackendError, match="mount -t cgroup2"):
        LxcBackend(host)


def test_a_group_that_may_not_be_read_asks_for_root() -> None:
    host = FakeHost()
    host.version_1("lxc/shop", [1], 5)
    host.files["/cg/cpuacct/lxc/shop/tasks"] = errno.EACCES
    with pytest.raises(BackendError, match="run as root"):
        LxcBackend(host, host="h").read_counters()


@pytest.mark.parametrize("name", ["a b", "-rf", "ü" * 300, "x" * 255, "a/b", r"foo\x2dbar", "", "\udcff"])
def test_any_name_becomes_an_id_and_two_names_stay_two(name: str) -> None:
    assert check_id(instance_id(name))
    assert instance_id(name) != instance_id(name + "?")


def test_a_recording_replays_its_readings_in_order(recording: Path) -> None:
    backend = RecordedBackend(recording)
    first, second, third = backend.read_counters(), backend.read_counters(), backend.read_counters()
    assert second.monotonic_s > first.monotonic_s
    assert third.monotonic_s == second.monotonic_s
    assert all(second.instances[name].cpu_ns > one.cpu_ns for name, one in first.instances.items())  # type: ignore[operator]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"readings": [], "backend": "lxc", "host": "h"}', "\x00"])
def test_a_broken_recording_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(BackendError, match=r"broken\.json is no recording"):
        RecordedBackend(path)


def test_a_recording_of_an_unknown_backend_is_refused(tmp_path: Path, recording: Path) -> None:
    document = json.loads(recording.read_text())
    document["backend"] = "hyperx"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BackendError, match="hyperx"):
        RecordedBackend(path)
