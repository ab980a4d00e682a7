"""Small real guests under the lab's libvirtd, for tests and research/benchmarks: `with guests(2) as lab: ...`.

A guest serves HTTP (1k, 100k), and does what it is asked for there: cgi-bin/spin?SECONDS, cgi-bin/write?MEGABYTES.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from lab.errors import LabError
from lab.guests.image import BootImage
from lab.processes import call, wait_until
from tests.libvirt.daemon import Daemon
from tests.libvirt.image import image

_SUBNET = "10.78.0"
_FIRST_ADDRESS = 11
_MEMORY_MB = 96
_DISK_MB = 64
_BOOT_S = 90.0
_PROBE_S = 10.0  # a guest under KVM that works is up in two
_CACHES = ("none", "writeback")  # of the guests' drives in turn: the backend counts these two by different ways
_LOADED_BYTES = 20_000  # a dozen answers of 1 KB
_QEMU = "/usr/bin/qemu-system-x86_64"


@dataclass(frozen=True, slots=True)
class Guest:
    """One running guest; `tap` is its interface in the lab's network namespace."""

    name: str
    address: str
    tap: str
    vcpus: int

    @property
    def arguments(self) -> tuple[str, str]:
        """How virsh is given the guest that is meant; a name may look like an option."""
        return "--domain", self.name


