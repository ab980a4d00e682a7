"""Traffic shaping of the uplink: the rate of the line, HTB classes below it, and the size of packets.

Rates count whole Ethernet frames (without preamble and checksum), as the kernel does: 95.6 % of a full-size TCP frame
is payload (1448 of 1514 bytes), and 97.2 % of a UDP one.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from lab.errors import PreparationError
from profiler.observed import NetworkSettings

_FRAME = 1514  # bytes of a full frame as qdiscs count it
_MIN_BURST = 2 * _FRAME  # bytes; a smaller bucket starves a slow class
_MOST_SEGMENTS = 64_000 // _FRAME  # of the biggest packet that TCP makes
_QUANTUM_RANGE = (_FRAME, 60_000)  # outside of it the kernel warns and clamps (sch_htb.c)
_MILLISECOND_BYTES = 1e6 / 8 / 1000  # at 1 Mbit/s
_ALL, _REST, _FIRST_CLASS = "1:1", "1:2", 10
# The least share of the line for instances without shaping: guarantees to others never starve them.
_LEAST_REST = 0.01


def htb_commands(
    device: str, attached: Sequence[tuple[str, NetworkSettings | None]], link_mbit: float | None,
    line_mbit: float | None = None, queue_packets: int = 1000,
) -> list[str]:  # fmt: skip
    """tc lines for the uplink, by address: `dedicated` keeps to its rate, `shared` may borrow up to the link.

    With a line everything passes one class of its rate; instances without a class of their own queue in one fifo of
    `queue_packets`. 1000 is the default of Linux for Ethernet devices, and what the paper's hosts had (twelve seconds
    at 1 Mbit/s, which made every query time out). Without a line, what is not shaped goes straight through.
    """
    shaped = [(address, net) for address, net in attached if net is not None and net.mode != "none"]
    if not shaped and line_mbit is None:
        return []
    shared = [net for _, net in shaped if net.mode == "shared"]
    link = line_mbit or _link(shared, link_mbit)
    check_promises([net for _, net in attached], link_mbit, line_mbit)
    lines = [f"qdisc add dev {device} root handle 1: htb" + (f" default {_REST[2:]}" if line_mbit else "")]
    if link:
        lines.append(f"class add dev {device} parent 1: classid {_ALL} htb {_rates(link, link)}")
    if line_mbit is not None:
        rest = max(line_mbit * _LEAST_REST, line_mbit - _promised([net for _, net in shaped]))
        lines += _class(device, _ALL, _REST, _rates(rest, line_mbit), queue_packets)
    for number, (address, net) in enumerate(shaped, start=_FIRST_CLASS):
        rate = net.rate_mbit or 0.0
        ceil = min(net.ceil_mbit or link, link) if net.mode == "shared" else rate
        parent = _ALL if net.mode == "shared" or line_mbit is not None else "1:"
        lines += _class(device, parent, f"1:{number}", _rates(rate, max(rate, ceil)), queue_packets)
        lines += _filters(device, address, f"1:{number}")
    return lines


def most_segments(net: NetworkSettings | None, link_mbit: float | None, line_mbit: float | None) -> int | None:
    """The maximum number of frames per packet of an instance; None = no limit.

    HTB lets a packet pass as a whole, and TCP makes packets of up to 64 KB: half a second of a 1 Mbit/s line, during
    which nothing else is sent. A millisecond's worth is what TCP itself aims at once it knows its rate (tcp_output.c).
    """
    own = None
    if net is not None and net.mode == "dedicated":
        own = net.rate_mbit
    elif net is not None and net.mode == "shared":
        own = line_mbit or link_mbit or net.ceil_mbit or net.rate_mbit
    fastest = min((mbit for mbit in (own, line_mbit) if mbit is not None), default=None)
    if fastest is None:
        return None
    segments = max(1, int(fastest * _MILLISECOND_BYTES / _FRAME))
    return segments if segments < _MOST_SEGMENTS else None


def _link(shared: Sequence[NetworkSettings], link_mbit: float | None) -> float:
    """The rate that `shared` instances share; without a link's own as much as they are promised. 0 = there are none."""
    if not shared:
        return 0.0
    return link_mbit or max(_promised(shared), *(net.ceil_mbit or 0.0 for net in shared))


def _promised(settings: Sequence[NetworkSettings]) -> float:
    return sum(net.rate_mbit or 0.0 for net in settings)


def check_promises(
    settings: Sequence[NetworkSettings | None], link_mbit: float | None, line_mbit: float | None
) -> None:
    """Raise PreparationError when these instances are promised more than there is.

    HTB gives every class its rate even beyond that of its parent, so all rates below one parent must fit into it.
    """
    shaped = [net for net in settings if net is not None and net.mode != "none"]
    inside = shaped if line_mbit else [net for net in shaped if net.mode == "shared"]
    link = line_mbit or _link(inside, link_mbit)
    if _promised(inside) > link * (1 + 1e-9):
        raise PreparationError(
            f"instances are promised {_promised(inside):g} Mbit/s of a line of {link:g} Mbit/s: lower their rate_mbit"
        )


def _class(device: str, parent: str, name: str, rates: str, queue_packets: int) -> list[str]:
    return [
        f"class add dev {device} parent {parent} classid {name} htb {rates}",
        f"qdisc add dev {device} parent {name} pfifo limit {queue_packets}",
    ]


def _filters(device: str, address: str, name: str) -> list[str]:
    """Lines that put what an address sends into a class: IP, and ARP, which asks for its neighbours."""
    packed = IPv4Address(address).packed
    # RFC 826: the sender's address is 14 bytes into the packet
    sender = f"match u16 0x{packed[:2].hex()} 0xffff at 14 match u16 0x{packed[2:].hex()} 0xffff at 16"
    add = f"filter add dev {device} parent 1: protocol"
    return [
        f"{add} ip prio 1 u32 match ip src {address}/32 flowid {name}",
        f"{add} arp prio 2 u32 {sender} flowid {name}",
    ]


def _rates(rate_mbit: float, ceil_mbit: float) -> str:
    """Rate, ceil, bursts of 1 ms (tc's own default costs 2 % at 1 Gbit/s and 9 % at 3 Gbit/s) and a legal quantum."""
    low, high = _QUANTUM_RANGE
    quantum = max(low, min(high, round(rate_mbit * _MILLISECOND_BYTES)))
    burst, cburst = (max(_MIN_BURST, round(mbit * _MILLISECOND_BYTES)) for mbit in (rate_mbit, ceil_mbit))
    rate, ceil = (f"{max(1, round(mbit * 1000))}kbit" for mbit in (rate_mbit, ceil_mbit))
    return f"rate {rate} ceil {ceil} burst {burst} cburst {cburst} quantum {quantum}"
