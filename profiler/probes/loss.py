"""Probe loss: Badabing's loss frequency and duration beside the plain loss of its probes (EC2NET §VI, E5)."""

from __future__ import annotations

import argparse
import random
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiler.observed import Quantity
from profiler.pictures import BAD, Figure, label, legend, new_figure, over_time
from profiler.probes.base import ProbeError, ProbeRun, Progress, RawSeries, above, count
from profiler.probes.services import HEADER, LEAST_BYTES, MOST_PACKETS
from profiler.probes.sessions import FramingError, number, whole
from profiler.probes.throughput import GapWatch, unpack, wait_until

# Badabing's estimator: which slots to probe, and loss frequency and duration from what the probes saw.
#
# After Sommers, Barford, Duffield, Ron, "Improving accuracy in end-to-end packet loss measurement", SIGCOMM 2005.
# Time is cut into slots. At each slot an experiment starts with probability p: a basic one probes two slots in a row,
# an extended one three. Its outcome is one digit per slot, 1 = the slot was congested. With p1 the chance that an
# outcome with one digit set (01, 10, 001, 100) is seen as it is, and p2 the same of 11, 011, 110 (otherwise all zeros
# are seen):
#
# - frequency F = sum of first digits / experiments;
# - R counts basic outcomes 01, 10, 11 and S those of 01, 10: E[R] / E[S] = r (D - 1) / 2 + 1 with r = p2 / p1, so that
#   the basic algorithm, which takes r = 1, has duration D = 2 (R / S - 1) + 1 slots;
# - U counts extended outcomes 011, 110 and V those of 001, 100: as many episodes begin as end, so E[U] / E[V] = r, and
#   the improved algorithm has D = (2 V / U) (R / S - 1) + 1 slots.

SLOT_MS = 5.0  # defaults of the tool that EC2NET §VI used
PROBABILITY = 0.3
_EXTENDED_SHARE = 0.5  # the improved algorithm starts basic and extended experiments with equal chance


@dataclass(frozen=True, slots=True)
class Experiment:
    """Probes in `slots` consecutive slots (2 basic, 3 extended) from slot `first` on."""

    first: int
    slots: int

    def outcome(self, congested: Collection[int]) -> str:
        """One digit per slot; `congested` are the numbers of the slots seen congested."""
        return "".join("1" if slot in congested else "0" for slot in range(self.first, self.first + self.slots))


def draw(slots: int, probability: float, seed: int, *, improved: bool = True) -> tuple[Experiment, ...]:
    """The experiments of a run of `slots` slots; the same seed gives the same ones.

    Raises ValueError unless 0 < probability <= 1 and there are at least 3 slots.
    """
    if not 0 < probability <= 1 or slots < 3:
        raise ValueError(f"{slots} slots with probability {probability}: needs 3 slots and a probability in (0, 1]")
    dice = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    return tuple(
        Experiment(slot, 3 if improved and dice.random() < _EXTENDED_SHARE else 2)
        for slot in range(slots - 2)
        if dice.random() < probability
    )


def probed_slots(experiments: Iterable[Experiment]) -> tuple[int, ...]:
    """The slots that need a probe, in order; experiments that overlap share it."""
    return tuple(sorted({experiment.first + step for experiment in experiments for step in range(experiment.slots)}))


@dataclass(frozen=True, slots=True)
class LossEstimate:
    """Loss frequency (share of slots), mean duration of loss episodes in slots, and the numbers they rest on.

    None = the outcomes do not determine it. `asymmetry` is |#01 - #10| / (#01 + #10) and `violations` counts 010 and
    101: the assumptions hold when both are small (Sommers et al., validation of their estimates).
    """

    experiments: int
    frequency: float | None
    duration_slots: float | None
    duration_basic_slots: float | None
    asymmetry: float | None
    violations: int


