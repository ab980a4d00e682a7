"""The lab's network: a namespace per instance, one for the load generators, and between them a switch with an uplink.

    instance ── veth ── bridge ── uplink veth ── load generators
                                    └ line and HTB on the way to the generators, as on a host's physical port

With routers, each a namespace that forwards, they stand in a row between the uplink and the load generators.

Bridge and uplink have a namespace of their own: the host's firewall (Docker drops what is forwarded), its network
manager and its interfaces are not touched, and nothing is left when the namespaces are gone. All are made anew for
every run, because a namespace remembers (TCP metrics, neighbours, sockets in TIME_WAIT). That takes some 15 ms.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import PreparationError, ToolError
from lab.processes import call
from lab.resource_registry import ResourceRegistry
from lab.shaping import htb_commands, most_segments
from profiler.observed import NetworkSettings

SUBNET = "10.77.0.0/24"  # only inside the lab's own namespaces, and on the host while native programs run
_PREFIX = SUBNET.removesuffix(".0/24")
GENERATOR_ADDRESS = f"{_PREFIX}.1"
_GATEWAY = f"{_PREFIX}.254"  # the first router's end at the switch
_BETWEEN = "10.78"  # and the third number is that of the link between two routers, or a router and the generators
_FIRST_ADDRESS = 10
_MOST_PORTS = 240
_UPLINK = "uplink"
_NAMESPACES = "/run/netns"  # where ip(8) keeps them; it makes this directory itself
STEERING = "queues/rx-0/rps_cpus"  # Documentation/networking/scaling.rst; veth and bridge have one queue


@dataclass(frozen=True, slots=True)
class Port:
    """Where one instance is attached: `device` is the switch's end, `namespace` the path of its own namespace."""

    address: str
    namespace: str
    device: str


@dataclass(frozen=True, slots=True)
class LabNetwork:
    """A built network: a port per instance; `generators` and `switch` are paths of namespaces."""

    ports: tuple[Port, ...]
    generators: str
    switch: str


@dataclass(frozen=True, slots=True)
class Wiring:
    """How the network is to be built.

    `link_mbit` is the rate that `shared` instances share, None = they share no link. `line_mbit` is the rate of the
    line behind the uplink, which all traffic passes and `shared` instances share, None = as fast as the host; it queues
    up to `queue_packets` per class, and in one fifo of all instances without a class. `driver_cpus` are the CPUs that
    the kernel's packet work is steered to, see `_steer`, None = where the kernel puts it. With `taps` the instances'
    ends are not `eth0` in namespaces of their own, but these devices, which are already in the namespace `switch`;
    instances beyond the last tap have that one. `routers` stand in a row before the generators.
    """

    link_mbit: float | None = None
    line_mbit: float | None = None
    queue_packets: int = 1000
    driver_cpus: tuple[int, ...] | None = None
    switch: str | None = None
    taps: tuple[str, ...] = ()
    routers: int = 0


def build(registry: ResourceRegistry, settings: Sequence[NetworkSettings | None], wiring: Wiring) -> LabNetwork:
    """Make the network for these instances; ToolError when the host refuses, PreparationError when it cannot."""
    if len(settings) > _MOST_PORTS:
        raise PreparationError(f"the lab's network has {_MOST_PORTS} ports, the run has {len(settings)} instances")
    steer = _steering(wiring.driver_cpus)
    switch, generators = wiring.switch or registry.network("switch"), registry.network("load")
    names = [] if wiring.taps else [registry.network(str(position)) for position in range(len(settings))]
    routers = [registry.network(f"router{number}") for number in range(wiring.routers)]
    made = [*([] if wiring.switch else [switch]), generators, *routers, *names]
    for name in made:
        registry.made("network", name)
    batch(["ip"], [f"netns add {name}" for name in made])
    devices = list(wiring.taps) or [f"port{position}" for position in range(len(settings))]
    ends = dict(zip(devices, names, strict=True)) if names else dict.fromkeys(devices)
    batch(["ip", "-n", switch], _switch_commands({_UPLINK: [*routers, generators][0], **ends}))
    addresses = [instance_address(position) for position in range(len(settings))]
    if routers:
        _route(routers, generators)
    else:
        batch(["ip", "-n", generators], end_commands("eth0", [GENERATOR_ADDRESS]))
    for name, address, net in zip(names, addresses, settings, strict=False):
        segments = most_segments(net, wiring.link_mbit, wiring.line_mbit)
        way = [f"route add {GENERATOR_ADDRESS} via {_GATEWAY}"] if routers else []
        batch(["ip", "-n", name], [*end_commands("eth0", [address], segments), *way])
    attached = list(zip(addresses, settings, strict=True))
    shaping = htb_commands(_UPLINK, attached, wiring.link_mbit, wiring.line_mbit, wiring.queue_packets)
    if shaping:
        batch(["tc", "-n", switch], shaping)
    if steer:
        _steer(switch, [_UPLINK, *devices], steer)
        for name in (generators, *names):
            _steer(name, ["eth0"], steer)
        for name in routers:
            _steer(name, ["eth0", "eth1"], steer)
    homes = names or [switch] * len(settings)
    ports = tuple(
        Port(address, f"{_NAMESPACES}/{home}", devices[min(position, len(devices) - 1)])
        for position, (address, home) in enumerate(zip(addresses, homes, strict=True))
    )
    return LabNetwork(ports, f"{_NAMESPACES}/{generators}", f"{_NAMESPACES}/{switch}")


