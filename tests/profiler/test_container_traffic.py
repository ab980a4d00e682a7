"""Where a container's bytes are counted: the host's ends of its veth pairs, its own namespace, or nowhere."""

from __future__ import annotations

import errno

import pytest

from profiler.backends import LxcBackend
from profiler.collectors import collect
from tests.profiler.fake_host import FakeHost

INSIDE = "lo: 70 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\neth0: 30 1 0 0 0 0 0 0 10 1 0 0 0 0 0 0\n"
OUTSIDE = "lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\nveth9: 10 1 0 0 0 0 0 0 32 1 0 0 0 0 0 0\n"


@pytest.fixture
def host() -> FakeHost:
    """One container with task 7 in namespace number 3, whose pair ends here as veth9."""
    host = FakeHost()
    host.version_1("lxc/shop", [7], 5)
    host.task(7, 5)
    host.files["/proc/7/net/dev"] = INSIDE
    host.files["/proc/net/dev"] = OUTSIDE
    host.values = {"veths by namespace": {"3": ["veth9"]}, "network namespace of 7": 3}
    return host


def _bytes(backend: LxcBackend) -> int | None:
    return backend.read_counters().instances["shop"].net_bytes


def test_the_hosts_end_is_read_and_nothing_inside_any_more(host: FakeHost) -> None:
    backend = LxcBackend(host, host="h")
    assert _bytes(backend) == 42
    del host.files["/proc/7/net/dev"]
    host.later()
    assert _bytes(backend) == 42


def test_an_interface_of_another_kind_that_carried_something_is_read_inside(host: FakeHost) -> None:
    host.files["/proc/7/net/dev"] = INSIDE + "macvlan0: 5 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    assert _bytes(LxcBackend(host, host="h")) == 45


def test_a_kernel_that_does_not_tell_ends_is_read_inside(host: FakeHost) -> None:
    host.values["veths by namespace"] = OSError(errno.EPERM, "not permitted")
    assert _bytes(LxcBackend(host, host="h")) == 40


def test_counts_from_another_place_are_not_subtracted(host: FakeHost) -> None:
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.files["/proc/net/dev"] = "lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"  # its end is gone: it got another network
    host.values["veths by namespace"] = {}
    host.later()
    second = backend.read_counters()
    (absence,) = [one for one in collect(first, second).absences if one.metric == "pages_exchanged"]
    assert "counted at another place" in absence.reason
    host.later()
    third = backend.read_counters()
    (row,) = [one for one in collect(second, third).rows if one.scope == "instance"]
    assert "pages_exchanged" not in row.values  # the second reading has no count to start from
    host.later()
    (row,) = [one for one in collect(third, backend.read_counters()).rows if one.scope == "instance"]
    assert row.values["pages_exchanged"] == 0


def test_the_next_task_shows_the_network_when_the_first_ends(host: FakeHost) -> None:
    host.values = {}
    backend = LxcBackend(host, host="h")
    assert _bytes(backend) == 40
    host.files["/cg/cpuacct/lxc/shop/tasks"] = "8\n"
    host.task(8, 5)
    host.files["/proc/8/net/dev"] = INSIDE
    host.later()
    assert _bytes(backend) == 40


def test_the_hosts_own_network_is_absent(host: FakeHost) -> None:
    host.links["/proc/7/ns/net"] = host.links["/proc/1/ns/net"]
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.net_bytes is None
    assert "host's own network" in shop.absent["net_bytes"]


def test_without_the_first_process_our_own_namespace_is_the_hosts(host: FakeHost) -> None:
    host.links = {"/proc/self/ns/net": "net:[1]", "/proc/7/ns/net": "net:[1]"}
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert "host's own network" in shop.absent["net_bytes"]


def test_an_unknown_host_network_makes_traffic_unknown(host: FakeHost) -> None:
    del host.links["/proc/1/ns/net"]
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.net_bytes is None
    assert "run as root" in shop.absent["net_bytes"]
