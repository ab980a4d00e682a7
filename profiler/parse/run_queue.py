"""Reads the lines of JSON that cotenant-run-queue prints (profiler/backends/run_queue). No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from profiler.parse.text import ParseError

# As run_queue.h has them.
_SUB_BUCKETS = 8
_SHORTEST_LOG2 = 10
_BUCKETS = 209
NOT_KNOWN = 0  # in place of a group: who ran is not known


@dataclass(frozen=True, slots=True)
class GroupWaits:
    """Waits of the tasks of one control group that ended in a period; `delays` counts them by bucket of length.

    Time for which a quota throttled them is in `throttled_ns` and not in `delays`.
    """

    throttled_ns: int
    delays: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class RunQueueCounts:
    """What was counted in one period, by number of control group.

    `pairs` holds the ns for which one group waited while another one ran. `lost` counts since the start what found no
    room.
    """

    seconds: float
    groups: Mapping[int, GroupWaits]
    pairs: Mapping[tuple[int, int], int]
    lost: int


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The shortest wait in a bucket, and the shortest in the next one, in ns."""
    return _lower(bucket), _lower(bucket + 1)


def _lower(bucket: int) -> int:
    if bucket == 0:
        return 0
    doublings, part = divmod(bucket - 1, _SUB_BUCKETS)
    return (_SUB_BUCKETS + part) << (_SHORTEST_LOG2 + doublings - 3)


def parse_run_queue(line: str) -> RunQueueCounts:
    """Read one line; ParseError unless it is whole and well formed."""
    try:
        document = json.loads(line)
        groups = {_count(group["id"]): _group(group) for group in document["groups"]}
        pairs = {(_count(victim), _count(runner)): _count(ns) for victim, runner, ns in document["pairs"]}
        return RunQueueCounts(_seconds(document["seconds"]), groups, pairs, _count(document["lost"]))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"it is not a line of cotenant-run-queue: {type(error).__name__}: {error}"[:200]
        raise ParseError("run queue", "", 1, reason) from None


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1e6:
        raise ValueError(f"{str(value)[:20]} is not a number of seconds")
    return float(value)


def _group(group: Any) -> GroupWaits:
    delays = {_count(bucket): _count(number) for bucket, number in group["delays"]}
    if any(bucket >= _BUCKETS for bucket in delays):
        raise ValueError(f"there are {_BUCKETS} buckets")
    return GroupWaits(_count(group["throttled_ns"]), delays)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError(f"{str(value)[:20]} is not a counter")
    return value
