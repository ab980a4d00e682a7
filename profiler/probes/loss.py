"""Probe loss: Badabing's loss frequency and duration beside the plain loss of its probes (EC2NET §VI, E5)."""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from profiler.pictures import BAD, Figure, label, legend, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress
from profiler.probes.congestion_marking import ALPHA, TAU_S
from profiler.probes.datagrams import GapWatch, wait_until
from profiler.probes.loss_estimator import PROBABILITY, SLOT_MS, draw, probed_slots
from profiler.probes.loss_report import SentPackets, judge, read_report
from profiler.probes.options import above, count
from profiler.probes.services.loss_sink import HEADER, LEAST_BYTES, MOST_PACKETS

_SECONDS = 60.0  # per test of the paper's campaign
_PACKETS = 3
_PACKET_BYTES = 600


class LossProbe:
    """Sends probes in the slots of drawn experiments and judges each slot by losses and one-way delays."""

    name = "loss"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("--seconds", type=above(0.05, 7000), default=_SECONDS, metavar="S", help=f"how long ({_SECONDS:g})")
        add("--slot-ms", type=above(0.2, 1000), default=SLOT_MS, metavar="MS", help=f"length of a slot ({SLOT_MS:g})")
        add(
            "--probability",
            type=above(0, 1),
            default=PROBABILITY,
            metavar="P",
            help="probability of an experiment per slot (0.3)",
        )
        add("--packets", type=count(10), default=_PACKETS, metavar="N", help=f"per probe ({_PACKETS})")
        add(
            "--packet-bytes",
            type=count(1472, LEAST_BYTES),
            default=_PACKET_BYTES,
            metavar="N",
            help="payload of a packet (600)",
        )
        add(
            "--tau-ms",
            type=above(0, 10_000),
            default=TAU_S * 1e3,
            metavar="MS",
            help="a loss within this time of a slot counts (50)",
        )
        add(
            "--alpha",
            type=above(0, 0.999),
            default=ALPHA,
            metavar="A",
            help="a delay above 1 - A of the delay before the latest loss counts (0.005)",
        )
        add(
            "--drop-one-in",
            type=count(MOST_PACKETS),
            metavar="N",
            help="the far end drops one packet in N, a known loss to judge the estimate by",
        )
        add(
            "--algorithm",
            choices=("improved", "basic"),
            default="improved",
            help="improved: with three-slot experiments",
        )

    def run(self, options: argparse.Namespace, progress: Progress) -> ProbeRun:
        slots = round(options.seconds * 1e3 / options.slot_ms)
        if slots < 3 or slots * options.packets > MOST_PACKETS:
            raise ProbeError(f"{slots} slots with {options.packets} packets are too few or too many: change --seconds")
        experiments = draw(slots, options.probability, random.getrandbits(64), improved=options.algorithm == "improved")
        if not experiments:
            raise ProbeError("no experiment was drawn in so short a time: raise --seconds or --probability")
        far = {"packet_bytes": options.packet_bytes, "drop_one_in": options.drop_one_in or 0}
        with options.peer.open("loss_sink", far) as session:
            with session.datagrams() as end, GapWatch() as watch:
                sent = _send(end, probed_slots(experiments), options, progress)
                near = watch.summary()
            answer, block = session.ask({"do": "report"})
        if not sent:
            raise ProbeError("stopped before the first probe was sent")
        return judge(experiments, sent, read_report(answer, block), near, options)

    def draw(self, run: ProbeRun) -> Figure:
        """Delays and the largest delay as estimated, as in EC2NET Fig. 11; congested slots in red."""
        column = {name: list(cells) for name, cells in run.series.columns.items()}
        figure, (axes,) = new_figure(1, width=7.0)
        at, delays = column["sent_s"], column["delay_ms"]
        arrived = [(float(x), float(y)) for x, y in zip(at, delays, strict=True) if x is not None and y is not None]
        over_time(axes, [x for x, _ in arrived], [y for _, y in arrived], "ms", "One-way delay above the smallest")
        red = [(x, y) for x, y, bad in zip(at, delays, column["congested"], strict=True) if bad and y is not None]
        axes.plot([x for x, _ in red], [y for _, y in red], ".", color=BAD, markersize=2.5, label="counted as lossy")
        steps = [(x, y) for x, y in zip(at, column["largest_delay_ms"], strict=True) if y is not None]
        axes.step([x for x, _ in steps], [y for _, y in steps], where="post", color="#000", label="largest delay")
        label(axes, "One-way delay above the smallest", "time (s)", "ms")
        legend(axes)
        return figure


def _send(end: Any, slots: tuple[int, ...], options: argparse.Namespace, progress: Progress) -> list[SentPackets]:
    packet = bytearray(options.packet_bytes)
    length = int(options.slot_ms * 1e6)
    sent: list[SentPackets] = []
    progress.begin(options.seconds, "s")
    begin = time.monotonic_ns() + length
    try:
        with progress.interruptible():
            for place, slot in enumerate(slots):
                if progress.stopped:
                    break
                due = begin + slot * length
                wait_until(due)
                late, times = time.monotonic_ns() - due, []
                for step in range(options.packets):
                    HEADER.pack_into(packet, 0, place * options.packets + step)
                    times.append(time.time_ns())
                    end.send(packet)
                sent.append(SentPackets(slot, tuple(times), late))
                if not place % 256:
                    progress.update(slot * options.slot_ms / 1e3)
    except OSError as error:
        raise ProbeError(f"the responder cannot be reached any more: {error.strerror}") from None
    return sent


PROBE = LossProbe()
