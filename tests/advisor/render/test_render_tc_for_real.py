"""Rendered tc commands in the kernel: a guest and the outside world joined by a bridge, as on a Xen or KVM host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pytest

from advisor.domain import Command
from advisor.render import commands, plan
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.physics.prior import solve
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings
from tests.advisor.render.render_machine import do, need, run, undo

pytestmark = pytest.mark.lab

MAC, OTHER_MAC = "52:54:00:ab:cd:01", "52:54:00:ab:cd:02"
HOST = Host("h1", "xen", pcpus=2, memory_mb=4096, nic_mbit=1000, labels={"uplink": "up0"})
GUEST = Instance("shop-7", labels={"mac": MAC})
OTHER = Instance("bulk", labels={"mac": OTHER_MAC})
OUTSIDE = "10.99.7.2"
FRAME, PAYLOAD = 1514, 1448  # bytes of a full TCP segment with time stamps


@dataclass(frozen=True)
class Bench:
    """Four network namespaces: two guests - vifs - bridge - uplink - outside."""

    host: str
    guest: str
    other: str
    outside: str

    @classmethod
    def build(cls) -> Bench:
        bench = cls(*(f"cotenant-{part}-{os.getpid()}" for part in ("host", "guest", "other", "out")))
        for name in (bench.host, bench.guest, bench.other, bench.outside):
            run("ip", "netns", "add", name)
        run("ip", "-n", bench.host, "link", "add", "br0", "type", "bridge")
        for port, peer in (("vif3.0", bench.guest), ("vif4.0", bench.other), ("up0", bench.outside)):
            run("ip", "-n", bench.host, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", peer)
            run("ip", "-n", bench.host, "link", "set", port, "master", "br0", "up")
        run("ip", "-n", bench.host, "link", "set", "br0", "up")
        for name, mac in ((bench.guest, MAC), (bench.other, OTHER_MAC)):
            run("ip", "-n", name, "link", "set", "eth0", "address", mac)
        for name, address in ((bench.guest, "10.99.7.1"), (bench.other, "10.99.7.3"), (bench.outside, OUTSIDE)):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        return bench

    def remove(self) -> None:
        for name in (self.guest, self.other, self.outside, self.host):
            run("ip", "netns", "del", name, check=False)

    def dump(self) -> object:
        """Everything that tc has to say about the host's devices, without what the kernel numbers or counts."""
        shown = [json.loads(run("tc", "-j", "qdisc", "show", inside=self.host))]
        for device in ("up0", "vif3.0", "vif4.0"):
            # `tc -j class show` of iproute2 6.1 prints HTB classes as text, so the text is what is compared
            shown.append(sorted(run("tc", "class", "show", "dev", device, inside=self.host).splitlines()))
            shown.append(run("tc", "filter", "show", "dev", device, inside=self.host).splitlines())
        for qdisc in shown[0]:
            for moving in ("direct_packets_stat", "refcnt"):
                qdisc.pop(moving, None)
                qdisc["options"].pop(moving, None)
        return shown

    def mbit(self, *, towards_guest: bool = False) -> float:
        """Rate of TCP's frames between guest and outside over 2 s, which is what tc limits, by what arrives."""
        return self.mbits(self.guest, towards_guest=towards_guest)[0]

    def mbits(self, *guests: str, towards_guest: bool = False) -> list[float]:
        """The same for several guests at the same time."""
        with contextlib.ExitStack() as stack:
            ports = [str(5201 + at) for at in range(len(guests))]
            for port in ports:
                stack.enter_context(_process("iperf3", "-s", "-1", "-p", port, inside=self.outside))
            for _ in range(50):
                time.sleep(0.05)
                listening = run("ss", "-Htln", inside=self.outside)
                if all(f":{port}" in listening for port in ports):
                    break
            argv = ["-t", "2", "-O", "1", "-J", *(["-R"] if towards_guest else [])]
            clients = [
                stack.enter_context(_process("iperf3", "-c", OUTSIDE, "-p", port, *argv, inside=guest))
                for guest, port in zip(guests, ports, strict=True)
            ]
            answers = [json.loads(client.communicate(timeout=120)[0]) for client in clients]
            return [answer["end"]["sum_received"]["bits_per_second"] / 1e6 * FRAME / PAYLOAD for answer in answers]


