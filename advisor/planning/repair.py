"""Which instances have to leave their hosts so that the rules hold again, and which rest after moves, how long."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from advisor.domain import Host, Instance, MoveSeen, listed
from advisor.domain.rules import WINDOW, Violation, next_open, parted, rules_of, violations
from advisor.domain.words import seconds_in_words
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot, promised_vcpus
from profiler.observed import MOVED_LABEL

Size = Callable[[Instance], float]


@dataclass(frozen=True, slots=True)
class Repair:
    """Ids of instances that leave their hosts, each with what it breaks there; and notes of what stays."""

    leaving: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def repair_of(snapshot: ClusterSnapshot, may_move: Callable[[Instance], bool]) -> Repair:
    """The fewest instances, the smallest of them first, whose leaving ends each violation.

    Of an affinity group on several hosts those leave that are not where most are. A violation that no instance which
    `may_move` can end is in the notes.
    """
    leaving: dict[str, str] = {}
    notes: list[str] = []
    found = parted(snapshot.hosts, snapshot.residents)
    by_id = {one.id: one for residents in snapshot.residents for one in residents}
    for violation in found:
        movers = [name for name in violation.instances if may_move(by_id[name])]
        leaving.update(dict.fromkeys(movers, violation.text))
        if len(movers) < len(violation.instances):
            notes.append(_stays(violation.text))
    for at, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        for violation in (*violations(host, residents), *crowded(snapshot, at)):
            here = [one for one in residents if one.id not in leaving]
            if violation.what not in {other.what for other in (*violations(host, here), *_crowded(snapshot, at, here))}:
                continue  # those that leave anyway end it
            choice = _fewest(host, here, violation, snapshot, at, may_move)
            leaving.update(dict.fromkeys(choice, violation.text))
            if not choice:
                notes.append(_stays(violation.text))
    return Repair(leaving, tuple(notes))


def crowded(snapshot: ClusterSnapshot, at: int) -> Iterator[Violation]:
    """Sizes of which a host promises more than it may, and an instance that shares its host against its will."""
    return _crowded(snapshot, at, snapshot.residents[at])


def every_violation(snapshot: ClusterSnapshot) -> Iterator[Violation]:
    """All rules and sizes of a cloud that do not hold."""
    for at, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        yield from violations(host, residents)
        yield from crowded(snapshot, at)
    yield from parted(snapshot.hosts, snapshot.residents)


def _crowded(snapshot: ClusterSnapshot, at: int, residents: Sequence[Instance]) -> Iterator[Violation]:
    host = snapshot.hosts[at]
    for what, (size, room) in _sizes(snapshot, at).items():
        used = sum(map(size, residents))
        if used > with_slack(room):
            text = f"{host.id} promises {used:,.0f} of {room:,.0f} {what}"
            yield Violation(host.id, f"size {what}", text, tuple(one.id for one in residents if size(one) > 0))
    alone = [one.id for one in residents if one.exclusive]
    if alone and len(residents) > 1:
        text = f"{host.id} has {alone[0]}, which requires the host for itself, and others"
        yield Violation(host.id, "exclusive", text, tuple(one.id for one in residents))


def _sizes(snapshot: ClusterSnapshot, at: int) -> dict[str, tuple[Size, float]]:
    host = snapshot.hosts[at]
    return {
        "vCPUs": (lambda one: promised_vcpus(host, one), float(snapshot.room_vcpus[at])),
        "MB of memory": (lambda one: one.ordinary_memory_mb, float(snapshot.room_memory_mb[at])),
        "GB of disk": (lambda one: one.disk_gb, float(snapshot.room_disk_gb[at])),
        "dedicated CPUs": (lambda one: float(one.dedicated_vcpus), float(snapshot.room_own[at])),
    }


def _fewest(
    host: Host,
    here: Sequence[Instance],
    violation: Violation,
    snapshot: ClusterSnapshot,
    at: int,
    may_move: Callable[[Instance], bool],
) -> list[str]:
    """Ids of the fewest movable instances without which this violation does not hold; none where no set of them ends
    it. One that suffices alone goes before several, the smallest first; of several the largest go first."""
    movable = [one for one in here if one.id in violation.instances and may_move(one)]

    def ends(gone: Sequence[Instance]) -> bool:
        left = [one for one in here if one not in gone]
        return violation.what not in {other.what for other in (*violations(host, left), *_crowded(snapshot, at, left))}

    by_memory = sorted(movable, key=lambda one: (one.memory_mb, one.vcpus, one.id))
    single = next((one for one in by_memory if ends([one])), None)
    if single is not None:
        return [single.id]
    gone: list[Instance] = []
    for one in _largest_first(violation, by_memory, snapshot, at):
        gone.append(one)
        if ends(gone):
            return [each.id for each in gone]
    return []


def _largest_first(
    violation: Violation, by_memory: Sequence[Instance], snapshot: ClusterSnapshot, at: int
) -> Sequence[Instance]:
    """Those that take most of what is short go first; where nothing is counted, the smallest."""
    kind, _, name = violation.what.partition(" ")
    if kind == "size":
        size, _ = _sizes(snapshot, at)[name]
    elif kind == "needs":

        def size(one: Instance) -> float:
            return rules_of(one).needs.get(name, 0.0)

    else:
        return by_memory
    return sorted(by_memory, key=lambda one: (-size(one), one.id))


def _stays(text: str) -> str:
    return f"{text}; no instance that may move can end that."


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
        """Which rest, where an instance rests `rest_h` hours after a move, twice as long after each one more within
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
        """Which instances rest, as a sentence."""
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
