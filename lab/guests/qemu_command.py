"""QEMU's command line for a guest, and a test of whether KVM works here."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.guests.image import HOST_TAG, PORT, READY, SCRATCH_TAG, BootImage
from lab.workloads.disk import takes_direct

Accelerated = Literal["kvm", "tcg"]

QEMU = "qemu-system-x86_64"
_MAC = "52:54:00:c0:7e:{:02x}"  # QEMU's own range
# Emulated CPUs have no flaws to mitigate, and emulated mitigations would take most of the time of a system call.
_KERNEL = {"tcg": "mitigations=off tsc=reliable no_timer_check", "kvm": ""}
_PROCESSOR = {"tcg": ["-accel", "tcg,thread=multi", "-cpu", "max"], "kvm": ["-accel", "kvm", "-cpu", "host"]}


@dataclass(frozen=True, slots=True)
class GuestShape:
    """What distinguishes one guest from another."""

    name: str
    number: int
    vcpus: int
    memory_mb: int
    accelerator: Accelerated
    vhost: bool

    @property
    def tap(self) -> str:
        return f"tap{self.number}"


def qemu_command(shape: GuestShape, image: BootImage, disk: Path, scratch: Path, agent: int, control: int) -> list[str]:
    """QEMU's command line; `agent` and `control` are sockets that it gets from the lab."""
    cache = "none" if takes_direct(disk) else "writeback"
    net = f"tap,id=net,ifname={shape.tap},script=no,downscript=no,vhost={'on' if shape.vhost else 'off'}"
    return [
        QEMU, "-name", f"guest={_value(shape.name)},debug-threads=on", "-nodefaults", "-no-user-config",
        "-display", "none", "-no-reboot", "-machine", "pc", *_PROCESSOR[shape.accelerator],
        "-m", str(shape.memory_mb), "-smp", str(shape.vcpus),
        "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-append", f"console=ttyS0 quiet panic=-1 {_KERNEL[shape.accelerator]}",
        "-serial", "file:/dev/stdout",
        "-chardev", f"socket,id=control,fd={control}", "-mon", "chardev=control,mode=control",
        "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={agent}",
        "-device", f"virtserialport,chardev=agent,name={PORT}",
        "-virtfs", f"local,path=/,mount_tag={HOST_TAG},security_model=none,readonly=on,multidevs=remap",
        "-virtfs", f"local,path={_value(str(scratch))},mount_tag={SCRATCH_TAG},security_model=none",
        "-drive", f"if=none,id=disk,format=raw,cache={cache},aio=threads,file={_value(str(disk))}",
        "-device", "virtio-blk-pci,drive=disk",
        "-netdev", net, "-device", f"virtio-net-pci,netdev=net,romfile=,mac={_MAC.format(shape.number % 256)}",
    ]  # fmt: skip


def _value(text: str) -> str:
    """A value as QEMU's option lists need it: with commas doubled."""
    return text.replace(",", ",,")


def kvm_boots(image: BootImage, run: Callable[[list[str]], str]) -> bool:
    """Whether a guest really comes up under KVM: that /dev/kvm exists proves nothing (nested, partial, broken ones)."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    command = [
        QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-machine", "pc", *_PROCESSOR["kvm"],
        "-m", "256", "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-append", "console=ttyS0 quiet panic=-1 cotenant.probe", "-serial", "stdio",
    ]  # fmt: skip
    return READY in run(command)
