"""One emulated machine with Xen, Dom0 and a network of its own; everything ends with its QEMU process."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.xen.xen_archive import Entry, initramfs
from tests.xen.xen_channel import Channel
from tests.xen.xen_root import LabError, Parts

GUEST_FILES = Path(__file__).parent / "guest"
CLIENT_ADDRESS = "10.9.0.254"  # of the tap device, where the clients are; dom0-init has 10.9.0.1
_BOOT_S = 300.0
_STEP_S = 30.0
_STOP_S = 10.0
_PORT = "cotenant.lab"  # agent.py looks for it
_TAP = "tap0"


@dataclass(frozen=True, slots=True)
class Machine:
    """A running machine: its Dom0, and the process whose network namespace holds the clients."""

    dom0: Channel
    process: int

    def client(self, argv: Sequence[str]) -> list[str]:
        """`argv` made to run where the clients are, for as long as this process lives."""
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "--target", str(self.process), "--net", "--", *argv]


@contextmanager
def boot(parts: Parts, scratch: Path, scheduler: str) -> Iterator[Machine]:
    """Boot Xen with this scheduler and wait for Dom0's agent; `scratch` gets the serial log.

    Raises LabError with the end of that log when it does not come up. QEMU lives in a network namespace that has no
    name, dies with this process, and writes to no disk: nothing can be left behind.
    """
    (scratch / "dom0.img").write_bytes(dom0_image(parts))
    ours, theirs = socket.socketpair()
    with ours, theirs, (scratch / "qemu.log").open("wb") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *qemu(parts, scratch, scheduler, theirs.fileno())],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
        theirs.close()
        try:
            _connect(process)
            dom0 = Channel(ours)
            dom0.wait_ready(_BOOT_S)
            yield Machine(dom0, process.pid)
        except BaseException as error:
            error.add_note(_last_words(scratch))
            raise
        finally:
            _stop(process)


def qemu(parts: Parts, scratch: Path, scheduler: str, channel: int) -> list[str]:
    """Two emulated CPUs: Dom0 has pCPU 0 for itself, guests are pinned to pCPU 1."""
    xen = (
        f"console=com1 com1=115200,8n1 sched={scheduler} dom0_mem=640M,max:640M dom0_max_vcpus=1 dom0_vcpus_pin"
        " noreboot loglvl=warning guest_loglvl=warning"
    )
    linux = "console=hvc0 quiet loglevel=4 panic=-1 net.ifnames=0"
    return [
        "qemu-system-x86_64", "-accel", "tcg,thread=multi",
        "-cpu", "max,-smap,-svm",  # Xen 4.17 crashes a PV Dom0 under TCG's SMAP
        "-smp", "2", "-m", "1536", "-display", "none", "-no-reboot", "-nodefaults",
        "-kernel", str(parts.hypervisor), "-append", xen,
        "-initrd", f"{parts.kernel} {linux},{scratch / 'dom0.img'}",
        "-drive", f"file={parts.disk},if=virtio,format=raw,cache=unsafe,snapshot=on",
        "-netdev", f"tap,id=net,ifname={_TAP},script=no,downscript=no",
        "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=lab,fd={channel}",
        "-device", f"virtserialport,chardev=lab,name={_PORT}",
        "-serial", f"file:{scratch / 'serial.log'}",
    ]  # fmt: skip


def dom0_image(parts: Parts) -> bytes:
    """Dom0's initial RAM disk: enough to find its disk, and the lab's own programs."""
    entries = _small_root(parts, "disk", "mount insmod sleep cp switch_root", GUEST_FILES / "first-init")
    for name, executable in (("dom0-init", True), ("agent.py", False)):
        entries[f"lab/{name}"] = Entry.file((GUEST_FILES / name).read_bytes(), executable=executable)
    return initramfs(entries | {"new": Entry.folder()})


def guest_image(parts: Parts) -> bytes:
    """The whole of a guest: a web server with two files and two programs."""
    programs = "mount insmod ip dd httpd cat killall setsid timeout awk"
    entries = _small_root(parts, "guest", programs, GUEST_FILES / "guest-init")
    for name in ("stat", "spin"):
        script = (GUEST_FILES / f"{name}.cgi").read_bytes()
        entries[f"www/cgi-bin/{name}"] = Entry.file(script, executable=True)
    return initramfs(entries)


def _small_root(parts: Parts, drivers: str, programs: str, first: Path) -> dict[str, Entry]:
    entries = {name: Entry.folder() for name in ("dev", "proc", "sys")}
    entries["init"] = Entry.file(first.read_bytes(), executable=True)
    entries["bin/busybox"] = Entry.file(parts.busybox.read_bytes(), executable=True)
    entries |= {f"bin/{name}": Entry.link("busybox") for name in ("sh", *programs.split())}
    order = parts.drivers_for(drivers)
    entries |= {f"modules/{file.name}": Entry.file(file.read_bytes()) for file in order}
    entries["modules/order"] = Entry.file("".join(f"{file.name}\n" for file in order).encode())
    return entries


def _connect(process: subprocess.Popen[bytes]) -> None:
    """Give the clients' side of the tap device its address, as soon as QEMU made it."""
    inside = ["nsenter", "--target", str(process.pid), "--net", "--", "ip"]
    end = time.monotonic() + _STEP_S
    add = [*inside, "addr", "add", f"{CLIENT_ADDRESS}/24", "dev", _TAP]
    while subprocess.run(add, capture_output=True, check=False, timeout=_STEP_S).returncode != 0:
        if process.poll() is not None or time.monotonic() > end:
            raise LabError(f"QEMU did not start (it ended with {process.poll()})")
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
