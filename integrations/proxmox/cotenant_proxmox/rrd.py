"""What the RRD of a guest says, in rows of GET /nodes/NODE/KIND/VMID/rrddata; no I/O.

Rows, steps and ends by the sources of pve-cluster (PVE/RRD.pm, pmxcfs/status.c) and RRDtool (RRDs.xs): a row is the
mean of the `step` seconds up to its `time`. Values by qemu-server (`vmstatus`) and pve-container: `cpu` is a part of
`maxcpu`, rates are bytes per second, pressure (version 9 only) is the kernel's avg10 in per cent. What is not known is
left out of a row. No Proxmox was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from advisor.inventories.reading import MOST_CPUS, as_number

MOST_RATE = 1e12  # bytes per second: more is a counter gone wrong
MOST_PART = 10.0  # of maxcpu: threads of the emulator run beside the vCPUs
Values = Mapping[str, float]  # cpu and waiting in CPUs, net_mbit, disk_mb_s: those that are known
_PERCENT = 100.0


class RrdRow(NamedTuple):
    """The means of the `step_s` seconds up to `end_s` (s since the epoch)."""

    end_s: float
    step_s: float
    values: Values


def rows(answer: Sequence[object]) -> Iterator[RrdRow]:
    """Each row of an answer; what is no row is left out, and so is a value that cannot be.

    A step is not reported: it is the time since the row before. Version 9 puts coarse rows of the time before an
    upgrade in front of its own, so steps may change within an answer, where time may go back.
    """
    mappings = [row for row in answer if isinstance(row, Mapping)]
    times = [_number(row, "time") for row in mappings]
    for at, (row, end_s) in enumerate(zip(mappings, times, strict=True)):
        before = times[at - 1] if at else None
        after = times[at + 1] if at + 1 < len(times) else None
        steps = [b - a for a, b in ((before, end_s), (end_s, after)) if a is not None and b is not None and b > a]
        if end_s is not None and steps:
            yield RrdRow(end_s, steps[0], _values(row))


def _values(row: Mapping[Any, Any]) -> Values:
    part, cpus = _number(row, "cpu", MOST_PART), _number(row, "maxcpu", MOST_CPUS)
    values = {
        "cpu": None if part is None or cpus is None else part * cpus,
        "waiting": _scaled(_number(row, "pressurecpusome", _PERCENT), 1 / _PERCENT),
        "net_mbit": _scaled(_sum(row, "netin", "netout"), 8 / 1e6),
        "disk_mb_s": _scaled(_sum(row, "diskread", "diskwrite"), 1 / 1e6),
    }
    return {name: value for name, value in values.items() if value is not None}


def _number(row: Mapping[Any, Any], name: str, most: float = MOST_RATE) -> float | None:
    if row.get(name) is None:
        return None
    try:
        number = as_number(row[name], name)
    except ValueError:
        return None
    return number if number <= most else None


def _sum(row: Mapping[Any, Any], *names: str) -> float | None:
    numbers = [_number(row, name) for name in names]
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(names) else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
