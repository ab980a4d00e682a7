"""Which size and which cap would suit each instance, by what was measured of it and what is predicted for its host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from advisor.domain import Band, Host, Instance, Pinning, Usage
from advisor.planning.cloud_evaluation import band
from advisor.planning.cpu_demand import FULL, Measured, most_of
from advisor.planning.cpu_demand import asked as asked_by
from advisor.planning.migration_feasibility import NOBODY, FeasibilityChecker, Verdict, broken
from advisor.planning.migration_order import Change
from advisor.planning.plan_context import PlanContext
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import lay_out

# Choices: what asks for four fifths of its CPUs has room for its peaks, and only who asks for less than half of them is
# made smaller, so that a size once suggested is not suggested away again.
BUSY, IDLE = 0.8, 0.5
CAPS = (0.9, 0.75, 0.6, 0.5)  # of what it asks for, tried from the mildest on, where it presses somebody below a limit
LEAST_CHANGE = 0.005  # of T/B, that is told
TURNS = 8  # of going through a host, after which what was found is told: of 965 made-up hosts 20 took two, 3 three
AT_ONCE = 256  # instances whose usage is asked together: a few seconds of reading, then the time is looked at
LOST = 0.02  # of T/B, that who is made smaller may lose


@dataclass(frozen=True, slots=True)
class Sized:
    """Changes of sizes and caps, what was left out, and whether nothing was: then none means that all is fine.
    `in_time` = every host was looked at."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    of_all: bool
    in_time: bool


@dataclass(frozen=True, slots=True)
class _Wish:
    """What would suit one instance; `must_gain` = only worth it where somebody gains."""

    then: Instance
    must_gain: bool = False
    may_lose: float = math.inf


def right_size(asking: PlanContext, snapshot: ClusterSnapshot, measured: Measured) -> Sized:
    """Changes of sizes and caps after which nobody is below a limit who was not before.

    An instance of which nothing was measured, or too little, is left alone; so is one that asks for all it has. Asked
    again of the cloud as it is then, by the same measurements, there is nothing more to change.
    """
    pieces, used = _pieces(snapshot.residents), dict[str, Usage]()
    sizing = _Sizing(asking, snapshot, FeasibilityChecker(snapshot, asking.chosen.predictor, asking.request.keep_ratio))
    changes: list[Change] = []
    unknown, full, unseen = 0, [], 0
    for number, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        if asking.left_s <= 0:
            unseen = len(snapshot.hosts) - number
            break
        asking.say(f"sizing on {host.id}", number / len(snapshot.hosts))
        if number in pieces:
            used = dict(measured(pieces[number]))
        asked: dict[str, tuple[float, str]] = {}
        for one in residents:
            found = asked_by(snapshot, host, one, used.get(one.id))
            if found is None:
                unknown += 1
            elif one.id in snapshot.names.placed:
                asked[one.id] = found
                full += [one.id] if FULL * one.vcpus <= found[0] <= one.vcpus else []
        changes += sizing.of_host(number, asked)
    notes = []
    if unknown:
        left = "1 instance is" if unknown == 1 else f"{unknown} instances are"
        they_ask = "it asks" if unknown == 1 else "they ask"
        notes.append(f"{left} left out: too little is known of how much CPU {they_ask} for.")
    if full:
        names = ", ".join(sorted(full)[:5]) + (f" and {len(full) - 5} more" if len(full) > 5 else "")
        use = "uses all of its" if len(full) == 1 else "use all of their"
        notes.append(f"{names} {use} vCPUs: how much more would be used is not known.")
    if unseen:
        notes.append(f"Time limit reached before {unseen} of {len(snapshot.hosts)} hosts were looked at.")
    return Sized(tuple(changes), tuple(notes), of_all=not (unknown or unseen), in_time=not unseen)


def _pieces(residents: Sequence[Sequence[Instance]]) -> dict[int, list[str]]:
    """Whose usage is asked together: by the position of the first of some hosts, who is on these."""
    pieces: dict[int, list[str]] = {}
    latest: list[str] = []
    for number, there in enumerate(residents):
        if not latest or len(latest) + len(there) > AT_ONCE:
            latest = pieces[number] = []
        latest += [one.id for one in there]
    return pieces


