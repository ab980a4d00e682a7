"""A host in memory with guests under libvirt: its bulk statistics and XML, and QEMU's processes in /proc."""

from __future__ import annotations

from typing import Any

from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.libvirt.connection import LibvirtConnection
from tests.profiler.fake_host import FakeHost

UUID = "b9e6c92f-9135-4c69-87a6-{:012d}"
RUNNING, PAUSED, CRASHED = 1, 3, 6
SCHEDULER = {"cpu_shares": 2048, "vcpu_period": 20_000, "vcpu_quota": 15_000, "global_period": 100_000}
STARTED = "54321"


def domain_xml(name: str, vcpus: int = 2, tuning: str = "", devices: str = "") -> str:
    """A domain as libvirt 9 prints it, cut down to what matters."""
    return (
        f"<domain type='kvm' id='1'><name>{name}</name><memory unit='KiB'>2097152</memory>"
        f"<currentMemory unit='KiB'>1048576</currentMemory><vcpu placement='static'>{vcpus}</vcpu>"
        f"{tuning}<devices>{devices}</devices></domain>"
    )


PINNED = "<cputune><shares>2048</shares><vcpupin vcpu='0' cpuset='0-1'/><vcpupin vcpu='1' cpuset='3'/></cputune>"
LIMITED = (
    "<disk type='file' device='disk'><target dev='vda'/><iotune><total_bytes_sec>2000000</total_bytes_sec></iotune>"
    "</disk><interface type='bridge'><bandwidth><inbound average='9'/><outbound average='1000' peak='2000'/>"
    "</bandwidth></interface>"
)

DIRECT = "<disk type='file'><driver cache='none'/><source file='/images/a.raw'/></disk>"
CACHED = LIMITED.replace(
    "<target dev='vda'/>", "<driver cache='writeback'/><source file='/images/a.raw'/><target dev='vda'/>"
)


def stats_of(net_bytes: int, disk_bytes: int, state: int = RUNNING) -> dict[str, Any]:
    """One domain's dictionary as libvirt 9 gives it, with an empty CD drive beside the disk."""
    return {
        "state.state": state, "state.reason": 1,
        "net.count": 1, "net.0.name": "vnet0", "net.0.rx.bytes": net_bytes, "net.0.tx.bytes": 0,
        "net.0.rx.drop": 0, "net.0.tx.drop": 0, "balloon.current": 786_432, "balloon.maximum": 1_048_576,
        "block.count": 2, "block.0.name": "vda", "block.0.path": "/images/a.qcow2", "block.0.rd.bytes": disk_bytes,
        "block.0.wr.bytes": 0, "block.0.rd.reqs": 2, "block.0.rd.times": 0, "block.0.wr.reqs": 0, "block.0.wr.times": 0,
        "block.0.fl.reqs": 0, "block.0.fl.times": 0, "block.1.name": "hda",
    }  # fmt: skip


class LibvirtHost(FakeHost):
    """`domains` are what libvirt lists, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.files["/proc/mounts"] = "cgroup /cg/cpu cgroup rw,cpu 0 0\n"
        self.domains: dict[str, list[Any]] = {}
        self.values["libvirt version"] = 9_000_000
        self.values["libvirt domstats"] = []
        self.values["libvirt vcpustats"] = OSError(5, "nothing answers here")

    def guest(
        self, name: str, number: int = 1, *, net_bytes: int = 0, disk_bytes: int = 0, state: int = RUNNING
    ) -> None:
        """A domain with two vCPUs and one emulator thread, in process `number` · 100."""
        uuid = UUID.format(number)
        self.domains[name] = [number, uuid, name, stats_of(net_bytes, disk_bytes, state)]
        self.values["libvirt domstats"] = list(self.domains.values())
        self.values[f"libvirt xml {uuid}"] = domain_xml("any", tuning=PINNED, devices=CACHED)
        self.values[f"libvirt scheduler {uuid}"] = dict(SCHEDULER)
        self.values.setdefault("libvirt processes", {})
        self.process(name, uuid, number * 100)

    def process(self, name: str, uuid: str, pid: int, started: str = STARTED) -> None:
        """QEMU as libvirt starts it; its threads are pid + 1 and pid + 2 (vCPUs) and pid itself."""
        self.files |= {
            f"/run/libvirt/qemu/{name}.pid": f"{pid}\n",
            f"/proc/{pid}/cmdline": f"/usr/bin/qemu\0-name\0guest={name},debug-threads=on\0-uuid\0{uuid}\0-S\0",
            f"/proc/{pid}/stat": f"{pid} (qemu (x) 1) S " + "0 " * 18 + f"{started} 0 0\n",
        }
        for tid, thread in ((pid, "qemu-system-x86"), (pid + 1, "CPU 0/KVM"), (pid + 2, "CPU 1/KVM")):
            self.files[f"/proc/{tid}/comm"] = f"{thread}\n"
            self.files[f"/proc/{pid}/task/{tid}/comm"] = f"{thread}\n"
            self.thread(tid, 1_000_000, 500_000, 10)
        self.files[f"/proc/{pid}/statm"] = "700 512 9 1 0 80 0\n"
        self.files[f"/proc/{pid}/status"] = "Name:\tqemu\nVmSwap:\t    3072 kB\n"

    def thread(self, tid: int, run_ns: int, wait_ns: int, slices: int, voluntary: int = 4) -> None:
        """What the scheduler counted for one thread."""
        self.task(tid, run_ns, wait_ns, slices, voluntary)

    def end(self, pid: int) -> None:
        """The process is gone; libvirt may still list its domain."""
        gone = [path for path in self.files if path.startswith(tuple(f"/proc/{pid + thread}/" for thread in range(3)))]
        for path in gone:
            del self.files[path]

    def gone(self, name: str) -> None:
        """libvirt lists the domain no more, and its process is gone."""
        number = self.domains.pop(name)[0]
        self.values["libvirt domstats"] = list(self.domains.values())
        self.end(number * 100)


def open_backend(host: LibvirtHost) -> LibvirtBackend:
    """The backend on a fake host."""
    return LibvirtBackend(host, "h1", LibvirtConnection("fake:///"))
