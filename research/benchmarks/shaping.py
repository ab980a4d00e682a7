"""How well the lab's uplink keeps its rates: iperf3 through its own network, as one line and in HTB classes.

    python -m research.benchmarks.shaping [--json FILE] [--rates 1,10,100,1000] [--repeats 3] [--seconds 3]

`line` is an instance without shaping on a line of that rate, `dedicated` one with a class of that rate, `shared` two
on a link of that rate, the first with a third of it guaranteed and the second with two thirds, both sending. Rates are
read where the load generators are, after a warm-up and while everything still sends, so neither a first burst nor a
queue that drains counts: `payload` is what iperf3's receivers got, `frames` is what the uplink sent (Ethernet frames
without preamble and checksum, as tc counts). Repeats are interleaved, in a random order of their own. Root is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from lab.campaign import Member
from lab.control_groups import GroupMaker
from lab.instances import RunSetup
from lab.instances.containers import ContainerInstances, LabContainer
from lab.processes import LabProcess, call, wait_until
from lab.resource_registry import ResourceRegistry, clean
from lab.schedule import PlacedMember
from lab.workloads import CpuWorkload
from profiler.observed import MAX_WEIGHT, IsolationSettings, NetworkSettings

STATE = Path("/run/cotenant-benchmark")  # its own list: a lab run beside is no reason to refuse, and never cleaned here
TOLERANCE = 0.10
Mode = Literal["line", "dedicated", "shared"]
MODES: tuple[Mode, ...] = ("line", "dedicated", "shared")
_PORT = 5201
_OFFERED = 1.1  # UDP is sent at this much of the limit
_DATAGRAM, _FRAME = 1472, 1514  # bytes; the one fills the other
_STREAM_MBIT = (
    10  # a socket's buffer holds 92 such datagrams: at 100 Mbit/s a receiver that is off for 11 ms loses some
)
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
    """Mbit/s of all senders together; `offered` counts what was dropped too, `first` is one sender's payload part."""

    payload_mbit: float
    frames_mbit: float
    offered_mbit: float
    first: float


@dataclass(frozen=True, slots=True)
class _Uplink:
    """What left by the uplink so far, what was dropped before it, and when that was."""

    at_s: float
    bytes: int
    dropped: int

    @classmethod
    def read(cls, registry: ResourceRegistry) -> _Uplink:
        begin = time.monotonic()
        shown = call(["tc", "-n", registry.network("switch"), "-s", "-j", "qdisc", "show", "dev", "uplink", "root"])
        root = json.loads(shown)[0]
        return cls((begin + time.monotonic()) / 2, int(root["bytes"]), int(root["drops"]))


def reach(
    case: ShapingCase, registry: ResourceRegistry, maker: GroupMaker, folder: Path, seconds: float, warmup_s: float
) -> ShapingResult:
    """Send through a network made for it; LabError when something cannot be made, RuntimeError without a result."""
    senders = [_placed(position, net) for position, net in enumerate(case.settings)]
    setup = RunSetup(
        registry, tuple(senders), tuple(CpuWorkload() for _ in senders), folder,  # of the workload nothing is started
        link_mbit=case.rate_mbit if case.mode == "shared" else None,
        line_mbit=case.rate_mbit if case.mode == "line" else None,
    )  # fmt: skip
    with ContainerInstances(setup, maker) as containers:
        ends = [end for container in containers.running for end in _pair(container, case)]
        receivers = ends[::2]
        time.sleep(warmup_s)
        before, first = [len(_goodput(end, case.streams)) for end in receivers], _Uplink.read(registry)
        time.sleep(seconds)
        second = _Uplink.read(registry)
        got = [_goodput(end, case.streams)[skipped:] for end, skipped in zip(receivers, before, strict=True)]
        complaints = [end.errors() for end in ends if end.returncode is not None]
        for end in ends:
            end.stop(patience_s=0)
    if complaints or not all(got):
        raise RuntimeError(f"{case}: iperf3 gave no rate: {'; '.join(complaints)}")
    payload = [statistics.fmean(rates) / 1000 for rates in got]
    if not sum(payload):
        raise RuntimeError(f"{case}: nothing arrived")
    to_mbit = 8 / 1e6 / (second.at_s - first.at_s)
    frames, dropped = (second.bytes - first.bytes) * to_mbit, (second.dropped - first.dropped) * _FRAME * to_mbit
    return ShapingResult(sum(payload), frames, frames + dropped, payload[0] / sum(payload))


