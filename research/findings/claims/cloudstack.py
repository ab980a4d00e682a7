"""cloudstack-network-2016: messages and requests to a process of the host, in a container, and in a whole VM.

Each is a campaign of its own; a round of one is compared with the round of the same number of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, change, first, gain, less, over, percent
from research.findings.lab_runs import LabRun, LabRuns
from research.findings.verdicts import SHARE, around, below

NATIVE, LXC, KVM = "native", "container", "qemu"
COARSE, FINE = "throughput_1mb", "throughput_64b"


def runs(lab: LabRuns, kind: str, workload: str) -> list[LabRun]:
    """Solo runs of a probe under one kind of virtualisation."""
    return lab.runs(workload, kind="solo", where=lambda run: run.dataset == f"lab-messages-{kind}")


def values(lab: LabRuns, kind: str, workload: str, name: str) -> Values | None:
    return over(runs(lab, kind, workload), first(name))


def compared(
    lab: LabRuns,
    kind: str,
    base: str,
    workload: str,
    outcome: str,
    how: Callable[[float | None, float | None], float | None],
) -> Values | None:
    """Every round of one kind against the round of the same number of the other.

    The two were measured apart, so that any two rounds go together as well as any others; what the base varies by is
    then in the values.
    """
    others = {run.repeat: run for run in runs(lab, base, workload)}

    def beside(run: LabRun) -> float | None:
        other = others.get(run.repeat)
        return how(first(outcome)(run), None if other is None else first(outcome)(other))

    found = over(runs(lab, kind, workload), beside)
    return found and replace(found, source=f"{found.source}; lab-messages-{base}")


def _loss(value: float | None, base: float | None) -> float | None:
    return percent(less(1.0, gain(value, base)))


def _gain(value: float | None, base: float | None) -> float | None:
    return percent(change(value, base))


number("C1", "kvm-loss-coarse")(lambda lab: compared(lab, KVM, NATIVE, "messages", COARSE, _loss))
number("C1", "kvm-loss-fine")(lambda lab: compared(lab, KVM, NATIVE, "messages", FINE, _loss))
number("C1", "lxc-over-kvm")(lambda lab: compared(lab, LXC, KVM, "messages", COARSE, _gain))


@order("C1", "order")
def throughput_order(lab: LabRuns) -> dict[str, Values | None]:
    kinds = {"native": NATIVE, "lxc": LXC, "kvm": KVM}
    return {name: values(lab, kind, "messages", COARSE) for name, kind in kinds.items()}


@number("C2", "kvm-coarse")
def latency_coarse(lab: LabRuns) -> Values | None:
    """By the throughput of 64 KB messages, which is what a message's time makes of it."""
    return compared(lab, NATIVE, KVM, "messages", "throughput_64kb", _gain)


def small_latency(lab: LabRuns, kind: str) -> Values | None:
    return values(lab, kind, "messages", "latency_64b")


number("C2", "kvm-fine", "kvm-fine-abstract")(lambda lab: compared(lab, KVM, NATIVE, "messages", "latency_64b", gain))
number("C2", "lxc", unit="x native", agree=around(1.0, SHARE))(
    lambda lab: compared(lab, LXC, NATIVE, "messages", "latency_64b", gain)
)
number("C2", "native-64b")(lambda lab: small_latency(lab, NATIVE))
number("C2", "kvm-64b")(lambda lab: small_latency(lab, KVM))


def contrast(lab: LabRuns, threads: int) -> Values | None:
    """By how much containers answer fewer requests than the host's own process, in percent."""
    workload, name = f"requests-{threads}", f"requests_{threads}"
    return compared(lab, LXC, NATIVE, workload, name, _loss)


number("C3", "contrast-4-threads")(lambda lab: contrast(lab, 4))
number("C3", "contrast-32-threads")(lambda lab: contrast(lab, 32))


@number("C3", "threads-direction", unit="relative change")
def contrast_growth(lab: LabRuns) -> Values | None:
    """By how much further apart the two are with many threads, whichever is ahead; in shares of the native rate."""
    few, many = contrast(lab, 4), contrast(lab, 32)
    if few is None or many is None:
        return None
    rounds = zip(many.values, few.values, strict=False)
    return replace(many, values=tuple((abs(more) - abs(less)) / 100 for more, less in rounds))


@order("C3", "order")
def request_order(lab: LabRuns) -> dict[str, Values | None]:
    kinds = {"native": NATIVE, "lxc": LXC, "kvm": KVM}
    return {name: values(lab, kind, "requests-32", "requests_32") for name, kind in kinds.items()}


def _worst_rows(threads: int) -> None:
    @number("C3", f"kvm-worst-threads-{threads}", unit="x the next worst", agree=below(1.0))
    def against_next(lab: LabRuns) -> Values | None:
        workload, name = f"requests-{threads}", f"requests_{threads}"
        both = [compared(lab, KVM, kind, workload, name, gain) for kind in (LXC, NATIVE)]
        known = [one for one in both if one is not None]
        return max(known, key=lambda one: one.middle) if len(known) == len(both) else None


for _threads in (8, 32):
    _worst_rows(_threads)
