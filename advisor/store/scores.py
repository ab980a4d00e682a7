"""Scores: what was delivered to each instance lately, and scores over time of hosts, the cloud and each VM.

Of each VM a day is one row with two characters for each window of five minutes: a number in hexadecimal, the score,
rounded, and 128 more where the CPU time was measured; blanks are windows without a score. So a day of a VM is one row
of 0.6 KB, which a statement extends without reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import sqlalchemy as sa

from advisor.domain import ScoreSummary
from advisor.store.rollups import BUCKET_S
from advisor.store.schema import ID, insert, insert_new, metadata, parameters, selected, upsert

CLOUD = ""  # in place of a host
_AT_ONCE = 5_000  # rows that are written in one statement
_COUNTS = ("under_20", "under_40", "under_60", "under_80", "under_100")

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("host", ID, nullable=False),
    sa.Column("time_s", sa.Double, nullable=False, index=True),  # when the window ended
    sa.Column("delivered", sa.Double),  # run / (run + wait), null = not measured, or it says nothing
    sa.Column("stalled", sa.Double),  # part of the time in which it stalled for memory, null = not measured
)
scores = sa.Table(
    "scores",
    metadata,
    sa.Column("host", ID, primary_key=True),
    sa.Column("time_s", sa.Double, primary_key=True, autoincrement=False, index=True),  # when the window ended
    sa.Column("mean", sa.Double, nullable=False),
    sa.Column("lowest", sa.Double, nullable=False),
    sa.Column("measured", sa.Integer, nullable=False),
    *(sa.Column(name, sa.Integer, nullable=False) for name in _COUNTS),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What an instance got on a host in the window that ended at `time_s`, as parts 0-1; None = not measured."""

    host: str
    time_s: float
    delivered: float | None
    stalled: float | None


def put_deliveries(connection: sa.Connection, found: Mapping[str, Delivery]) -> None:
    """Insert or replace those of these instances."""
    rows = [
        {
            "instance": name,
            "host": one.host,
            "time_s": one.time_s,
            "delivered": one.delivered,
            "stalled": one.stalled,
        }
        for name, one in found.items()
    ]
    upsert(connection, deliveries, rows)


def deliveries_since(connection: sa.Connection, since_s: float) -> dict[str, Delivery]:
    """By instance, those of windows that ended since a time."""
    columns = (deliveries.c[name] for name in ("instance", "host", "time_s", "delivered", "stalled"))
    rows = connection.execute(sa.select(*columns).where(deliveries.c.time_s >= since_s))
    return {name: Delivery(*row) for name, *row in rows}


def has_window(connection: sa.Connection, time_s: float) -> bool:
    """Whether the scores of a window are stored."""
    query = sa.select(scores.c.host).where(scores.c.host == CLOUD, scores.c.time_s == time_s)
    return connection.scalar(query) is not None


def keep(connection: sa.Connection, time_s: float, found: Mapping[str, ScoreSummary]) -> None:
    """Store the scores of a window, by host; those that are stored stay."""
    rows = [
        {
            "host": host,
            "time_s": time_s,
            "mean": of.mean,
            "lowest": of.lowest,
            "measured": of.measured,
            **dict(zip(_COUNTS, of.counts, strict=True)),
        }
        for host, of in sorted(found.items())
        if of.mean is not None
    ]
    for start in range(0, len(rows), _AT_ONCE):
        insert_new(connection, scores, rows[start : start + _AT_ONCE])


def history(connection: sa.Connection, host: str, since_s: float) -> list[tuple[float, ScoreSummary]]:
    """The windows of a host, or of the cloud, that ended after a time: end in s and scores, the oldest first."""
    query = sa.select(scores).where(scores.c.host == host, scores.c.time_s > since_s).order_by(scores.c.time_s)
    return [
        (row.time_s, ScoreSummary.of([row._mapping[name] for name in _COUNTS], row.mean, row.lowest, row.measured))
        for row in connection.execute(query)
    ]


def expire(connection: sa.Connection, hosts_before_s: float, cloud_before_s: float) -> None:
    """Forget windows of hosts and of the cloud that ended before these times, and deliveries as old as the former."""
    old_host = (scores.c.host != CLOUD) & (scores.c.time_s < hosts_before_s)
    connection.execute(sa.delete(scores).where(old_host | (scores.c.time_s < cloud_before_s)))
    connection.execute(sa.delete(deliveries).where(deliveries.c.time_s < hosts_before_s))


_DAY_S = 86_400.0
WINDOWS = int(_DAY_S / BUCKET_S)
_BLANK, _MEASURED = "  ", 0x80
Mark = tuple[float, bool]  # score 0-100, and whether the CPU time was measured

