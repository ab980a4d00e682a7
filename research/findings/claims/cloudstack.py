"""cloudstack-network-2016: messages and requests to a process of the host, in a container, and in a whole VM.

Each is a campaign of its own; a run is compared with the median of the other's runs.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from research.findings.claim_registry import number, order
from research.findings.claim_values import Values, first, over
from research.findings.lab_runs import LabRun, LabRuns

NATIVE, LXC, KVM = "native", "container", "qemu"
COARSE, FINE = "throughput_1mb", "throughput_64b"


def runs(lab: LabRuns, kind: str, workload: str) -> list[LabRun]:
    """Solo runs of a probe under one kind of virtualisation."""
    return lab.runs(workload, kind="solo", where=lambda run: run.dataset == f"lab-messages-{kind}")


def values(lab: LabRuns, kind: str, workload: str, name: str) -> Values | None:
    return over(runs(lab, kind, workload), first(name))


def compared(measured: Values | None, base: Values | None, how: Callable[[float, float], float]) -> Values | None:
    """Every value against the median of the base."""
    if measured is None or base is None or not median(base.values):
        return None
    middle = median(base.values)
    return Values(tuple(how(value, middle) for value in measured.values), f"{measured.source}; {base.source}")


def _loss(value: float, base: float) -> float:
    return 100 * (1 - value / base)


def _gain(value: float, base: float) -> float:
    return 100 * (value / base - 1)


def _factor(value: float, base: float) -> float:
    return value / base


@number("C1", "kvm-loss-coarse")
def loss_coarse(lab: LabRuns) -> Values | None:
    return compared(values(lab, KVM, "messages", COARSE), values(lab, NATIVE, "messages", COARSE), _loss)


@number("C1", "kvm-loss-fine")
def loss_fine(lab: LabRuns) -> Values | None:
    return compared(values(lab, KVM, "messages", FINE), values(lab, NATIVE, "messages", FINE), _loss)


@number("C1", "lxc-over-kvm")
def container_over_vm(lab: LabRuns) -> Values | None:
    return compared(values(lab, LXC, "messages", COARSE), values(lab, KVM, "messages", COARSE), _gain)


@order("C1", "order")
def throughput_order(lab: LabRuns) -> dict[str, Values | None]:
    kinds = {"native": NATIVE, "lxc": LXC, "kvm": KVM}
    return {name: values(lab, kind, "messages", COARSE) for name, kind in kinds.items()}


@number("C2", "kvm-coarse")
def latency_coarse(lab: LabRuns) -> Values | None:
    """By the throughput of 64 KB messages, which is what a message's time makes of it."""
    return compared(
        values(lab, NATIVE, "messages", "throughput_64kb"), values(lab, KVM, "messages", "throughput_64kb"), _gain
    )


def small_latency(lab: LabRuns, kind: str) -> Values | None:
    return values(lab, kind, "messages", "latency_64b")


@number("C2", "kvm-fine", "kvm-fine-abstract")
def latency_fine(lab: LabRuns) -> Values | None:
    return compared(
        values(lab, KVM, "messages", "latency_64b"), values(lab, NATIVE, "messages", "latency_64b"), _factor
    )


@number("C2", "lxc", unit="x native")
def latency_container(lab: LabRuns) -> Values | None:
    return compared(
        values(lab, LXC, "messages", "latency_64b"), values(lab, NATIVE, "messages", "latency_64b"), _factor
    )


@number("C2", "native-64b")
def latency_native(lab: LabRuns) -> Values | None:
    return small_latency(lab, NATIVE)


@number("C2", "kvm-64b")
def latency_vm(lab: LabRuns) -> Values | None:
    return small_latency(lab, KVM)


def contrast(lab: LabRuns, threads: int) -> Values | None:
    """By how much containers answer fewer requests than the host's own process, in percent."""
    workload, name = f"requests-{threads}", f"requests_{threads}"
    return compared(values(lab, LXC, workload, name), values(lab, NATIVE, workload, name), _loss)


@number("C3", "contrast-4-threads")
def contrast_4(lab: LabRuns) -> Values | None:
    return contrast(lab, 4)


@number("C3", "contrast-32-threads")
def contrast_32(lab: LabRuns) -> Values | None:
    return contrast(lab, 32)


@number("C3", "threads-direction", unit="relative change")
def contrast_growth(lab: LabRuns) -> Values | None:
    few, many = contrast(lab, 4), contrast(lab, 32)
    if few is None or many is None:
        return None
    middle = median(few.values)
    return many.each(lambda value: (value - middle) / 100)


@order("C3", "order")
def request_order(lab: LabRuns) -> dict[str, Values | None]:
    kinds = {"native": NATIVE, "lxc": LXC, "kvm": KVM}
    return {name: values(lab, kind, "requests-32", "requests_32") for name, kind in kinds.items()}
