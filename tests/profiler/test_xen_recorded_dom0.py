"""The Xen backend on what a real Dom0 said: xl, xenstore, /proc, debugfs and the trace of the recordings together."""

from __future__ import annotations

import re

import pytest

from profiler.backends.xen.backend import XenBackend
from profiler.backends.xen.scheduling import LAG_S
from profiler.collectors import collect
from profiler.observed import Instance
from tests.profiler.test_xen_recordings import MHZ, RECORDINGS, needs_recordings
from tests.profiler.test_xen_trace import _plain, _plain_times
from tests.profiler.xen_host import BLOCK, RUN, WAIT, XenHost

TRACE = "xentrace-sched-min-0x21000.bin"
VALUES = {
    "xl info": "xl-info.txt",
    "xl list -v": "xl-list-v.txt",
    "xl vcpu-list": "xl-vcpu-list.txt",
    "xl sched-credit": "xl-sched-credit.txt",
    "xenstore-ls -f /local/domain": "xenstore-ls-f.txt",
    "xenstore-ls -f /local/domain/0/backend/vif": "xenstore-ls-vif1.txt",
}


def _text(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")


def _dom0() -> XenHost:
    host = XenHost()
    host.values = {key: _text(name) for key, name in VALUES.items()}
    host.files["/proc/net/dev"] = _text("proc-net-dev-dom0.txt")
    host.files["/proc/interrupts"] = _text("proc-interrupts-dom0-2.txt").split("\n\n")[0]
    rings = re.split(r"== (\S+)\n", _text("debugfs-xen-netback.txt"))[1:]
    host.files |= dict(zip(rings[::2], rings[1::2], strict=True))
    return host


def _halves() -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """The trace in two pieces, each with the newest time stamp until its end."""
    data = (RECORDINGS / TRACE).read_bytes()
    marks = [mark.start() for mark in re.finditer(re.escape(b"\x03\xf0\x01\x20"), data)]
    middle = marks[len(marks) // 2]
    newest = [max(time or 0 for _, time, _, _ in _plain(part)) for part in (data[:middle], data)]
    return (data[:middle], newest[0]), (data[middle:], newest[1])


@needs_recordings
def test_a_recorded_dom0_gives_what_a_plain_reading_of_its_trace_gives() -> None:
    host = _dom0()
    backend = XenBackend(host, "h1")
    readings = []
    for piece, newest in _halves():
        host.trace, host.now = piece, (0.0, newest / MHZ / 1e6)
        readings.append(backend.read_counters())
    collected = collect(*readings)
    assert not [absence for absence in collected.absences if absence.metric != "pages_per_execution"]
    assert collected.drops == ()
    data = (RECORDINGS / TRACE).read_bytes()
    ends = [newest - round(LAG_S * MHZ * 1e6) for _, newest in _halves()]
    before, after = (_plain_times(data, end) for end in ends)
    for name, domain in (("vm1", 1), ("vm2", 2)):
        values = {sample.metric: sample.value for sample in collected.samples if sample.instance == name}
        grown = {state: after[domain << 16][state] - before[domain << 16][state] for state in (RUN, WAIT, BLOCK, -1)}
        for metric, state in (("cpu", RUN), ("waiting", WAIT), ("block", BLOCK)):
            assert values[metric] == pytest.approx(100 * grown[state] / MHZ / 1e6 / collected.seconds, abs=0.01)
        assert values["execution"] == pytest.approx(grown[-1] / collected.seconds)
        assert values["cpu"] + values["waiting"] + values["block"] == pytest.approx(100, abs=0.01)


@needs_recordings
def test_a_recorded_dom0_shows_its_guests_and_their_io() -> None:
    host = _dom0()
    (host.trace, newest), _ = _halves()
    host.now = (0.0, newest / MHZ / 1e6)
    backend = XenBackend(host, "h1")
    counters = backend.read_counters()
    assert [(i.id, i.vcpus, i.memory_mb) for i in backend.list_instances()] == [("vm1", 1, 192), ("vm2", 1, 192)]
    vm1 = counters.instances["vm1"]
    assert (vm1.net_bytes, vm1.disk_bytes) == (940_403_367 + 29_866_429, 0)
    assert vm1.pages == 830_916 + 379_958
    assert vm1.cpu_ns == 119_800_000_000
    assert counters.whole is not None
    assert counters.whole.pcpus == 2
    assert counters.whole.events == 1009 + 203 + 71 + 4 + 149_769 + 1 + 68 + 10 + 47_450 + 1


@needs_recordings
def test_a_recorded_dom0_shows_how_its_guests_are_held() -> None:
    settings = XenBackend(_dom0(), "h1").read_isolation(Instance("vm1"))
    assert (str(settings.pinning), settings.weight, settings.cap_percent, settings.network) == ("0:1", 256, None, None)
