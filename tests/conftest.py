"""The one rule for tests of real time: what is marked `measured` is measured up to three times, and says so."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

TRIES = 3
AGAIN = "measured again"
TIMEOUT = "Timeout (>"  # pytest-timeout's words: what hangs was not disturbed, and its clock runs once for all tries

# Hypothesis would fail an example that takes over 0.2 s: real time, asserted of tests that only compute. The same code
# meets the same examples, so that a change is judged by what it changes; COTENANT_TEST_SEARCH=1 looks for new ones.
SEARCH = os.environ.get("COTENANT_TEST_SEARCH") == "1"
hypothesis.settings.register_profile("steady", deadline=None, derandomize=not SEARCH)
hypothesis.settings.load_profile("steady")


LAB_TOOLS = ("nginx", "wrk", "sysbench", "ip", "tc")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip real lab tests, with the reason, where they cannot run."""
    missing = [tool for tool in LAB_TOOLS if shutil.which(tool) is None]
    reason = ""
    if os.geteuid() != 0:
        reason = "needs root: it makes control groups and network namespaces"
    elif missing:
        reason = f"needs {', '.join(missing)} (apt-get install nginx wrk sysbench iproute2)"
    elif len(os.sched_getaffinity(0)) < 2:
        reason = "needs two CPUs"
    if reason:
        for item in items:
            if item.get_closest_marker("lab"):
                item.add_marker(pytest.mark.skip(reason=reason))


@dataclass(frozen=True)
class Try:
    """One that failed: why, and what the machine was like meanwhile."""

    number: int
    circumstances: str
    text: str


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Other work on the machine may disturb a try, a fault is in all of them; each has its fixtures made anew."""
    if item.get_closest_marker("measured") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    tries: list[Try] = []  # that failed
    for number in range(1, TRIES + 1):
        began, before = time.monotonic(), _ticks()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = next((report for report in reports if report.failed), None)
        if failed is None:
            break
        tries.append(Try(number, _circumstances(began, before), failed.longreprtext))
        if number == TRIES or TIMEOUT in failed.longreprtext:
            failed.sections[:0] = _sections(tries)
            break
        item.session._setupstate.teardown_exact(None)  # of wider scopes too: a guest may be what went wrong
    for report in reports:
        if tries and report.when == "call" and report.passed:
            said = [f"try {one.number}, {one.circumstances}: {_last_line(one.text)}" for one in tries]
            report.user_properties += [(AGAIN, line) for line in said]
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    return (AGAIN, "R", AGAIN.upper()) if list(_reasons(report)) else None


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """What passed only when measured again, and why it did not before."""
    for report in terminalreporter.stats.get(AGAIN, []):
        for reason in _reasons(report):
            terminalreporter.write_line(f"{AGAIN.upper()} {report.nodeid} after {reason}")


def _reasons(report: pytest.CollectReport | pytest.TestReport) -> Iterator[str]:
    if isinstance(report, pytest.TestReport) and report.when == "call" and report.passed:
        yield from (str(value) for name, value in report.user_properties if name == AGAIN)


def _sections(tries: list[Try]) -> Iterator[tuple[str, str]]:
    """What a failure shows beside itself: the tries before it, and the circumstances of all; its own text is there."""
    for one in tries:
        if one is not tries[-1]:
            yield f"try {one.number}", one.text
        yield f"circumstances of try {one.number}", one.circumstances


def _last_line(text: str) -> str:
    """What pytest says of an error first of all: the last line that it marks with an E, else the very last."""
    lines = text.strip().splitlines() or [""]
    return next((line for line in lines if line.startswith("E  ")), lines[-1]).removeprefix("E").strip()


def _ticks() -> list[int]:
    """Time of all CPUs so far, as in the first line of /proc/stat (proc(5)): user, nice, system, idle, ... steal."""
    with Path("/proc/stat").open() as stat:
        return [int(word) for word in stat.readline().split()[1:9]]


def _circumstances(began: float, before: list[int]) -> str:
    """What others did to this try as far as the machine shows it, and on which machine."""
    spent = [now - then for now, then in zip(_ticks(), before, strict=True)]
    whole = sum(spent) or 1  # nothing yet within a tick of 10 ms
    load = " ".join(f"{average:.2f}" for average in os.getloadavg())
    return (
        f"{spent[7] / whole:.0%} of the CPU time stolen and {(spent[3] + spent[4]) / whole:.0%} idle"
        f" in {time.monotonic() - began:.1f} s, load average {load}, {os.cpu_count()} CPUs, Linux {platform.release()}"
    )
