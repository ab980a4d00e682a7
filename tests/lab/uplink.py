"""What arrives through the lab's uplink: iperf3 through its own network, as one line and in HTB classes.

`line` is an instance without shaping on a line of that rate, `dedicated` one with a class of that rate, `shared` two
on a link of that rate, the first with a third of it guaranteed and the second with two thirds, both sending. Rates are
read where the load generators are, after a warm-up and while everything still sends, so neither a first burst nor a
queue that drains counts: `payload` is what iperf3's receivers got, `frames` is what the uplink sent (Ethernet frames
without preamble and checksum, as tc counts).
"""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lab.campaign import Member
from lab.instances.containers import LabContainer
from lab.network import Wiring
from lab.processes import LabProcess, call, wait_until
from lab.schedule import PlacedMember
from profiler.observed import MAX_WEIGHT, IsolationSettings, NetworkSettings
from tests.lab.container_run import containers, switch_of

Mode = Literal["line", "dedicated", "shared"]
_PORT = 5201
_OFFERED = 1.1  # UDP is sent at this much of the limit
_DATAGRAM = 1472  # bytes; fills a frame
# A socket's buffer holds 92 such datagrams: at 100 Mbit/s a receiver that is off for 11 ms loses some.
_STREAM_MBIT = 10
_MOST_STREAMS = 12
_INTERVAL_S = 0.5
_GOODPUT = re.compile(r"(\[SUM\]|\[ *\d+\])\s+[\d.]+-[\d.]+\s+sec\s+[\d.]+ \w+\s+([\d.]+) Kbits/sec")


@dataclass(frozen=True, slots=True)
class ShapingCase:
    """One way to shape, with what is sent through it."""

    mode: Mode
    rate_mbit: float
    transport: Literal["tcp", "udp"]

    @property
    def settings(self) -> list[NetworkSettings | None]:
        """One entry per sender."""
        if self.mode == "line":
            return [None]
        if self.mode == "dedicated":
            return [NetworkSettings("dedicated", self.rate_mbit)]
        return [NetworkSettings("shared", self.rate_mbit * part / 3) for part in (1, 2)]

    @property
    def streams(self) -> int:
        """How many sockets a sender has."""
        return 1 if self.transport == "tcp" else min(_MOST_STREAMS, max(1, round(self.rate_mbit / _STREAM_MBIT)))


@dataclass(frozen=True, slots=True)
class ShapingResult:
    """Mbit/s of all senders together; `first` is one sender's payload part."""

    payload_mbit: float
    frames_mbit: float
    first: float


@dataclass(frozen=True, slots=True)
class _Uplink:
    """What left by the uplink so far, and when that was."""

    at_s: float
    bytes: int

    @classmethod
    def read(cls, switch: str) -> _Uplink:
        begin = time.monotonic()
        shown = call(["tc", "-n", switch, "-s", "-j", "qdisc", "show", "dev", "uplink", "root"])
        root = json.loads(shown)[0]
        return cls((begin + time.monotonic()) / 2, int(root["bytes"]))


def reach(case: ShapingCase, seconds: float, warmup_s: float) -> ShapingResult:
    """Send through a network made for it; LabError when something cannot be made, RuntimeError without a result."""
    senders = [_placed(position, net) for position, net in enumerate(case.settings)]
    link_mbit = case.rate_mbit if case.mode == "shared" else None
    line_mbit = case.rate_mbit if case.mode == "line" else None
    with containers(senders, wiring=Wiring(link_mbit, line_mbit)) as made:
        switch = switch_of(made)
        ends = [end for container in made for end in _pair(container, case)]
        receivers = ends[::2]
        time.sleep(warmup_s)
        before, first = [len(_goodput(end, case.streams)) for end in receivers], _Uplink.read(switch)
        time.sleep(seconds)
        second = _Uplink.read(switch)
        got = [_goodput(end, case.streams)[skipped:] for end, skipped in zip(receivers, before, strict=True)]
        complaints = [end.errors() for end in ends if end.returncode is not None]
        for end in ends:
            end.stop(patience_s=0)
    if complaints or not all(got):
        raise RuntimeError(f"{case}: iperf3 gave no rate: {'; '.join(complaints)}")
    payload = [statistics.fmean(rates) / 1000 for rates in got]
    if not sum(payload):
        raise RuntimeError(f"{case}: nothing arrived")
    frames = (second.bytes - first.bytes) * 8 / 1e6 / (second.at_s - first.at_s)
    return ShapingResult(sum(payload), frames, payload[0] / sum(payload))


def _placed(position: int, net: NetworkSettings | None) -> PlacedMember:
    # Shaping is judged, not who gets the CPU beside other programs of this host: hence the greatest weight.
    member = Member("sender", "sender", 1.0, 1, IsolationSettings(network=net, weight=MAX_WEIGHT))
    return PlacedMember(f"sender.{position + 1}", member, tuple(sorted(os.sched_getaffinity(0))), None, "none")


def _pair(container: LabContainer, case: ShapingCase) -> Iterator[LabProcess]:
    """A receiver beside the generators and a sender in the instance."""
    port = str(_PORT + container.site.position)
    command = ["iperf3", "-s", "-1", "-p", port, "-i", str(_INTERVAL_S), "-f", "k", "--forceflush"]
    receiver = LabProcess(
        command, groups=container.procs, network=container.generators, directory=container.site.directory
    )
    yield receiver
    if not wait_until(lambda: "Server listening" in receiver.output(), 5):
        raise RuntimeError(f"iperf3 does not listen: {receiver.errors()}")
    how: list[str] = []
    if case.transport == "udp":
        each_kbit = round(case.rate_mbit * _OFFERED * 1000 / case.streams)
        how = ["-u", "-b", f"{each_kbit}k", "-P", str(case.streams), "-l", str(_DATAGRAM)]
    yield container.start_inside(["iperf3", "-c", "10.77.0.1", "-p", port, "-t", "600", *how])


def _goodput(receiver: LabProcess, streams: int) -> list[float]:
    """kbit/s of every interval so far, of all streams together."""
    return [float(rate) for who, rate in _GOODPUT.findall(receiver.output()) if (who == "[SUM]") == (streams > 1)]
