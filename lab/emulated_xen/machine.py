"""One emulated machine with Xen, Dom0 and a network of its own; everything ends with its QEMU process."""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.campaign import EmulatedXen
from lab.emulated_xen.dom0_channel import Dom0Channel
from lab.emulated_xen.parts import XenParts
from lab.errors import PreparationError
from lab.guests.cpio import RamDiskEntry, initramfs

FILES = Path(__file__).with_name("files")
CLIENT_ADDRESS = "10.9.0.254"  # of the tap device, where the clients are; dom0-init has 10.9.0.1
_BOOT_S = 300.0
_STEP_S = 30.0
_STOP_S = 10.0
_PORT = "cotenant.lab"  # agent.py looks for it
_TAP = "tap0"


@dataclass(frozen=True, slots=True)
class XenMachine:
    """A running machine: its Dom0, and its QEMU process, in whose network namespace the clients are."""

    dom0: Dom0Channel
    process: int

    @property
    def network(self) -> str:
        """Path of the clients' network namespace."""
        return f"/proc/{self.process}/ns/net"

    def cpu_threads(self) -> list[int]:
        """The host's threads that emulate the pCPUs, in the order of the pCPUs."""
        tasks = Path(f"/proc/{self.process}/task").iterdir()
        by_name = {(task / "comm").read_text().strip(): int(task.name) for task in tasks}
        return [by_name[name] for name in sorted(by_name) if name.startswith("CPU ")]

    def client(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` where the clients are, for as long as this process lives."""
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "--target", str(self.process), "--net", "--", *argv]


@contextmanager
def boot(parts: XenParts, scratch: Path, shape: EmulatedXen, image: Path | None = None) -> Iterator[XenMachine]:
    """Boot Xen in this shape and wait for Dom0's agent; `scratch` gets the serial log, Dom0 sees `image` as /dev/vdb.

    Raises PreparationError or Dom0Error when it does not come up, with the end of that log. QEMU lives in a network
    namespace without a name, dies with this process, and writes to no disk: nothing can be left behind.
    """
    (scratch / "dom0.img").write_bytes(dom0_image(parts))
    ours, theirs = socket.socketpair()
    command = qemu(parts, scratch, shape, theirs.fileno(), image)
    with ours, theirs, (scratch / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        try:
            _connect(process)
            dom0 = Dom0Channel(ours)
            dom0.wait_ready(_BOOT_S)
            yield XenMachine(dom0, process.pid)
        except BaseException as error:
            error.add_note(_last_words(scratch))
            raise
        finally:
            _stop(process)


def qemu(parts: XenParts, scratch: Path, shape: EmulatedXen, channel: int, image: Path | None = None) -> list[str]:
    """The command line of the emulator. A Dom0 of one vCPU has pCPU 0 for itself; one of more runs anywhere."""
    alone = " dom0_vcpus_pin" if shape.dom0_vcpus == 1 else ""
    xen = (
        f"console=com1 com1=115200,8n1 sched={shape.scheduler} dom0_mem=640M,max:640M"
        f" dom0_max_vcpus={shape.dom0_vcpus}{alone} noreboot loglvl=warning guest_loglvl=warning conring_size=512k"
    )
    linux = "console=hvc0 quiet loglevel=4 panic=-1 net.ifnames=0"
    second = [] if image is None else ["-drive", f"file={image},if=virtio,format=raw,readonly=on"]
    return [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-name", "xen,debug-threads=on",
        "-cpu", "max,-smap,-svm",  # Xen 4.17 crashes a PV Dom0 under TCG's SMAP
        "-smp", str(shape.pcpus), "-m", str(shape.memory_mb), "-display", "none", "-no-reboot", "-nodefaults",
        "-kernel", str(parts.hypervisor), "-append", xen,
        "-initrd", f"{parts.kernel} {linux},{scratch / 'dom0.img'}",
        "-drive", f"file={parts.disk},if=virtio,format=raw,cache=unsafe,snapshot=on", *second,
        "-netdev", f"tap,id=net,ifname={_TAP},script=no,downscript=no",
        "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=lab,fd={channel}",
        "-device", f"virtserialport,chardev=lab,name={_PORT}",
        "-serial", f"file:{scratch / 'serial.log'}",
    ]  # fmt: skip


def dom0_image(parts: XenParts) -> bytes:
    """Dom0's initial RAM disk, packed: what it needs to find its disk, and the lab's own programs."""
    entries = small_root(parts, "disk", "mount insmod sleep cp switch_root", FILES / "first-init")
    for name, executable in (("dom0-init", True), ("agent.py", False)):
        entries[f"lab/{name}"] = RamDiskEntry.file((FILES / name).read_bytes(), executable=executable)
    return gzip.compress(initramfs(entries | {"new": RamDiskEntry.folder()}), compresslevel=1, mtime=0)


def small_root(parts: XenParts, drivers: str, programs: str, first: Path) -> dict[str, RamDiskEntry]:
    """A first root: busybox under the names of these programs, drivers for `disk` or `guest`, and its first script."""
    entries = {name: RamDiskEntry.folder() for name in ("dev", "proc", "sys")}
    entries["init"] = RamDiskEntry.file(first.read_bytes(), executable=True)
    entries["bin/busybox"] = RamDiskEntry.file(parts.busybox.read_bytes(), executable=True)
    entries |= {f"bin/{name}": RamDiskEntry.link("busybox") for name in ("sh", *programs.split())}
    order = parts.drivers_for(drivers)
    entries |= {f"modules/{file.name}": RamDiskEntry.file(file.read_bytes()) for file in order}
    entries["modules/order"] = RamDiskEntry.file("".join(f"{file.name}\n" for file in order).encode())
    return entries


def _connect(process: subprocess.Popen[bytes]) -> None:
    """Give the clients' side of the tap device its address, as soon as QEMU has made it."""
    inside = ["nsenter", "--target", str(process.pid), "--net", "--", "ip"]
    end = time.monotonic() + _STEP_S
    add = [*inside, "addr", "add", f"{CLIENT_ADDRESS}/24", "dev", _TAP]
    while subprocess.run(add, capture_output=True, check=False, timeout=_STEP_S).returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            raise PreparationError(f"QEMU did not start (it ended with {process.poll()})")
        time.sleep(0.1)
    for name in ("lo", _TAP):
        subprocess.run([*inside, "link", "set", name, "up"], check=True, timeout=_STEP_S)


def _last_words(scratch: Path) -> str:
    words: list[str] = []
    for name in ("qemu.log", "serial.log"):
        with contextlib.suppress(OSError):
            words += (scratch / name).read_text("utf-8", "replace").splitlines()[-15:]
    return "\n".join(["the machine's last words:", *words])


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_S)
