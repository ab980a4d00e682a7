"""The Xen backend on a Dom0 in memory: rates, what is absent and why, how seldom it starts tools."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path

import pytest

from profiler.backends import BackendError, RecordedBackend
from profiler.backends.sources import RecordingSource
from profiler.backends.xen.backend import XenBackend
from profiler.backends.xen.scheduling import LAG_S
from profiler.collectors import collect
from tests.profiler.xen_host import (
    IDLE,
    RUN,
    WAIT,
    Guest,
    TraceWriter,
    XenHost,
    a_second_later,
    backend_on,
    change,
    first_second,
    lost,
    record,
    two_guests,
    two_readings,
    values_of,
)

WEB = "web_shop-87c9a8b1"


@pytest.fixture
def host() -> XenHost:
    return two_guests()


def test_two_guests_that_share_a_pcpu_run_half_and_wait_half() -> None:
    first, second = two_readings(two_guests())
    values = values_of(collect(first, second), "vm2")
    assert values["cpu"] == pytest.approx(50, abs=0.1)
    assert values["waiting"] == pytest.approx(50, abs=0.1)
    assert values["block"] == pytest.approx(0, abs=0.1)
    assert values["execution"] == 5


def test_dom0_and_the_host_are_measured_from_the_trace() -> None:
    collected = collect(*two_readings(two_guests()))
    assert values_of(collected, None, "driver_domain")["cpu"] == pytest.approx(100, abs=0.1)
    host = values_of(collected, None, "host")
    assert (host["switch"], host["steal"]) == (10, 0)
    assert host["busy"] == pytest.approx(200, abs=0.1)


def test_a_listing_comes_every_tenth_reading_and_no_tool_starts_per_guest() -> None:
    starts: list[int] = []
    for guests in (3, 60):
        domains = {0: Guest("Domain-0", 100.0)} | {n: Guest(f"vm{n}") for n in range(1, guests + 1)}
        host = XenHost(guests=domains)
        backend = backend_on(host)
        host.calls.clear()
        for _ in range(31):
            backend.read_counters()
            a_second_later(host)
        tools = [call for call in host.calls if call not in ("xentrace", "queues by interface")]
        starts.append(len(tools))
        assert tools.count("xl list -v") == 4
        assert len(backend.read_counters().instances) == guests
    assert starts[0] == starts[1] == 6


@pytest.mark.parametrize("first_seen", ["devices", "trace"])
def test_a_guest_that_comes_is_listed_at_once(host: XenHost, first_seen: str) -> None:
    backend = backend_on(host)
    backend.read_counters()
    host.guests[3] = Guest("new", backend=0 if first_seen == "devices" else 2)
    host.refresh()
    a_second_later(host)
    if first_seen == "trace":
        host.trace = TraceWriter().window(1, change(10.1, 3, 3, WAIT), change(10.2, 3, WAIT, RUN)).data
    assert set(backend.read_counters().instances) == {WEB, "vm2", "new"}


def test_a_guest_that_goes_is_dropped_from_the_reading(host: XenHost) -> None:
    backend = backend_on(host)
    first = backend.read_counters()
    del host.guests[2]
    host.refresh()
    a_second_later(host)
    second = backend.read_counters()
    assert set(second.instances) == {WEB}
    assert [(drop.instance, drop.reason) for drop in collect(first, second).drops] == [("vm2", "vanished")]


@pytest.mark.parametrize("state", ["-----d", "--ps--"])
def test_a_guest_that_vanishes_is_named(host: XenHost, state: str) -> None:
    backend = backend_on(host)
    backend.read_counters()
    host.guests[2].state = state
    host.guests[2].backend = 1  # its devices are gone already
    host.refresh()
    a_second_later(host)
    counters = backend.read_counters()
    assert counters.vanished == ("vm2",)
    assert set(counters.instances) == {WEB}


def test_a_domain_that_emulates_devices_for_another_is_no_instance(host: XenHost) -> None:
    host.guests |= {3: Guest("vm2-dm"), 4: Guest("lonely-dm")}
    host.refresh()
    assert [instance.id for instance in backend_on(host).list_instances()] == ["lonely-dm", "vm2", WEB]


def test_guests_are_announced_with_the_uuid_by_which_another_host_may_take_them_over(host: XenHost) -> None:
    host.guests |= {3: Guest("bare", uuid="00000000-0000-0000-0000-000000000000")}
    host.refresh()
    uuids = {instance.id: instance.labels.get("uuid") for instance in backend_on(host).list_instances()}
    assert uuids == {
        "bare": None,
        WEB: "00000000-0000-0000-0000-000000000001",
        "vm2": "00000000-0000-0000-0000-000000000002",
    }


def test_without_xentrace_the_scheduler_is_absent_and_cpu_comes_from_xl(host: XenHost) -> None:
    host.problem = "xentrace cannot be started: No such file or directory"
    backend = backend_on(host)
    first = backend.read_counters()
    host.guests[2].cpu_s += 0.4
    host.refresh()
    a_second_later(host)
    collected = collect(first, backend.read_counters())
    assert values_of(collected, "vm2")["cpu"] == pytest.approx(40)
    reasons = {absence.metric: absence.reason for absence in collected.absences if absence.instance == "vm2"}
    assert set(reasons) == {"execution", "waiting", "block", "pages_per_execution"}
    assert "steps of 0.1 s" in reasons["waiting"]
    assert "cannot be started" in reasons["waiting"]


def test_tracing_that_is_off_asks_for_no_xentrace(host: XenHost) -> None:
    first, second = two_readings(host, "off")
    assert "xentrace" not in host.calls
    assert "switched off" in second.instances["vm2"].absent["tasks"]
    assert "waiting" not in values_of(collect(first, second), "vm2")
    assert host.calls.count("xl list -v") == 2


def test_lost_records_drop_the_interval_and_say_so(host: XenHost) -> None:
    backend = backend_on(host)
    backend.read_counters()
    a_second_later(host)
    host.trace += TraceWriter().window(1, lost(host.now[1] - 0.01, 23)).data
    second = backend.read_counters()
    assert "lost 23 trace records" in second.instances["vm2"].absent["tasks"]
    assert second.whole is not None
    assert second.whole.switches is None
    a_second_later(host)
    assert "tasks" not in backend.read_counters().instances["vm2"].absent


def test_what_was_lost_before_the_first_reading_is_no_loss(host: XenHost) -> None:
    host.trace = TraceWriter().window(0, lost(9.0, 5)).data + first_second(9.0)
    assert "tasks" not in XenBackend(host, "h1").read_counters().instances["vm2"].absent


def test_a_new_stream_drops_the_interval_but_cpu_time_goes_on(host: XenHost) -> None:
    backend = backend_on(host)
    readings = [backend.read_counters()]
    for second in range(1, 5):
        a_second_later(host)
        host.guests[2].cpu_s += 0.5
        host.refresh()
        if second == 2:
            host.stream = 2
        readings.append(backend.read_counters())
    cpu = [reading.instances["vm2"].cpu_ns or 0 for reading in readings]
    assert [round((b - a) / 1e8) for a, b in itertools.pairwise(cpu)] == [5, 5, 5, 5]
    assert [sorted(reading.instances["vm2"].absent) for reading in readings] == [[], [], ["tasks"], [], []]
    assert "started anew" in readings[2].instances["vm2"].absent["tasks"]


def test_a_stream_out_of_step_is_given_up_with_the_reason(host: XenHost) -> None:
    backend = backend_on(host)
    backend.read_counters()
    a_second_later(host)
    host.trace = b"x" * 40
    assert "out of step" in backend.read_counters().instances["vm2"].absent["tasks"]


def test_a_recording_with_a_broken_piece_of_trace_gives_a_reason(host: XenHost) -> None:
    host.values["xentrace"] = {"stream": 1, "data": "no base64!", "problem": ""}
    assert "no piece of a trace" in XenBackend(host, "h1").read_counters().instances["vm2"].absent["tasks"]


def test_hypercalls_count_events_and_dom0s_pages_where_they_are_traced(host: XenHost) -> None:
    backend = backend_on(host, "full")
    first = backend.read_counters()
    a_second_later(host)
    calls = [record(0x20100D, 10.1, 32), record(0x20100D, 10.2, 32), record(0x20100D, 10.3, 20 | 5 << 20, 5, 40)]
    calls += [record(0x20100D, 10.4, 20, 1, 99), record(0x20100D, 10.5, 29)]  # unmapping exchanges nothing
    host.trace += TraceWriter().window(0, *calls).data
    collected = collect(first, backend.read_counters())
    assert values_of(collected, None, "host")["event"] == 2
    assert values_of(collected, None, "driver_domain")["pages_exchanged"] == 40


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (TimeoutError(errno.ETIMEDOUT, "xl gave no answer in 5 s"), "is xenstored running"),
        (OSError(errno.EIO, "xl failed with 1: Permission denied"), "run as root in Dom0"),
        ("Nom   ID\n", "is not the header"),
        ("", "it is empty"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "xl"), "Xen's tools installed"),
    ],
)
def test_domains_that_cannot_be_listed_say_what_to_do(host: XenHost, answer: str | OSError, reason: str) -> None:
    backend = backend_on(host)
    host.values["xl list -v"] = answer
    with pytest.raises(BackendError, match=reason):
        backend.read_counters()


@pytest.mark.parametrize(
    ("capabilities", "answer", "reason"),
    [
        ("\n", None, "run the profiler in Dom0"),
        (None, PermissionError(errno.EACCES, "Permission denied", "/usr/sbin/xl"), "run as root"),
        (None, TimeoutError(errno.ETIMEDOUT, "xl gave no answer in 5 s"), "gave no answer in 5 s"),
        (None, "cpu_mhz: fast\n", "there is no xen_version"),
    ],
    ids=["a guest of Xen", "no permission", "xl hangs", "nonsense"],
)
def test_a_host_where_xl_cannot_be_used_says_why(
    host: XenHost, capabilities: str | None, answer: str | OSError | None, reason: str
) -> None:
    if capabilities is not None:
        host.files["/proc/xen/capabilities"] = capabilities
    if answer is not None:
        host.values["xl info"] = answer
    with pytest.raises(BackendError, match=reason):
        XenBackend(host)


def test_settled_vcpus_of_an_idle_guest_are_blocked_all_the_time(host: XenHost) -> None:
    host.guests[3] = Guest("idle", state="-b----")
    host.refresh()
    values = values_of(collect(*two_readings(host)), "idle")
    assert (values["cpu"], values["waiting"], values["execution"]) == (0, 0, 0)
    assert values["block"] == pytest.approx(100)


def test_vcpus_of_which_nothing_is_known_make_the_scheduler_absent(host: XenHost) -> None:
    host.guests[3] = Guest("unseen")
    host.refresh()
    host.values["xl vcpu-list"] = OSError(errno.EIO, "xl failed")
    unseen = backend_on(host).read_counters().instances["unseen"]
    assert "not shown all of its vCPUs" in unseen.absent["tasks"]
    assert unseen.cpu_ns == 10_000_000_000


def test_a_recording_replays_to_the_same_counters(host: XenHost, tmp_path: Path) -> None:
    host.trace = first_second(host.now[1] - 1.0)
    source = RecordingSource(host)
    backend = XenBackend(source, "h1")
    live = [backend.read_counters()]
    isolation = [backend.read_isolation(instance) for instance in backend.list_instances()]
    for _ in range(3):
        a_second_later(host)
        source.cut()
        live.append(backend.read_counters())
    source.save(tmp_path / "xen.json", backend=backend.name, host=backend.host, note="a fake Dom0")
    replayed = RecordedBackend(tmp_path / "xen.json")
    again = [replayed.read_counters()]
    assert [replayed.read_isolation(instance) for instance in replayed.list_instances()] == isolation
    again += [replayed.read_counters() for _ in range(3)]
    assert again == live
    replayed.close()


def test_the_trace_lags_behind_the_reading_by_a_constant(host: XenHost) -> None:
    backend = backend_on(host)
    dom0 = []
    for _ in range(4):
        driver = backend.read_counters().driver
        assert driver is not None
        dom0.append(driver.tasks["d0v0"].run_ns / 1e9)
        a_second_later(host)
    begin = 9.0
    assert dom0[0] == pytest.approx(10.0 - begin - LAG_S, abs=0.11)  # the newest record is up to 0.1 s old
    assert [round(b - a, 3) for a, b in itertools.pairwise(dom0)] == [1.0, 1.0, 1.0]
    assert IDLE not in backend.read_counters().instances
