"""`cotenant-profiler check`: what distorts measurements on this host, and which metrics it provides."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from profiler.backends import BackendError
from profiler.backends.detection import find_backend, passed_over
from profiler.backends.sources import LiveSource
from profiler.checks import Check, check_host, worst_first
from profiler.checks.hypervisors import traced_already
from profiler.cli.shared_options import DONE, FAILED, add_backend, console, print_json, print_table
from profiler.definitions import Availability, availability, unavailable

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class HypervisorStatus:
    """The backend of this host; `problem` says why there is none, or why a preferred one cannot be used."""

    backend: str | None
    host: str | None
    instances: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HostReport:
    """Everything that the command reports."""

    hypervisor: HypervisorStatus
    checks: list[Check]
    metrics: tuple[Availability, ...]


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    check = commands.add_parser(
        "check", help="check what distorts measurements on this host, and which metrics it provides"
    )
    add_backend(check)
    check.add_argument("--strict", action="store_true", help="exit with 1 when something distorts measurements")
    check.add_argument("--json", action="store_true", help="machine-readable output")
    check.set_defaults(command=_check)


def _check(options: argparse.Namespace) -> int:
    screen = None if options.json else console()  # before the wait, for it may refuse
    report = look(options.backend)
    if screen is None:
        print_json(asdict(report))
    else:
        _draw(report, screen)
    distorted = any(check.state == "warning" for check in report.checks)
    return FAILED if options.strict and distorted else DONE


def look(backend: str) -> HostReport:
    """Check this host and read its instances twice, a second apart; a backend that fails is reported, not raised."""
    if backend in ("auto", "xen") and traced_already(LiveSource()):
        return _unread("another xentrace runs (that of cotenant-profiler run?) and would lose records", check_host())
    with contextlib.ExitStack() as stack:
        try:
            reader = stack.enter_context(contextlib.closing(find_backend(backend)))
            first = reader.read_counters()
        except BackendError as error:
            return _unread(str(error), check_host())
        checks = check_host()
        try:
            second = reader.read_counters()
        except BackendError as error:
            return _unread(str(error), checks)
    passed = "; ".join(passed_over(reader.name)) if backend == "auto" else ""
    hypervisor = HypervisorStatus(reader.name, reader.host, tuple(sorted(second.instances)), passed)
    return HostReport(hypervisor, worst_first(checks), availability(first, second, reader.name))


def _unread(problem: str, checks: list[Check]) -> HostReport:
    return HostReport(HypervisorStatus(None, None, problem=problem), worst_first(checks), unavailable(problem))


def summary(report: HostReport) -> str:
    """The report in two sentences."""
    warnings = sum(check.state == "warning" for check in report.checks)
    unseen = [check for check in report.checks if check.state == "unknown"]
    things = "1 thing distorts" if warnings == 1 else f"{warnings or 'No'} things distort"
    text = f"{things} measurements on this host"
    if unseen:
        text += f", {len(unseen)} could not be seen"
    hidden = sum(check.fix == "run as root" for check in unseen)
    if hidden:
        text += f" ({hidden} of them root could see)"
    return f"{text}. {_metrics_sentence(report)}"


def _metrics_sentence(report: HostReport) -> str:
    hypervisor = report.hypervisor
    if hypervisor.backend is None:
        return f"No metric can be read: {hypervisor.problem}."
    number = sum(metric.state == "given" for metric in report.metrics)
    if not hypervisor.instances:
        available = [metric.metric for metric in report.metrics if "given" in (metric.state, metric.driver_state)]
        return (
            f"No instance runs here ({hypervisor.backend}). The host and its driver domain give:"
            f" {', '.join(available) or 'nothing'}."
        )
    instances = _count(hypervisor.instances)
    return f"{number} of {len(report.metrics)} metrics are given for {instances} ({hypervisor.backend})."


def _count(instances: Sequence[str]) -> str:
    return "1 instance" if len(instances) == 1 else f"all of {len(instances)} instances"


def _draw(report: HostReport, screen: Console) -> None:
    rows = [(check.name, check.state, check.value, check.distorts, check.fix) for check in report.checks]
    print_table(screen, ("check", "state", "found", "distorts", "fix"), rows)
    metrics = [
        (metric.metric, metric.state, metric.driver_state or "-", metric.source, metric.reason or metric.driver_reason)
        for metric in report.metrics
    ]
    print_table(screen, ("metric", "state", "driver domain", "source", "why it is missing"), metrics)
    screen.print(summary(report), soft_wrap=True)
    if report.hypervisor.backend and report.hypervisor.problem:
        screen.print(f"Passed over: {report.hypervisor.problem}", soft_wrap=True)
