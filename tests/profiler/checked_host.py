"""Hosts in memory for the checks: a quiet bare machine, a virtual one and a Dom0, to which a test does one thing."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

from profiler.checks import Check, check_host
from tests.profiler.fake_host import FakeHost

CPU = "/sys/devices/system/cpu"
KVM_POLL = "/sys/module/kvm/parameters/halt_poll_ns"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000\n"
VMSTAT = "pswpin 7\npswpout 7\nballoon_inflate 0\nballoon_deflate 0\n"
MEMINFO = (
    "MemTotal:       16000000 kB\nSwapTotal:       8000000 kB\nSwapFree:        8000000 kB\n"
    "Committed_AS:    4000000 kB\nHugePages_Total:       0\n"
)
XL_INFO = (
    "host                   : dom0\nnr_cpus                : 8\nthreads_per_core       : 1\n"
    "xen_scheduler          : credit2\nxen_commandline        : placeholder dom0_mem=4096M,max:4096M dom0_max_vcpus=2\n"
)
VCPU_LIST = (
    "Name                                ID  VCPU   CPU State   Time(s) Affinity (Hard / Soft)\n"
    "Domain-0                             0     0    0   r--      78.7  0-1 / all\n"
    "Domain-0                             0     1    1   -b-      16.3  0-1 / all\n"
)
CPUFREQ = (
    "cpu id               : 0\nscaling_driver       : acpi-cpufreq\nscaling_avail_gov    : performance ondemand\n"
    "current_governor     : performance\nturbo mode           : disabled or n/a\n"
)
CPUIDLE = (
    "Max possible C-state: C1\n\ncpu id               : 0\ntotal C-states       : 3\n"
    "C0                   : transition [                   1]\n"
    "C1                   : transition [                   1]\n"
    "C2                   : transition [                   0]\n"
)


class CheckedHost(FakeHost):
    """A FakeHost that also answers `value`, hides folders, and changes while it is watched.

    `files` holds text or an errno; `answers` holds what tools say, or an OSError.
    """

    def __init__(self, files: Mapping[str, str], answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.files = dict(files)
        self.answers = dict(answers)
        self.asked: list[str] = []
        self.hidden: set[str] = set()
        self.wall_step_s = 0.0

    def change(self, changes: Mapping[str, Any]) -> None:
        """Files by their path, None = it is taken away, and what tools answer."""
        for name, content in changes.items():
            if not name.startswith("/"):
                self.answers[name] = content
            elif content is None:
                self.files.pop(name, None)
            else:
                self.files[name] = content

    def names(self, path: str) -> list[str]:
        if path in self.hidden:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().names(path)

    def value(self, key: str, _read: Callable[[], Any]) -> Any:
        self.asked.append(key)
        answer = self.answers.get(key, OSError(errno.ENOENT, os.strerror(errno.ENOENT)))
        if isinstance(answer, OSError):
            raise answer
        return answer

    def checks(self, later: Mapping[str, Any] | None = None) -> dict[str, Check]:
        """Check by name; `later` is what changes while the host is watched, for one second."""

        def watch(seconds: float) -> None:
            self.change(later or {})
            self.later(seconds)
            self.now = (self.now[0] + self.wall_step_s, self.now[1])

        found = check_host(self, watch)
        assert len({check.name for check in found}) == len(found)
        return {check.name: check for check in found}


def bare_host() -> CheckedHost:
    """A bare machine with version 2 groups, KVM and one KVM guest, on which nothing distorts anything."""
    files = {
        "/proc/cpuinfo": "processor\t: 0\nflags\t\t: fpu vme de\n",
        "/proc/stat": stat(steal=0),
        "/proc/mounts": "cgroup2 /cg cgroup2 rw 0 0\n",
        "/proc/vmstat": VMSTAT,
        "/proc/meminfo": MEMINFO,
        "/proc/self/schedstat": "12345 67 8\n",
        "/proc/self/status": "Name:\tpython\n",
        "/proc/pressure/cpu": PRESSURE,
        "/proc/pressure/memory": PRESSURE,
        "/proc/pressure/irq": "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n",
        "/proc/1/comm": "systemd\n",
        "/proc/77/comm": "qemu-system-x86\n",
        "/proc/77/task/78/comm": "CPU 0/KVM\n",
        "/proc/sys/kernel/osrelease": "6.1.0\n",
        "/proc/sys/kernel/numa_balancing": "0\n",
        "/proc/sys/kernel/task_delayacct": "0\n",
        f"{CPU}/online": "0-1\n",
        f"{CPU}/present": "0-1\n",
        f"{CPU}/isolated": "\n",
        f"{CPU}/nohz_full": "(null)\n",
        f"{CPU}/smt/active": "0\n",
        f"{CPU}/smt/control": "notsupported\n",
        f"{CPU}/cpufreq/boost": "0\n",
        f"{CPU}/cpuidle/current_driver": "intel_idle\n",
        "/sys/devices/system/node/online": "0-1\n",
        "/sys/kernel/mm/ksm/run": "0\n",
        "/sys/kernel/mm/ksm/pages_sharing": "0\n",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "/sys/kernel/mm/transparent_hugepage/defrag": "always defer defer+madvise [madvise] never\n",
        "/sys/kernel/debug/kvm/exits": "1\n",
        "/sys/kernel/debug/sched/features": "\n",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
        "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet acpi_pm \n",
        KVM_POLL: "0\n",
    }
    for cpu in (0, 1):
        files |= {
            f"{CPU}/cpu{cpu}/cpufreq/scaling_governor": "performance\n",
            f"{CPU}/cpu{cpu}/cpuidle/state1/name": "C1\n",
            f"{CPU}/cpu{cpu}/cpuidle/state1/latency": "2\n",
            f"{CPU}/cpu{cpu}/cpuidle/state1/disable": "0\n",
            f"{CPU}/cpu{cpu}/cpuidle/state2/name": "C6\n",
            f"{CPU}/cpu{cpu}/cpuidle/state2/latency": "133\n",
            f"{CPU}/cpu{cpu}/cpuidle/state2/disable": "1\n",
        }
    answers = {"path of cotenant-run-queue": "/usr/local/bin/cotenant-run-queue", "cotenant-run-queue --check": ""}
    answers["perf events"] = ""
    return CheckedHost(files, {"adjtimex status": 0x2001, **answers})


def virtual_host() -> CheckedHost:
    """The same as a guest of some hypervisor that reports steal."""
    host = bare_host()
    host.change({"/proc/cpuinfo": "flags\t: fpu hypervisor lahf_lm\n", "/proc/stat": stat(steal=10)})
    return host


def dom0() -> CheckedHost:
    """A Dom0 on which nothing distorts anything."""
    host = bare_host()
    host.change({path: None for path in list(host.files) if path.startswith(("/sys/kernel/debug/", CPU))})
    host.change(
        {
            "/proc/xen/capabilities": "control_d\n",
            "/sys/kernel/debug/xen-netback/vif1.0/io_ring_q0": "x\n",
            "/sys/devices/system/clocksource/clocksource0/current_clocksource": "xen\n",
        }
    )
    host.answers = {
        "adjtimex status": 0x2001,
        "xl info": XL_INFO,
        "xl vcpu-list Domain-0": VCPU_LIST,
        "xl sched-credit2 -s": "Cpupool Pool-0: ratelimit=1000us\n",
        "xenpm get-cpufreq-para": CPUFREQ,
        "xenpm get-cpuidle-states": CPUIDLE,
        "path of xentrace": "/usr/sbin/xentrace",
    }
    return host


def stat(steal: int) -> str:
    return f"cpu  100 0 50 1000 0 0 10 {steal} 0 0\ncpu0 100 0 50 1000 0 0 10 {steal} 0 0\nctxt 500\nsoftirq 1 0\n"


def config_path() -> str:
    return f"/boot/config-{platform.release()}"