@contextlib.contextmanager
def _process(*argv: str, inside: str) -> Iterator[subprocess.Popen[str]]:
    whole = ["ip", "netns", "exec", inside, *argv]
    process = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def bench() -> Iterator[Bench]:
    need("ip", "tc", "ss", "iperf3")
    built = Bench.build()
    try:
        _kernel_can(built)
        yield built
    finally:
        built.remove()


def _kernel_can(bench: Bench) -> None:
    try:
        run("tc", "qdisc", "add", "dev", "vif3.0", "root", "handle", "1:", "htb", inside=bench.host)
        run("tc", "qdisc", "del", "dev", "vif3.0", "root", inside=bench.host)
    except AssertionError as error:
        pytest.skip(f"this kernel has no HTB ({error})")


def _rendered(
    bench: Bench, now: NetworkSettings | None, then: NetworkSettings, guest: Instance = GUEST
) -> tuple[Command, ...]:
    before, after = IsolationSettings(network=now), IsolationSettings(network=then)
    return _plain_where_needed(bench, commands(HOST, guest, before, after, neighbours=()))


def _plain_where_needed(bench: Bench, rendered: tuple[Command, ...]) -> tuple[Command, ...]:
    """The leaf is a plain FIFO where the kernel was built without fq_codel."""

    def plain(argv: tuple[str, ...]) -> tuple[str, ...]:
        return tuple("pfifo" if part == "fq_codel" else part for part in argv)

    try:
        run("tc", "qdisc", "replace", "dev", "lo", "root", "fq_codel", inside=bench.guest)
    except AssertionError:
        return tuple(replace(one, argv=plain(one.argv), undo=plain(one.undo)) for one in rendered)
    return rendered


@pytest.mark.measured
def test_a_dedicated_class_holds_what_the_guest_sends_to_its_rate_and_leaves_what_it_receives_alone(
    bench: Bench,
) -> None:
    rendered = _rendered(bench, None, NetworkSettings("dedicated", 100))
    before = bench.dump()
    do(rendered, bench.host)
    assert bench.mbit() == pytest.approx(100, rel=0.10)
    assert bench.mbit(towards_guest=True) > 500
    undo(rendered, bench.host)
    assert bench.dump() == before


@pytest.mark.measured
def test_a_shared_class_borrows_up_to_its_ceil(bench: Bench) -> None:
    rendered = _rendered(bench, None, NetworkSettings("shared", 50, 300), replace(GUEST, service="latency"))
    do(rendered, bench.host)
    assert bench.mbit() == pytest.approx(300, rel=0.10)


@pytest.mark.measured
def test_changing_a_class_and_undoing_it_restores_the_former_class(bench: Bench) -> None:
    now, then = NetworkSettings("dedicated", 50), NetworkSettings("dedicated", 200)
    do(_rendered(bench, None, now), bench.host)
    before = bench.dump()
    change = _rendered(bench, now, then)
    do(change, bench.host)
    assert bench.mbit() == pytest.approx(200, rel=0.10)
    undo(change, bench.host)
    assert bench.dump() == before


def test_the_last_instance_to_leave_takes_the_tree_along_and_undo_brings_everything_back(bench: Bench) -> None:
    empty = bench.dump()
    now = NetworkSettings("shared", 100, 400)
    do(_rendered(bench, None, now), bench.host)
    before = bench.dump()
    leaving = _rendered(bench, now, NetworkSettings("none"))
    do(leaving, bench.host)
    assert bench.dump() == empty
    undo(leaving, bench.host)
    assert bench.dump() == before


