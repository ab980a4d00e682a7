"""Checks of KVM: halt polling that counts as CPU time, hidden counters, nested guests."""

from __future__ import annotations

from profiler.checks.base import CheckFinding, CheckRule, HostView

_POLL = "/sys/module/kvm/parameters/halt_poll_ns"
_DEBUGFS = "/sys/kernel/debug"


def halt_polling(view: HostView) -> CheckFinding | None:
    """Kernel: Documentation/virt/kvm/halt-polling.rst: idle guests may take up to all of a CPU of the host."""
    if view.find(_POLL) is None:
        return None  # no KVM here
    poll_ns = view.count(_POLL)
    return CheckFinding(poll_ns == 0, f"{poll_ns} ns" if poll_ns else "off")


def counters(view: HostView) -> CheckFinding | None:
    """Kernel: virt/kvm/kvm_main.c, kvm_init_debug: exits and injected interrupts stand in debugfs, for root only."""
    if not _runs_guests(view):
        return None
    if view.folders(f"{_DEBUGFS}/kvm") is None:
        return CheckFinding(False, "debugfs has no folder kvm, or is not mounted")
    return CheckFinding(True, "in debugfs")


def nested(view: HostView) -> CheckFinding | None:
    """Kernel: Documentation/virt/kvm/x86/running-nested-guests.rst."""
    if not view.virtual or not _runs_guests(view):
        return None
    return CheckFinding(False, "KVM runs inside a virtual machine")


def _runs_guests(view: HostView) -> bool:
    """Whether some QEMU has a vCPU thread of KVM; they are called `CPU n/KVM`, those of an emulated CPU `CPU n/TCG`."""
    for process, name in view.commands.items():
        if name.startswith(("qemu", "kvm")):
            tasks = view.numbered(f"/proc/{process}/task", "")
            if any((view.find(f"/proc/{process}/task/{task}/comm") or "").endswith("/KVM") for task in tasks):
                return True
    return False


RULES = (
    CheckRule(
        "halt polling", halt_polling, "idle vCPUs use host CPU time: cpu is too high and block too low",
        f"echo 0 > {_POLL}", "linux",
    ),
    CheckRule(
        "KVM counters", counters, "event counts wake-ups of QEMU's threads instead of exits and injected interrupts",
        f"mount -t debugfs none {_DEBUGFS}", "linux",
    ),
    CheckRule(
        "nested KVM", nested, "exits of an instance also exit to the outer hypervisor: I/O costs a multiple",
        "measure guests on a physical machine", "linux",
    ),
)  # fmt: skip