Stands = tuple[Verdict, dict[str, Band]]  # what is broken on a host, and T/B of everybody there


@dataclass(frozen=True, slots=True)
class _Sizing:
    asking: PlanContext
    snapshot: ClusterSnapshot
    judge: FeasibilityChecker

    def of_host(self, number: int, asked: Mapping[str, tuple[float, str]]) -> Iterator[Change]:
        """One host's changes in their order, each told with those before it carried out.

        What suits one may no longer suit it when others have changed: they are gone through until nothing changes.
        """
        first = {one.id: one for one in self.snapshot.residents[number]}
        then, done = dict(first), dict[str, None]()
        for _ in range(TURNS):
            changed = list(self._turn(number, then, asked))
            if not changed:
                break
            for name in changed:
                done.pop(name, None)  # it counts where it was changed last
                done[name] = None
        changes = [then[name] for name in done if then[name] != first[name]]
        states = self._one_by_one(number, first, changes)
        for one, (was, had), (will, has) in zip(changes, states, states[1:], strict=False):
            reason = _reason(first[one.id], one, asked[one.id][1], sorted(was.below - will.below))
            yield Change(one, first[one.id], _gain(had, has), f"{reason}; {_effects(had, has)}")

    def _turn(self, number: int, there: dict[str, Instance], asked: Mapping[str, tuple[float, str]]) -> Iterator[str]:
        """Give everybody `there` what suits it, and one of them a cap where somebody is below a limit; tells whom."""
        host = self.snapshot.hosts[number]
        found = (_wish(host, there[name], cpus) for name, (cpus, _) in sorted(asked.items()))
        wishes = [wish for wish in found if wish is not None]
        while wishes:
            states = self._one_by_one(number, there, [wish.then for wish in wishes])
            granted = 0
            while granted < len(wishes) and _granted(wishes[granted], *states[granted : granted + 2]):
                there[wishes[granted].then.id] = wishes[granted].then
                yield wishes[granted].then.id
                granted += 1
            wishes = wishes[granted + 1 :]  # without the one that was not: those after it are asked about anew
        below = self.judge.of([(number, tuple(there.values()))])[0].below
        others = {name: cpus for name, (cpus, _) in asked.items() if name not in below}
        held = self._held_back(number, there, others) if below else None
        if held is not None:
            there[held.id] = held
            yield held.id

    def _one_by_one(self, number: int, there: Mapping[str, Instance], changes: Sequence[Instance]) -> list[Stands]:
        """How the host stands before these changes, and after each of them with those before it carried out."""
        states = list(accumulate(changes, lambda now, one: {**now, one.id: one}, initial=dict(there)))
        everybody = [tuple(state.values()) for state in states]
        verdicts = self.judge.of([(number, state) for state in everybody])
        return list(zip(verdicts, self._ratios(number, everybody), strict=True))

    def _held_back(self, number: int, there: Mapping[str, Instance], asked: Mapping[str, float]) -> Instance | None:
        """Who asks for most of those by whose cap fewer are below a limit, under the mildest such; None = nobody.

        Who gets a cap must still keep what it must without one: else a cap would lower the limit that it is judged by.
        """
        keep = self.asking.request.keep_ratio
        for name, cpus in sorted(asked.items(), key=lambda pair: (-pair[1], pair[0])):
            one = there[name]
            caps = [float(max(1, round(100 * share * min(cpus, most_of(one))))) for share in CAPS]
            held = [replace(one, settings=replace(one.settings, cap_percent=cap)) for cap in caps]
            least = keep if one.min_throughput_ratio is None else one.min_throughput_ratio
            judged = [replace(option, min_throughput_ratio=least) for option in held]
            states = [(number, tuple({**there, name: option}.values())) for option in judged]
            was, *will = self.judge.of([(number, tuple(there.values())), *states])
            for option, verdict in zip(held, will, strict=True):
                if verdict.below < was.below:
                    return option
        return None

    def _ratios(self, number: int, states: Sequence[Sequence[Instance]]) -> list[dict[str, Band]]:
        scenes = self.snapshot.scenes
        hosts = [self.snapshot.hosts[number]] * len(states)
        rows = lay_out(hosts, states, scenes.table, scenes.driver_cpus.shape[1])
        told = self.asking.chosen.predictor.predict(rows.scenes, ("throughput",)).throughput
        return [
            {one.id: band(told, row, slot) for slot, one in enumerate(there)}
            for row, there in enumerate(rows.residents)
        ]