def estimate(outcomes: Iterable[str]) -> LossEstimate:
    """Frequency and duration from the outcomes of all experiments, by the formulas on top of this module."""
    seen = Counter(outcomes)
    total = seen.total()
    first = sum(count for outcome, count in seen.items() if outcome.startswith("1"))
    changes = seen["01"] + seen["10"]  # S
    ratio = seen["11"] / changes if changes else None  # R / S - 1
    short, long = seen["001"] + seen["100"], seen["011"] + seen["110"]  # V, U
    return LossEstimate(
        experiments=total,
        frequency=first / total if total else None,
        duration_slots=2 * short / long * ratio + 1 if ratio is not None and short and long else None,
        duration_basic_slots=2 * ratio + 1 if ratio is not None else None,
        asymmetry=abs(seen["01"] - seen["10"]) / changes if changes else None,
        violations=seen["010"] + seen["101"],
    )


# Decides when a probed slot counts as congested: by lost packets, or delays close to those of losses.

TAU_S = 0.050  # defaults of EC2NET §VI
ALPHA = 0.005


@dataclass(frozen=True, slots=True)
class SlotProbe:
    """One probe: its slot, when it was sent (s), and the one-way delay (s) of each of its packets, None = lost.

    Delays may have any constant offset: the two ends' clocks need not agree (`above_smallest` takes it off).
    """

    slot: int
    sent_s: float
    delays_s: tuple[float | None, ...]

    @property
    def lost(self) -> int:
        """Packets of this probe that never arrived."""
        return self.delays_s.count(None)

    @property
    def delay_s(self) -> float | None:
        """The largest delay among the packets that arrived."""
        return max((delay for delay in self.delays_s if delay is not None), default=None)


def above_smallest(probes: Sequence[SlotProbe]) -> list[SlotProbe]:
    """The same probes with delays above the smallest of all, which is propagation and the clocks' difference."""
    smallest = min((delay for probe in probes for delay in probe.delays_s if delay is not None), default=0.0)
    return [
        replace(probe, delays_s=tuple(None if delay is None else delay - smallest for delay in probe.delays_s))
        for probe in probes
    ]


def largest_delays(probes: Sequence[SlotProbe]) -> list[float | None]:
    """The running estimate of the largest one-way delay after each probe, None before the first loss.

    "Estimated by the one way delay of the most recent successful packet when a packet loss happens" (EC2NET §VI).
    """
    estimates: list[float | None] = []
    recent: float | None = None
    largest: float | None = None
    for probe in probes:
        for delay in probe.delays_s:
            if delay is not None:
                recent = delay
            elif recent is not None:
                largest = recent
        estimates.append(largest)
    return estimates


@dataclass(frozen=True, slots=True)
class Marked:
    """Congested slots by both readings of the rule, and how many count as congested by their delay alone."""

    either: frozenset[int]
    both: frozenset[int]
    by_delay_alone: int


def mark(probes: Sequence[SlotProbe], tau_s: float = TAU_S, alpha: float = ALPHA) -> Marked:
    """Mark the slots of `probes` (in order of sending) as congested.

    `either` is the rule as EC2NET §VI prints it: a packet lost within `tau_s` of the slot, or a delay above
    (1 - alpha) x the largest delay as estimated at that time. `both` is the strict reading: a packet of the slot's own
    probe lost, or a loss within `tau_s` and such a delay.
    """
    probes = above_smallest(probes)
    losses = [probe.sent_s for probe in probes if probe.lost]
    either, both, alone = set(), set(), 0
    for probe, largest in zip(probes, largest_delays(probes), strict=True):
        near = _near(losses, probe.sent_s, tau_s)
        delay = probe.delay_s
        late = delay is not None and largest is not None and delay > (1 - alpha) * largest
        if near or late:
            either.add(probe.slot)
            alone += not near
        if probe.lost or (near and late):
            both.add(probe.slot)
    return Marked(frozenset(either), frozenset(both), alone)


