"""Evaluates probe loss from the packets sent and received: estimates, marks, and the series for its chart."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.observed import Quantity
from profiler.probes.base import ProbeError, ProbeRun, RawSeries
from profiler.probes.congestion_marking import Marked, SlotProbe, above_smallest, largest_delays, mark
from profiler.probes.framing import FramingError, number, whole
from profiler.probes.loss_estimator import Experiment, LossEstimate, estimate
from profiler.probes.throughput_buckets import unpack

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
