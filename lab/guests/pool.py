"""The guests of a campaign, booted once and kept: a boot takes seconds, resuming a stopped guest takes none.

Between runs a guest is stopped: nothing of an earlier run works in it, and it uses no CPU. Each position of a run has
its own guest, so that the files that a workload made there stay on its disk. A guest that fails is booted anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from lab.campaign import GuestSettings
from lab.control_groups import GroupMaker
from lab.errors import PreparationError, RunError, ToolError
from lab.guests.image import BootImage, shared_image
from lab.guests.machine import QemuGuest
from lab.guests.qemu_command import QEMU, Accelerated, GuestShape, kvm_boots
from lab.processes import call
from lab.resource_registry import ResourceRegistry
from profiler.observed import IsolationSettings

_PROBE_S = 10.0  # for a kernel and its drivers to come up
_VHOST = Path("/dev/vhost-net")


class GuestPool:
    """Boots guests when runs need them; all end with the registry's run."""

    def __init__(self, registry: ResourceRegistry, maker: GroupMaker, settings: GuestSettings, scratch: Path) -> None:
        self._registry = registry
        self._settings = settings
        self._scratch = scratch
        self._image = shared_image()
        self._accelerator = choose_accelerator(settings, self._image)
        self._vhost = choose_vhost(settings)
        self._machines: dict[tuple[int, int], QemuGuest] = {}
        self._booted = 0
        self._circumstances: dict[str, str] = {}
        self.network = registry.network("switch")  # the name by which `lab.qdiscs` finds a run's switch
        registry.made("network", self.network, lasting=True)
        call(["ip", "netns", "add", self.network])
        group = registry.group("guests")
        registry.made("group", group, lasting=True)
        self._groups = maker.make(group, tuple(sorted(os.sched_getaffinity(0))), IsolationSettings(), None)

    def take(self, vcpus: Sequence[int]) -> tuple[QemuGuest, ...]:
        """Guests with these numbers of vCPUs, one per position; they are stopped until they are resumed."""
        keys = list(enumerate(vcpus))
        new = [key for key in keys if not self._runs(key)]
        try:
            for key in new:
                self._drop(key)
                self._boot(key)
            for key in new:  # they boot side by side
                self._machines[key].wait_up()
                self._machines[key].rest()
        except BaseException:  # a guest that is up, but still without its folders and its disk, must not be used again
            for key in new:
                self._drop(key)
            raise
        return tuple(self._machines[key] for key in keys)

    def give_back(self, machines: Sequence[QemuGuest]) -> None:
        """After a run: stop guests that can be used again, and end the others."""
        for key, machine in list(self._machines.items()):
            if machine in machines:
                try:
                    machine.rest()
                except (RunError, OSError):
                    self._drop(key)

    def circumstances(self) -> dict[str, str]:
        """How the guests are made, for people who read results; found in the first run, the same in all that follow."""
        if not self._circumstances:
            boots = [machine.boot_s for machine in self._machines.values() if machine.boot_s is not None]
            texts = {
                "guest_accelerator": self._accelerator,
                "guest_network": "vhost" if self._vhost else "userspace virtio",
                "guest_memory_mb": str(self._settings.memory_mb),
                "guest_boot_s": f"{min(boots):.1f}" if boots else "",
                "qemu": next(iter(call([QEMU, "--version"]).splitlines()), ""),
            }
            self._circumstances = {name: text for name, text in texts.items() if text}
        return self._circumstances

    def close(self) -> None:
        for key in list(self._machines):
            self._drop(key)

    def _runs(self, key: tuple[int, int]) -> bool:
        machine = self._machines.get(key)
        return machine is not None and machine.process.returncode is None

    def _boot(self, key: tuple[int, int]) -> None:
        position, vcpus = key
        self._booted += 1
        name = f"guest{position}x{vcpus}"
        files = self._scratch / f"files-{position}"
        files.mkdir(exist_ok=True)
        shape = GuestShape(name, self._booted, vcpus, self._settings.memory_mb, self._accelerator, self._vhost)
        network = f"/run/netns/{self.network}"
        self._machines[key] = QemuGuest(shape, self._image, self._groups, network, self._scratch, files)

    def _drop(self, key: tuple[int, int]) -> None:
        machine = self._machines.pop(key, None)
        if machine is not None:
            machine.close()


_POOLS: WeakKeyDictionary[ResourceRegistry, GuestPool] = WeakKeyDictionary()


def pool_of(registry: ResourceRegistry, maker: GroupMaker, settings: GuestSettings, scratch: Path) -> GuestPool:
    """The pool of this registry's run, made at the first call and ended with the registry."""
    pool = _POOLS.get(registry)
    if pool is None:
        pool = _POOLS[registry] = GuestPool(registry, maker, settings, scratch)
        registry.at_end(pool.close)
    return pool


def choose_accelerator(settings: GuestSettings, image: BootImage) -> Accelerated:
    """What the campaign asks for; `auto` takes KVM if a guest comes up with it. PreparationError where `kvm` fails."""
    if settings.accelerator == "tcg":
        return "tcg"
    if kvm_boots(image, _probe):
        return "kvm"
    if settings.accelerator == "kvm":
        raise PreparationError("no guest comes up under KVM on this host: write `accelerator: auto` or `tcg`")
    return "tcg"


def choose_vhost(settings: GuestSettings) -> bool:
    """Whether the kernel carries the guests' packets; PreparationError where it must and cannot."""
    available = os.access(_VHOST, os.R_OK | os.W_OK)
    if settings.vhost == "on" and not available:
        raise PreparationError(f"{_VHOST} cannot be opened on this host (modprobe vhost_net): write `vhost: auto`")
    return available and settings.vhost != "off"


def _probe(command: list[str]) -> str:
    try:
        return call(command, timeout_s=_PROBE_S)
    except ToolError:
        return ""
