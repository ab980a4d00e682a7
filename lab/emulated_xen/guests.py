"""Two paravirtualised guests on an emulated Xen machine, kept for a whole campaign; each can do every workload."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from lab.emulated_xen import SIZES_KB
from lab.emulated_xen.dom0_channel import Dom0Channel
from lab.emulated_xen.machine import FILES, XenMachine
from lab.errors import RunError
from lab.guests.channel import AgentChannel
from lab.guests.domain import connect_agent, connect_from
from lab.guests.image import BootImage
from lab.processes import wait_until
from lab.workloads import Site
from lab.workloads.nginx import nginx
from profiler.parse.proc import parse_slabinfo

_UP_S = 240.0
_SERVES_S = 60.0
_WORK = "/tmp"  # noqa: S108 - of Dom0, used by nothing else
SPIN_PORT = 7078
WEB_PORT = 80
_CONFIG = """name = "{name}"
type = "pv"
kernel = "/guest/vmlinux"
ramdisk = "{work}/guest.img"
extra = "console=hvc0 quiet loglevel=3 panic=-1 cotenant.address={address}/24"
memory = {memory_mb}
vcpus = 1
vif = ['mac=00:16:3e:00:00:{number:02x},bridge=xenbr0,script={work}/plug']
on_crash = "destroy"
"""
# Xen's own script takes an emulated Dom0 some seconds, and xl gives up after ten.
_PLUG = """#!/bin/sh
[ "$1" = online ] || exit 0
ip link set "$vif" master xenbr0 up && xenstore-write "$XENBUS_PATH/hotplug-status" connected
"""


class ServingDomain:
    """A guest of the machine: a web server with files of all sizes, and a loop that counts."""

    def __init__(self, machine: XenMachine, number: int, memory_mb: int) -> None:
        self.name = f"vm{number}"
        self.address = f"10.9.0.1{number}"
        self.domain = 0
        self._machine = machine
        self._number = number
        self._memory_mb = memory_mb
        self._channel: AgentChannel | None = None

    def create(self) -> None:
        """Start it, without waiting until it is up."""
        dom0 = self._machine.dom0
        text = _CONFIG.format(
            name=self.name, work=_WORK, address=self.address, memory_mb=self._memory_mb, number=self._number
        )
        put(dom0, f"{_WORK}/{self.name}.cfg", text.encode())
        dom0.run(["xl", "create", "-q", f"{_WORK}/{self.name}.cfg"], timeout_s=_UP_S).checked()
        self.domain = int(dom0.run(["xl", "domid", self.name]).checked().text)

    def serve(self, scratch: Path) -> None:
        """Wait for its agent, then start what serves; `scratch` gets the server's configuration."""
        channel = connect_agent(self.name, self.address, self._machine.network, _UP_S, self._console)
        self._channel = channel  # open as long as the guest serves
        channel.call("mkdir", "-p", "/www", str(scratch))
        for size_kb in SIZES_KB:
            channel.call("dd", "if=/dev/zero", f"of=/www/{size_kb}k", "bs=1024", f"count={size_kb}")
        site = Site(0, Path("/www"), scratch, self.address, 1)
        command = nginx(site, WEB_PORT, site.files, "tcp_nopush on")
        channel.write(str(scratch / "nginx.conf"), (scratch / "nginx.conf").read_text("utf-8"))
        channel.write("/run/spin.py", (FILES / "spin.py").read_text("utf-8"))
        channel.call("mkdir", "-p", "/etc")
        channel.write("/etc/passwd", "root:x:0:0::/:/bin/sh\n")  # nginx looks itself up
        channel.write("/etc/group", "root:x:0:\n")
        python = str(Path(sys.executable).resolve())
        servers = {
            WEB_PORT: channel.start(command, scratch),
            SPIN_PORT: channel.start(
                [python, "-I", "-S", "-B", "/run/spin.py", "serve", self.address, str(SPIN_PORT)], scratch
            ),
        }
        for port, server in servers.items():
            if not wait_until(partial(self._listens, port), _SERVES_S):
                raise RunError(f"{server.command[0]} of guest {self.name} does not serve: {server.errors()}")

    def slab_objects(self) -> int:
        """Objects that its kernel's slab caches hold, over all caches."""
        if self._channel is None:
            raise RunError(f"guest {self.name} does not serve")
        caches = parse_slabinfo(self._channel.read("/proc/slabinfo"), f"/proc/slabinfo of guest {self.name}")
        return sum(cache.active for cache in caches.values())

    def _listens(self, port: int) -> bool:
        try:
            connect_from(self._machine.network, self.address, port, 2.0).close()
        except OSError:
            return False
        return True

    def _console(self) -> str:
        log = self._machine.dom0.run(["tail", "-n", "15", f"/var/log/xen/console/guest-{self.name}.log"])
        return " ".join(log.text.split())


def put(dom0: Dom0Channel, path: str, content: bytes) -> None:
    """Write a file in Dom0."""
    dom0.run(["dd", f"of={path}", "status=none"], stdin=content).checked()


def start_guests(machine: XenMachine, image: BootImage, scratch: Path, memory_mb: int) -> list[ServingDomain]:
    """Start two guests, which boot `image` (Dom0 has it as its second disk), and wait until both serve."""
    size = image.initramfs.stat().st_size
    machine.dom0.run(
        ["dd", "if=/dev/vdb", f"of={_WORK}/guest.img", "bs=1M", "iflag=count_bytes", f"count={size}", "status=none"],
        timeout_s=120,
    ).checked()
    put(machine.dom0, f"{_WORK}/plug", _PLUG.encode())
    machine.dom0.run(["chmod", "+x", f"{_WORK}/plug"]).checked()
    guests = [ServingDomain(machine, number, memory_mb) for number in (1, 2)]
    for guest in guests:  # one after the other: xl gives up on a device that takes Dom0 more than ten seconds
        guest.create()
        guest.serve(scratch)
    return guests