@pytest.mark.measured
def test_a_latency_instance_is_served_what_is_left_over_before_the_others(bench: Bench) -> None:
    """Of a line of 200 Mbit/s both have 40 for certain; of the 120 that no other instance asks for the bulk sender gets
    what the latency instance leaves, which asks for everything, too."""
    host = replace(HOST, nic_mbit=200)
    shop, bulk = (NetworkSettings("shared", 40, 200), NetworkSettings("shared", 40, 200))
    before = bench.dump()
    guest, changes = replace(GUEST, service="latency"), {OTHER.id: IsolationSettings(network=bulk)}
    made = _plain_where_needed(bench, plan(host, guest, IsolationSettings(network=shop), (OTHER,), changes))
    do(made, bench.host)
    first, second = bench.mbits(bench.guest, bench.other)
    assert first == pytest.approx(160, rel=0.10)
    assert second == pytest.approx(40, rel=0.15)
    (alone,) = bench.mbits(bench.other)
    assert alone == pytest.approx(200, rel=0.10)  # and nothing is wasted
    undo(made, bench.host)
    assert bench.dump() == before


@pytest.mark.measured
def test_beside_a_sender_without_a_class_the_tree_keeps_what_the_prior_says(bench: Bench) -> None:
    """On a line that is the bottleneck itself, as a network card is: a bucket of 200 Mbit/s around the whole tree.

    A class of half of the line has it; beside one of three quarters both get less than they were promised, but for a
    latency instance, which is served first.
    """
    host, table = replace(HOST, nic_mbit=200), ProfileTable.build([WorkloadProfile("bulk", {"net_mbit": 1000.0})])
    services: tuple[Literal["throughput", "latency"], ...] = ("throughput", "throughput", "latency")
    for service, promised in zip(services, (100.0, 150.0, 150.0), strict=True):
        shaped = IsolationSettings(network=NetworkSettings("dedicated", promised))
        guest = replace(GUEST, service=service, workload="bulk")
        made = _plain_where_needed(bench, plan(host, guest, shaped, (OTHER,), {}))
        root, *others = [one for one in made if one.argv]
        _line(bench, 200)
        within = [("parent", "8:1") if part == "root" else (part,) for part in root.argv]
        do([replace(root, argv=tuple(part for parts in within for part in parts)), *others], bench.host)
        mine, theirs = bench.mbits(bench.guest, bench.other)
        there = [replace(guest, settings=shaped), replace(OTHER, workload="bulk")]
        said = solve(build_batch([(host, there)], table)).throughput[0]
        assert mine / (mine + theirs) == pytest.approx(said[0] / said.sum(), abs=0.1)
        assert mine + theirs == pytest.approx(200, rel=0.10)
        run("tc", "qdisc", "del", "dev", "up0", "root", inside=bench.host)


def _line(bench: Bench, mbit: int) -> None:
    bucket = ("rate", f"{mbit}mbit", "burst", "32kb", "latency", "50ms")
    run("tc", "qdisc", "add", "dev", "up0", "root", "handle", "8:", "tbf", *bucket, inside=bench.host)


@pytest.mark.measured
def test_a_plan_that_gives_one_s_class_to_another_leaves_the_tree_in_place_and_undo_brings_it_back(
    bench: Bench,
) -> None:
    shaped = IsolationSettings(network=NetworkSettings("dedicated", 100))
    do(_rendered(bench, None, NetworkSettings("dedicated", 100), OTHER), bench.host)
    before = bench.dump()
    free = {OTHER.id: IsolationSettings(network=NetworkSettings())}
    made = _plain_where_needed(bench, plan(HOST, GUEST, shaped, (replace(OTHER, settings=shaped),), free))
    do(made, bench.host)
    assert bench.mbit() == pytest.approx(100, rel=0.10)
    assert bench.mbits(bench.other)[0] > 300  # by the class of the rest, up to the line
    undo(made, bench.host)
    assert bench.dump() == before
    assert bench.mbits(bench.other)[0] == pytest.approx(100, rel=0.10)


def test_a_qdisc_of_another_program_on_the_uplink_is_not_overwritten(bench: Bench) -> None:
    _line(bench, 1000)
    before = bench.dump()
    with pytest.raises(AssertionError, match="qdisc add"):
        do(_rendered(bench, None, NetworkSettings("dedicated", 100)), bench.host)
    assert bench.dump() == before