def _route(routers: Sequence[str], generators: str) -> None:
    """Put routers in a row between the switch and the generators, which keep their address."""
    for number, (router, behind) in enumerate(zip(routers, [*routers[1:], generators], strict=True), 1):
        near, far = (f"{_BETWEEN}.{number}.{end}" for end in (1, 2))
        before = f"{_BETWEEN}.{number - 1}.1"
        # Without this limit a router answers each probe, as often as these come.
        for name, value in (("ip_forward", "1"), ("icmp_ratelimit", "0")):
            call(["ip", "netns", "exec", router, "tee", f"/proc/sys/net/ipv4/{name}"], value)
        lines = [
            *end_commands("eth0", [_GATEWAY] if number == 1 else []),
            f"link add eth1 type veth peer name eth0 netns {behind}",
            "link set eth1 addrgenmode none up",
            f"addr add {near}/30 dev eth1",
        ]
        batch(["ip", "-n", router], lines)
        last = number == len(routers)
        own = [f"addr add {far}/30 dev eth0", *([f"addr add {GENERATOR_ADDRESS}/32 dev eth0"] if last else [])]
        batch(["ip", "-n", behind], ["link set lo up", "link set eth0 addrgenmode none up", *own])
        batch(["ip", "-n", router], [f"route add {GENERATOR_ADDRESS} via {far}"])
        if number > 1:
            batch(["ip", "-n", router], [f"route add {SUBNET} via {before}"])
    batch(["ip", "-n", generators], [f"route add {SUBNET} via {near} src {GENERATOR_ADDRESS}"])


def instance_address(position: int) -> str:
    """The address of the instance at this position of a run."""
    return f"{_PREFIX}.{_FIRST_ADDRESS + position}"


def unplug(switch: str) -> None:
    """Take bridge and uplink of a run out of a namespace that outlives it; what is not there is fine."""
    for device in (_UPLINK, "bridge"):
        with contextlib.suppress(ToolError):
            call(["ip", "-n", switch, "link", "delete", device])


def _switch_commands(ends: dict[str, str | None]) -> list[str]:
    """ip lines for the bridge and its ports, by device: a veth pair into a namespace; None = a tap that is there."""
    # Without addresses the switch's ends send nothing of their own (router solicitations) into the measurement.
    lines = ["link add bridge type bridge", "link set bridge addrgenmode none up"]
    for device, namespace in ends.items():
        if namespace is not None:
            lines.append(f"link add {device} type veth peer name eth0 netns {namespace}")
        lines.append(f"link set {device} addrgenmode none master bridge up")
    return lines


def end_commands(device: str, addresses: Sequence[str], segments: int | None = None) -> list[str]:
    """ip lines for an instance's end: its addresses, and the most frames that one packet may hold."""
    limit = "" if segments is None else f"gso_max_segs {segments} "
    lines = ["link set lo up", f"link set {device} {limit}addrgenmode none up"]
    return lines + [f"addr add {address}/24 dev {device}" for address in addresses]


def batch(command: list[str], lines: Sequence[str]) -> None:
    """Let ip or tc carry these lines out, in one process; ToolError at the first that it refuses."""
    call([*command, "-batch", "-"], "\n".join(lines) + "\n")


def cpu_mask(cpus: Sequence[int]) -> str:
    """A set of CPUs as the kernel reads it: hexadecimal words of 32 bits, the highest first, with commas between."""
    mask = sum(1 << cpu for cpu in set(cpus))
    words = [f"{mask >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(mask.bit_length(), 1), 32)]
    return ",".join(reversed(words))


def _steering(cpus: tuple[int, ...] | None) -> str:
    """The mask for these CPUs; empty where nothing is steered."""
    if cpus is None:
        return ""
    if not Path("/sys/class/net/lo", STEERING).exists():
        raise PreparationError("this kernel cannot steer packets to chosen CPUs (CONFIG_RPS): leave `driver` out")
    return cpu_mask(cpus)


def _steer(namespace: str, devices: Sequence[str], mask: str) -> None:
    """Let these CPUs work on what arrives at these devices (receive packet steering).

    With every end steered, the softirqs of pairs, bridge and HTB and of the receiver's IP and TCP run there, and with
    them what they set off: TCP's answers, and what an answer lets it send next. The sender's CPU still does its system
    call with the way down to the first pair, and the interrupt that it raises on the other CPU; the receiver's CPU does
    its own system call. The devices' files are only in the sysfs of their namespace, which `ip netns exec` mounts for
    the command that it starts.
    """
    files = [f"/sys/class/net/{device}/{STEERING}" for device in devices]
    try:
        call(["ip", "netns", "exec", namespace, "tee", *files], mask)
    except ToolError as error:
        raise PreparationError(f"packets cannot be steered to the CPUs of `driver`: {error}") from None
