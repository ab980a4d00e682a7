"""Text of `xentop -b` into readings of domains; no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from profiler.parse.text import ParseError, count, decimal, lines
from profiler.parse.xl import LONGEST_ROW

_WHAT = "xentop"
_HEADER = re.compile(r"(?a) *NAME +STATE +CPU\(sec\) +CPU\(%\) +MEM\(k\) +MEM\(%\) .* VCPUS +NETS ")
_ROW = re.compile(
    r"(?a) *(?P<name>\S.*) +(?P<state>[d-][s-][b-][c-][p-][r-]) +(?P<seconds>\d+) +(?P<cpu>\d+\.\d)"
    r" +(?P<mem>\d+) +\d+\.\d +(?:\d+ +\d+\.\d|no limit +n/a) +(?P<vcpus>\d+) +\d+ +(?P<tx>\d+) +(?P<rx>\d+)"
    r" +\d+ +\d+ +\d+ +\d+ +(?P<rsect>\d+) +(?P<wsect>\d+) +\S.*\Z"
)
_VCPUS = re.compile(r"(?a)VCPUs\(sec\):((?: +\d+: *\d+s)*) *\Z")
_NET = re.compile(
    r"(?a)Net(?P<net>\d{1,4}) RX: *(?P<rx>\d{1,20})bytes +(?P<rx_packets>\d{1,20})pkts +\d+err +\d+drop"
    r" +TX: *(?P<tx>\d{1,20})bytes +(?P<tx_packets>\d{1,20})pkts +\d+err +\d+drop *\Z"
)
_CONTINUED = re.compile(r"(?a) +((?: *\d+: *\d+s)+) *\Z")
_ONE_VCPU = re.compile(r"(?a)(\d{1,5}): *(\d{1,12})s")


@dataclass(frozen=True, slots=True)
class TopNet:
    """A `NetN` line: bytes and packets from the backend's side, so `received` is what the guest sent."""

    received: int
    received_packets: int
    sent: int
    sent_packets: int


@dataclass(frozen=True, slots=True)
class TopDomain:
    """One domain in one iteration; `cpu_percent` is since the iteration before and 0.0 in the first one always.

    `tx_kb` and `rx_kb` are from the backend's side as in `TopNet`; sectors are of 512 bytes.
    """

    name: str
    state: str
    cpu_s: int
    cpu_percent: float
    memory_kb: int
    vcpus: int
    tx_kb: int
    rx_kb: int
    sectors_read: int
    sectors_written: int
    vcpu_s: dict[int, int] = field(default_factory=dict)
    nets: dict[int, TopNet] = field(default_factory=dict)


def parse_xentop(text: str, where: str = "") -> list[dict[str, TopDomain]]:
    """Read `xentop -b` with any of -f, -i, -n, -v, -r: domains by name, one dict per iteration.

    The first iteration's percentages are not measured: use the second and later ones. `-r` repeats the header before
    every domain, so an iteration ends where a name comes again.
    Without -f xentop cuts names after 10 characters.
    """
    iterations: list[dict[str, TopDomain]] = []
    last: TopDomain | None = None
    begun = False
    for number, line in lines(text):
        if _HEADER.match(line):
            begun = True
        elif not begun:
            raise ParseError(_WHAT, where, number, f"{line[:60]!r} stands where the header should be")
        elif len(line) <= LONGEST_ROW and (match := _ROW.fullmatch(line)):
            last = _domain(match, where, number)
            if not iterations or last.name in iterations[-1]:
                iterations.append({})
            iterations[-1][last.name] = last
        elif last is None or not _detail(last, line):
            raise ParseError(_WHAT, where, number, f"{line[:60]!r} is no row of xentop")
    if not iterations:
        raise ParseError(_WHAT, where, 1, "there is no domain")
    return iterations


def _domain(match: re.Match[str], where: str, number: int) -> TopDomain:
    keys = ("seconds", "mem", "vcpus", "tx", "rx", "rsect", "wsect")
    seconds, memory, vcpus, tx, rx, read, written = (count(match[key], _WHAT, where, number) for key in keys)
    percent = decimal(match["cpu"], _WHAT, where, number)
    return TopDomain(match["name"].rstrip(" "), match["state"], seconds, percent, memory, vcpus, tx, rx, read, written)


def _detail(domain: TopDomain, line: str) -> bool:
    """Take a line of -v or -n into its domain; False when it is none."""
    if match := _VCPUS.fullmatch(line) or (_CONTINUED.fullmatch(line) if domain.vcpu_s else None):
        domain.vcpu_s.update({int(vcpu): int(seconds) for vcpu, seconds in _ONE_VCPU.findall(match[1])})
        return True
    if match := _NET.fullmatch(line):
        received, packets = int(match["rx"]), int(match["rx_packets"])
        domain.nets[int(match["net"])] = TopNet(received, packets, int(match["tx"]), int(match["tx_packets"]))
        return True
    return False
