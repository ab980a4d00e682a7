"""Which containers are found, under which ids, and how soon changes of them are seen."""

from __future__ import annotations

import errno

import pytest

from advisor.render import check_labels
from profiler.backends import BackendError, LxcBackend
from profiler.backends.lxc.listing import names_in_group
from profiler.names import instance_id
from profiler.observed import Instance, check_id
from tests.profiler.fake_host import FakeHost, host_of_shop

DOCKER_ID = "ab12" * 16
UID = "0b7a9f0e-1111-4222-8333-444455556666"
HASH = "c0ffee00" * 4  # the UID of a static pod


def _names(backend: LxcBackend) -> list[str]:
    return sorted(backend.read_counters().instances)


def test_containers_of_other_programs_are_found_by_their_groups() -> None:
    host = FakeHost()
    docker, podman = f"system.slice/docker-{'cd34' * 16}.scope", f"libpod_parent/libpod-{'ef56' * 16}"
    for tid, path in enumerate((f"docker/{DOCKER_ID}", docker, "lxc/a b", podman, "libpod_parent/conmon"), 1):
        host.version_1(path, [tid], 5)
        host.task(tid, 5)
    host.version_1("system.slice/ssh.service", [9], 5)
    names = [instance.id for instance in LxcBackend(host, host="h").list_instances()]
    assert names == sorted([DOCKER_ID[:12], "cd34cd34cd34", "ef56ef56ef56", instance_id("a b")])


def test_a_name_that_no_id_can_be_goes_along_as_a_label() -> None:
    host = FakeHost()
    groups = {
        "lxc.payload.магазин": "магазин",
        r"machine.slice/machine-caf\xc3\xa9.scope": "café",
        "lxc.payload.shop": None,
    }
    for tid, path in enumerate(groups, 1):
        host.version_1(path, [tid], 5)
        host.task(tid, 5)
    found = {instance.labels["cgroup"]: instance for instance in LxcBackend(host, host="h").list_instances()}
    assert {path: found[path].labels.get("name") for path in groups} == groups
    for instance in found.values():
        check_labels(instance)  # commands can be made of it


@pytest.mark.parametrize(
    ("group", "names"),
    [
        (f"/docker/{DOCKER_ID}", ("ab12ab12ab12",)),
        (f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{DOCKER_ID}.scope", ("ab12ab12ab12", UID)),
        (f"/kubepods/besteffort/pod{UID}/{DOCKER_ID}", (UID,)),
        (f"/kubepods.slice/kubepods-burstable-pod{HASH}.slice/crio-{DOCKER_ID}.scope", ("ab12ab12ab12", HASH)),
        (f"/kubepods/burstable/pod{HASH}/{DOCKER_ID}", (HASH,)),
        ("/lxc.payload.shop", ("shop",)),
        ("/system.slice/ssh.service", ()),
    ],
)
def test_a_group_names_its_container_and_its_pod(group: str, names: tuple[str, ...]) -> None:
    assert names_in_group(group) == names


def test_the_containers_of_a_pod_are_one_instance_by_the_uid_of_the_pod() -> None:
    host = FakeHost()
    slices = "kubepods.slice/kubepods-burstable.slice"
    pod = f"{slices}/kubepods-burstable-pod{UID.replace('-', '_')}.slice"
    for group, tids in ((slices, []), (pod, []), (f"{pod}/cri-containerd-{DOCKER_ID}.scope", [7])):
        host.version_1(group, tids, 1_000_000)
    host.version_1(f"{pod}/cri-containerd-{'cd34' * 16}.scope", [8], 1_000_000)
    for tid in (7, 8):
        host.task(tid, 1_000_000, 5, 3)
    backend = LxcBackend(host, host="h")
    assert [instance.id for instance in backend.list_instances()] == [UID]
    assert _names(backend) == [UID]


def test_an_instance_that_vanishes_while_it_is_read_is_named_and_is_no_error() -> None:
    host = FakeHost()
    host.version_1("lxc/gone", [1], 5)
    host.files["/cg/cpuacct/lxc/gone/tasks"] = errno.ENODEV
    counters = LxcBackend(host, host="h").read_counters()
    assert counters.vanished == ("gone",)
    assert counters.instances == {}


def test_a_host_without_control_groups_says_what_to_do() -> None:
    host = FakeHost()
    host.files["/proc/mounts"] = "proc /proc proc rw 0 0\n"
    with pytest.raises(BackendError, match="mount -t cgroup2"):
        LxcBackend(host)


@pytest.mark.parametrize("name", ["a b", "-rf", "ü" * 300, "x" * 255, "a/b", r"foo\x2dbar", "", "\udcff"])
def test_any_name_becomes_an_id_and_two_names_stay_two(name: str) -> None:
    assert check_id(instance_id(name))
    assert instance_id(name) != instance_id(name + "?")


def test_a_new_container_appears_within_five_seconds() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    assert _names(backend) == ["shop"]
    host.version_1("lxc/bank", [8], 5)
    host.task(8, 5)
    seen_after = 0
    while _names(backend) == ["shop"]:
        host.later()
        seen_after += 1
    assert seen_after <= 5


def test_containers_are_not_searched_for_in_every_reading() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    searched: list[str] = []
    names = host.names
    host.names = lambda path: searched.append(path) or names(path)  # type: ignore[method-assign,func-returns-value]
    for _ in range(3):
        backend.read_counters()
        host.later()
    assert len(searched) == len(set(searched))


def test_a_vanished_container_is_named_once_and_looked_for_no_more() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    backend.read_counters()
    for path in [path for path in host.files if "/lxc/shop" in path]:
        del host.files[path]
    host.later()
    assert backend.read_counters().vanished == ("shop",)
    host.version_1("lxc", [], 5)
    host.later()
    after = backend.read_counters()
    assert (after.vanished, dict(after.instances)) == ((), {})


def test_a_changed_quota_is_seen_within_fifteen_seconds() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    assert backend.read_counters().instances["shop"].vcpus == 2
    host.files["/cg/cpu/lxc/shop/cpu.cfs_quota_us"] = "50000\n"
    for _ in range(20):
        host.later()
        vcpus = backend.read_counters().instances["shop"].vcpus
    assert vcpus == 1


def test_settings_of_an_instance_that_just_came_are_found_on_the_second_try() -> None:
    host = host_of_shop()
    backend = LxcBackend(host, host="h")
    backend.read_counters()
    host.version_1("lxc/bank", [8], 5)
    with pytest.raises(BackendError):
        backend.read_isolation(Instance("bank"))
    assert backend.read_isolation(Instance("bank", vcpus=2)).cap_percent == 150.0


def test_control_groups_that_cannot_be_listed_are_an_error_and_not_an_empty_host() -> None:
    host = host_of_shop()
    host.names = lambda path: (_ for _ in ()).throw(OSError(errno.EACCES, "Permission denied"))  # type: ignore[method-assign]
    with pytest.raises(BackendError, match="cannot be listed"):
        LxcBackend(host, host="h").read_counters()


def test_a_static_pod_is_one_instance_by_the_hash_that_its_node_knows_it_by() -> None:
    host = FakeHost()
    pod = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{HASH}.slice"
    for tid, path in enumerate((pod, f"{pod}/cri-containerd-{DOCKER_ID}.scope"), 1):
        host.version_1(path, [tid], 5)
        host.task(tid, 5)
    assert [instance.id for instance in LxcBackend(host, host="h").list_instances()] == [HASH]