vm_scores = sa.Table(
    "vm_scores",
    metadata,
    sa.Column("instance", ID, primary_key=True),
    sa.Column("day", sa.Integer, primary_key=True, autoincrement=False, index=True),  # since the epoch, UTC
    sa.Column("marks", sa.String(len(_BLANK) * WINDOWS), nullable=False),
)


def put_vms(connection: sa.Connection, time_s: float, found: Mapping[str, Mark]) -> None:
    """Store the scores of the window that ended at `time_s`; another window's stay."""
    if not found:
        return
    day, slot = _place(time_s)
    rows = [
        {"instance": name, "day": day, "marks": _BLANK * slot + _written(mark)} for name, mark in sorted(found.items())
    ]
    statement = insert(connection, vm_scores, ["instance", "day", "marks"])
    marks, begin = vm_scores.c.marks, len(_BLANK) * slot
    before = sa.func.substr(marks.concat(_BLANK * WINDOWS), 1, begin)
    after = sa.func.substr(marks, begin + len(_BLANK) + 1)
    own = sa.func.substr(statement.excluded.marks, begin + 1)
    changed = {"marks": before.concat(own).concat(after)}
    statement = statement.on_conflict_do_update(index_elements=["instance", "day"], set_=changed)
    connection.execute(statement, parameters(connection, vm_scores, rows))


def history_of_vm(connection: sa.Connection, instance: str, since_s: float, until_s: float) -> list[tuple[float, Mark]]:
    """The windows of a VM that ended after `since_s` and until `until_s`: end in s and score, the oldest first."""
    first, last = _place(since_s)[0], _place(until_s)[0]
    query = sa.select(vm_scores.c.day, vm_scores.c.marks).where(
        vm_scores.c.instance == instance, vm_scores.c.day.between(first, last)
    )
    windows = [
        (row.day * _DAY_S + (slot + 1) * BUCKET_S, mark)
        for row in connection.execute(query.order_by(vm_scores.c.day))
        for slot, mark in enumerate(_read(row.marks))
        if mark is not None
    ]
    return [(time_s, mark) for time_s, mark in windows if since_s < time_s <= until_s]


def lasting(connection: sa.Connection, instances: Iterable[str], time_s: float, below: float) -> dict[str, int]:
    """By VM, how many windows up to the one that ended at `time_s` were measured below a score, one after the other and
    at most a day."""
    day, slot = _place(time_s)
    by_vm: dict[str, dict[int, Sequence[Mark | None]]] = {}
    query = sa.select(vm_scores).where(vm_scores.c.day.in_((day - 1, day)))
    for row in selected(connection, query, vm_scores.c.instance, instances):
        by_vm.setdefault(row.instance, {})[row.day] = _read(row.marks)
    counts = {}
    for name, days in by_vm.items():
        today, yesterday = days.get(day, ()), days.get(day - 1, ())
        marks = [*_filled(yesterday, WINDOWS), *_filled(today, slot + 1)]
        counts[name] = next(
            (at for at, mark in enumerate(reversed(marks)) if mark is None or not mark[1] or mark[0] >= below),
            len(marks),
        )
    return counts


def low_at(connection: sa.Connection, time_s: float, below: float) -> list[str]:
    """The VMs whose score in the window that ended at `time_s` was measured and below this one, in order."""
    day, slot = _place(time_s)
    mark = sa.func.substr(vm_scores.c.marks, len(_BLANK) * slot + 1, len(_BLANK))
    low = [_written((float(score), True)) for score in range(101) if score < below]
    query = sa.select(vm_scores.c.instance).where(vm_scores.c.day == day, mark.in_(low))
    return list(connection.scalars(query.order_by(vm_scores.c.instance)))


def expire_vms(connection: sa.Connection, before_s: float) -> None:
    """Forget the days that ended before this time."""
    connection.execute(sa.delete(vm_scores).where(vm_scores.c.day < int(before_s // _DAY_S)))


def _place(time_s: float) -> tuple[int, int]:
    """Day of the window that ended at this time, and its number there."""
    begin_s = time_s - BUCKET_S
    return int(begin_s // _DAY_S), int(begin_s % _DAY_S // BUCKET_S)


def _written(mark: Mark) -> str:
    score, measured = mark
    return f"{round(min(max(score, 0.0), 100.0)) + _MEASURED * measured:02x}"


def _read(marks: str) -> Sequence[Mark | None]:
    return [_mark(marks[at : at + len(_BLANK)]) for at in range(0, len(marks), len(_BLANK))]


def _mark(pair: str) -> Mark | None:
    if pair == _BLANK:
        return None
    number = int(pair, 16)
    return float(number & ~_MEASURED), number >= _MEASURED


def _filled(marks: Sequence[Mark | None], length: int) -> Iterable[Mark | None]:
    return islice((*marks, *[None] * length), length)
