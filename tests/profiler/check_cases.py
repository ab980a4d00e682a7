"""What can be wrong with a host, one thing at a time, and what the check of it then says."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
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
HALTPOLL = {f"{CPU}/cpuidle/current_driver": "haltpoll\n"}
GUEST_POLL = "/sys/module/haltpoll/parameters/guest_halt_poll_ns"
IRQ = "/proc/pressure/irq"
RING = "/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0"
OF_VM1 = VCPU_LIST.replace(f"Domain-0{0:30}", f"vm1{7:35}")
ALL_STATES = "All C-states allowed"
CACHE_FLAGS = "cqm_llc cqm_occup_llc cqm_mbm_total"
FAILED = OSError(errno.EIO, "xl failed with 1: cannot open libxl")


Change = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """What is done to a quiet host, and what the check named `name` then says; the others must not change.

    `now` and `later` (while it is watched) hold files by their path (None = it is not there), and what tools answer.
    """

    name: str
    host: str
    state: str
    shows: str
    now: Change = field(default_factory=dict)
    later: Change = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.host}: {self.name} {self.state}: {self.shows}"


# By the check's name: the state, what is shown, and what is done now and later.
Checks = Mapping[str, Sequence[tuple[Any, ...]]]


def _governors(*names: str | None) -> dict[str, str | int | None]:
    return {f"{CPU}/cpu{number}/cpufreq/scaling_governor": name for number, name in enumerate(names)}


def _refused(why: str) -> dict[str, Any]:
    said = f"cotenant-run-queue failed with 1: the kernel refuses the BPF program: {why}"
    return {"cotenant-run-queue --check": OSError(errno.EIO, said)}


BARE: Checks = {
    "frequency governor": [
        ("warning", "performance on CPUs 0, powersave on CPUs 1", _governors("performance", "powersave\n")),
        ("ok", "performance on CPUs 1", _governors(None, "performance\n")),
        ("unknown", "shows no governor", _governors(None, None)),
        ("unknown", "is no governor", _governors("performance", "\x1b[31m")),
    ],
    "turbo": [
        ("warning", "on", {f"{CPU}/cpufreq/boost": "1\n"}),
        ("warning", "on", {f"{CPU}/intel_pstate/no_turbo": "0\n"}),
        ("ok", "off", {f"{CPU}/intel_pstate/no_turbo": "1\n", f"{CPU}/cpufreq/boost": None}),
        ("unknown", "no switch", {f"{CPU}/cpufreq/boost": None}),
        ("unknown", "neither 0 nor 1", {f"{CPU}/cpufreq/boost": "yes\n"}),
    ],
    "SMT": [
        ("warning", "share a core", {f"{CPU}/smt/active": "1\n"}),
        ("unknown", "not there", {f"{CPU}/smt/active": None}),
    ],
    "idle states": [
        ("warning", "C6 wakes in 133 us", {f"{CPU}/cpu1/cpuidle/state2/disable": "0\n"}),
        ("unknown", "not a counter", {f"{CPU}/cpu1/cpuidle/state2/latency": "-1\n"}),
    ],
    "offline CPUs": [
        ("warning", "CPUs 1,3", {f"{CPU}/present": "0-3\n", f"{CPU}/online": "0,2\n"}),
        ("ok", "switched off", {f"{CPU}/present": "0-3\n", f"{CPU}/smt/control": "off\n"}),
        ("unknown", "no CPU is online", {f"{CPU}/online": "\n"}),
    ],
    "isolated CPUs": [
        ("warning", "isolated: 1", {f"{CPU}/isolated": "1\n"}),
        ("warning", "nohz_full: 1", {f"{CPU}/nohz_full": "1\n", f"{CPU}/isolated": None}),
        ("ok", "none", {f"{CPU}/nohz_full": None}),
        ("unknown", "runs backwards", {f"{CPU}/isolated": "3-1\n"}),
    ],
    "steal": [
        ("unknown", "times expected", {"/proc/stat": "cpu 1 2\n"}),
        ("unknown", "not there", {}, {"/proc/stat": None}),
    ],
    "hypervisor below": [("unknown", "does not report", {"/proc/cpuinfo": "Features\t: fp asimd\n"})],
    "control groups": [
        ("warning", "no control groups", {"/proc/mounts": "proc /proc proc rw 0 0\n"}),
        ("unknown", "type and options expected", {"/proc/mounts": "cgroup2 /cg\n"}),
    ],
    "disk counts of groups": [
        ("warning", "not counting", {"/proc/mounts": V1, V1_DISK: "Total 0\n"}),
        ("warning", "1, counting", {"/proc/mounts": V1, V1_DISK: "8:0 Read 1\nTotal 1\n"}),
        ("warning", "without its blkio", {"/proc/mounts": V1.replace("blkio", "pids")}),
        ("unknown", "permission denied", {"/proc/mounts": V1, V1_DISK: errno.EACCES}),
    ],
    "schedstat": [
        ("warning", "all zero", {"/proc/self/schedstat": "0 0 0\n"}),
        ("warning", "missing", {"/proc/self/schedstat": None}),
        ("ok", "counting", {"/proc/self/schedstat": "0 0 1\n"}),
        ("unknown", "3 numbers expected", {"/proc/self/schedstat": "5\n"}),
    ],
    "pressure (PSI)": [
        ("warning", "off", {"/proc/pressure/cpu": None}),
        ("unknown", "not a decimal", {"/proc/pressure/cpu": PRESSURE.replace(".", ",")}),
    ],
    "interrupt time": [
        ("warning", "switched off", {IRQ: errno.EOPNOTSUPP}),
        ("warning", "not built", {IRQ: None, config_path(): "# CONFIG_IRQ_TIME_ACCOUNTING is not set\n"}),
        ("ok", "counted", {IRQ: None, config_path(): "CONFIG_X=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n"}),
        ("warning", "not built", {IRQ: None, "kernel configuration": "CONFIG_X=y\n"}),
        ("unknown", "kernel configuration", {IRQ: None}),
        ("unknown", "permission denied", {IRQ: errno.EACCES}),
    ],
    "run queues (BPF)": [
        ("ok", "not installed", {"path of cotenant-run-queue": ""}),
        ("warning", "refuses the BPF program: Invalid argument", _refused("Invalid argument")),
        ("unknown", "not permitted", _refused("Operation not permitted")),
    ],
    "delays of tasks": [
        ("ok", "no disk_wait of containers: delays are not counted"),
        ("ok", "disk_wait of containers", {SWITCH: "1\n"}),
        ("unknown", "0 found", {SWITCH: None, "/proc/1/stat": "1 (init)"}),
    ],
    "cycles (perf events)": [
        ("ok", "cpi with run --hardware-counters"),
        ("ok", "no cpi: without a PMU", {"perf events": "without a PMU"}),
        ("unknown", "permission", {"perf events": "permission denied (run as root)"}),
    ],
    "caches and memory (resctrl)": [
        ("ok", "the processor or its hypervisor shows no such"),
        ("ok", "(mount -t resctrl resctrl /sys/fs/resctrl)", {"/proc/cpuinfo": f"flags\t\t: fpu {CACHE_FLAGS} de\n"}),
        (
            "ok",
            "llc_mb and mem_bw_mb_s of instances in groups of their own (2)",
            {
                "/sys/fs/resctrl/info/L3_MON/mon_features": "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n",
                "/sys/fs/resctrl/mon_groups/shop/tasks": "7\n",
                "/sys/fs/resctrl/qemu-1-web/tasks": "9\n",
                "/sys/fs/resctrl/mon_data/mon_L3_00/llc_occupancy": "1\n",
            },
        ),
    ],
    "daemons that move work": [
        ("warning", "irqbalance, numad", {"/proc/5/comm": "irqbalance\n", "/proc/6/comm": "numad\n"})
    ],
    "NUMA balancing": [
        ("warning", "on", {"/proc/sys/kernel/numa_balancing": "1\n"}),
        ("ok", "one node", {"/proc/sys/kernel/numa_balancing": "1\n", "/sys/devices/system/node/online": "0\n"}),
        ("ok", "not in this kernel", {"/proc/sys/kernel/numa_balancing": None}),
        ("unknown", "not there", {"/proc/sys/kernel/numa_balancing": None, "/proc/sys/kernel/osrelease": None}),
    ],
    "memory merging (KSM)": [
        ("warning", "9 pages shared", {"/sys/kernel/mm/ksm/run": "1\n", "/sys/kernel/mm/ksm/pages_sharing": "9\n"}),
        ("ok", "off", {"/sys/kernel/mm/ksm/run": "2\n"}),
        ("ok", "not in this kernel", {"/sys/kernel/mm/ksm/run": None, "/sys/kernel/mm/ksm/pages_sharing": None}),
        ("unknown", "not a counter", {"/sys/kernel/mm/ksm/run": "on\n"}),
    ],
    "huge pages": [
        ("warning", "defrag always", {f"{THP}/defrag": "[always] defer madvise never\n"}),
        ("ok", "enabled never", {f"{THP}/defrag": "[always] never\n", f"{THP}/enabled": "always [never]\n"}),
        ("unknown", "nothing is chosen", {f"{THP}/defrag": "always never\n"}),
    ],
    "swap": [
        ("warning", "0 MB out, 3 pages/s", {}, {"/proc/vmstat": VMSTAT.replace("pswpin 7", "pswpin 10")}),
        ("warning", "976 MB out", {"/proc/meminfo": MEMINFO.replace("SwapFree:        8", "SwapFree:        7")}),
        ("ok", "none", {"/proc/meminfo": MEMINFO.replace("8000000", "0")}),
        ("unknown", "no line pswpin", {}, {"/proc/vmstat": "pswpout 1\nballoon_inflate 0\nballoon_deflate 0\n"}),
    ],
    "memory promised": [
        ("warning", "125 %", {"/proc/meminfo": MEMINFO.replace("  4000000", " 30000000")}),
        ("unknown", "Committed_AS", {"/proc/meminfo": MEMINFO.replace("Committed_AS:", "Committed_AS")}),
    ],
    "memory stalls": [
        ("warning", "30.0 %", {}, {"/proc/pressure/memory": PRESSURE.replace("5000", "305000")}),
        ("unknown", "not there", {"/proc/pressure/memory": None}),
    ],
    "clock source": [
        ("warning", "hpet", {f"{CLOCK}/current_clocksource": "hpet\n"}),
        ("unknown", "is not known", {f"{CLOCK}/current_clocksource": "sundial\n"}),
    ],
    "wall clock": [
        ("warning", "not synchronised", {"adjtimex status": 0x40}),
        ("unknown", "adjtimex", {"adjtimex status": OSError(errno.ENOSYS, "no ctypes")}),
        ("unknown", "not understood", {"adjtimex status": "yes"}),
    ],
    "halt polling": [
        ("warning", "200000 ns", {KVM_POLL: "200000\n"}),
        ("unknown", "not a counter", {KVM_POLL: "N\n"}),
    ],
    "KVM counters": [("warning", "no folder kvm", {"/sys/kernel/debug/kvm/exits": None})],
}
VIRTUAL: Checks = {
    "SMT": [
        ("unknown", "outer hypervisor decides"),
        ("warning", "share a core", {f"{CPU}/smt/active": "1\n"}),
    ],
    "steal": [
        ("ok", "0.0 %"),
        ("warning", "5.0 % of a CPU in 1.0 s", {}, {"/proc/stat": stat(steal=15)}),
        ("ok", "0.0 %", {}, {"/proc/stat": stat(steal=9)}),
        ("unknown", "zero since boot", {"/proc/stat": stat(steal=0)}),
    ],
    "hypervisor below": [("warning", "itself a virtual machine")],
    "guest halt polling": [
        ("warning", "200000 ns", {**HALTPOLL, GUEST_POLL: "200000\n"}),
        ("ok", "off", {**HALTPOLL, GUEST_POLL: "0\n"}),
        ("unknown", "not there", HALTPOLL),
    ],
    "balloon": [
        ("ok", "0 pages given"),
        ("warning", "40 pages given", {"/proc/vmstat": VMSTAT.replace("inflate 0", "inflate 40")}),
        ("warning", "8 pages/s", {}, {"/proc/vmstat": VMSTAT.replace("flate 0", "flate 4")}),
        ("unknown", "not a counter", {}, {"/proc/vmstat": VMSTAT.replace("inflate 0", "inflate x")}),
    ],
    "nested KVM": [
        ("warning", "inside a virtual machine"),
        ("unknown", "/proc/1/comm is not there", {"/proc/1/comm": None}),
    ],
}
DOM0: Checks = {
    "Dom0's CPUs": [
        ("warning", "any CPU", {"xl vcpu-list Domain-0": VCPU_LIST.replace("78.7  0-1", "78.7  all")}),
        ("unknown", "it is empty", {"xl vcpu-list Domain-0": ""}),
        ("unknown", "no vCPU of Domain-0", {"xl vcpu-list Domain-0": OF_VM1}),
    ],
    "Dom0's memory": [("warning", "shrinks", {"xl info": XL_INFO.replace("dom0_mem", "dom0mem")})],
    "frequency governor": [
        ("warning", "ondemand", {"xenpm get-cpufreq-para": CPUFREQ.replace(": performance\n", ": ondemand\n")})
    ],
    "turbo": [("warning", "enabled", {"xenpm get-cpufreq-para": CPUFREQ.replace("disabled or n/a", "enabled")})],
    "SMT": [
        ("warning", "2 threads", {"xl info": XL_INFO.replace("core       : 1", "core       : 2")}),
        ("unknown", "no number", {"xl info": XL_INFO.replace("core       : 1", "core       : x")}),
    ],
    "idle states": [
        ("warning", "C2", {"xenpm get-cpuidle-states": CPUIDLE.replace("state: C1", "state: C7")}),
        ("warning", "C2", {"xenpm get-cpuidle-states": CPUIDLE.replace("Max possible C-state: C1", ALL_STATES)}),
        ("unknown", "no idle states", {"xenpm get-cpuidle-states": "Max possible C-state: C7\n"}),
    ],
    "scheduler rate limit": [
        ("warning", "0 us", {"xl sched-credit2 -s": "Cpupool Pool-0: ratelimit=0us\n"}),
        ("unknown", "no rate limit", {"xl sched-credit2 -s": "Cpupool Pool-0: [sched params unavailable]\n"}),
    ],
    "xentrace": [
        ("warning", "not installed", {"path of xentrace": None}),
        ("unknown", "cannot open", {"path of xentrace": FAILED}),
    ],
    "network rings": [
        ("warning", "not mounted", {RING: None}),
        ("unknown", "no guest has", {RING: None, "/sys/kernel/debug/sched/features": "\n"}),
    ],
}
CASES = [
    Case(name, host, *row)
    for host, checks in {"bare": BARE, "virtual": VIRTUAL, "dom0": DOM0}.items()
    for name, rows in checks.items()
    for row in rows
]
