"""Scores of each VM over time: one row for each VM and day, with two characters for each window of five minutes.

The characters are a number in hexadecimal: the score, rounded, and 128 more where the CPU time was measured; blanks are
windows without a score. So a day of a VM is one row of 0.6 KB, which a statement extends without reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import sqlalchemy as sa

from advisor.store.rollups import BUCKET_S
from advisor.store.schema import ID, insert, metadata, parameters, selected

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


def put(connection: sa.Connection, time_s: float, found: Mapping[str, Mark]) -> None:
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


def history(connection: sa.Connection, instance: str, since_s: float, until_s: float) -> list[tuple[float, Mark]]:
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


def expire(connection: sa.Connection, before_s: float) -> None:
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
