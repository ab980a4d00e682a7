"""Processes on the host itself, the baseline for the cost of containers and guests, on the same network path.

    host's own network stack ── veth ── bridge ── uplink veth ── load generators

Nothing limits them: no network namespace, no cap, weight or disk limit. A control group keeps them on their CPUs and
counts their CPU time. All share the host's one network stack, so two servers on one port get in each other's way, and
a firewall of the host sees their packets. Bytes per instance are not counted: the stack belongs to no instance.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

from lab import network
from lab.errors import PreparationError, ToolError
from lab.instances.containers import ContainerInstances
from lab.processes import call
from lab.shaping import most_segments

_OWN = "/proc/self/ns/net"


class NativeInstances(ContainerInstances):
    """The programs of one run on the host; see `lab.instances.lifecycle.ManagedInstances`."""

    @property
    def _interface(self) -> str:
        """The host's end of the pair; 15 characters are the most."""
        return f"ct{self._registry.run}"

    def _network(self) -> network.LabNetwork:
        registry = self._registry
        self._check()
        switch = registry.network("switch")
        registry.made("network", switch)  # with it the veth pair goes, and so the host's end
        call(["ip", "netns", "add", switch])
        call(["ip", "link", "add", self._interface, "type", "veth", "peer", "name", "port0", "netns", switch])
        wiring = replace(self._setup.wiring, switch=switch, taps=("port0",))
        net = network.build(registry, self._networks(), wiring)
        limits = [most_segments(settings, wiring.link_mbit, wiring.line_mbit) for settings in self._networks()]
        segments = min((limit for limit in limits if limit is not None), default=None)
        addresses = [port.address for port in net.ports]
        network.batch(["ip"], network.end_commands(self._interface, addresses, segments))
        if wiring.driver_cpus is not None:
            Path("/sys/class/net", self._interface, network.STEERING).write_text(network.cpu_mask(wiring.driver_cpus))
        ports = tuple(network.Port(port.address, _OWN, port.device) for port in net.ports)
        return network.LabNetwork(ports, net.generators, net.switch)

    def _check(self) -> None:
        for entry in self._setup.placed:
            settings = entry.member.settings
            if settings.cap_percent or settings.weight or settings.disk_limit_mb_s:
                raise PreparationError(f"{entry.instance} has limits, which native programs never have: use containers")
        if json.loads(call(["ip", "-j", "route", "show", "root", network.SUBNET])):
            raise PreparationError(f"this host has routes to {network.SUBNET}, the addresses of native programs")

    def _leave(self) -> None:
        with contextlib.suppress(ToolError):  # it was not made yet; the namespace would remove it, but only later
            call(["ip", "link", "delete", self._interface])
