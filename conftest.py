"""Tests marked `measured` depend on real time: each has up to three tries, and the history of its tries is kept."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from _pytest.runner import runtestprotocol
from _pytest.terminal import TerminalReporter

from tests import library
from tests.examples import examples
from tests.retry_history import FailedTry, RetryRate, append_run, retry_rates

TRIES = 3
AGAIN = "measured again"
TIMEOUT = "Timeout (>"  # pytest-timeout's words: what hangs was not disturbed, and its clock runs once for all tries

# Hypothesis would fail an example that takes over 0.2 s and a test that is slow to draw its examples: real time,
# asserted of tests that only compute. A fixture that all examples of a test share is meant so. The same code meets the
# same examples, so that a change is judged by what it changes; COTENANT_TEST_SEARCH=1 looks for new ones.
SEARCH = os.environ.get("COTENANT_TEST_SEARCH") == "1"
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
    derandomize=not SEARCH,
    max_examples=100 if SEARCH else examples(50),
)
hypothesis.settings.load_profile("steady")


COLLECT = (20_000, 20, 50)  # by default 700, 10, 10: a sixth of the time of tests
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


def pytest_configure(config: pytest.Config) -> None:
    """Predict as fast as a service does: what is compiled is built once, before any worker starts.

    What is collected stays: looking for cycles meanwhile would find none and go through all of it again and again.
    """
    gc.disable()
    if not hasattr(config, "workerinput"):
        library.build()


def pytest_collection_finish() -> None:
    """Look for cycles less often, as the service does: all modules and tests would be gone through again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    gc.enable()


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Charts stay empty: to draw them takes most of a report's time. Tests of pictures do without this."""
    monkeypatch.setattr("profiler.pictures.as_svg", lambda _figure, _salt: '<svg width="1" height="1"></svg>')


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Try a measured test again when it failed, with fixtures made anew: a disturbed try passes then, a fault never."""
    if item.get_closest_marker("measured") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    failed_tries: list[FailedTry] = []
    for number in range(1, TRIES + 1):
        began, before = time.monotonic(), _ticks()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        failed = next((report for report in reports if report.failed), None)
        if failed is None:
            break
        failed_tries.append(FailedTry(number, _circumstances(began, before), failed.longreprtext))
        if number == TRIES or TIMEOUT in failed.longreprtext:
            failed.sections[:0] = _sections(failed_tries)
            break
        item.session._setupstate.teardown_exact(None)  # of wider scopes too: a guest may be what went wrong
    if not any(report.skipped for report in reports):
        append_run(_history(item.config), item.nodeid, number, passed=failed is None, failed=failed_tries)
    for report in reports:
        if failed_tries and report.when == "call" and report.passed:
            said = [f"try {one.number}, {one.circumstances}: {one.why}" for one in failed_tries]
            report.user_properties += [(AGAIN, line) for line in said]
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report: pytest.CollectReport | pytest.TestReport) -> tuple[str, str, str] | None:
    return (AGAIN, "R", AGAIN.upper()) if list(_reasons(report)) else None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that passed, when a test of it has needed a second try too often."""
    if session.exitstatus == pytest.ExitCode.OK and any(rate.too_high for rate in _rates_of_this_run(session.config)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Tell what passed only when tried again, and why; how often that happened of late; and what did too often."""
    for report in terminalreporter.stats.get(AGAIN, []):
        for reason in _reasons(report):
            terminalreporter.write_line(f"{AGAIN.upper()} {report.nodeid} after {reason}")
    rates = _rates_of_this_run(terminalreporter.config)
    for rate in rates:
        if rate.retried:
            terminalreporter.write_line(f"{rate.test} was retried in {rate.retried} of its last {rate.runs} runs")
    for rate in rates:
        if rate.too_high:
            terminalreporter.write_line(
                f"FAILED {rate.test} needs a second try too often ({rate.retried} of its last {rate.runs} runs):"
                f" mend it, then remove its lines from {_history(terminalreporter.config)}.",
                red=True,
            )


def _history(config: pytest.Config) -> Path:
    return config.rootpath / "var" / "test-retries.jsonl"


def _rates_of_this_run(config: pytest.Config) -> list[RetryRate]:
    """The rates of the measured tests that passed in this run; it does not judge others."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")  # xdist's workers have none, and judge nothing
    passed = [*reporter.stats.get("passed", []), *reporter.stats.get(AGAIN, [])] if reporter else []
    return retry_rates(_history(config), [report.nodeid for report in passed if "measured" in report.keywords])


def _reasons(report: pytest.CollectReport | pytest.TestReport) -> Iterator[str]:
    if isinstance(report, pytest.TestReport) and report.when == "call" and report.passed:
        yield from (str(value) for name, value in report.user_properties if name == AGAIN)


def _sections(tries: list[FailedTry]) -> Iterator[tuple[str, str]]:
    """What a failure shows beside itself: the tries before it, and the circumstances of all; its own text is there."""
    for one in tries:
        if one is not tries[-1]:
            yield f"try {one.number}", one.text
        yield f"circumstances of try {one.number}", one.circumstances


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
