"""Calm: which instances and hosts rest after moves, longer the more often they moved, and until when."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from advisor.domain import Host, Instance, MoveSeen, listed
from advisor.domain.rules import WINDOW, next_open
from advisor.domain.words import seconds_in_words
from advisor.snapshot import ClusterSnapshot
from profiler.observed import MOVED_LABEL

# A host rests so long that three of the five-minute windows from which demand is learned show it as it is now.
HOST_REST_S = 900.0
ONE_OCCASION_S = 900.0  # moves so close are one occasion: an instance takes a detour, a host gets several
MOST_S = 7 * 86_400.0  # moves of so long count, and no rest is longer
MeasuredMoves = Callable[[], Sequence[MoveSeen]]  # moves within MOST_S


@dataclass(frozen=True, slots=True)
class Resting:
    """An instance or a host that rests until a time (s since the epoch), because it, or instances to or from it, moved
    on so many occasions; `last_s` is the last one."""

    name: str
    until_s: float
    last_s: float
    moves: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Instances and hosts that rest at `now_s`, by id; and when the windows open of those of which one is closed."""

    now_s: float = 0.0
    instances: Mapping[str, Resting] = field(default_factory=dict)
    hosts: Mapping[str, Resting] = field(default_factory=dict)
    closed: Mapping[str, datetime] = field(default_factory=dict)
    closed_hosts: Mapping[str, datetime] = field(default_factory=dict)

    @classmethod
    def of(
        cls, snapshot: ClusterSnapshot, seen: Sequence[MoveSeen], now: datetime, rest_h: float, rests: bool = True
    ) -> Rest:
        """Who rests where an instance rests `rest_h` hours after a move, twice as long after each one more within
        MOST_S; a host HOST_REST_S likewise, and never longer than `rest_h`. Windows are those of the label
        `move_window`. Unless it `rests`, only they count."""
        rest_s, now_s = 3600 * rest_h, now.timestamp()
        placed = snapshot.names.placed
        moves = [*seen, *(move for instance in placed.values() for move in labelled(instance))] if rests else []
        by_instance: dict[str, list[float]] = {}
        by_host: dict[str, list[float]] = {}
        for move in moves:
            if now_s - MOST_S < move.at_s <= now_s:
                by_instance.setdefault(move.instance, []).append(move.at_s)
                for host in (move.source, move.target):
                    by_host.setdefault(host or "", []).append(move.at_s)
        return cls(
            now_s,
            _resting(now_s, by_instance, placed.keys(), rest_s, MOST_S),
            _resting(now_s, by_host, snapshot.names.positions.keys(), min(HOST_REST_S, rest_s), rest_s),
            _closed(placed.values(), now),
            _closed(snapshot.hosts, now),
        )

    @property
    def away(self) -> frozenset[str]:
        """Ids of hosts to which nothing moves now."""
        return frozenset(self.hosts.keys() | self.closed_hosts.keys())

    @property
    def waits(self) -> bool:
        """Whether an instance or a host waits."""
        return bool(self.instances or self.hosts or self.closed or self.closed_hosts)

    def staying(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """Ids of instances that rest, or whose window is closed, or that are on such a host."""
        there, away = zip(snapshot.hosts, snapshot.residents, strict=True), self.away
        on_hosts = {one.id for host, residents in there if host.id in away for one in residents}
        return frozenset(on_hosts | self.instances.keys() | self.closed.keys())

    def note(self) -> tuple[str, ...]:
        """Who rests, as a sentence."""
        sentences = []
        for resting, noun, did in (
            (self.instances, "instance", "moved"),
            (self.hosts, "host", "gave or got an instance"),
        ):
            if resting:
                first = min(resting.values(), key=lambda one: (one.until_s, one.name))
                many = f"1 {noun} rests" if len(resting) == 1 else f"{len(resting):,} {noun}s rest"
                sentences.append(f"{many} after a move: {listed(sorted(resting))}. {self._why(first, did)}.")
        for closed, noun in ((self.closed, "instance"), (self.closed_hosts, "host")):
            if closed:
                soonest = min(closed, key=lambda name: (closed[name], name))
                wait = f"1 {noun} waits for its window" if len(closed) == 1 else (
                    f"{len(closed):,} {noun}s wait for their windows"
                )  # fmt: skip
                opens = f"{closed[soonest]:%Y-%m-%d %H:%M} UTC"
                sentences.append(f"{wait}: {listed(sorted(closed))}. That of {soonest} opens at {opens}.")
        return tuple(sentences)

    def _why(self, one: Resting, did: str) -> str:
        ago = seconds_in_words(max(self.now_s - one.last_s, 0.0))
        often = "" if one.moves == 1 else f", on {one.moves} occasions within a week,"
        until = datetime.fromtimestamp(one.until_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"{one.name} {did} {ago} ago{often} and rests until {until}"


def _closed(several: Iterable[Host | Instance], now: datetime) -> dict[str, datetime]:
    """Ids of those of which the window is closed, and when it opens."""
    opens = ((one.id, next_open(one.labels[WINDOW], now)) for one in several if WINDOW in one.labels)
    return {name: moment for name, moment in opens if moment > now}


def labelled(instance: Instance) -> tuple[MoveSeen, ...]:
    """Moves that the label `moved_at` of an instance names; moments that are none are left out."""
    moves = []
    for text in instance.labels.get(MOVED_LABEL, "").split(","):
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            continue
        at_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        moves.append(MoveSeen(instance.id, None, instance.host or "", at_s))
    return tuple(moves)


def _resting(
    now_s: float, times: Mapping[str, Sequence[float]], known: Collection[str], rest_s: float, most_s: float
) -> dict[str, Resting]:
    resting = {}
    for name, moments in sorted(times.items()):
        last_s, moves = max(moments), occasions(moments)
        until_s = last_s + min(rest_s * 2 ** (moves - 1), most_s)
        if name in known and until_s > now_s:
            resting[name] = Resting(name, until_s, last_s, moves)
    return resting


def occasions(moments: Sequence[float]) -> int:
    """How many occasions these are, where those less than ONE_OCCASION_S after the first of one belong to it."""
    count, begun = 0, -math.inf
    for moment in sorted(moments):
        if moment >= begun + ONE_OCCASION_S:
            count, begun = count + 1, moment
    return count
