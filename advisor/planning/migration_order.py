"""From a cloud as it is to a cloud as it should be, in stages on which no limit breaks that held before; and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from advisor.domain import Band, Instance
from advisor.planning.migration_feasibility import NOBODY, FeasibilityChecker, State, Verdict, broken, permitted
from advisor.snapshot import ClusterSnapshot
from models.prediction import Predictor

MOST_WEIGHED = 24  # moves of those that wait for one another for which a host in between is looked for


@dataclass(frozen=True, slots=True)
class Change:
    """What should become of one instance: `then` as it should be, `former` as it is, None = it is yet to come; with
    what is gained by it (T/B) and the reason, where these are known."""

    then: Instance
    former: Instance | None = None
    gain: Band | None = None
    why: str = ""

    @property
    def moves(self) -> bool:
        return self.former is not None and self.former.host != self.then.host


@dataclass(frozen=True, slots=True)
class Carried:
    """A change that is carried out in a stage, counted from 0; `between` names whom it makes room for on its way."""

    stage: int
    change: Change
    between: str = ""


@dataclass(frozen=True, slots=True)
class Ordered:
    """The changes in their order, those that cannot be carried out each with what is in the way, and the cloud after
    all that can."""

    carried: tuple[Carried, ...]
    stuck: Mapping[str, str]
    after: ClusterSnapshot

    def back(self) -> tuple[Carried, ...]:
        """The way back through the same states, of all that changed: `former` is how each is to be again, None = not
        there."""
        done = [one for one in reversed(self.carried) if one.change.former != one.change.then]
        stages = {stage: number for number, stage in enumerate(dict.fromkeys(one.stage for one in done))}
        return tuple(replace(one, stage=stages[one.stage]) for one in done)


@dataclass(slots=True)
class _Way:
    """A cloud under way: who is where `now`, by position of the host and id, and what is still to be done.

    `said` is what is known to be in the way of those that are left, by id, as things stand.
    """

    judge: FeasibilityChecker
    allowed: Sequence[Verdict]
    suffering: frozenset[str]
    now: list[dict[str, Instance]]
    left: list[Change]
    detoured: set[str] = field(default_factory=set)
    said: dict[str, str] = field(default_factory=dict)

    def hosts(self, change: Change) -> tuple[int, ...]:
        """The hosts that a change touches, by position, the one it goes to first."""
        positions = self.judge.snapshot.names.positions
        both = [change.then] if change.former is None else [change.then, change.former]
        return tuple(dict.fromkeys(positions[one.host or ""] for one in both))

    def states(self, change: Change) -> list[State]:
        """Those hosts as they would be after it."""
        to, *source = self.hosts(change)
        name = change.then.id
        rest = [(host, tuple(one for one in self.now[host].values() if one.id != name)) for host in source]
        return [(to, tuple({**self.now[to], name: change.then}.values())), *rest]

    def hindered(self, changes: Sequence[Change]) -> list[str]:
        """What is in the way of each change as things stand, "" = nothing."""
        states = [self.states(change) for change in changes]
        verdicts = iter(self.judge.of(list(chain.from_iterable(states))))
        found = []
        for touched in states:
            said = [(host, broken(next(verdicts), self.allowed[host], self.suffering)) for host, _ in touched]
            found.append(next((f"{self.judge.snapshot.hosts[host].id} {why}" for host, why in said if why), ""))
        return found

    def do(self, change: Change) -> None:
        """Carry it out."""
        to, *source = self.hosts(change)
        for host in source:
            del self.now[host][change.then.id]
        self.now[to][change.then.id] = change.then
        touched = {to, *source}
        for one in self.left:
            if not touched.isdisjoint(self.hosts(one)):
                self.said.pop(one.then.id, None)

    def stage(self, at_once: int) -> list[Change]:
        """What can be done together now, each host touched by one change only and at most `at_once` of them moves."""
        unsaid = [one for one in self.left if one.then.id not in self.said]
        self.said |= {one.then.id: why for one, why in zip(unsaid, self.hindered(unsaid), strict=True)}
        chosen: list[Change] = []
        busy: set[int] = set()
        moves = 0
        for change in self.left:
            if self.said[change.then.id] or (change.moves and moves == at_once):
                continue
            if busy.isdisjoint(self.hosts(change)):
                chosen.append(change)
                busy.update(self.hosts(change))
                moves += change.moves
        return chosen

    def detour(self, targets: Sequence[int]) -> tuple[Change, str] | None:
        """A move to a host in between after which somebody who waited can go, and who that is; None = there is none.

        The smallest first, for it is copied twice; each goes round at most once, and by a host of its own kind.
        """
        waiting = [
            (one, one.former) for one in self.left if one.moves and one.former and one.then.id not in self.detoured
        ]
        waiting.sort(key=lambda pair: (pair[0].then.memory_mb, pair[0].then.id))
        for change, former in waiting[:MOST_WEIGHED]:
            to, source = self.hosts(change)
            others = [one for one in self.left if one is not change and self.hosts(one)[0] == source]
            if not others:
                continue
            plain = replace(former, settings=replace(former.settings, pinning=None))
            hosts = self.judge.snapshot.hosts
            others_of_its_kind = [
                hosts[at].id for at in targets if at not in {source, to} and hosts[at].kind == hosts[source].kind
            ]
            tried = [Change(replace(plain, host=name), former) for name in others_of_its_kind]
            for way, why in zip(tried, self.hindered(tried), strict=True):
                if why:
                    continue
                self.do(way)
                freed = [one for one, no in zip(others, self.hindered(others), strict=True) if not no]
                self.do(Change(former, way.then))
                if freed:
                    return way, freed[0].then.id
        return None

    def drop(self, done: Sequence[Change]) -> None:
        """Take changes off what is left."""
        gone = {one.then.id for one in done}
        self.left = [one for one in self.left if one.then.id not in gone]

    def turn(self, way: Change) -> None:
        """From now on one that is left begins where it was taken in between."""
        self.detoured.add(way.then.id)
        self.left = [replace(one, former=way.then) if one.then.id == way.then.id else one for one in self.left]


def order(
    start: ClusterSnapshot,
    changes: Sequence[Change],
    predictor: Predictor,
    *,
    keep_ratio: float,
    at_once: int,
    between: Collection[str] | None = None,
    most_moves: int | None = None,
) -> Ordered:
    """Put changes of a cloud, one for each instance, into stages.

    A stage begins when the one before is done. Within it every host is touched by one change only and at most
    `at_once` instances move; a mover counts on both hosts until it has arrived. After each change no limit is broken
    that holds at the start and at the end: sizes, who wants to be alone, and what everybody must keep by prediction.
    Who waits for one another goes by a host in between, of those named in `between` (None = every enabled one), where
    that makes no more than `most_moves` of all (None = any number).
    """
    judge = FeasibilityChecker(start, predictor, keep_ratio)
    now = [{one.id: one for one in there} for there in start.residents]
    way = _Way(judge, *_allowed(judge, now, changes), now, _by_gain(changes))
    targets = [
        position
        for position, host in enumerate(start.hosts)
        if host.enabled and (between is None or host.id in between)
    ]
    carried: list[Carried] = []
    for number in range(2 * len(changes) + 1):
        chosen = way.stage(at_once) if way.left else []
        done = [Carried(number, change) for change in chosen]
        way.drop(chosen)
        if not chosen:
            moves = sum(one.change.moves for one in carried) + sum(one.moves for one in way.left)
            found = way.detour(targets) if most_moves is None or moves < most_moves else None
            if found is None:
                break
            done = [Carried(number, *found)]
        for one in done:
            way.do(one.change)
        if not chosen:
            way.turn(done[0].change)
        carried += done
    stuck = {one.then.id: why for one, why in zip(way.left, way.hindered(way.left), strict=True)}
    return Ordered(tuple(carried), stuck, _after(start, carried))


def _by_gain(changes: Sequence[Change]) -> list[Change]:
    """Who gains most first; where that is no reason, as given."""
    return sorted(changes, key=lambda one: -one.gain.expected if one.gain else 0.0)


def _allowed(
    judge: FeasibilityChecker, now: Sequence[Mapping[str, Instance]], changes: Sequence[Change]
) -> tuple[Sequence[Verdict], frozenset[str]]:
    """What may be broken on the way: on each host, and by whom wherever it is; as at the start or at the end."""
    end = _Way(judge, (), NOBODY, [dict(there) for there in now], [])
    for change in changes:
        end.do(change)
    states = [(host, tuple(there.values())) for cloud in (now, end.now) for host, there in enumerate(cloud)]
    verdicts = judge.of(states)
    both = zip(verdicts[: len(now)], verdicts[len(now) :], strict=True)
    return [permitted(*pair) for pair in both], NOBODY.union(*(one.below for one in verdicts))


def _after(start: ClusterSnapshot, carried: Sequence[Carried]) -> ClusterSnapshot:
    last = {one.change.then.id: one.change.then for one in carried}
    if not last:
        return start
    return start.changed(instances=last, seen={}, pending=start.names.coming, taken_at=start.taken_at)
