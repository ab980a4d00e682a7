"""A QEMU guest: its process, disk, tap and agent channel, and the placement of its threads on CPUs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.errors import RunError
from lab.guests.channel import AgentChannel
from lab.guests.image import SCRATCH_TAG, BootImage
from lab.guests.qemu_command import GuestShape, qemu_command
from lab.guests.qmp import Qmp
from lab.processes import LabProcess, call
from lab.workloads import Site, Workload

BOOT_WITHIN_S = 90.0
_DISK_BYTES = 16 << 30  # sparse: what no file uses takes no space
_JOURNAL_MB = 16  # the default would take 128 MB of the host's disk for each guest
_ANY_SEGMENTS = 65_535  # the kernel's own limit (include/linux/netdevice.h, GSO_MAX_SEGS)
_TRIAL_S = 1  # the shortest run time that all tools accept
_BATCH = "/run/network"
_FILES = "/run/files"  # where a guest sees the host's files that it copies to its disk


class QemuGuest:
    """A guest from its start to its end. Its process lies in `groups`, its tap in the namespace `network`.

    `scratch` is the campaign's folder, which the guest sees at the same path; `files` is below it and is the mount
    point of the guest's own disk.
    """

    def __init__(
        self, shape: GuestShape, image: BootImage, groups: Sequence[str], network: str, scratch: Path, files: Path
    ) -> None:
        self.shape = shape
        self.files = files
        self._scratch = scratch
        self._home = tuple(groups)
        self._disk = scratch / f"{shape.name}.raw"
        make_disk(self._disk)
        agent, agent_end = socket.socketpair()
        control, control_end = socket.socketpair()
        with agent_end, control_end:
            ends = (agent_end.fileno(), control_end.fileno())
            command = qemu_command(shape, image, self._disk, scratch, *ends)
            self.process = LabProcess(command, groups=groups, network=network, directory=scratch, passed=ends)
        self._began = time.monotonic()
        self.channel = AgentChannel(agent, shape.name, self.console)
        self.control = Qmp(control, shape.name)
        self._copied: frozenset[tuple[str, int, int]] = frozenset()
        self._leads: dict[Workload, float] = {}
        self.boot_s: float | None = None

    def wait_up(self) -> None:
        """Wait for the agent, then give the guest its folders and its disk; RunError with the end of its console."""
        if not self.channel.wait_up(BOOT_WITHIN_S):
            raise RunError(
                f"guest {self.shape.name} did not come up within {time.monotonic() - self._began:.0f} s:"
                f" {self.console()[-400:] or 'its console is empty'}"
            )
        self.boot_s = time.monotonic() - self._began
        scratch, files, channel = str(self._scratch), str(self.files), self.channel
        channel.call("mkdir", "-p", scratch, _FILES)
        channel.call("mount", "-t", "9p", "-o", "trans=virtio,version=9p2000.L,msize=524288", SCRATCH_TAG, scratch)
        channel.call("mount", "--bind", files, _FILES)
        channel.call("mount", "-t", "ext4", "-o", "noatime", "/dev/vda", files)
        channel.write("/proc/sys/net/ipv6/conf/eth0/addr_gen_mode", "1")  # no packets of its own (ip-sysctl: none)

    def prepare(self, address: str, segments: int | None = None) -> None:
        """Before a run: the time of day, the address, and the files that the workload made on the host, uncached.

        `segments` is the most frames that the guest may make of one packet, None = no limit. Its link goes down so that
        it forgets its neighbours: the generators have another hardware address in every run.
        """
        channel = self.channel
        channel.ask("clock", seconds=time.time())
        limit = f"link set eth0 gso_max_segs {segments or _ANY_SEGMENTS}"
        lines = ["link set lo up", "link set eth0 down", "addr flush dev eth0", limit, "link set eth0 up"]
        channel.write(_BATCH, "\n".join([*lines, f"addr add {address}/24 dev eth0", ""]))
        channel.call("ip", "-batch", _BATCH)
        on_host = listing(self.files)
        if on_host != self._copied:
            channel.call("cp", "--archive", "--update", f"{_FILES}/.", f"{self.files}/", timeout_s=600.0)
            self._copied = on_host
        channel.ask("uncache", path=str(self.files))

    def lead_s(self, workload: Workload, site: Site) -> float:
        """The time that the workload's program needs in this guest beside its work, to start and to end, in seconds.

        An emulated CPU starts programs slowly, so this is tried: once so that the files are cached, and once by the
        clock, for a second of work. Load generators are outside, and start as fast as elsewhere.
        """
        if workload.has_generator or workload.fixed:
            return workload.lead_s
        if workload not in self._leads:
            command = workload.work(site, _TRIAL_S, None)
            for _ in range(2):
                began = time.monotonic()
                program = self.channel.start(command, site.directory)
                self.channel.wait(program, _TRIAL_S + BOOT_WITHIN_S)
                took = time.monotonic() - began
                program.check()
            self._leads[workload] = max(workload.lead_s, took - _TRIAL_S)
        return self._leads[workload]

    def deliver(self, directory: Path) -> None:
        """Nothing to do: a guest of this host sees the folder itself."""

    def place(self, groups: Sequence[str], cpus: Iterable[int], driver_cpus: Iterable[int]) -> None:
        """Move QEMU into control groups, its vCPUs onto these CPUs and its other threads onto the driver's."""
        join(groups, self.process.pid)
        vcpus = self.control.vcpu_threads()
        for thread in self.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus if thread in vcpus else driver_cpus)

    def rest(self) -> None:
        """After a run: end its programs, stop the guest's CPUs, and move QEMU out of the run's control groups."""
        self.channel.ask("signal", signal=int(signal.SIGKILL))
        self.control.do("stop")
        self.place(self._home, *[sorted(os.sched_getaffinity(0))] * 2)

    def wake(self) -> None:
        self.control.do("cont")

    def threads(self) -> list[int]:
        """All threads of QEMU, with the kernel's threads that carry its packets (vhost; QEMU's own since Linux 6.4)."""
        pid = self.process.pid
        own = [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208 - names only
        return own + (kernel_threads(f"vhost-{pid}") if self.shape.vhost else [])

    def console(self) -> str:
        """The output of the guest's kernel and of QEMU on one line."""
        return " ".join(f"{self.process.output()} {self.process.errors()}".split())

    def close(self) -> None:
        """End it; safe to repeat."""
        self.process.stop(patience_s=0)
        self.channel.close()
        self.control.close()
        self._disk.unlink(missing_ok=True)


def make_disk(path: Path, files: Path | None = None) -> None:
    """A sparse file with an ext4 that holds the files of this folder, or none.

    It is laid out whole, so that no guest writes inode tables while it is measured.
    """
    with path.open("wb") as file:
        file.truncate(_DISK_BYTES)
    filled = ["-d", str(files)] if files is not None else []
    whole = ["-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", f"size={_JOURNAL_MB}"]
    call(["mkfs.ext4", "-q", "-F", "-m", "0", *whole, *filled, str(path)], timeout_s=600.0)


def listing(folder: Path) -> frozenset[tuple[str, int, int]]:
    """Path, size and time of every file below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return frozenset((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)


def join(groups: Sequence[str], pid: int) -> None:
    """Move a process into the groups of these cgroup.procs files."""
    try:
        for group in groups:
            Path(group).write_text(str(pid), encoding="ascii")
    except OSError as error:
        raise RunError(f"process {pid} cannot join {groups[0]}: {error.strerror}") from None


def kernel_threads(name: str) -> list[int]:
    """Kernel threads of this name; all are children of kthreadd, which is always process 2."""
    named: list[int] = []
    with contextlib.suppress(OSError):
        for tid in Path("/proc/2/task/2/children").read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{tid}/comm").read_text(encoding="utf-8", errors="replace").strip() == name:
                    named.append(int(tid))
    return named