@dataclass(slots=True)
class Lab:
    """A libvirtd with guests."""

    daemon: Daemon
    accelerator: str
    image: BootImage
    guests: list[Guest] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return self.daemon.uri

    def add(self, name: str, vcpus: int = 1, *, paused: bool = False, cache: str = "", uuid: str = "") -> Guest:
        """Start a guest; it answers after `wait`, and never when it is `paused`, which costs no CPU.

        `cache` is that of its drive; without it guests have them in turn.
        """
        number = len(self.guests)
        guest = Guest(name, f"{_SUBNET}.{_FIRST_ADDRESS + number}", f"lab-tap{number}", vcpus)
        disk = self.daemon.directory / f"disk{number}.raw"
        with disk.open("wb") as file:
            file.truncate(_DISK_MB << 20)
        definition = self.daemon.directory / f"guest{number}.xml"
        cache = cache or _CACHES[number % len(_CACHES)]
        definition.write_text(self._xml(guest, disk, cache, uuid), encoding="utf-8")
        self.daemon.virsh("create", str(definition), *(["--paused"] if paused else []))
        self.guests.append(guest)
        return guest

    def wait(self, guest: Guest) -> None:
        """Wait until the guest's web server answers."""
        deadline = time.monotonic() + _BOOT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(LabError):
                self.ask(guest, "1k", timeout_s=2.0)
                return
            time.sleep(0.2)
        raise LabError(f"guest {guest.name} does not answer within {_BOOT_S:.0f} s: {self.console(guest)[-400:]}")

    def ask(self, guest: Guest, path: str, timeout_s: float = 30.0) -> str:
        """GET a path of the guest's web server."""
        script = Path(__file__).with_name("ask.py")
        argv = [sys.executable, "-I", "-S", str(script), guest.address, path, f"{timeout_s:g}"]
        return call([*self.daemon.inside, *argv], timeout_s=timeout_s + 5)

    @contextlib.contextmanager
    def load(self, guest: Guest, path: str = "1k", connections: int = 4, seconds: float = 60.0) -> Iterator[None]:
        """Keep asking for a path through the guest's tap while the block runs, which begins when answers come."""
        argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", f"http://{guest.address}/{path}"]
        quiet = self.tap_bytes(guest)
        process = subprocess.Popen(
            [*self.daemon.inside, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            if not wait_until(lambda: self.tap_bytes(guest) > quiet + _LOADED_BYTES, seconds / 2):
                raise LabError(f"guest {guest.name} is asked and does not answer: {self.console(guest)[-400:]}")
            yield
        finally:
            process.kill()
            process.wait()

    def throughput(self, guest: Guest, seconds: float, path: str = "1k", connections: int = 4) -> float:
        """Requests per second that the guest serves when asked for `seconds`."""
        argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", f"http://{guest.address}/{path}"]
        printed = call([*self.daemon.inside, *argv], timeout_s=seconds + 30)
        (line,) = [line for line in printed.splitlines() if line.startswith("Requests/sec:")]
        return float(line.split()[1])

    def tap_bytes(self, guest: Guest) -> int:
        """What the kernel counted on the guest's tap, both ways: independent of libvirt."""
        folder = f"/sys/class/net/{guest.tap}/statistics"
        printed = call([*self.daemon.inside, "cat", f"{folder}/rx_bytes", f"{folder}/tx_bytes"])
        return sum(map(int, printed.split()))

    def qemu_pid(self, guest: Guest) -> int:
        """The guest's QEMU process, from libvirt's own file."""
        return int((self.daemon.state / "qemu" / f"{guest.name}.pid").read_text(encoding="ascii"))

    def destroy(self, guest: Guest) -> None:
        self.daemon.virsh("destroy", *guest.arguments)
        self.guests.remove(guest)

    def console(self, guest: Guest) -> str:
        try:
            return self._console(guest).read_text(errors="replace")
        except OSError:
            return ""

    def _console(self, guest: Guest) -> Path:
        return self.daemon.directory / f"{guest.tap}.log"

    def _xml(self, guest: Guest, disk: Path, cache: str, uuid: str) -> str:
        kind = "kvm" if self.accelerator == "kvm" else "qemu"
        return f"""<domain type='{kind}'>
 <name>{escape(guest.name)}</name>{f"<uuid>{uuid}</uuid>" if uuid else ""}
 <memory unit='MiB'>{_MEMORY_MB}</memory>
 <vcpu>{guest.vcpus}</vcpu>
 <os>
  <type arch='x86_64' machine='pc'>hvm</type>
  <kernel>{self.image.kernel}</kernel>
  <initrd>{self.image.initramfs}</initrd>
  <cmdline>console=ttyS0 quiet lab.address={guest.address}/24</cmdline>
 </os>
 <features><acpi/></features>
 <devices>
  <emulator>{_QEMU}</emulator>
  <disk type='file' device='disk'>
   <driver name='qemu' type='raw' cache='{cache}' io='threads'/>
   <source file='{disk}'/>
   <target dev='vda' bus='virtio'/>
  </disk>
  <interface type='bridge'>
   <source bridge='bridge'/>
   <target dev='{guest.tap}'/>
   <model type='virtio'/>
  </interface>
  <serial type='file'><source path='{self._console(guest)}'/></serial>
 </devices>
</domain>
"""


def kvm_works(made: BootImage) -> bool:
    """Whether the kernel boots under KVM: a /dev/kvm alone proves nothing (nested, partial or broken ones exist)."""
    if not Path("/dev/kvm").exists():
        return False
    argv = [_QEMU, "-accel", "kvm", "-m", str(_MEMORY_MB), "-nographic", "-no-reboot", "-nic", "none"]
    boot = ["-kernel", str(made.kernel), "-initrd", str(made.initramfs), "-append", "console=ttyS0 quiet lab.probe"]
    try:
        done = subprocess.run(
            [*argv, *boot], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"lab guest is up" in done.stdout


def _linked(made: BootImage, directory: Path) -> BootImage:
    """The same files by names in the lab's folder: names stand in domains, and domains in recordings."""
    linked = BootImage(directory / "vmlinuz", directory / "initramfs.cpio")
    linked.kernel.symlink_to(made.kernel)
    linked.initramfs.symlink_to(made.initramfs)
    return linked


@contextlib.contextmanager
def guests(count: int, names: Sequence[str] = (), vcpus: int = 1, accelerator: str = "auto") -> Iterator[Lab]:
    """Start `count` guests (KVM where it really works, else TCG), wait for their web servers, end them afterwards."""
    made = image()
    if accelerator == "auto":
        accelerator = "kvm" if kvm_works(made) else "tcg"
    daemon = Daemon()
    try:
        daemon.start()
        lab = Lab(daemon, accelerator, _linked(made, daemon.directory))
        for number in range(count):
            lab.add(names[number] if number < len(names) else f"guest{number}", vcpus)
        for guest in lab.guests:
            lab.wait(guest)
        yield lab
        for guest in list(lab.guests):
            with contextlib.suppress(LabError):  # what is left is ended with the namespaces
                lab.destroy(guest)
    finally:
        daemon.close()