def _placed(position: int, net: NetworkSettings | None) -> PlacedMember:
    # Shaping is judged, not who gets the CPU beside other programs of this host: hence the greatest weight.
    member = Member("sender", "sender", 1.0, 1, IsolationSettings(network=net, weight=MAX_WEIGHT))
    return PlacedMember(f"sender.{position + 1}", member, tuple(sorted(os.sched_getaffinity(0))), None, "none")


def _pair(container: Any, case: ShapingCase) -> Iterator[LabProcess]:
    """A receiver beside the generators and a sender in the instance."""
    assert isinstance(container, LabContainer)
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


def main() -> None:
    """Print a table; also the single values, as JSON, where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1,10,100,1000", help="Mbit/s (1,10,100,1000)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warmup", type=float, default=1.2, help="seconds (1.2)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rates = [float(rate) for rate in options.rates.split(",")]
    cases = [ShapingCase(mode, rate, how) for rate in rates for mode in MODES for how in ("tcp", "udp")]
    results: dict[ShapingCase, list[ShapingResult]] = {case: [] for case in cases}
    clean(STATE)
    registry, maker = ResourceRegistry(STATE), GroupMaker()
    maker.prepare()
    try:
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(options.repeats):
                for case in random.Random(repeat).sample(cases, len(cases)):
                    reached = reach(case, registry, maker, Path(folder), options.seconds, options.warmup)
                    results[case].append(reached)
    finally:
        registry.close()
    Console(width=150).print(_table(results))
    if options.json:
        options.json.write_text(json.dumps(_document(results), indent=1) + "\n", encoding="utf-8")


def _table(results: dict[ShapingCase, list[ShapingResult]]) -> Table:
    table = Table(title="Mbit/s through the lab's uplink: median (lowest to highest)", box=None)
    for name in ("mode", "limit", "sent", "payload", "frames", "frames/limit", "first sender's part", "within 10 %"):
        table.add_column(name)
    for case, reached in results.items():
        payload, frames = ([getattr(one, name) for one in reached] for name in ("payload_mbit", "frames_mbit"))
        part = _range([one.first for one in reached]) if case.mode == "shared" else ""
        of_limit = f"{statistics.median(frames) / case.rate_mbit:.3f}"
        table.add_row(
            case.mode, f"{case.rate_mbit:g}", case.transport, _range(payload), _range(frames), of_limit, part,
            _verdict(case, reached),
        )  # fmt: skip
    return table


def _verdict(case: ShapingCase, reached: Sequence[ShapingResult]) -> str:
    """Of the worst repeat. A limit that a sender did not come near was not tried: UDP offers what its CPU can send."""
    near = case.rate_mbit * (1 - TOLERANCE)
    tried = [one for one in reached if case.transport == "tcp" or one.offered_mbit >= near]
    if not tried:
        most = max(one.offered_mbit for one in reached) / case.rate_mbit
        return f"not tried: at most {most:.0%} was offered"
    worst = max(abs(rate / case.rate_mbit - 1) for one in tried for rate in (one.payload_mbit, one.frames_mbit))
    some = "" if len(tried) == len(reached) else f" ({len(tried)} of {len(reached)} tried)"
    return ("yes" if worst <= TOLERANCE else f"no, {worst:.0%} off") + some


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"


def _document(results: dict[ShapingCase, list[ShapingResult]]) -> list[dict[str, Any]]:
    return [
        {
            "mode": case.mode, "limit_mbit": case.rate_mbit, "transport": case.transport, "repeat": repeat,
            "payload_mbit": round(one.payload_mbit, 5), "frames_mbit": round(one.frames_mbit, 5),
            "offered_mbit": round(one.offered_mbit, 5), "first_part": round(one.first, 4),
        }
        for case, reached in results.items() for repeat, one in enumerate(reached, 1)
    ]  # fmt: skip


if __name__ == "__main__":
    main()
