"""Checks of KVM (halt polling, hidden counters, nesting) and of Xen from Dom0 (its CPUs, physical CPUs, tracing)."""

from __future__ import annotations

import re
import shutil

from profiler.backends.sources import HostSource
from profiler.checks.base import CheckFinding, CheckRule, HostView, UnseenError
from profiler.observed import format_cpus
from profiler.parse.text import ParseError
from profiler.parse.xen import parse_vcpu_list

# Checks of KVM: halt polling that counts as CPU time, hidden counters, nested guests.

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


KVM = (
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


# Checks of Xen from Dom0: Dom0's CPUs, physical CPUs by Xen's tools, and tracing.

_DEFAULT_RATELIMIT_US = 1000  # xen-command-line, sched_ratelimit_us
_TRACE_TOOL = "xentrace"


def dom0_cpus(view: HostView) -> CheckFinding:
    """Source: xl(1), vcpu-list: hard affinity of each vCPU of Dom0, `all` where it may run anywhere."""
    listed = parse_vcpu_list(view.tool("xl", "vcpu-list", "Domain-0"), "xl vcpu-list").values()
    affinities = [vcpu.hard for vcpu in listed if vcpu.domid == 0]
    if not affinities:
        raise ParseError("vcpu-list", "xl vcpu-list", 1, "no vCPU of Domain-0")
    pinned = [cpus for cpus in affinities if cpus is not None]
    where = format_cpus(frozenset(cpu for cpus in pinned for cpu in cpus))
    return CheckFinding(pinned == affinities, f"CPUs {where}" if pinned == affinities else "any CPU")


def dom0_memory(view: HostView) -> CheckFinding:
    """Source: xl.conf(5), autoballoon: without dom0_mem on Xen's command line, each new guest takes Dom0's memory."""
    match = re.search(r"(?:^|\s)(dom0_mem=\S+)", _info(view, "xen_commandline"))
    return CheckFinding(match is not None, match[1] if match else "shrinks with every guest")


def governor(view: HostView) -> CheckFinding:
    """Source: tools/misc/xenpm.c, print_cpufreq_para; Xen sets the clock itself, Dom0's files do not show it."""
    governors = sorted(set(_lines(view, "get-cpufreq-para", "current_governor")))
    if not governors:
        raise UnseenError("xenpm shows no governor: Xen does not set the clock")
    return CheckFinding(governors == ["performance"], ", ".join(governors))


def boost(view: HostView) -> CheckFinding:
    """Source: tools/misc/xenpm.c, print_cpufreq_para, `turbo mode`."""
    modes = sorted(set(_lines(view, "get-cpufreq-para", "turbo mode")))
    if not modes:
        raise UnseenError("xenpm shows no turbo mode: Xen does not set the clock")
    return CheckFinding("enabled" not in modes, ", ".join(modes))


def siblings(view: HostView) -> CheckFinding:
    """Source: xl(1), info, threads_per_core."""
    threads = _info(view, "threads_per_core")
    if not re.fullmatch(r"[0-9]{1,3}", threads):
        raise ParseError("info", "xl info", 1, f"{threads[:60]!r} is no number of threads")
    return CheckFinding(threads == "1", f"{threads} threads per core")


def idle_states(view: HostView) -> CheckFinding:
    """Source: tools/misc/xenpm.c, print_cxstat: one line per state that a CPU has; C1 is halting."""
    states = set(re.findall(r"^(C[0-9]{1,2})\s+: transition ", view.tool("xenpm", "get-cpuidle-states"), re.MULTILINE))
    limit = re.search(r"^Max possible C-state: C([0-9]{1,2})$", view.tool("xenpm", "get-cpuidle-states"), re.MULTILINE)
    if not states:
        raise UnseenError("xenpm shows no idle states")
    deepest = max(int(state[1:]) for state in states)
    allowed = min(deepest, int(limit[1])) if limit else deepest
    return CheckFinding(allowed <= 1, f"C{allowed} is the deepest")


def ratelimit(view: HostView) -> CheckFinding | None:
    """Source: docs/misc/xen-command-line, sched_ratelimit_us: how long a vCPU runs before another may take over."""
    scheduler = _info(view, "xen_scheduler")
    if scheduler not in ("credit", "credit2"):
        return None
    tool = f"sched-{scheduler}"
    limits = re.findall(r"\bratelimit=([0-9]{1,7})us\b", view.tool("xl", tool, "-s"))
    if not limits:
        raise UnseenError(f"xl {tool} shows no rate limit")
    unusual = sorted({int(limit) for limit in limits} - {_DEFAULT_RATELIMIT_US})
    fix = f"xl {tool} -s -r {_DEFAULT_RATELIMIT_US}"
    return CheckFinding(
        not unusual, ", ".join(f"{limit} us" for limit in unusual) or f"{_DEFAULT_RATELIMIT_US} us", fix
    )


def tracing(view: HostView) -> CheckFinding:
    """Source: xentrace(8); run states of vCPUs are in no file."""
    path = view.value(f"path of {_TRACE_TOOL}", lambda: shutil.which(_TRACE_TOOL))
    return CheckFinding(bool(path), "installed" if path else "not installed")


def traced_already(source: HostSource) -> bool:
    """Whether some xentrace reads Xen's trace now. A second one takes records away, and ends with tracing off.

    Source: tools/xentrace/xentrace.c, disable_tracing; there is one set of trace buffers.
    """
    view = HostView(source, ())
    try:
        return view.dom0 and _TRACE_TOOL in view.commands.values()
    except UnseenError:
        return False


def ring_counts(view: HostView) -> CheckFinding:
    """Kernel: drivers/net/xen-netback/xenbus.c, xenvif_debugfs_addif: counters of every shared ring."""
    if view.folders(f"{_DEBUGFS}/xen-netback") is not None:
        return CheckFinding(True, "in debugfs")
    if view.folders(_DEBUGFS):
        raise UnseenError("no guest has a network interface now")
    return CheckFinding(False, "debugfs is not mounted")


def _info(view: HostView, key: str) -> str:
    match = re.search(rf"^{key}\s*:(.*)$", view.tool("xl", "info"), re.MULTILINE)
    if not match:
        raise ParseError("info", "xl info", 1, f"no line {key}")
    return match[1].strip()


def _lines(view: HostView, command: str, key: str) -> list[str]:
    values: list[str] = re.findall(rf"^{key}\s*:\s*(.*?)\s*$", view.tool("xenpm", command), re.MULTILINE)
    return values


XEN = (
    CheckRule(
        "Dom0's CPUs", dom0_cpus, "Dom0 runs on the CPUs of instances: their waiting depends on all instances' I/O",
        "xl vcpu-pin Domain-0 all 0-1 (at boot: dom0_max_vcpus=2 dom0_vcpus_pin)", "dom0",
    ),
    CheckRule(
        "Dom0's memory", dom0_memory, "Dom0's caches shrink with every guest, and all disk I/O gets slower",
        "boot Xen with dom0_mem=4096M,max:4096M (or the size that Dom0 needs)", "dom0",
    ),
    CheckRule(
        "frequency governor", governor, "the CPU clock depends on the load, so all rates do too",
        "xenpm set-scaling-governor performance", "dom0",
    ),
    CheckRule(
        "turbo", boost, "instances alone get a faster clock than co-located ones: interference is overestimated",
        "xenpm disable-turbo-mode", "dom0",
    ),
    CheckRule(
        "SMT", siblings, "two CPUs are one core: instances pinned to different CPUs may share a core",
        "pin to whole cores (xenpm get-cpu-topology), or boot Xen with smt=0", "dom0",
    ),
    CheckRule(
        "idle states", idle_states, "an instance alone wakes up late: its latency and block are too high",
        "xenpm set-max-cstate 1", "dom0",
    ),
    CheckRule(
        "scheduler rate limit", ratelimit, "waiting and switch are not comparable with hosts at Xen's default", "",
        "dom0",
    ),
    CheckRule(
        "xentrace", tracing, "waiting, block and execution are absent; cpu has a resolution of 0.1 s",
        "install Xen's tools (Debian: apt-get install xen-utils-common)", "dom0",
    ),
    CheckRule(
        "network rings", ring_counts, "pages_exchanged is computed from bytes: small packets are underestimated",
        f"mount -t debugfs none {_DEBUGFS}", "dom0",
    ),
)  # fmt: skip
