"""What can be wrong with a host, one thing at a time, and what the check of it then says."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.profiler.checked_host import (
    CPU,
    CPUFREQ,
    CPUIDLE,
    KVM_POLL,
    MEMINFO,
    PRESSURE,
    VCPU_LIST,
    VMSTAT,
    XL_INFO,
    config_path,
    stat,
)

CLOCK = "/sys/devices/system/clocksource/clocksource0"
THP = "/sys/kernel/mm/transparent_hugepage"
SWITCH = "/proc/sys/kernel/task_delayacct"
V1 = "".join(f"cgroup /cg/{name} cgroup rw,{name} 0 0\n" for name in ("cpu", "cpuacct", "blkio"))
V1_DISK = "/cg/blkio/blkio.throttle.io_service_bytes_recursive"
FAILED = OSError(errno.EIO, "xl failed with 1: cannot open libxl")


@dataclass(frozen=True)
class Case:
    """What is done to a quiet host, and what the check named `name` then says; the others must not change."""

    name: str
    state: str
    shows: str
    host: str = "bare"
    files: Mapping[str, str | int | None] = field(default_factory=dict)
    later: Mapping[str, str | int | None] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.host}: {self.name} {self.state}: {self.shows}"


def _governors(*names: str | None) -> dict[str, str | int | None]:
    return {f"{CPU}/cpu{number}/cpufreq/scaling_governor": name for number, name in enumerate(names)}


def _refused(why: str) -> dict[str, Any]:
    said = f"cotenant-run-queue failed with 1: the kernel refuses the BPF program: {why}"
    return {"cotenant-run-queue --check": OSError(errno.EIO, said)}


CASES = [
    Case(
        "frequency governor",
        "warning",
        "performance on CPUs 0, powersave on CPUs 1",
        files=_governors("performance", "powersave\n"),
    ),
    Case("frequency governor", "ok", "performance on CPUs 1", files=_governors(None, "performance\n")),
    Case("frequency governor", "unknown", "shows no governor", files=_governors(None, None)),
    Case("frequency governor", "unknown", "is no governor", files=_governors("performance", "\x1b[31m")),
    Case("turbo", "warning", "on", files={f"{CPU}/cpufreq/boost": "1\n"}),
    Case("turbo", "warning", "on", files={f"{CPU}/intel_pstate/no_turbo": "0\n"}),
    Case("turbo", "ok", "off", files={f"{CPU}/intel_pstate/no_turbo": "1\n", f"{CPU}/cpufreq/boost": None}),
    Case("turbo", "unknown", "no switch", files={f"{CPU}/cpufreq/boost": None}),
    Case("turbo", "unknown", "neither 0 nor 1", files={f"{CPU}/cpufreq/boost": "yes\n"}),
    Case("SMT", "warning", "share a core", files={f"{CPU}/smt/active": "1\n"}),
    Case("SMT", "unknown", "not there", files={f"{CPU}/smt/active": None}),
    Case("SMT", "unknown", "outer hypervisor decides", host="virtual"),
    Case("SMT", "warning", "share a core", host="virtual", files={f"{CPU}/smt/active": "1\n"}),
    Case("idle states", "warning", "C6 wakes in 133 us", files={f"{CPU}/cpu1/cpuidle/state2/disable": "0\n"}),
    Case("idle states", "unknown", "not a counter", files={f"{CPU}/cpu1/cpuidle/state2/latency": "-1\n"}),
    Case("offline CPUs", "warning", "CPUs 1,3", files={f"{CPU}/present": "0-3\n", f"{CPU}/online": "0,2\n"}),
    Case("offline CPUs", "ok", "switched off", files={f"{CPU}/present": "0-3\n", f"{CPU}/smt/control": "off\n"}),
    Case("offline CPUs", "unknown", "no CPU is online", files={f"{CPU}/online": "\n"}),
    Case("isolated CPUs", "warning", "isolated: 1", files={f"{CPU}/isolated": "1\n"}),
    Case("isolated CPUs", "warning", "nohz_full: 1", files={f"{CPU}/nohz_full": "1\n", f"{CPU}/isolated": None}),
    Case("isolated CPUs", "ok", "none", files={f"{CPU}/nohz_full": None}),
    Case("isolated CPUs", "unknown", "runs backwards", files={f"{CPU}/isolated": "3-1\n"}),
    Case("steal", "ok", "0.0 %", host="virtual"),
    Case("steal", "warning", "5.0 % of a CPU in 1.0 s", host="virtual", later={"/proc/stat": stat(steal=15)}),
    Case("steal", "ok", "0.0 %", host="virtual", later={"/proc/stat": stat(steal=9)}),
    Case("steal", "unknown", "zero since boot", host="virtual", files={"/proc/stat": stat(steal=0)}),
    Case("steal", "unknown", "times expected", files={"/proc/stat": "cpu 1 2\n"}),
    Case("steal", "unknown", "not there", later={"/proc/stat": None}),
    Case("hypervisor below", "warning", "itself a virtual machine", host="virtual"),
    Case("hypervisor below", "unknown", "does not report", files={"/proc/cpuinfo": "Features\t: fp asimd\n"}),
    Case(
        "guest halt polling",
        "warning",
        "200000 ns",
        host="virtual",
        files={
            f"{CPU}/cpuidle/current_driver": "haltpoll\n",
            "/sys/module/haltpoll/parameters/guest_halt_poll_ns": "200000\n",
        },
    ),
    Case(
        "guest halt polling",
        "ok",
        "off",
        host="virtual",
        files={
            f"{CPU}/cpuidle/current_driver": "haltpoll\n",
            "/sys/module/haltpoll/parameters/guest_halt_poll_ns": "0\n",
        },
    ),
    Case(
        "guest halt polling",
        "unknown",
        "not there",
        host="virtual",
        files={f"{CPU}/cpuidle/current_driver": "haltpoll\n"},
    ),
    Case("control groups", "warning", "no control groups", files={"/proc/mounts": "proc /proc proc rw 0 0\n"}),
    Case("control groups", "unknown", "type and options expected", files={"/proc/mounts": "cgroup2 /cg\n"}),
    Case("disk counts of groups", "warning", "not counting", files={"/proc/mounts": V1, V1_DISK: "Total 0\n"}),
    Case(
        "disk counts of groups", "warning", "1, counting", files={"/proc/mounts": V1, V1_DISK: "8:0 Read 1\nTotal 1\n"}
    ),
    Case("disk counts of groups", "warning", "without its blkio", files={"/proc/mounts": V1.replace("blkio", "pids")}),
    Case("disk counts of groups", "unknown", "permission denied", files={"/proc/mounts": V1, V1_DISK: errno.EACCES}),
    Case("schedstat", "warning", "all zero", files={"/proc/self/schedstat": "0 0 0\n"}),
    Case("schedstat", "warning", "missing", files={"/proc/self/schedstat": None}),
    Case("schedstat", "ok", "counting", files={"/proc/self/schedstat": "0 0 1\n"}),
    Case("schedstat", "unknown", "3 numbers expected", files={"/proc/self/schedstat": "5\n"}),
    Case("pressure (PSI)", "warning", "off", files={"/proc/pressure/cpu": None}),
    Case("pressure (PSI)", "unknown", "not a decimal", files={"/proc/pressure/cpu": PRESSURE.replace(".", ",")}),
    Case("interrupt time", "warning", "switched off", files={"/proc/pressure/irq": errno.EOPNOTSUPP}),
    Case(
        "interrupt time",
        "warning",
        "not built",
        files={"/proc/pressure/irq": None, config_path(): "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n"},
    ),
    Case(
        "interrupt time",
        "ok",
        "counted",
        files={"/proc/pressure/irq": None, config_path(): "CONFIG_X=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n"},
    ),
    Case(
        "interrupt time",
        "warning",
        "not built",
        files={"/proc/pressure/irq": None},
        answers={"kernel configuration": "CONFIG_X=y\n"},
    ),
    Case("interrupt time", "unknown", "kernel configuration", files={"/proc/pressure/irq": None}),
    Case("interrupt time", "unknown", "permission denied", files={"/proc/pressure/irq": errno.EACCES}),
    Case("run queues (BPF)", "ok", "not installed", answers={"path of cotenant-run-queue": ""}),
    Case(
        "run queues (BPF)",
        "warning",
        "refuses the BPF program: Invalid argument",
        answers=_refused("Invalid argument"),
    ),
    Case("run queues (BPF)", "unknown", "not permitted", answers=_refused("Operation not permitted")),
    Case("delays of tasks", "ok", "no disk_wait of containers: delays are not counted"),
    Case("delays of tasks", "ok", "disk_wait of containers", files={SWITCH: "1\n"}),
    Case("delays of tasks", "unknown", "0 found", files={SWITCH: None, "/proc/1/stat": "1 (init)"}),
    Case("cycles (perf events)", "ok", "cpi with run --hardware-counters"),
    Case("cycles (perf events)", "ok", "no cpi: without a PMU", answers={"perf events": "without a PMU"}),
    Case("cycles (perf events)", "unknown", "permission", answers={"perf events": "permission denied (run as root)"}),
    Case("caches and memory (resctrl)", "ok", "the processor or its hypervisor shows no such"),
    Case(
        "caches and memory (resctrl)",
        "ok",
        "(mount -t resctrl resctrl /sys/fs/resctrl)",
        files={"/proc/cpuinfo": "flags\t\t: fpu cqm_llc cqm_occup_llc cqm_mbm_total de\n"},
    ),
    Case(
        "caches and memory (resctrl)",
        "ok",
        "llc_mb and mem_bw_mb_s of instances in groups of their own (2)",
        files={
            "/sys/fs/resctrl/info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
            "/sys/fs/resctrl/mon_groups/shop/tasks": "7\n",
            "/sys/fs/resctrl/qemu-1-web/tasks": "9\n",
            "/sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy": "1\n",
        },
    ),
    Case(
        "daemons that move work",
        "warning",
        "irqbalance, numad",
        files={"/proc/5/comm": "irqbalance\n", "/proc/6/comm": "numad\n"},
    ),
    Case("NUMA balancing", "warning", "on", files={"/proc/sys/kernel/numa_balancing": "1\n"}),
    Case(
        "NUMA balancing",
        "ok",
        "one node",
        files={"/proc/sys/kernel/numa_balancing": "1\n", "/sys/devices/system/node/online": "0\n"},
    ),
    Case("NUMA balancing", "ok", "not in this kernel", files={"/proc/sys/kernel/numa_balancing": None}),
    Case(
        "NUMA balancing",
        "unknown",
        "not there",
        files={"/proc/sys/kernel/numa_balancing": None, "/proc/sys/kernel/osrelease": None},
    ),
    Case(
        "memory merging (KSM)",
        "warning",
        "9 pages shared",
        files={"/sys/kernel/mm/ksm/run": "1\n", "/sys/kernel/mm/ksm/pages_sharing": "9\n"},
    ),
    Case("memory merging (KSM)", "ok", "off", files={"/sys/kernel/mm/ksm/run": "2\n"}),
    Case(
        "memory merging (KSM)",
        "ok",
        "not in this kernel",
        files={"/sys/kernel/mm/ksm/run": None, "/sys/kernel/mm/ksm/pages_sharing": None},
    ),
    Case("memory merging (KSM)", "unknown", "not a counter", files={"/sys/kernel/mm/ksm/run": "on\n"}),
    Case("huge pages", "warning", "defrag always", files={f"{THP}/defrag": "[always] defer madvise never\n"}),
    Case(
        "huge pages",
        "ok",
        "enabled never",
        files={f"{THP}/defrag": "[always] never\n", f"{THP}/enabled": "always [never]\n"},
    ),
    Case("huge pages", "unknown", "nothing is chosen", files={f"{THP}/defrag": "always never\n"}),
    Case("swap", "warning", "0 MB out, 3 pages/s", later={"/proc/vmstat": VMSTAT.replace("pswpin 7", "pswpin 10")}),
    Case(
        "swap",
        "warning",
        "976 MB out",
        files={"/proc/meminfo": MEMINFO.replace("SwapFree:        8", "SwapFree:        7")},
    ),
    Case("swap", "ok", "none", files={"/proc/meminfo": MEMINFO.replace("8000000", "0")}),
    Case(
        "swap", "unknown", "no line pswpin", later={"/proc/vmstat": "pswpout 1\nballoon_inflate 0\nballoon_deflate 0\n"}
    ),
    Case("memory promised", "warning", "125 %", files={"/proc/meminfo": MEMINFO.replace("  4000000", " 30000000")}),
    Case(
        "memory promised",
        "unknown",
        "Committed_AS",
        files={"/proc/meminfo": MEMINFO.replace("Committed_AS:", "Committed_AS")},
    ),
    Case("memory stalls", "warning", "30.0 %", later={"/proc/pressure/memory": PRESSURE.replace("5000", "305000")}),
    Case("memory stalls", "unknown", "not there", files={"/proc/pressure/memory": None}),
    Case("balloon", "ok", "0 pages given", host="virtual"),
    Case(
        "balloon",
        "warning",
        "40 pages given",
        host="virtual",
        files={"/proc/vmstat": VMSTAT.replace("inflate 0", "inflate 40")},
    ),
    Case(
        "balloon",
        "warning",
        "8 pages/s",
        host="virtual",
        later={"/proc/vmstat": VMSTAT.replace("inflate 0", "inflate 4").replace("deflate 0", "deflate 4")},
    ),
    Case(
        "balloon",
        "unknown",
        "not a counter",
        host="virtual",
        later={"/proc/vmstat": VMSTAT.replace("inflate 0", "inflate x")},
    ),
    Case("clock source", "warning", "hpet", files={f"{CLOCK}/current_clocksource": "hpet\n"}),
    Case("clock source", "unknown", "is not known", files={f"{CLOCK}/current_clocksource": "sundial\n"}),
    Case("wall clock", "warning", "not synchronised", answers={"adjtimex status": 0x40}),
    Case("wall clock", "unknown", "adjtimex", answers={"adjtimex status": OSError(errno.ENOSYS, "no ctypes")}),
    Case("wall clock", "unknown", "not understood", answers={"adjtimex status": "yes"}),
    Case("halt polling", "warning", "200000 ns", files={KVM_POLL: "200000\n"}),
    Case("halt polling", "unknown", "not a counter", files={KVM_POLL: "N\n"}),
    Case("KVM counters", "warning", "no folder kvm", files={"/sys/kernel/debug/kvm/exits": None}),
    Case("nested KVM", "warning", "inside a virtual machine", host="virtual"),
    Case("nested KVM", "unknown", "/proc/1/comm is not there", host="virtual", files={"/proc/1/comm": None}),
    Case(
        "Dom0's CPUs",
        "warning",
        "any CPU",
        "dom0",
        answers={"xl vcpu-list Domain-0": VCPU_LIST.replace("r--      78.7  0-1", "r--      78.7  all")},
    ),
    Case("Dom0's CPUs", "unknown", "it is empty", "dom0", answers={"xl vcpu-list Domain-0": ""}),
    Case(
        "Dom0's CPUs",
        "unknown",
        "no vCPU of Domain-0",
        "dom0",
        answers={
            "xl vcpu-list Domain-0": VCPU_LIST.replace(
                "Domain-0                             0", "vm1                                  7"
            )
        },
    ),
    Case("Dom0's memory", "warning", "shrinks", "dom0", answers={"xl info": XL_INFO.replace("dom0_mem", "dom0mem")}),
    Case(
        "frequency governor",
        "warning",
        "ondemand",
        "dom0",
        answers={"xenpm get-cpufreq-para": CPUFREQ.replace(": performance\n", ": ondemand\n")},
    ),
    Case(
        "turbo",
        "warning",
        "enabled",
        "dom0",
        answers={"xenpm get-cpufreq-para": CPUFREQ.replace("disabled or n/a", "enabled")},
    ),
    Case(
        "SMT", "warning", "2 threads", "dom0", answers={"xl info": XL_INFO.replace("core       : 1", "core       : 2")}
    ),
    Case(
        "SMT", "unknown", "no number", "dom0", answers={"xl info": XL_INFO.replace("core       : 1", "core       : x")}
    ),
    Case(
        "idle states",
        "warning",
        "C2",
        "dom0",
        answers={"xenpm get-cpuidle-states": CPUIDLE.replace("state: C1", "state: C7")},
    ),
    Case(
        "idle states",
        "warning",
        "C2",
        "dom0",
        answers={"xenpm get-cpuidle-states": CPUIDLE.replace("Max possible C-state: C1", "All C-states allowed")},
    ),
    Case(
        "idle states",
        "unknown",
        "no idle states",
        "dom0",
        answers={"xenpm get-cpuidle-states": "Max possible C-state: C7\n"},
    ),
    Case(
        "scheduler rate limit",
        "warning",
        "0 us",
        "dom0",
        answers={"xl sched-credit2 -s": "Cpupool Pool-0: ratelimit=0us\n"},
    ),
    Case(
        "scheduler rate limit",
        "unknown",
        "no rate limit",
        "dom0",
        answers={"xl sched-credit2 -s": "Cpupool Pool-0: [sched params unavailable]\n"},
    ),
    Case("xentrace", "warning", "not installed", "dom0", answers={"path of xentrace": None}),
    Case("xentrace", "unknown", "cannot open", "dom0", answers={"path of xentrace": FAILED}),
    Case(
        "network rings",
        "warning",
        "not mounted",
        "dom0",
        files={"/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0": None},
    ),
    Case(
        "network rings",
        "unknown",
        "no guest has",
        "dom0",
        files={"/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0": None, "/sys/kernel/debug/sched/features": "\n"},
    ),
]
