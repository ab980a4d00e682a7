"""Check whether this kernel lets cotenant-run-queue see which tasks wait for which."""

from __future__ import annotations

import shutil

from profiler.backends.run_queue import PROGRAM
from profiler.checks.base import CheckFinding, CheckRule, HostView, UnseenError

_REFUSED = f"{PROGRAM} failed with 1: "


def run_queues(view: HostView) -> CheckFinding:
    """Load the BPF program for a moment. It is optional: without it, waiting comes from schedstat."""
    if not view.value(f"path of {PROGRAM}", lambda: shutil.which(PROGRAM) or ""):
        return CheckFinding(True, "not installed: waiting is known, what runs meanwhile is not")
    try:
        view.tool(PROGRAM, "--check")
    except UnseenError as unseen:
        refusal = str(unseen).partition(_REFUSED)[2]
        if not refusal or "not permitted" in refusal:
            raise UnseenError(refusal or str(unseen), "run as root", unseen.number) from None
        return CheckFinding(False, refusal)
    return CheckFinding(True, "watched by run --run-queue")


RULES = (
    CheckRule(
        "run queues (BPF)", run_queues, "run_queue_p50_us, _p99_us and _p999_us are absent, and what runs meanwhile",
        "use a kernel with CONFIG_DEBUG_INFO_BTF=y and without lockdown", "linux",
    ),
)  # fmt: skip
