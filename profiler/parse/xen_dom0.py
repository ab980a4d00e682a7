"""Text that Linux and xenstored show in Dom0 into numbers: interrupts, netback rings, xenstore, devices; no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.parse.text import ParseError, count, lines

_INTERRUPT = re.compile(r"(?a) *(?P<number>[A-Za-z0-9]{1,10}):(?P<counts>(?: +\d{1,20})+)(?: +(?P<rest>\S.*))?\Z")
_REQUESTS = r"req prod (\d{1,10}) \(-?\d{1,20}\) cons (\d{1,10}) \(-?\d{1,20}\)"
_RINGS = re.compile(rf"(?ams)^TX:[^\n]*\n{_REQUESTS}[^\n]*\n(?:[^R\n][^\n]*\n|\n){{0,20}}^RX:[^\n]*\n{_REQUESTS}")
_STORE = re.compile(r'(?a)([A-Za-z0-9_/@+:.-]{1,3072}) = "(.*)"(?:   \([^"]*\))?\Z', re.DOTALL)
_RATE = re.compile(r"(?a)(\d{1,18}),(\d{1,10})\Z")
_DEVICE = re.compile(r"(?a)(vif|vbd)-(\d{1,5})-(\d{1,10})\Z")
_PHYSICAL = re.compile(r"(?a)([0-9a-f]{1,8}):([0-9a-f]{1,8})\Z")
_INTERFACE = re.compile(r"(?a)vif(\d{1,5})\.(\d{1,5})(-emu)?\Z")


@dataclass(frozen=True, slots=True)
class Interrupt:
    """One line of /proc/interrupts: its count over all CPUs, its chip (`xen-dyn`), its type (`-event`) and its name."""

    count: int
    chip: str
    kind: str
    name: str

    @property
    def interdomain(self) -> bool:
        """Whether it is bound to an event channel to another domain: not a timer, IPI, VIRQ or a device's own."""
        return self.chip.startswith("xen-dyn") and self.kind == "-event"


def parse_interrupts(text: str, where: str = "") -> dict[str, Interrupt]:
    """Read `/proc/interrupts`: lines by number; of several tables the last one counts."""
    what = "interrupts"
    interrupts: dict[str, Interrupt] = {}
    cpus = 0
    for number, line in lines(text):
        if re.fullmatch(r" *(CPU\d+ *)+", line):
            cpus = len(line.split())
            continue
        match = _INTERRUPT.fullmatch(line)
        if match is None or not cpus:
            raise ParseError(what, where, number, f"{line[:60]!r} is no line of interrupts")
        counts = match["counts"].split()
        if len(counts) > cpus:  # fewer is right: ERR and MIS are counted once for all
            raise ParseError(what, where, number, f"{len(counts)} counts for {cpus} CPUs")
        chip, _, rest = (match["rest"] or "").partition(" ")
        kind, _, name = rest.strip().partition(" ")
        total = sum(count(value, what, where, number) for value in counts)
        interrupts[match["number"]] = Interrupt(total, chip, kind, name.strip())
    if not interrupts:
        raise ParseError(what, where, 1, "it is empty")
    return interrupts


def parse_netback_rings(text: str, where: str = "") -> tuple[int, int]:
    """Read `io_ring_qN` of xen-netback's debugfs: slots taken from the guest's TX and RX rings, modulo 2^32."""
    match = _RINGS.search(text)
    if match is None:
        raise ParseError("netback ring", where, 1, "there are no requests of TX and RX")
    indices = [int(value) for value in match.groups()]
    if max(indices) >> 32:
        raise ParseError("netback ring", where, 1, "an index has more than 32 bits")
    _, sent, _, received = indices
    return sent, received


def parse_xenstore(text: str, where: str = "") -> dict[str, str]:
    """Read `xenstore-ls -f`: values by path. xenstore-ls escapes line breaks, so one line is one node."""
    values: dict[str, str] = {}
    for number, line in lines(text):
        match = _STORE.fullmatch(line)
        if match is None:
            raise ParseError("xenstore-ls", where, number, f"{line[:60]!r} is no node")
        values[match[1]] = match[2]
    return values


def parse_vif_rate(text: str, where: str = "") -> float:
    """Read `rate` of a vif in xenstore, bytes per interval and its µs (xl-network-configuration(5)): Mbit/s."""
    match = _RATE.fullmatch(text.strip())
    if match is None or int(match[2]) == 0:
        raise ParseError("vif rate", where, 1, f"{text[:60]!r} is not bytes,microseconds")
    return int(match[1]) * 8 / int(match[2])


def vif_rate_mbit(nodes: Mapping[str, str], domid: int) -> float | None:
    """Sum of the limits of all of a domain's vifs in Dom0, Mbit/s; None = some vif has none, or there is no vif."""
    prefix = f"/local/domain/0/backend/vif/{domid}/"
    vifs = {path[len(prefix) :].split("/")[0] for path in nodes if path.startswith(prefix)}
    rates = [nodes.get(f"{prefix}{vif}/rate") for vif in sorted(vifs)]
    limits = [parse_vif_rate(rate, f"{prefix}rate") for rate in rates if rate is not None]
    return sum(limits) if limits and len(limits) == len(rates) else None


def device_of(name: str) -> tuple[str, int, int] | None:
    """Kind, domain and number of a backend device's folder such as `vbd-3-51712`; None for other names."""
    match = _DEVICE.fullmatch(name)
    return (match[1], int(match[2]), int(match[3])) if match else None


def parse_physical_device(text: str, where: str = "") -> str:
    """Read `physical_device` of a vbd, `fe:3` in hexadecimal (drivers/block/xen-blkback/xenbus.c), as `254:3`."""
    match = _PHYSICAL.match(text.strip())
    if match is None:
        raise ParseError("physical device", where, 1, f"{text[:60]!r} is not major:minor")
    return f"{int(match[1], 16)}:{int(match[2], 16)}"


def interface_of(name: str) -> tuple[int, int] | None:
    """Domain and number of a vif's interface, `vif3.0` or `vif3.0-emu` (QEMU's emulated card); None for others."""
    match = _INTERFACE.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_number(text: str) -> int | None:
    """A number of a domain or a device in a path of xenstore; None where it is not a number."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= 10 else None
