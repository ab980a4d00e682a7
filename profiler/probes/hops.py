"""Round-trip times to the first three hops (L3), by ICMP requests with a limited time to live."""

from __future__ import annotations

import argparse
import contextlib
import select
import time
from collections.abc import Sequence
from dataclasses import dataclass

from profiler.observed import Quantity
from profiler.pictures import Figure, cumulative, distribution, legend, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count, described
from profiler.probes.icmp import Icmp, IcmpAnswer
from profiler.probes.rtt import EchoProbe, round_trip

_ROUNDS, _EVERY_S = 100, 1.0
_HOPS = 3  # LATENCY section 3: the next immediate hop, and the sum of the first three
_WAIT_S = 1.0


@dataclass(frozen=True, slots=True)
class HopRound:
    """One probe to each hop: round-trip times in ms by hop, None = no answer, and who answered."""

    at_s: float
    rtt_ms: tuple[float | None, ...]
    senders: tuple[str, ...]
    arrived: int | None = None  # the hop that is the far end, or that says that it cannot be reached
    unreachable: bool = False  # it says so

    @property
    def sum_ms(self) -> float | None:
        """The sum over all hops as in the paper; unknown where one gave no answer."""
        known = [rtt for rtt in self.rtt_ms if rtt is not None]
        return sum(known) if len(known) == len(self.rtt_ms) else None


class Hops:
    """Jitter at the first hop comes from this machine's interface, jitter beyond it from the routers."""

    name = "hops"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        amount = parser.add_mutually_exclusive_group()
        amount.add_argument("--count", type=count(10**6), default=_ROUNDS, metavar="N", help=f"rounds ({_ROUNDS})")
        amount.add_argument("--seconds", type=above(0, 10**7), metavar="S", help="measure for this long instead")
        parser.add_argument(
            "--every", type=above(0.01, 86_400), default=_EVERY_S, metavar="S",
            help=f"start a round every S seconds ({_EVERY_S:g}; the paper: 300, for days)",
        )  # fmt: skip
        parser.add_argument("--hops", type=count(16), default=_HOPS, metavar="N", help=f"up to which hop ({_HOPS})")

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        rounds: list[HopRound] = []
        number = options.count if options.seconds is None else max(1, int(options.seconds / options.every))
        progress.begin(number, "rounds")
        first = time.monotonic()
        with contextlib.closing(Icmp(*options.peer.address())) as icmp, progress.interruptible():
            hops = options.hops
            while len(rounds) < number and not progress.stopped:
                rounds.append(probe_hops(icmp, len(rounds) * options.hops, hops, first))
                hops = min(hops, rounds[-1].arrived or hops)  # nothing lies behind the far end
                progress.update(len(rounds))
                if len(rounds) < number:
                    time.sleep(max(0.0, first + len(rounds) * options.every - time.monotonic()))
        if not rounds:
            raise ProbeError("stopped before the first round was over")
        path = " > ".join(_name(rounds, hop) for hop in range(hops))
        values, marks = summarise(rounds, hops, options.hops)
        columns = {f"hop{hop + 1}_ms": [_at(each, hop) for each in rounds] for hop in range(hops)}
        series = RawSeries({"at_s": [each.at_s for each in rounds], **columns})
        circumstances = {"by": f"ICMP ({icmp.how})", "path": path, "every": f"{options.every:g} s"}
        return ProbeRun(values, "hop1_median", series, circumstances, marks)

    def draw(self, run: ProbeRun) -> Figure:
        figure, (times, shares) = new_figure(2)
        names = [name for name in run.series.columns if name.startswith("hop")]
        known = {name: _known(run.series, name) for name in names}
        furthest = known[names[-1]]
        over_time(times, [at for at, _ in furthest], [rtt for _, rtt in furthest], "ms", f"Hop {len(names)}")
        rtts = {name.removesuffix("_ms"): [rtt for _, rtt in pairs] for name, pairs in known.items() if pairs}
        curves = [(name, cumulative(values)) for name, values in rtts.items()]
        distribution(shares, curves, "ms", "Distribution", log=True)
        legend(shares)
        return figure


def probe_hops(icmp: Icmp, base: int, hops: int, first: float) -> HopRound:
    """Send one probe to each hop, nearest first, each after the answer to the one before or a second of silence."""
    begin = time.monotonic() - first
    rtts: list[float | None] = []
    senders: list[str] = []
    arrived, unreachable = None, False
    for hop in range(1, hops + 1):
        sequence = (base + hop) & 0xFFFF
        sent = time.monotonic() - first
        probe = EchoProbe(sent, sent, time.time_ns())
        try:
            icmp.send(sequence, hop)
        except OSError as error:
            raise ProbeError(f"this host refuses to send: {error.strerror}") from None
        answer, seen_s = _wait(icmp, sequence, first)
        rtts.append(None if answer is None else round_trip(probe, seen_s, answer.kernel_ns)[0])
        senders.append("" if answer is None else answer.sender)
        if answer is not None and answer.kind != "exceeded":
            arrived, unreachable = hop, answer.kind == "unreachable"
            break
    return HopRound(begin, tuple(rtts), tuple(senders), arrived, unreachable)


def _wait(icmp: Icmp, sequence: int, first: float) -> tuple[IcmpAnswer | None, float]:
    poll = select.poll()
    poll.register(icmp.socket, select.POLLIN)  # poll reports queued errors always
    deadline = time.monotonic() + _WAIT_S
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1e3):
            seen = time.monotonic() - first
            for answer in icmp.receive():
                if answer.sequence == sequence:
                    return answer, seen
    return None, 0.0


def summarise(rounds: Sequence[HopRound], hops: int, wanted: int) -> tuple[dict[str, Quantity], tuple[str, ...]]:
    """Numbers by hop and of the sums; ProbeError when the first hop never answered."""
    values: dict[str, Quantity] = {}
    marks = []
    for hop in range(hops):
        known = [rtt for each in rounds if (rtt := _at(each, hop)) is not None]
        values |= described(known, "ms", prefix=f"hop{hop + 1}_")
        values[f"hop{hop + 1}_lost"] = Quantity(len(rounds) - len(known), "1")
        if not known:
            marks.append(f"hop {hop + 1} never answers: its router does not answer, or nothing comes back")
    if "hop1_median" not in values:
        raise ProbeError("the first hop gives no answer: its router does not send any, or a firewall drops it")
    values |= described([each.sum_ms for each in rounds if each.sum_ms is not None and len(each.rtt_ms) == hops], "ms",
                        prefix="sum_")  # fmt: skip
    values["hops"] = Quantity(hops, "1")
    if any(each.unreachable for each in rounds):
        marks.append("a router on the way says that the far end cannot be reached")
    elif hops < wanted:
        marks.append(f"the far end is hop {hops}, so the sum is of {hops} and not of {wanted}")
    return values, tuple(marks)


def _at(hop_round: HopRound, hop: int) -> float | None:
    return hop_round.rtt_ms[hop] if hop < len(hop_round.rtt_ms) else None


def _known(series: RawSeries, name: str) -> list[tuple[float, float]]:
    pairs = zip(series.columns["at_s"], series.columns[name], strict=True)
    return [(at, rtt) for at, rtt in pairs if isinstance(at, float) and isinstance(rtt, float)]


def _name(rounds: Sequence[HopRound], hop: int) -> str:
    """Who answered at this hop; several where the path changes, ? where none did."""
    names = sorted({each.senders[hop] for each in rounds if hop < len(each.senders)} - {""})
    return "|".join(names) or "?"


PROBE = Hops()
