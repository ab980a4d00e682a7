"""Text of xl(1) into domains, vCPUs, settings and facts of the host; no I/O.

Names come first in xl's tables and may hold anything, so every row is read from its right end. Formats: tools/xl of
Xen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeVar

from profiler.observed import parse_cpus
from profiler.parse.text import ParseError, count, decimal, lines

_MAX_DOMID = 0x7FF0  # DOMID_FIRST_RESERVED of Xen's public headers; domains have lower numbers
NAMELESS = "(null)"  # xl's name of a domain that xenstore has no name for: it is being built or torn down
T = TypeVar("T")

_LONGEST_ROW = 5000  # characters of a row: xenstore holds names of at most 4096 bytes
_LIST = re.compile(
    r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<mem>\d{1,12}) +(?P<vcpus>\d{1,5})"
    r" +(?P<state>[r-][b-][p-][s-][rscwS?-][d-]) +(?P<time>\d{1,12}\.\d)(?P<rest>\D.*)?\Z"
)
_UUID = re.compile(r"(?a) (?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) +(?:-|[0-9a-f]{1,8}) +\S")
_NO_UUID = "00000000-0000-0000-0000-000000000000"  # Xen's handle of a domain that its toolstack gave none, as of Dom0
_VCPU = re.compile(
    r"(?a)(?P<name>.*) +(?P<domid>\d{1,5}) +(?P<vcpu>\d{1,5}) +(?P<cpu>\d{1,5}|-) +(?P<state>[r-][b-][p-])"
    r" +(?P<time>\d{1,12}\.\d) +(?P<hard>[0-9,-]+|all|none) / (?P<soft>[0-9,-]+|all|none)\Z"
)


@dataclass(frozen=True, slots=True)
class ListedDomain:
    """A row of `xl list`; `cpu_ns` resolves 0.1 s, `state` is xl's (`r-----`).

    `uuid` is "" where xl does not list it (without -v) and where the domain has none.
    """

    name: str
    domid: int
    memory_mb: int
    vcpus: int
    state: str
    cpu_ns: int
    uuid: str = ""

    @property
    def gone(self) -> bool:
        """Whether nothing of it runs: it has shut down, is being destroyed, or has no name yet."""
        return self.state[3] == "s" or self.state[5] == "d" or self.name == NAMELESS


@dataclass(frozen=True, slots=True)
class ListedVcpu:
    """A row of `xl vcpu-list`; `cpu` None = offline, `hard` (affinity) None = all pCPUs."""

    domid: int
    cpu: int | None
    state: str
    hard: tuple[int, ...] | None


def _rows(text: str, what: str, where: str, header: str) -> list[tuple[int, str]]:
    """The rows below the header line, which xl always prints in English; ParseError without a header."""
    numbered = lines(text)
    if not numbered:
        raise ParseError(what, where, 1, "it is empty")
    number, first = numbered[0]
    if not re.match(header, first):
        raise ParseError(what, where, number, f"{first[:60]!r} is not the header of {what}")
    return [(number, line) for number, line in numbered[1:] if not re.match(header, line)]


def row(pattern: re.Pattern[str], line: str, what: str, where: str, number: int) -> re.Match[str]:
    """The parts of one row; ParseError where it does not match."""
    match = pattern.fullmatch(line) if len(line) <= _LONGEST_ROW else None
    if match is None:
        raise ParseError(what, where, number, f"{line[:60]!r} is no row of {what}")
    return match


def domid_of(text: str, what: str, where: str, number: int) -> int:
    """The number of a domain; those that Xen reserves are ParseErrors."""
    value = count(text, what, where, number)
    if value >= _MAX_DOMID:
        raise ParseError(what, where, number, f"{value} is no domain")
    return value


def _ns(text: str, what: str, where: str, number: int) -> int:
    return round(decimal(text, what, where, number) * 10) * 100_000_000


def add(by_domain: dict[int, T], domid: int, value: T, what: str, where: str, number: int) -> None:
    """Add a domain's value; ParseError for a domain that occurs twice."""
    if domid in by_domain:
        raise ParseError(what, where, number, f"domain {domid} stands twice")
    by_domain[domid] = value


def parse_xl_list(text: str, where: str = "") -> dict[int, ListedDomain]:
    """Read `xl list`, also with -v, -c or -n: domains by number."""
    what = "xl list"
    domains: dict[int, ListedDomain] = {}
    verbose = "UUID" in text.partition("\n")[0]
    for number, line in _rows(text, what, where, r"Name +ID +Mem +VCPUs\s+State\s+Time\(s\)"):
        match = row(_LIST, line, what, where, number)
        domid = domid_of(match["domid"], what, where, number)
        shown = _UUID.match(match["rest"] or "") if verbose else None
        if verbose and shown is None:
            raise ParseError(what, where, number, "there is no UUID: the line is not whole")
        listed = ListedDomain(
            match["name"].rstrip(" "),
            domid,
            count(match["mem"], what, where, number),
            count(match["vcpus"], what, where, number),
            match["state"],
            _ns(match["time"], what, where, number),
            "" if shown is None or shown["uuid"] == _NO_UUID else shown["uuid"],
        )
        add(domains, domid, listed, what, where, number)
    if 0 not in domains:
        raise ParseError(what, where, 1, "there is no domain 0: the output is not whole")
    return domains


def parse_vcpu_list(text: str, where: str = "") -> dict[tuple[int, int], ListedVcpu]:
    """Read `xl vcpu-list`: vCPUs by domain and number; of several tables the last one counts."""
    what = "xl vcpu-list"
    vcpus: dict[tuple[int, int], ListedVcpu] = {}
    for number, line in _rows(text, what, where, r"Name +ID +VCPU +CPU +State +Time\(s\) +Affinity"):
        match = row(_VCPU, line, what, where, number)
        domid = domid_of(match["domid"], what, where, number)
        vcpu = count(match["vcpu"], what, where, number)
        vcpus[domid, vcpu] = ListedVcpu(
            domid,
            None if match["cpu"] == "-" else count(match["cpu"], what, where, number),
            match["state"],
            _affinity(match["hard"], what, where, number),
        )
    return vcpus


def _affinity(text: str, what: str, where: str, number: int) -> tuple[int, ...] | None:
    """The pCPUs of a list as xl prints it; None = all."""
    if text == "all":
        return None
    if text == "none":
        return ()
    try:
        return parse_cpus(text)
    except ValueError as error:
        raise ParseError(what, where, number, str(error)) from None