def _near(times: Sequence[float], moment: float, reach: float) -> bool:
    place = bisect_left(times, moment - reach)
    return place < len(times) and times[place] <= moment + reach


# Evaluates probe loss from the packets sent and received: estimates, marks, and the series for its chart.

_GAP_PERCENT = 1.0  # of the time, from which on delays show the scheduler and not the path
_LATE_SHARE = 0.01  # of the probes, sent over a slot late


@dataclass(frozen=True, slots=True)
class SentPackets:
    """A probe as sent: when each of its packets left, and how late it was for its slot (ns)."""

    slot: int
    times_ns: tuple[int, ...]
    late_ns: int


@dataclass(frozen=True, slots=True)
class ReceivedPackets:
    """When each packet was read and arrived, ns by its number; the far end's own drops and scheduling gaps."""

    read_ns: Mapping[int, int]
    arrived_ns: Mapping[int, int] | None
    dropped: int
    gaps: Mapping[str, float]


def read_report(answer: Mapping[str, Any], block: bytes) -> ReceivedPackets:
    """Check what the far end reports; ProbeError when it makes no sense."""
    try:
        numbers = unpack(block)
        total = numbers[0] if numbers else -1
        if len(numbers) != 1 + 3 * total:
            raise FramingError("it announces another number of packets than it lists")  # noqa: TRY301
        gaps = {name: number(answer, name, None, 0.0, 1e9) for name in ("gap_percent", "gaps", "longest_gap_ms")}
        dropped = whole(answer, "dropped", None, 0, 1 << 32)
    except (ValueError, FramingError) as error:
        raise ProbeError(f"the responder's report makes no sense: {error}") from None
    names, read, arrived = numbers[1 : 1 + total], numbers[1 + total : 1 + 2 * total], numbers[1 + 2 * total :]
    first_read, first_arrived = (
        dict(zip(reversed(names), reversed(times), strict=True)) for times in (read, arrived)
    )  # of a packet that came twice, the first
    return ReceivedPackets(first_read, first_arrived if answer.get("kernel_times") is True else None, dropped, gaps)


def _probes(sent: list[SentPackets], times_ns: Mapping[int, int]) -> list[SlotProbe]:
    probes = []
    for place, packets in enumerate(sent):
        first = place * len(packets.times_ns)
        delays = tuple(
            None if (arrived_ns := times_ns.get(first + step)) is None else (arrived_ns - sent_ns) / 1e9
            for step, sent_ns in enumerate(packets.times_ns)
        )
        probes.append(SlotProbe(packets.slot, (packets.times_ns[0] - sent[0].times_ns[0]) / 1e9, delays))
    return probes


def judge(
    experiments: tuple[Experiment, ...],
    sent: list[SentPackets],
    received: ReceivedPackets,
    near: Mapping[str, float],
    options: argparse.Namespace,
) -> ProbeRun:
    """Frequency and duration by both readings of the rule, beside the probes' own loss; marks and series.

    `near` is this end's `GapWatch.summary`. Raises ProbeError when no experiment was over yet.
    """
    last = sent[-1].slot
    finished = [experiment for experiment in experiments if experiment.first + experiment.slots - 1 <= last]
    if not finished:
        raise ProbeError("stopped before the first experiment was over")
    probes = _probes(sent, received.read_ns)
    marked = mark(probes, options.tau_ms / 1e3, options.alpha)
    loose = estimate(each.outcome(marked.either) for each in finished)
    strict = estimate(each.outcome(marked.both) for each in finished)
    lost = sum(probe.lost > 0 for probe in probes)
    late = sum(each.late_ns > options.slot_ms * 1e6 for each in sent)
    values = _estimates(loose, strict, options.slot_ms)
    if received.arrived_ns is not None:
        kernel = mark(_probes(sent, received.arrived_ns), options.tau_ms / 1e3, options.alpha)
        by_kernel = estimate(each.outcome(kernel.either) for each in finished).frequency
        values["frequency_kernel"] = Quantity(100 * (by_kernel or 0.0), "%")
    values |= {
        "probe_loss": Quantity(100 * lost / len(probes), "%"),
        "packet_loss": Quantity(100 * sum(probe.lost for probe in probes) / (len(probes) * options.packets), "%"),
        "probes": Quantity(len(probes), "1"),
        "by_delay_alone": Quantity(marked.by_delay_alone, "slots"),
        "late_sends": Quantity(late, "probes"),
        "gap_share_near": Quantity(near["gap_percent"], "%"),
        "gap_share_far": Quantity(received.gaps["gap_percent"], "%"),
        "longest_gap": Quantity(max(near["longest_gap_ms"], received.gaps["longest_gap_ms"]), "ms"),
    }
    circumstances = {name: f"{getattr(options, name)}" for name in _NAMES}
    marks = _marks(loose, marked, received, near, late, len(sent))
    return ProbeRun(values, "frequency", _series(probes, marked, sent), circumstances, marks)


