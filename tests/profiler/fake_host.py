"""A host in memory: files of control groups and /proc that a test can change between two readings."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class FakeHost:
    """A Source. `files` maps paths to text, or to an errno that reading gives; `values` tools' answers by key."""

    def __init__(self) -> None:
        self.files: dict[str, str | int] = {
            "/proc/stat": "cpu  100 0 50 1000 0 0 10 0 0 0\ncpu0 100 0 50 1000 0 0 10 0 0 0\nctxt 500\n"
            "softirq 30 0 0 5 10 15 0 0 0 0 0\n",
            "/proc/net/dev": "lo: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        }
        self.values: dict[str, Any] = {}
        self.links: dict[str, str] = {"/proc/1/ns/net": "net:[1]"}
        self.now = (1_000.0, 10.0)

    def read(self, path: str) -> str:
        value = self.files.get(path, errno.ENOENT)
        if isinstance(value, int):
            raise OSError(value, os.strerror(value), path)
        return value

    def names(self, path: str) -> list[str]:
        prefix = f"{path}/"
        found = {known[len(prefix) :].split("/")[0] for known in self.files if known.startswith(prefix)}
        nested = {name for name in found if any(known.startswith(f"{prefix}{name}/") for known in self.files)}
        if not found:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(nested)

    def link(self, path: str) -> str:
        if path not in self.links:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.links[path]

    def clock(self) -> tuple[float, float]:
        return self.now

    def value(self, key: str, read: Callable[[], T]) -> T:
        """What a test put under the key; never the real host's answer."""
        if key not in self.values:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), key)
        if isinstance(self.values[key], OSError):
            raise self.values[key]
        return self.values[key]  # type: ignore[no-any-return]

    def sweep(self, *, ended: bool = False) -> None:
        """Nothing is kept open."""

    def close(self) -> None:
        """Nothing is kept open."""

    def later(self, seconds: float = 1.0) -> None:
        self.now = (self.now[0] + seconds, self.now[1] + seconds)

    def task(self, tid: int, run_ns: int, wait_ns: int = 0, slices: int = 0, switches: int = 0) -> None:
        base = f"/proc/{tid}/task/{tid}"
        self.files[f"{base}/schedstat"] = f"{run_ns} {wait_ns} {slices}\n"
        self.files[f"{base}/status"] = (
            f"Tgid:\t{tid}\nVmRSS:\t1024 kB\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
        )
        self.files[f"/proc/{tid}/statm"] = "1000 256 100 1 0 50 0\n"
        self.files[f"/proc/{tid}/net/dev"] = "eth0: 8192 2 0 0 0 0 0 0 8192 2 0 0 0 0 0 0\n"
        self.links[f"/proc/{tid}/ns/net"] = "net:[7]"

    def version_1(self, path: str, tids: list[int], usage_ns: int) -> None:
        """A container with CPUs 0-1, capped to 150 %, weight twice the default."""
        self.files["/proc/mounts"] = "".join(
            f"cgroup /cg/{name} cgroup rw,{name} 0 0\n" for name in ("cpu", "cpuacct", "cpuset", "blkio")
        )
        self.files |= {
            f"/cg/cpuacct/{path}/tasks": "".join(f"{tid}\n" for tid in tids),
            f"/cg/cpuacct/{path}/cgroup.procs": "".join(f"{tid}\n" for tid in tids),
            f"/cg/cpuacct/{path}/cpuacct.usage": f"{usage_ns}\n",
            f"/cg/cpuacct/{path}/cpuacct.usage_sys": f"{usage_ns // 2}\n",
            f"/cg/cpu/{path}/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
            f"/cg/cpu/{path}/cpu.shares": "2048\n",
            f"/cg/cpu/{path}/cpu.cfs_quota_us": "150000\n",
            f"/cg/cpu/{path}/cpu.cfs_period_us": "100000\n",
            f"/cg/cpuset/{path}/cpuset.effective_cpus": "0-1\n",
            f"/cg/blkio/{path}/blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 0\nTotal 4096\n",
            f"/cg/blkio/{path}/blkio.throttle.read_bps_device": "8:0 2000000\n",
            f"/cg/blkio/{path}/blkio.throttle.write_bps_device": "8:0 2000000\n",
        }

    def version_2(self, path: str, tids: list[int], usage_us: int) -> None:
        """The same container under version 2."""
        self.files["/proc/mounts"] = "cgroup2 /cg cgroup2 rw 0 0\n"
        self.files |= {
            f"/cg/{path}/cgroup.threads": "".join(f"{tid}\n" for tid in tids),
            f"/cg/{path}/cgroup.procs": "".join(f"{tid}\n" for tid in tids),
            f"/cg/{path}/cpu.stat": f"usage_usec {usage_us}\nsystem_usec {usage_us // 2}\nthrottled_usec 0\n",
            f"/cg/{path}/cpu.max": "150000 100000\n",
            f"/cg/{path}/cpu.weight": "200\n",
            f"/cg/{path}/cpuset.cpus.effective": "0-1\n",
            f"/cg/{path}/io.stat": "8:0 rbytes=4096 wbytes=0 rios=1 wios=0\n",
            f"/cg/{path}/io.max": "8:0 rbps=2000000 wbps=2000000 riops=max wiops=max\n",
            f"/cg/{path}/cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
            f"/cg/{path}/io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
        }


def host_of_shop(version: int = 1) -> FakeHost:
    """A host with one container `shop` of one task, 7, in control groups of this version."""
    host = FakeHost()
    if version == 1:
        host.version_1("lxc/shop", [7], 1_000_000)
    else:
        host.version_2("lxc/shop", [7], 1_000)
    host.task(7, 1_000_000, 5, 3)
    return host
