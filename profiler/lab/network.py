"""The lab's network: a namespace per instance, one for the load generators, and between them a switch with HTB classes.

    instance ── veth ── bridge ── uplink veth ── load generators
                                    └ HTB on the way to the generators, as on a host's physical port

Bridge and uplink have a namespace of their own: the host's firewall (Docker drops what is forwarded), its network
manager and its interfaces are not touched, and nothing is left when the namespaces are gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler.lab.processes import call
from profiler.lab.registry import Registry
from profiler.observed import NetworkSettings

_SUBNET = "10.77.0"  # exists inside the lab's own namespaces only
_GENERATOR_ADDRESS = f"{_SUBNET}.1"
_FIRST_ADDRESS = 10
_FIRST_CLASS = 10
_UPLINK = "uplink"
_MIN_BURST = 16_000  # bytes; a burst below a few packets starves slow classes
_QUANTUM_RANGE = (1514, 60_000)  # outside of it the kernel warns and clamps (sch_htb.c)


@dataclass(frozen=True, slots=True)
class Port:
    """Where one instance is attached; `namespace` is the path of its network namespace."""

    address: str
    namespace: str


@dataclass(frozen=True, slots=True)
class Network:
    """A network that stands: one port per instance, and the generators' namespace."""

    ports: tuple[Port, ...]
    generators: str


def build(registry: Registry, settings: list[NetworkSettings | None], link_mbit: float | None) -> Network:
    """Make the network for these instances; `link_mbit` is the rate of the uplink that `shared` instances share."""
    switch, generators = registry.network("switch"), registry.network("load")
    names = [registry.network(str(position)) for position in range(len(settings))]
    for name in (switch, generators, *names):
        registry.made("network", name)
        call(["ip", "netns", "add", name])
    # Without an address the switch's ends send nothing of their own (router solicitations) into the measurement.
    batch = ["link add bridge type bridge", "link set bridge addrgenmode none up"]
    ends = [(_UPLINK, generators), *((f"port{position}", name) for position, name in enumerate(names))]
    for link, namespace in ends:
        batch += [
            f"link add {link} type veth peer name eth0 netns {namespace}",
            f"link set {link} addrgenmode none master bridge up",
        ]
    call(["ip", "-n", switch, "-batch", "-"], "\n".join(batch) + "\n")
    addresses = [f"{_SUBNET}.{_FIRST_ADDRESS + position}" for position in range(len(names))]
    for name, address in zip((generators, *names), (_GENERATOR_ADDRESS, *addresses), strict=True):
        inside = ["link set lo up", "link set eth0 addrgenmode none up", f"addr add {address}/24 dev eth0"]
        call(["ip", "-n", name, "-batch", "-"], "\n".join(inside) + "\n")
    shaping = htb_commands(_UPLINK, list(zip(addresses, settings, strict=True)), link_mbit)
    if shaping:
        call(["tc", "-n", switch, "-batch", "-"], "\n".join(shaping) + "\n")
    ports = tuple(Port(address, f"/run/netns/{name}") for address, name in zip(addresses, names, strict=True))
    return Network(ports, f"/run/netns/{generators}")


def htb_commands(
    device: str, attached: Sequence[tuple[str, NetworkSettings | None]], link_mbit: float | None
) -> list[str]:
    """tc lines for the uplink, by address: `dedicated` keeps to its rate, `shared` may borrow up to the link."""
    shaped = [(address, net) for address, net in attached if net is not None and net.mode != "none"]
    if not shaped:
        return []
    lines = [f"qdisc add dev {device} root handle 1: htb"]  # no default class: what is not shaped goes straight through
    shared = [net for _, net in shaped if net.mode == "shared"]
    if shared:
        link = link_mbit or max(net.ceil_mbit or net.rate_mbit or 0.0 for net in shared)
        lines.append(f"class add dev {device} parent 1: classid 1:1 htb {_rates(link, link)}")
    for number, (address, net) in enumerate(shaped, start=_FIRST_CLASS):
        rate = net.rate_mbit or 0.0
        parent, ceil = ("1:1", net.ceil_mbit or link_mbit or rate) if net.mode == "shared" else ("1:", rate)
        lines.append(f"class add dev {device} parent {parent} classid 1:{number} htb {_rates(rate, ceil)}")
        match = f"u32 match ip src {address}/32 flowid 1:{number}"
        lines.append(f"filter add dev {device} parent 1: protocol ip prio 1 {match}")
    return lines


def _rates(rate_mbit: float, ceil_mbit: float) -> str:
    """Rate, ceil, bursts of 1 ms (tc's own default costs 2 % at 1 Gbit/s and 9 % at 3 Gbit/s) and a legal quantum."""
    low, high = _QUANTUM_RANGE
    quantum = max(low, min(high, round(rate_mbit * 1e6 / 8 / 1000)))
    burst, cburst = (max(_MIN_BURST, round(mbit * 1e6 / 8 / 1000)) for mbit in (rate_mbit, ceil_mbit))
    rate, ceil = (f"{round(mbit * 1000)}kbit" for mbit in (rate_mbit, ceil_mbit))
    return f"rate {rate} ceil {ceil} burst {burst} cburst {cburst} quantum {quantum}"
