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


@pytest.mark.parametrize(
    ("inside", "ends", "expected"),
    [
        (INSIDE + "macvlan0: 5 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", {"3": ["veth9"]}, 45),
        (INSIDE, OSError(errno.EPERM, "not permitted"), 40),
    ],
    ids=["an interface of another kind carried something", "the kernel does not tell the ends"],
)
def test_what_the_hosts_ends_do_not_count_is_read_inside(
    host: FakeHost, inside: str, ends: object, expected: int
) -> None:
    host.files["/proc/7/net/dev"] = inside
    host.values["veths by namespace"] = ends
    assert _bytes(LxcBackend(host, host="h")) == expected


def test_counts_from_another_place_are_not_subtracted(host: FakeHost) -> None:
    backend = LxcBackend(host, host="h")
    first = backend.read_counters()
    host.files["/proc/net/dev"] = "lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n"  # its end is gone: it got another network
    host.values["veths by namespace"] = {}
    host.later()
    second = backend.read_counters()
    (absence,) = [absence for absence in collect(first, second).absences if absence.metric == "pages_exchanged"]
    assert "counted at another place" in absence.reason
    host.later()
    third = backend.read_counters()
    (row,) = [row for row in collect(second, third).rows if row.scope == "instance"]
    assert "pages_exchanged" not in row.values  # the second reading has no count to start from
    host.later()
    (row,) = [row for row in collect(third, backend.read_counters()).rows if row.scope == "instance"]
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


@pytest.mark.parametrize(
    ("links", "reason"),
    [
        ({"/proc/1/ns/net": "net:[1]", "/proc/7/ns/net": "net:[1]"}, "host's own network"),
        ({"/proc/self/ns/net": "net:[1]", "/proc/7/ns/net": "net:[1]"}, "host's own network"),
        ({"/proc/7/ns/net": "net:[7]"}, "run as root"),
    ],
    ids=["it has the host's network", "our own namespace stands for the first process's", "the host's is not known"],
)
def test_traffic_that_is_not_the_containers_own_is_absent(host: FakeHost, links: dict[str, str], reason: str) -> None:
    host.links = links
    shop = LxcBackend(host, host="h").read_counters().instances["shop"]
    assert shop.net_bytes is None
    assert reason in shop.absent["net_bytes"]
