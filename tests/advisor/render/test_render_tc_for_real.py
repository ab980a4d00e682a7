"""Rendered tc commands in the kernel: a guest and the outside world joined by a bridge, as on a Xen or KVM host."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from render_machine import do, need, run, undo

from advisor.domain import Command
from advisor.render import commands
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings

pytestmark = pytest.mark.lab

MAC = "52:54:00:ab:cd:01"
HOST = Host("h1", "xen", pcpus=2, memory_mb=4096, nic_mbit=1000, labels={"uplink": "up0"})
GUEST = Instance("shop-7", labels={"mac": MAC})
OUTSIDE = "10.99.7.2"
FRAME, PAYLOAD = 1514, 1448  # bytes of a full TCP segment with time stamps


@dataclass(frozen=True)
class Bench:
    """Three network namespaces: guest - vif - bridge - uplink - outside."""

    host: str
    guest: str
    outside: str

    @classmethod
    def build(cls) -> Bench:
        bench = cls(*(f"cotenant-{part}-{os.getpid()}" for part in ("host", "guest", "out")))
        for name in (bench.host, bench.guest, bench.outside):
            run("ip", "netns", "add", name)
        run("ip", "-n", bench.host, "link", "add", "br0", "type", "bridge")
        for port, peer in (("vif3.0", bench.guest), ("up0", bench.outside)):
            run("ip", "-n", bench.host, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", peer)
            run("ip", "-n", bench.host, "link", "set", port, "master", "br0", "up")
        run("ip", "-n", bench.host, "link", "set", "br0", "up")
        run("ip", "-n", bench.guest, "link", "set", "eth0", "address", MAC)
        for name, address in ((bench.guest, "10.99.7.1"), (bench.outside, OUTSIDE)):
            run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        return bench

    def remove(self) -> None:
        for name in (self.guest, self.outside, self.host):
            run("ip", "netns", "del", name, check=False)

    def dump(self) -> object:
        """Everything that tc has to say about the host's devices, without what the kernel numbers or counts."""
        shown = [json.loads(run("tc", "-j", "qdisc", "show", inside=self.host))]
        for device in ("up0", "vif3.0"):
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
        server = subprocess.Popen(
            ["ip", "netns", "exec", self.outside, "iperf3", "-s", "-1"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            for _ in range(50):
                time.sleep(0.05)
                if ":5201" in run("ss", "-Htln", inside=self.outside):
                    break
            reverse = ["-R"] if towards_guest else []
            text = run("iperf3", "-c", OUTSIDE, "-t", "2", "-O", "1", "-J", *reverse, inside=self.guest)
            payload = float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e6
            return payload * FRAME / PAYLOAD
        finally:
            server.kill()
            server.wait()


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
    """The commands as rendered; the leaf is a plain FIFO where the kernel was built without fq_codel."""
    rendered = commands(HOST, guest, IsolationSettings(network=now), IsolationSettings(network=then), neighbours=())
    try:
        run("tc", "qdisc", "replace", "dev", "lo", "root", "fq_codel", inside=bench.guest)
    except AssertionError:
        return tuple(replace(one, argv=_plain(one.argv), undo=_plain(one.undo)) for one in rendered)
    return rendered


def _plain(argv: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("pfifo" if part == "fq_codel" else part for part in argv)


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


def test_a_shared_class_borrows_up_to_its_ceil(bench: Bench) -> None:
    rendered = _rendered(bench, None, NetworkSettings("shared", 50, 300), replace(GUEST, service="latency"))
    do(rendered, bench.host)
    assert bench.mbit() == pytest.approx(300, rel=0.10)


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


def test_a_qdisc_that_somebody_else_has_set_on_the_uplink_is_not_overwritten(bench: Bench) -> None:
    run(
        "tc",
        "qdisc",
        "add",
        "dev",
        "up0",
        "root",
        "tbf",
        "rate",
        "1gbit",
        "burst",
        "1mb",
        "latency",
        "1ms",
        inside=bench.host,
    )
    before = bench.dump()
    with pytest.raises(AssertionError, match="qdisc add"):
        do(_rendered(bench, None, NetworkSettings("dedicated", 100)), bench.host)
    assert bench.dump() == before
