"""The steps of a plan in words: what each does and why, with its commands, and the steps back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.domain import Band, Candidate, Command, Instance, IsolationSettings, PlanAction, PlanKind, PlanStep
from advisor.errors import InvalidInput
from advisor.planning.migration_order import Carried
from advisor.render import migrations
from advisor.snapshot import ClusterSnapshot


@dataclass(frozen=True, slots=True)
class Telling:
    """What the words of a step are made of: T/B of everybody before and after all steps, which kind of plan it is, the
    candidates of those who come, and whether commands are wanted."""

    start: ClusterSnapshot
    kind: PlanKind
    before: Mapping[str, Band]
    after: Mapping[str, Band]
    emptied: frozenset[str]
    candidates: Mapping[str, Candidate]
    commands: bool


def forth(telling: Telling, carried: Sequence[Carried]) -> tuple[PlanStep, ...]:
    """The steps in their order."""
    crowd = _Crowd.of(telling.start)
    found = []
    for one in carried:
        then, former = one.change.then, one.change.former
        action = action_of(former, then)
        commands, notes = _rendered(crowd, former, then, action) if telling.commands else ((), ())
        crowd.do(former, then)
        found.append(
            PlanStep(
                instance=then.id,
                host=then.host,
                candidate=telling.candidates.get(then.id) if action == "place" else None,
                action=action,
                source=former.host if former else None,
                stage=one.stage,
                why=_why(telling, one, action),
                gain=one.change.gain,
                settings=_differing(former, then),
                vcpus=then.vcpus if former and former.vcpus != then.vcpus else None,
                commands=commands,
                notes=notes,
            )
        )
    return tuple(found)


def back(telling: Telling, undone: Sequence[Carried]) -> tuple[PlanStep, ...]:
    """The steps that bring the former cloud back, in their order; `undone` is the way back of what was carried out."""
    crowd = _Crowd.of(telling.start)
    for one in reversed(undone):
        crowd.do(one.change.former, one.change.then)
    found = []
    for one in undone:
        now, former = one.change.then, one.change.former
        action: PlanAction = "remove" if former is None else action_of(now, former)
        commands: tuple[Command, ...] = ()
        notes: tuple[str, ...] = (f"whoever started {now.id} takes it away",) if former is None else ()
        if telling.commands and former is not None:
            commands, notes = _rendered(crowd, now, former, action)
        crowd.do(now, former)
        found.append(
            PlanStep(
                instance=now.id,
                host=former.host if former else None,
                action=action,
                source=now.host,
                stage=one.stage,
                why="takes the step back",
                settings=_differing(now, former) if former else None,
                vcpus=former.vcpus if former and former.vcpus != now.vcpus else None,
                commands=commands,
                notes=notes,
            )
        )
    return tuple(found)


def action_of(former: Instance | None, then: Instance) -> PlanAction:
    """What a step does."""
    if former is None or former == then:
        return "place"
    if former.host != then.host:
        return "move"
    return "resize" if former.vcpus != then.vcpus else "settings"


@dataclass(slots=True)
class _Crowd:
    """Who is on which host at the moment of a step, for commands depend on it."""

    snapshot: ClusterSnapshot
    there: dict[str, dict[str, Instance]]

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> _Crowd:
        pairs = zip(snapshot.hosts, snapshot.residents, strict=True)
        return cls(snapshot, {host.id: {one.id: one for one in residents} for host, residents in pairs})

    def do(self, former: Instance | None, then: Instance | None) -> None:
        for one in (former, then):
            if one is not None:
                self.there[one.host or ""].pop(one.id, None)
        if then is not None:
            self.there[then.host or ""][then.id] = then

    def beside(self, one: Instance) -> tuple[Instance, ...]:
        """Everybody else on its host, by id."""
        there = self.there[one.host or ""]
        return tuple(there[name] for name in sorted(there) if name != one.id)


def _rendered(
    crowd: _Crowd, former: Instance | None, then: Instance, action: PlanAction
) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Commands, and notes about those that there are not."""
    hosts, positions = crowd.snapshot.hosts, crowd.snapshot.names.positions
    host, met = hosts[positions[then.host or ""]], crowd.beside(then)
    try:
        if former is None:
            found = migrations.place(then, host, met)
        elif action == "move":
            source = hosts[positions[former.host or ""]]
            found = migrations.move(former, then, source, host, crowd.beside(former), met)
        else:
            sized = migrations.resize(host, former, then) if former.vcpus != then.vcpus else ()
            found = (*sized, *migrations.settings(host, former, then, met))
    except InvalidInput as error:
        return (), (error.message,)
    return found, tuple(one.note for one in found if not one.argv and one.note)


def _differing(former: Instance | None, then: Instance) -> IsolationSettings | None:
    return then.settings if former is None or former.settings != then.settings else None


def _why(telling: Telling, one: Carried, action: PlanAction) -> str:
    if one.change.why:
        return one.change.why
    if one.between:
        return f"makes room for {one.between}, and goes on from here later"
    return " and ".join(_reasons(telling, one, action))


def _reasons(telling: Telling, one: Carried, action: PlanAction) -> Iterator[str]:
    then, former = one.change.then, one.change.former
    before, after = telling.before.get(then.id), telling.after.get(then.id)
    if former is not None and action != "move":
        yield f"it is on {then.host} already, and no host is better"
    if action == "place":
        candidate = telling.candidates.get(then.id)
        if candidate is not None:
            effects = (candidate.newcomer, *candidate.neighbours)
            worst = min(effects, key=lambda effect: effect.throughput_ratio.expected)
            kept = worst.throughput_ratio.expected
            yield f"nobody on {then.host} keeps less than {kept:.2f} of its speed alone ({worst.instance})"
        return
    origin = telling.start.names.placed.get(then.id)  # who goes round comes from elsewhere now
    home = origin.host if origin else former.host if former else None
    if home in telling.emptied:
        yield f"{home} is to be emptied"
    if one.change.gain is not None:
        yield f"who is relieved by it gains {one.change.gain.expected:.2f} of its speed alone"
    if telling.kind == "consolidate" and home is not None:
        yield f"leaves {home}, so that fewer hosts are needed"
    if before is not None and after is not None and action == "move":
        was = f" (on {home}: {before.expected:.2f})" if origin else ""
        yield f"{then.id} keeps {after.expected:.2f} of its speed alone on {then.host}{was}"
