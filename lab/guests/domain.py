"""A Xen domain of the lab: its xl configuration, its creation and end, and the connection to its agent."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.errors import PreparationError, RunError
from lab.guests.channel import AgentChannel
from lab.guests.image import TCP_PORT, BootImage
from lab.processes import call
from lab.workloads import Site
from profiler.observed import IsolationSettings, format_cpus

BOOT_WITHIN_S = 120.0
_CREATE_WITHIN_S = 120.0
_CONSOLES = Path("/var/log/xen/console")  # xenconsoled --log=guest
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_MAC = "00:16:3e:c0:7e:{:02x}"  # Xen's own range


@dataclass(frozen=True, slots=True)
class DomainConfig:
    """What a domain's configuration says."""

    name: str
    type: str
    image: BootImage
    memory_mb: int
    vcpus: int
    cpus: tuple[int, ...]
    settings: IsolationSettings
    address: str
    bridge: str
    position: int
    disk: Path | None


def config_text(config: DomainConfig) -> str:
    """The configuration as xl reads it (xl.cfg(5)); PreparationError for a path that it cannot hold."""
    entries: dict[str, str | int | list[str]] = {
        "name": config.name,
        "type": config.type,
        "kernel": str(config.image.kernel),
        "ramdisk": str(config.image.initramfs),
        "extra": f"console=hvc0 quiet panic=-1 cotenant.address={config.address}/24",
        "memory": config.memory_mb,
        "vcpus": config.vcpus,
        "cpus": format_cpus(config.cpus),
        "vif": [f"mac={_MAC.format(config.position % 256)},bridge={config.bridge}"],
        "on_crash": "destroy",
        "on_reboot": "destroy",
    }
    if config.disk is not None:
        entries["disk"] = [f"format=raw,vdev=xvda,access=rw,target={config.disk}"]
    if config.settings.cap_percent is not None:
        entries["cap"] = max(1, round(config.settings.cap_percent))
    if config.settings.weight is not None:
        entries["cpu_weight"] = config.settings.weight
    return "".join(f"{key} = {_literal(value)}\n" for key, value in entries.items())


def _literal(value: str | int | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_literal(entry) for entry in value)}]"
    if isinstance(value, str) and set(value) & set('"\\\n'):
        raise PreparationError(f"xl cannot be given {value!r}: choose a directory without quotes in its name")
    return str(value) if isinstance(value, int) else f'"{value}"'


def domain_type(info: str) -> str:
    """`pvh` where the CPUs are able to, else `pv`, by what `xl info` prints."""
    line = next((line for line in info.splitlines() if line.startswith("virt_caps")), "")
    return "pvh" if "hvm" in line.partition(":")[2].split() else "pv"


class Domain:
    """A domain from its creation to its end; `network` is the path of the namespace that the lab reaches it from."""

    def __init__(self, name: str, address: str, network: str, *, has_disk: bool = False) -> None:
        self.name = name
        self._has_disk = has_disk
        self._address = address
        self._network = network
        self._channel: AgentChannel | None = None

    @property
    def channel(self) -> AgentChannel:
        if self._channel is None:
            raise RunError(f"domain {self.name} is not up")
        return self._channel

    def create(self, config: Path) -> None:
        call(["xl", "create", "-q", str(config)], timeout_s=_CREATE_WITHIN_S)

    def pin(self, vcpu: int, cpus: tuple[int, ...]) -> None:
        call(["xl", "vcpu-pin", self.name, str(vcpu), format_cpus(cpus)])

    def wait_up(self) -> None:
        """Wait for the agent; RunError with the end of the console when it does not come."""
        self._channel = connect_agent(self.name, self._address, self._network, BOOT_WITHIN_S, self.console)

    def settle(self, site: Site) -> None:
        """Give the domain the folders of its site: in memory, and those of the workload's files on its disk, if any."""
        self.channel.ask("clock", seconds=time.time())
        self.channel.call("mkdir", "-p", str(site.files), str(site.directory))
        if self._has_disk:
            self.channel.call("mount", "-t", "ext4", "-o", "noatime", "/dev/xvda", str(site.files))

    def deliver(self, directory: Path) -> None:
        """Copy the small text files that configure a server into the domain."""
        for path in sorted(directory.rglob("*")):
            if path.is_dir():
                self.channel.call("mkdir", "-p", str(path))
            elif path.is_file():
                self.channel.write(str(path), path.read_text(encoding="utf-8"))

    def console(self) -> str:
        """The domain's console output on one line, from xenconsoled's log."""
        try:
            return " ".join((_CONSOLES / f"guest-{self.name}.log").read_text("utf-8", "replace").split())
        except OSError:
            return ""

    def close(self) -> None:
        """Close the connection to the agent; safe to repeat. The registry destroys the domain."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def connect_agent(name: str, address: str, network: str, within_s: float, console: Callable[[], str]) -> AgentChannel:
    """A channel to a domain's agent once it is up; RunError with the end of the console when it does not come."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            connection = connect_from(network, address, TCP_PORT, 5.0)
            break
        except OSError:
            if time.monotonic() > deadline:
                last = console()[-400:] or f"nothing in {_CONSOLES}"
                raise RunError(f"domain {name} did not come up within {within_s:.0f} s: {last}") from None
            time.sleep(0.2)
    channel = AgentChannel(connection, name, console)
    if not channel.wait_up(within_s):
        channel.close()
        raise RunError(f"the agent of domain {name} does not say that it is up: {console()[-400:]}")
    return channel


def connect_from(namespace: str, address: str, port: int, timeout_s: float = 2.0) -> socket.socket:
    """A connection that belongs to another network namespace; OSError when it cannot be made.

    A socket stays in the namespace that its thread was in when it was made (setns(2)); the thread goes back at once.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    other = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(other, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        try:
            connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        finally:
            if libc.setns(own, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot come back from another network namespace")
    finally:
        os.close(own)
        os.close(other)
    try:
        connection.settimeout(timeout_s)
        connection.connect((address, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        connection.close()
        raise
    return connection
