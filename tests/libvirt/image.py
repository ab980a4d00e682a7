"""What the libvirt lab's guests boot: the kernel of the lab's own guests, and a root of busybox and `guest/`."""

from __future__ import annotations

from pathlib import Path

from lab.errors import LabError
from lab.guests.cpio import RamDiskEntry, initramfs
from lab.guests.image import BootImage
from lab.guests.kernel import DRIVERS, fetch_kernel

CACHE = Path(__file__).parents[2] / "var" / "libvirt-lab"
_GUEST = Path(__file__).with_name("guest")
_BUSYBOX = Path("/bin/busybox")


def image() -> BootImage:
    """Kernel and initramfs in `var/libvirt-lab`; the kernel is downloaded once, the initramfs made anew (fast)."""
    CACHE.mkdir(parents=True, exist_ok=True)
    kernel = fetch_kernel(CACHE)
    if not _BUSYBOX.is_file():
        raise LabError("there is no /bin/busybox (apt-get install busybox-static)")
    drivers = [f"{name}.ko" for name in DRIVERS if name.startswith(("virtio", "failover", "net_failover"))]
    there = [name for name in drivers if (kernel.modules / name).is_file()]  # others are built in
    programs = {"bin/busybox": _BUSYBOX, "init": _GUEST / "init"}
    programs |= {f"www/cgi-bin/{name}": _GUEST / name for name in ("spin", "write")}
    entries = {path: RamDiskEntry.file(source.read_bytes(), executable=True) for path, source in programs.items()}
    entries |= {f"modules/{name}": RamDiskEntry.file((kernel.modules / name).read_bytes()) for name in there}
    entries["modules/order"] = RamDiskEntry.file("".join(f"{name}\n" for name in there).encode())
    target = CACHE / "initramfs.cpio"
    target.write_bytes(initramfs(entries))
    return BootImage(kernel.vmlinux, target)
