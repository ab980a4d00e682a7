"""What stands in for the event channel: sums of KVM that fall when a VM ends, and wakes that are only ever added."""

from __future__ import annotations

import errno

from hypothesis import given
from hypothesis import strategies as st

from profiler.backends import HostCounters
from profiler.backends.libvirt.backend import KVM_COUNTERS, LibvirtBackend
from profiler.collectors import collect
from tests.profiler.libvirt_host import LibvirtHost, open_backend


def _host() -> LibvirtHost:
    host = LibvirtHost()
    host.guest("shop", 1)
    return host


def _whole(backend: LibvirtBackend) -> HostCounters:
    whole = backend.read_counters().whole
    assert whole is not None
    return whole


def _kvm(host: LibvirtHost, exits: int, injections: int) -> None:
    host.files |= dict(zip(KVM_COUNTERS, (f"{exits}\n", f"{injections}\n"), strict=True))


def test_exits_and_injected_interrupts_are_the_events_where_kvm_counts_them() -> None:
    host = _host()
    backend = open_backend(host)
    _kvm(host, 1000, 200)
    first = backend.read_counters()
    host.later(2.0)
    _kvm(host, 1600, 300)
    samples = collect(first, backend.read_counters()).samples
    assert next(sample.value for sample in samples if sample.metric == "event") == 350


def test_a_vm_that_takes_its_counts_away_leaves_no_events_and_all_other_samples() -> None:
    host = _host()
    backend = open_backend(host)
    _kvm(host, 1000, 200)
    first = backend.read_counters()
    host.later()
    _kvm(host, 400, 10)
    collected = collect(first, backend.read_counters())
    assert [absence.reason for absence in collected.absences if absence.metric == "event"] == [
        "a VM ended and took its counts out of KVM's sums"
    ]
    assert {"busy", "switch", "cpu"} <= {sample.metric for sample in collected.samples}
    _kvm(host, 500, 10)
    assert _whole(backend).events == 510


def test_counts_of_kvm_that_may_no_longer_be_read_do_not_turn_into_wakes() -> None:
    host = _host()
    backend = open_backend(host)
    _kvm(host, 1000, 200)
    backend.read_counters()
    host.files[KVM_COUNTERS[0]] = errno.EACCES
    whole = _whole(backend)
    assert whole.events is None
    assert "permission denied" in whole.absent["events"]


def test_without_kvm_wakes_of_qemus_threads_are_the_events() -> None:
    host = _host()
    backend = open_backend(host)
    assert _whole(backend).events == 0
    host.thread(100, 2_000_000, 0, 15, voluntary=7)
    host.thread(101, 2_000_000, 0, 15, voluntary=5)
    assert _whole(backend).events == 4


def test_garbled_status_is_no_event_count() -> None:
    host = _host()
    host.files["/proc/101/task/101/status"] = "garbled\n"
    whole = _whole(open_backend(host))
    assert whole.events is None
    assert "no line" in whole.absent["events"]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 50)), max_size=12))
def test_wakes_never_fall_whoever_comes_and_goes(steps: list[tuple[bool, int, int]]) -> None:
    host = _host()
    backend = open_backend(host)
    last = 0
    for number, (second, slices, voluntary) in enumerate(steps, start=1):
        if second:
            host.guest("web", 2)
        elif "web" in host.domains:
            host.gone("web")
        host.thread(101, number * 1_000_000, 0, 10 + slices, voluntary)
        events = _whole(backend).events
        assert events is not None
        assert events >= last
        last = events
