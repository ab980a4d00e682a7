"""The lab's own parts, where no Xen is needed: the wire to Dom0, sources of packages, witnesses."""

from __future__ import annotations

import importlib.util
import json
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from lab.emulated_xen.dom0_channel import Dom0Channel, Dom0Error
from lab.emulated_xen.machine import FILES, XenMachine
from lab.emulated_xen.parts import machine_sources
from tests.xen.xen_lab import Lab
from tests.xen.xen_scene import Guest
from tests.xen.xen_witness import GuestTimes, Traced, Witness, guest_upcalls, list_seconds, ring_slots


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    spec = importlib.util.spec_from_file_location("xen_agent", FILES / "agent.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def channel(agent: ModuleType) -> Iterator[Dom0Channel]:
    """A channel to an agent that serves in a thread; the thread ends with the wire."""
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rb") as orders:
        serving = threading.Thread(target=agent.serve, args=(orders, theirs.fileno()))
        serving.start()
        with ours:
            made = Dom0Channel(ours)
            made.wait_ready(10)
            yield made
        serving.join(10)
        assert not serving.is_alive()


def test_a_command_that_aborts_is_run_again(channel: Dom0Channel, tmp_path: Path) -> None:
    once = tmp_path / "once"
    done = channel.run(["sh", "-c", f"test -e {once} || {{ touch {once}; kill -ABRT $$; }}; echo done"])
    assert (done.code, done.text) == (0, "done\n")


def test_a_command_gives_its_output_errors_and_code_unchanged(channel: Dom0Channel) -> None:
    given_bytes = bytes(range(256)) * 5000
    done = channel.run(["sh", "-c", "cat; echo oops >&2; exit 3"], given=given_bytes)
    assert (done.code, done.output, done.errors) == (3, given_bytes, "oops\n")
    with pytest.raises(Dom0Error, match="failed with 3: oops"):
        done.checked()


@pytest.mark.measured
def test_commands_do_not_wait_for_each_other(channel: Dom0Channel) -> None:
    slow = channel.start(["sleep", "1"])
    began = time.monotonic()
    assert channel.run(["echo", "quick"]).text == "quick\n"
    assert time.monotonic() - began < 0.9
    assert channel.wait(slow).code == 0


def test_a_command_that_takes_too_long_is_killed_and_says_so(channel: Dom0Channel) -> None:
    done = channel.run(["sleep", "60"], timeout_s=0.2)
    assert done.code is None
    assert "too long" in done.errors


def test_a_program_that_is_not_there_is_an_answer(channel: Dom0Channel) -> None:
    done = channel.run(["no-such-program"])
    assert done.code is None
    assert "no-such-program" in done.errors


def test_a_snapshot_keeps_what_each_look_gave_and_how_long_the_trace_was(channel: Dom0Channel, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"12345")
    (tmp_path / "file").write_text("said")
    looks = [("read", str(tmp_path / "file")), ("names", str(tmp_path)), ("read", str(tmp_path / "nothing"))]
    channel.snapshot(looks, str(tmp_path / "trace"), str(tmp_path / "kept"))
    kept = json.loads(channel.fetch(str(tmp_path / "kept")))
    assert (kept["size"], kept["found"]) == (5, [{"found": "said"}, {"found": []}, {"errno": 2}])


def test_a_part_that_arrives_garbled_is_asked_for_again(
    channel: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 200
    (tmp_path / "file").write_bytes(content)
    arrived = channel._line
    wrong: list[Callable[[bytes], bytes]] = [
        lambda line: line.replace(b'"crc32": ', b'"crc32": 1'), lambda line: line[:-9],
    ]  # fmt: skip
    monkeypatch.setattr(channel, "_line", lambda end: wrong.pop()(arrived(end)) if wrong else arrived(end))
    assert channel.fetch(str(tmp_path / "file")) == content
    assert channel.fetch(str(tmp_path / "file"), 20000) == content[:20000]


def test_a_part_that_never_arrives_whole_is_an_error(
    channel: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    arrived = channel._line
    monkeypatch.setattr(channel, "_line", lambda end: arrived(end)[:-9])
    with pytest.raises(Dom0Error, match="arrived garbled 5 times"):
        channel.fetch(str(tmp_path / "file"))


def test_a_machine_that_goes_away_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(Dom0Error, match="went away"):
            Dom0Channel(ours).wait_ready(5)


def test_a_machine_that_is_silent_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Dom0Error, match="no answer"):
        Dom0Channel(ours).wait_ready(0.1)


def test_packages_come_from_this_machines_sources_of_this_release_only(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# old\ndeb http://a.test/debian bookworm main\ndeb http://a.test/debian bookworm-security main\n"
        "deb http://b.test/x tools-bookworm main\ndeb-src http://a.test/debian bookworm main\n"
    )
    wanted = "Types: deb\nURIs: http://c.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
    other = "Types: deb\nURIs: http://d.test\nSuites: nodistro\nComponents: main\n"
    (tmp_path / "sources.list.d" / "c.sources").write_text(wanted + "\n" + other)
    one_line, deb822 = machine_sources(tmp_path, "bookworm")
    assert one_line.splitlines() == [
        "deb http://a.test/debian bookworm main",
        "deb http://a.test/debian bookworm-security main",
    ]
    assert deb822.strip() == wanted.strip()


def test_a_machine_without_sources_of_this_release_gives_none(tmp_path: Path) -> None:
    assert machine_sources(tmp_path, "bookworm") == []


RING = "TX: nr_ents 256\nreq prod 9 (0) cons {tx} (0) event 1 (1)\n\nRX: nr_ents 256\nreq prod 9 (0) cons {rx} (0)\n"
LIST = "Name       ID   Mem VCPUs\tState\tTime(s)\nDomain-0   0   640     1     r-----      {dom0}\n"


def sampled(time_s: float, tx: int, rx: int, upcalls: int) -> str:
    interrupts = (
        f"  CPU0\n 24: 99 xen-percpu -virq timer0\n 42: {upcalls} xen-dyn-lateeoi -event vif1.0-q0-tx\nERR: 0\n"
    )
    ring = {"/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0": RING.format(tx=tx, rx=rx)}
    files = {"/proc/interrupts": interrupts, **ring}
    return json.dumps({"time_s": time_s, "list_time_s": time_s + 1, "files": files, "list": LIST.format(dom0=time_s)})


def test_a_witness_gives_rates_between_its_samples() -> None:
    witness = Witness.parse("\n".join([sampled(10, 100, 50, 0), sampled(20, 200, 60, 30), sampled(30, 1200, 70, 60)]))
    assert witness.rate(ring_slots("vif1.0"), 12, 18) == pytest.approx(11)
    assert witness.rate(ring_slots("vif1.0"), 20, 25) == pytest.approx(101)
    assert witness.rate(ring_slots("vif2.0"), 12, 18) == 0
    assert witness.rate(guest_upcalls, 15, 25) == pytest.approx(3)
    assert witness.rate(list_seconds("Domain-0"), 15, 25) == pytest.approx(1)


@pytest.mark.parametrize("window", [(5, 15), (15, 35)])
def test_a_witness_does_not_speak_of_times_it_has_not_seen(window: tuple[float, float]) -> None:
    witness = Witness.parse("\n".join([sampled(10, 0, 0, 0), sampled(30, 0, 0, 0)]))
    with pytest.raises(ValueError, match="outside the samples"):
        witness.rate(guest_upcalls, *window)


def test_a_guest_counts_stolen_and_idle_time_in_ticks_of_10_ms() -> None:
    text = "{up} {idle}\ncpu  100 0 100 {idle_ticks} 50 0 0 {stolen} 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    before = GuestTimes.parse(text.format(up=10.0, idle=1.0, idle_ticks=100, stolen=200))
    after = GuestTimes.parse(text.format(up=20.0, idle=5.0, idle_ticks=500, stolen=700))
    assert after.idle_percent(before) == pytest.approx(40)
    assert after.stolen_percent(before) == pytest.approx(50)


SUMMARY = """Total time: 5.00 seconds (using cpu speed 2.25 GHz)
|-- Domain 1 --|
 Runstates:
   blocked:      42  4.90s 262757395 {350256195|566237790|708391350}
  full run:     196  2.47s 67824143 {67614795|67669853|71601660}
-- v0 --
 Runstates:
   running:     196  2.47s 67824143 {67614795|67669853|71601660}
  runnable:      82  2.45s 67789417 {67604872|67654597|69362887}
        wake:      42  0.00s 144516 { 75960|160403|214785}
|-- Domain 32767 --|
-- v0 --
 Runstates:
   running:     160  4.92s 67506530 {36000382|179046990|224481082}
  runnable:     163  0.07s 1025209 {352912|1985850|3212302}
-- v1 --
 Runstates:
   running:       1  0.07s 1025209 {352912|1985850|3212302}
  runnable:       5  0.01s 1025209 {352912|1985850|3212302}
"""


def test_a_summary_of_xenalyze_is_read_per_domain_and_run_state() -> None:
    traced = Traced.parse(SUMMARY)
    assert traced.percent(1, "running") == pytest.approx(49.4)
    assert traced.percent(1, "runnable") == pytest.approx(49)
    assert traced.executions_per_s(1) == pytest.approx(82 / 5)
    assert traced.executions_per_s() == pytest.approx((82 + 163 + 5) / 5)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl, as the lab does")
def test_a_guest_whose_server_answers_nothing_several_times_is_asked_again() -> None:
    stat = "9.00 5.00\ncpu  1 0 1 5 0 0 0 0 0 0\n"
    page = f"HTTP/1.0 200 OK\r\nContent-Length: {len(stat)}\r\n\r\n{stat}".encode()
    asked: list[bytes] = []

    def answer(listener: socket.socket) -> None:
        while len(asked) <= 5:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.recv(4096))
                connection.sendall(page if len(asked) > 5 else b"")

    lab = Lab.__new__(Lab)  # without a machine: its clients run here
    lab._machine = cast("XenMachine", SimpleNamespace(client=lambda argv: argv))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        guest = Guest("vm1", 1, f"127.0.0.1:{listener.getsockname()[1]}")
        assert lab._fetch(guest, "/cgi-bin/stat") == stat
    assert len(asked) == 6
