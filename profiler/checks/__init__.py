"""Host checks: conditions that distort measurements, what each one distorts, and how to fix it. Read-only.

There is no check of what distorts nothing by itself: mitigations of CPU vulnerabilities (they cost the same in every
run, and a campaign's circumstances name the kernel), huge pages in the background, priorities of instances (they are
settings, and shown as such), and kernel.sched_schedstats (not read).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from profiler.backends.sources import HostSource, LiveSource
from profiler.checks import counters, cpus, hypervisors
from profiler.checks.base import Check, CheckRule, HostView, State

__all__ = [
    "RULES",
    "Check",
    "CheckRule",
    "HostView",
    "State",
    "check_host",
    "worst_first",
]

RULES: tuple[CheckRule, ...] = (
    *cpus.CPUS,
    *counters.OF_KERNEL,
    *counters.OF_RUN_QUEUE,
    *counters.OF_HARDWARE,
    *cpus.RULES,
    *cpus.CLOCKS,
    *hypervisors.KVM,
    *hypervisors.XEN,
)

_WATCH_S = 1.0
_ORDER: dict[State, int] = {"warning": 0, "unknown": 1, "ok": 2}


def check_host(source: HostSource | None = None, sleep: Callable[[float], None] = time.sleep) -> list[Check]:
    """Run every check that applies to this host, in the order of RULES.

    Takes about a second, in which steal, swapping and the clocks are watched. Needs no root; the state of what only
    root may see is `unknown`, and its `fix` says so.
    """
    view = HostView(source or LiveSource(), ("/proc/stat", *cpus.WATCHED))
    sleep(_WATCH_S)
    view.look_again()
    return [check for rule in RULES if (check := rule.check(view)) is not None]


def worst_first(checks: list[Check]) -> list[Check]:
    """Warnings, then what is unknown, then what is fine; each in the order of the checks."""
    return sorted(checks, key=lambda check: _ORDER[check.state])
