"""What `auto` chooses: the likeliest hypervisor that can be read, and why it passed over another."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from profiler.backends import BackendError, detection
from profiler.backends.detection import find_backend, passed_over
from tests.profiler.fake_host import FakeHost

KINDS = ("xen", "libvirt", "lxc")


def _host(*, dom0: bool = False, signs: tuple[str, ...] = (), containers: bool = False) -> FakeHost:
    host = FakeHost()
    host.files["/proc/mounts"] = "cgroup2 /cg cgroup2 rw 0 0\n"
    host.values["libvirt signs"] = list(signs)
    if dom0:
        host.files["/proc/xen/capabilities"] = "control_d\n"
    if containers:
        host.version_2("lxc.payload.shop", [10], 1_000_000)
        host.task(10, 1_000_000_000, 5, 3)
    return host


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Kinds whose backend says that it cannot work; the others give a backend of their name."""
    broken: set[str] = set()

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            pass

    def maker(kind: str) -> Callable[[], Named]:
        def make() -> Named:
            if kind in broken:
                raise BackendError(f"no {kind} today")
            return Named(kind)

        return make

    monkeypatch.setattr(detection, "_makers", lambda *_asked: {kind: maker(kind) for kind in KINDS})
    return broken


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (_host(dom0=True, signs=("guests", "socket")), "xen"),
        (_host(signs=("guests", "socket"), containers=True), "libvirt"),
        (_host(signs=("socket",), containers=True), "lxc"),
        (_host(signs=("socket",)), "libvirt"),
        (_host(), "lxc"),
    ],
    ids=["Dom0", "guests beside containers", "containers beside an idle libvirtd", "idle libvirtd", "nothing"],
)
def test_auto_takes_what_the_host_has(host: FakeHost, expected: str, unreadable: set[str]) -> None:
    assert not unreadable
    assert find_backend("auto", host).name == expected


def test_auto_goes_on_where_a_backend_cannot_work_and_says_why(unreadable: set[str]) -> None:
    unreadable |= {"xen", "libvirt"}
    host = _host(dom0=True, signs=("guests",))
    assert find_backend("auto", host).name == "lxc"
    assert passed_over("lxc", host) == ["xen: no xen today", "libvirt: no libvirt today"]
    assert passed_over("xen", host) == []


def test_a_host_where_nothing_can_be_read_says_so_of_each(unreadable: set[str]) -> None:
    unreadable |= set(KINDS)
    with pytest.raises(BackendError, match="xen: no xen today; lxc: no lxc today"):
        find_backend("auto", _host(dom0=True))


def test_a_named_backend_is_not_replaced_by_another(unreadable: set[str]) -> None:
    unreadable.add("xen")
    with pytest.raises(BackendError, match="no xen today"):
        find_backend("xen", _host(dom0=True))
