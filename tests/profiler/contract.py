"""Each backend on a host in memory, as the contract suite needs it: a source, a backend on it, and what comes later."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from profiler.backends import Backend, Counters, LxcBackend, RecordedBackend
from profiler.backends.sources import HostSource
from profiler.backends.xen.backend import XenBackend
from profiler.collectors import Collected
from profiler.metrics import EIGHT
from tests.profiler.fake_host import FakeHost
from tests.profiler.libvirt_host import LibvirtHost, open_backend
from tests.profiler.recorded import RECORDINGS
from tests.profiler.xen_host import first_second, two_guests

_OF_INSTANCES = tuple(metric.name for metric in EIGHT if "instance" in metric.scopes)
_OF_HOSTS = tuple(metric.name for metric in EIGHT if metric.default_scope == "host")


@dataclass(frozen=True)
class Case:
    """`source` makes a host, `backend` a backend on it, `later` lets a second pass there."""

    name: str
    source: Callable[[], Any]
    backend: Callable[[HostSource], Backend]
    later: Callable[[Any], None]


def _version_1() -> FakeHost:
    host = FakeHost()
    host.version_1("lxc/shop", [10, 11], 1_000_000_000)
    host.version_1("lxc/bank", [20], 1_000_000_000)
    for tid in (10, 11, 20):
        host.task(tid, 500_000_000, 5, 3, 3)
    return host


def _version_2() -> FakeHost:
    host = FakeHost()
    host.version_2("lxc.payload.shop", [10, 11], 1_000_000)
    host.version_2("lxc.payload.bank", [20], 1_000_000)
    for tid in (10, 11, 20):
        host.task(tid, 500_000_000, 5, 3, 3)
    return host


def _containers_later(host: FakeHost) -> None:
    """Every task runs for a tenth of a second, in one more period."""
    host.later()
    for tid in (10, 11, 20):
        run_ns, wait_ns, slices = (int(field) for field in str(host.files[f"/proc/{tid}/task/{tid}/schedstat"]).split())
        host.task(tid, run_ns + 100_000_000, wait_ns + 50_000_000, slices + 1)


def _xen() -> Any:
    host = two_guests()
    host.trace = first_second(host.now[1] - 1.0)
    return host


def _xen_later(host: Any) -> None:
    host.later()
    host.trace = first_second(host.now[1] - 1.0)
    host.refresh()


def _libvirt() -> LibvirtHost:
    host = LibvirtHost()
    host.guest("shop", 1, net_bytes=8192, disk_bytes=4096)
    host.guest("web ü", 2, net_bytes=100)
    return host


def _lxc(source: HostSource) -> Backend:
    return LxcBackend(source, host="h1")


MAKERS = {
    "containers v1": Case("containers v1", _version_1, _lxc, _containers_later),
    "containers v2": Case("containers v2", _version_2, _lxc, _containers_later),
    "libvirt": Case("libvirt", _libvirt, open_backend, lambda host: host.later()),  # type: ignore[arg-type]
    "xen": Case("xen", _xen, lambda source: XenBackend(source, "h1", "runstate"), _xen_later),
}
_RECORDED = [
    Case(path.stem, lambda path=path: path, RecordedBackend, lambda _path: None)  # type: ignore[misc,arg-type]
    for path in sorted(RECORDINGS.glob("*.json"))
]
CASES = [*MAKERS.values(), *_RECORDED]


def check_whole(first: Counters, second: Counters, collected: Collected) -> None:
    """Every one of the eight metrics is a value or absent with a reason, unless its instance is named as dropped."""
    given = {(sample.instance, sample.scope, sample.metric) for sample in collected.samples}
    reasons = {(absence.instance, absence.metric): absence.reason for absence in collected.absences}
    dropped = {drop.instance for drop in collected.drops if drop.reason != "tasks_ended"}
    for name in first.instances.keys() & second.instances.keys() - dropped:
        for metric in _OF_INSTANCES:
            assert (name, "instance", metric) in given or reasons.get((name, metric)), metric
    for metric in _OF_HOSTS:
        assert (None, "host", metric) in given or reasons.get((None, metric)), metric
    assert all(math.isfinite(sample.value) and sample.value >= 0 for sample in collected.samples)