_NAMES = ("slot_ms", "probability", "packets", "packet_bytes", "tau_ms", "alpha", "algorithm", "drop_one_in")


def _estimates(loose: LossEstimate, strict: LossEstimate, slot_ms: float) -> dict[str, Quantity]:
    """Values of what could be estimated; what could not is left out."""
    numbers = {
        "frequency": (loose.frequency, 100.0, "%"),
        "frequency_strict": (strict.frequency, 100.0, "%"),
        "duration": (loose.duration_slots, slot_ms, "ms"),
        "duration_basic": (loose.duration_basic_slots, slot_ms, "ms"),
        "duration_basic_strict": (strict.duration_basic_slots, slot_ms, "ms"),
        "asymmetry": (loose.asymmetry, 100.0, "%"),
        "experiments": (float(loose.experiments), 1.0, "1"),
        "violations": (float(loose.violations), 1.0, "1"),
    }
    return {name: Quantity(value * scale, unit) for name, (value, scale, unit) in numbers.items() if value is not None}


def _marks(
    estimated: LossEstimate, marked: Marked, received: ReceivedPackets, near: Mapping[str, float], late: int, sent: int
) -> tuple[str, ...]:
    marks = []
    far = received.gaps
    taken = max(near["gap_percent"], far["gap_percent"])
    if taken > _GAP_PERCENT or (marked.by_delay_alone and taken):
        marks.append(
            f"do not trust the estimate: scheduling gaps took {near['gap_percent']:.1f} % of the time at this end and"
            f" {far['gap_percent']:.1f} % at the other, and {marked.by_delay_alone} of {len(marked.either)} lossy slots"
            " count as lossy by their delay alone"
        )
    elif 2 * marked.by_delay_alone > len(marked.either):
        marks.append("most slots count as lossy by their delay alone")
    if late > _LATE_SHARE * sent:
        marks.append(f"{late} of {sent} probes were sent over a slot late: this end was scheduled off")
    if received.dropped:
        marks.append(f"the receiver's own socket buffer had no room for {received.dropped} packets")
    if marked.either and estimated.duration_slots is None:
        marks.append("too few experiments saw a loss episode begin or end for a duration by the improved algorithm")
    return tuple(marks)


def _series(probes: list[SlotProbe], marked: Marked, sent: list[SentPackets]) -> RawSeries:
    def ms(value: float | None) -> float | None:
        return None if value is None else value * 1e3

    relative = above_smallest(probes)
    return RawSeries({
        "sent_s": [each.sent_s for each in relative],
        "slot": [each.slot for each in relative],
        "delay_ms": [ms(each.delay_s) for each in relative],
        "largest_delay_ms": [ms(largest) for largest in largest_delays(relative)],
        "lost": [each.lost for each in relative],
        "congested": [int(each.slot in marked.either) for each in relative],
        "late_ms": [each.late_ns / 1e6 for each in sent],
    })  # fmt: skip


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