def _granted(wish: _Wish, before: Stands, after: Stands) -> bool:
    """Whether a wish breaks nothing and is worth it."""
    (was, had), (will, has) = before, after
    if broken(will, was, NOBODY):
        return False
    own = has[wish.then.id].expected - had[wish.then.id].expected
    gained = max(has[name].expected - had[name].expected for name in has)
    return own >= -wish.may_lose and not (wish.must_gain and gained < LEAST_CHANGE)


def _wish(host: Host, one: Instance, cpus: float) -> _Wish | None:
    """What suits an instance by itself, None = it is as it should be; neighbours are looked at by who asks."""
    wanted = max(1, math.ceil(cpus / BUSY - 1e-9))
    cap = one.settings.cap_percent
    if cap is not None and cap < 100 * one.vcpus and cpus > FULL * cap / 100:
        loose = float(min(100 * one.vcpus, math.ceil(100 * cpus / BUSY)))
        return _Wish(replace(one, settings=replace(one.settings, cap_percent=loose)), must_gain=True)
    if wanted < one.vcpus and cpus <= IDLE * one.vcpus:
        return _Wish(_sized(one, wanted), may_lose=LOST)
    if cpus > one.vcpus and wanted <= host.pcpus and one.settings.pinning is None:
        return _Wish(_sized(one, wanted))
    return None


def _reason(former: Instance, then: Instance, why: str, helped: Sequence[str]) -> str:
    """Why an instance should get another size or cap, by what it asks for; `helped` get back within a limit by it."""
    if then.vcpus < former.vcpus:
        why += f": {then.vcpus} of its {former.vcpus} vCPUs are enough"
    elif then.vcpus > former.vcpus:
        why += f" and has {former.vcpus} vCPU{'s' if former.vcpus > 1 else ''}: {then.vcpus} would do"
    was, cap = former.settings.cap_percent, then.settings.cap_percent
    if cap is not None and was is not None and cap > was:
        why += f", and its cap of {was:g} % holds it back: {cap:g} %"
    elif cap is not None and helped:
        why += f"; a cap of {cap:g} % brings {', '.join(helped)} back within what it must keep"
    return why


def _sized(one: Instance, vcpus: int) -> Instance:
    pinning, cap = one.settings.pinning, one.settings.cap_percent
    kept = None if pinning is None else Pinning(pinning.cpus[:vcpus])
    most = None if cap is None else min(cap, 100.0 * vcpus)
    return replace(one, vcpus=vcpus, settings=replace(one.settings, pinning=kept, cap_percent=most))


def _gain(before: Mapping[str, Band], after: Mapping[str, Band]) -> Band:
    """What the worst-off on the host gains (T/B), between the worst and the best that the intervals allow."""
    was = min(before.values(), key=lambda one: one.expected)
    will = min(after.values(), key=lambda one: one.expected)
    return Band(will.expected - was.expected, will.lower - was.upper, will.upper - was.lower)


def _effects(before: Mapping[str, Band], after: Mapping[str, Band]) -> str:
    """Whom it changes, those who lose most first."""
    moved = sorted((after[name].expected - before[name].expected, name) for name in after)
    told = [
        f"{name} {before[name].expected:.2f} -> {after[name].expected:.2f}"
        for change, name in moved
        if abs(change) >= LEAST_CHANGE
    ]
    if not told:
        return "nobody there gains or loses by it"
    more = f" and {len(told) - 4} more" if len(told) > 4 else ""
    return f"of its speed alone keeps {', '.join(told[:4])}{more}"
