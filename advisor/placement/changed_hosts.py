"""Hosts on which something changes first: residents tuned together with the new VM, or mitigation step by step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from advisor import mitigation
from advisor.domain import (
    LONGEST_KNOWN_LATENCY,
    Candidate,
    Command,
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    MitigationStep,
    PlacementRequest,
    Reason,
    Rejection,
    TuningStep,
    speed,
    time_part,
)
from advisor.placement.candidates import RankedHost, candidates, place, placing_commands, slots_by_id, write_effects
from advisor.placement.host_classes import ClassPredictions, HostClasses, PlacementQuestion
from advisor.placement.screen import headroom_of
from advisor.prediction.active import PredictionCache, band
from advisor.render.migrations import run_on
from advisor.rounding import SLACK
from advisor.scheduling import pinning, scoring
from advisor.scheduling.pinning import profile_row, with_own_profile
from advisor.snapshot import ClusterSnapshot
from advisor.tuning.host import TunedChange, agrees, changes_to, levers_of, oracle_of, settings_in
from advisor.tuning.layouts import PER_SLOT, Layout, Oracle
from advisor.tuning.moves import Moves
from advisor.tuning.search import Found, search
from advisor.tuning.steps import steps_of
from models.arrays import Bools
from models.prediction import BandArrays, CpuPressure, InterferencePrediction, Predictor
from profiler.host_kinds import TRAITS
from profiler.observed import DEFAULT_WEIGHT

# Hosts that would be better for the new VM, and for its residents, after a few changes to these.

LOOKED_AT = 12  # hosts of which is tried whether simple rules help
TUNED = 3  # hosts that are searched
CHANGES = 4  # to residents and the driver domain; more are no small change
WORK = 1e4  # layouts times slots that one host may take


def losing(hosts: Sequence[int], lowest: Sequence[float], shown: int, broken: Bools) -> Iterator[int]:
    """Positions of hosts worth a look, (H,) in their order: first those that are shown, then those that break a limit,
    then all others; only where an instance keeps less than its own speed."""
    places = [at for at, kept in enumerate(lowest) if broken[at] or kept < 1 - scoring.PIN_GAIN]
    for at in sorted(places, key=lambda at: (2 if at >= shown else 0) - bool(broken[at])):
        yield hosts[at]


def tuned_hosts(
    question: PlacementQuestion, hosts: Iterator[int], remembered: PredictionCache
) -> tuple[Candidate, ...]:
    """The hosts among those at these positions on which a few changes to pins, weights and the driver domain help by
    PIN_GAIN or more each, with the new VM there; best first.

    Offered is no change by which a resident noticeably loses, or after which a limit does not hold that holds now or is
    the new VM's. Nothing depends on a clock.
    """
    looked_at: list[_Beside] = []
    for position in hosts:
        if len(looked_at) == LOOKED_AT:
            break
        if _is_set(question, position):
            looked_at.append(_Beside(question, position))
    gains = sorted((-round(one.gain, 9), at) for at, one in enumerate(looked_at) if one.gain >= scoring.PIN_GAIN)
    found = [looked_at[at].candidate(remembered) for _, at in gains[:TUNED]]
    kept = sorted(filter(None, found), key=lambda one: (-round(one.score, 9), one.host))
    return tuple(replace(one, rank=rank + 1) for rank, one in enumerate(kept))


def _is_set(question: PlacementQuestion, position: int) -> bool:
    """Whether there is a setting on a host that could be another: pins and weights, or where its driver domain runs."""
    host = question.snapshot.hosts[position]
    if TRAITS[host.kind].driver_apart or host.driver_cpus:
        return True
    new_vm = question.request.instance.id
    settings = [one.settings for one in question.snapshot.residents[position] if one.id != new_vm]
    return any(
        (one.pinning is not None and one.pinning.named) or one.weight not in (None, DEFAULT_WEIGHT) for one in settings
    )


@dataclass(frozen=True)
class _Beside:
    """A host with the new VM beside its residents; `now` is the host without it."""

    question: PlacementQuestion
    position: int

    @property
    def _host(self) -> Host:
        return self.question.snapshot.hosts[self.position]

    @property
    def _request(self) -> PlacementRequest:
        return self.question.request

    @property
    def _predictor(self) -> Predictor:
        return self.question.predictor

    @cached_property
    def _residents(self) -> tuple[Instance, ...]:
        there = self.question.snapshot.residents[self.position]
        return tuple(one for one in there if one.id != self._request.instance.id)

    @cached_property
    def _now(self) -> ClusterSnapshot:
        return _of_one_host(self.question.snapshot, self._request, self._host, self._residents)

    @cached_property
    def _with(self) -> ClusterSnapshot:
        new_vm = replace(with_own_profile(self._request), host=self._host.id)
        return _of_one_host(self.question.snapshot, self._request, self._host, (*self._residents, new_vm))

    @cached_property
    def _slot(self) -> int:
        return [one.id for one in self._with.residents[0]].index(self._request.instance.id)

    @cached_property
    def _oracle(self) -> Oracle:
        return oracle_of(self._with, 0, "total" if self._request.objective == "total" else "worst", work=WORK)

    @cached_property
    def _moves(self) -> Moves:
        """Pins, weights and the driver domain; of the new VM its pins, where the question names none."""
        levers = levers_of(self._with, 0, self._oracle, ("weights",))
        asked = self._request.instance.settings.pinning
        levers.pins[self._slot] &= asked is None or not asked.named
        levers.weights[self._slot] = False
        return Moves(self._oracle, levers)

    @cached_property
    def gain(self) -> float:
        """By how much the best layout of simple rules is better than the present one."""
        now = Layout.of(self._oracle.scene)
        value = self._oracle.value([now, *self._moves.starts(now)]).value
        return float(value.max() - value[0])

    def candidate(self, remembered: PredictionCache) -> Candidate | None:
        """The host after the best changes that were found, None = none is offered."""
        found = search(self._moves, thorough=False)
        now = Layout.of(self._oracle.scene)
        asked = replace(self._request.instance, settings=self._new_vm(now, found))
        others = [at for at in range(len(self._with.residents[0])) if at != self._slot]
        beside = {one.id: at for at, one in enumerate(self._with.residents[0])}
        places = [beside[one.id] for one in self._now.residents[0]]
        changed = (now.affinity != found.layout.affinity).any(axis=1) | (now.weight != found.layout.weight)
        if not changed[others].any() and (now.driver == found.layout.driver).all():
            return None  # the new VM's own pins need no tuning
        together = self._predictor.predict(self._oracle.scenes([now, found.layout]))
        if not agrees(self._oracle, together):
            return None
        changes, before = changes_to(self._now, 0, self._predictor, _without(found.layout, places))
        is_small = 0 < len(changes) <= CHANGES and found.value - found.before >= scoring.PIN_GAIN * len(changes)
        if not is_small or self._harms(before, together, places):
            return None
        return self._described(asked, changes, before, remembered)

    def _new_vm(self, now: Layout, found: Found) -> IsolationSettings:
        """The new VM's settings in the layout that was found."""
        new_vm, shared = self._with.residents[0][self._slot], self._moves.shared
        return settings_in(self._host, new_vm, now, found.layout, self._slot, shared)

    def _harms(self, before: InterferencePrediction, together: InterferencePrediction, places: Sequence[int]) -> bool:
        """Whether a resident has noticeably less than it has now or would have beside the new VM without the changes,
        or a limit does not hold that holds now or is the new VM's."""
        limits = self._oracle.limits
        kept = together.throughput.expected
        floor = np.minimum(kept[0, places], before.throughput.expected[0])
        if (kept[1, places] < floor - scoring.NOTICED).any():
            return True
        for highest, then, now in (
            (-limits.least, -kept[1], -before.throughput.expected[0]),
            (limits.latency, together.latency.expected[1], before.latency.expected[0]),
            (limits.short, together.time_short()[1], before.time_short()[0]),
        ):
            held = np.ones(len(highest), dtype=bool)
            held[places] = ~(now > highest[places] + SLACK)
            if (held & (then > highest + SLACK)).any():
                return True
        return False

    def _described(
        self,
        asked: Instance,
        changes: Sequence[TunedChange],
        before: InterferencePrediction,
        remembered: PredictionCache,
    ) -> Candidate:
        """The candidate on the host as it is after the changes."""
        request, snapshot = self._request, self.question.snapshot
        then = {one.id: one for one in self._residents} | {one.then.id: one.then for one in changes if one.then}
        host = changes[-1].host
        settled = _of_one_host(snapshot, request, host, [then[one.id] for one in self._residents])
        alone = replace(request, instance=asked, hosts=None, limit=1, commands=False, mitigate=False, tune=False)
        table, row, _ = profile_row(settled, alone)
        question = PlacementQuestion(settled, alone, self._predictor, table, row)
        pins = asked.settings.pinning
        ranked = RankedHost(
            0,
            "as asked" if pins is not None and pins.named else pinning.FREE,
            score=0.0,
            expected=0.0,
            half_width=0.0,
            lowest=np.nan,
            speed=np.nan,
            headroom=headroom_of(question, np.array([0])).of(0),
        )
        (candidate,) = candidates(question, [ranked], remembered)
        steps = tuple(steps_of(self._host, self._residents, changes, commanded=request.commands))
        slots = {one.id: at for at, one in enumerate(self._now.residents[0])}
        neighbours = tuple(
            replace(
                one,
                before=band(before.throughput, 0, slots[one.instance]),
                cpu=one.cpu and replace(one.cpu, short_before=float(before.time_short()[0, slots[one.instance]])),
            )
            for one in candidate.neighbours
        )
        return replace(
            candidate,
            neighbours=neighbours,
            changes={step.instance: step.settings for step in steps if step.instance and step.settings},
            tuning=steps,
            reasons=(*map(_reason, steps), *candidate.reasons) if request.explain else (),
            commands=self._commands(asked, host, then, steps) if request.commands else (),
        )

    def _commands(
        self, asked: Instance, host: Host, then: Mapping[str, Instance], steps: Sequence[TuningStep]
    ) -> tuple[Command, ...]:
        """What tunes the host, then what the new VM needs."""
        snapshot = self.question.snapshot
        former = snapshot.names.placed.get(asked.id)
        first = [command for step in steps for command in step.commands]
        if former is not None and former.host != host.id:
            first = list(run_on(host, first))
        met = [then[one.id] for one in self._residents]
        return (*first, *placing_commands(snapshot, asked, host, met, asked.settings, {}, None))


def _of_one_host(
    snapshot: ClusterSnapshot, request: PlacementRequest, host: Host, residents: Sequence[Instance]
) -> ClusterSnapshot:
    """A snapshot of one host alone, with the same knowledge of workloads; one that is only coming stays so."""
    placed = [one for one in residents if one.id in snapshot.names.placed or one.id == request.instance.id]
    coming = [one for one in residents if one not in placed]
    used = {one.workload for one in residents}
    workloads = [one for one in snapshot.workloads if one.name in used]
    if request.profile is not None and request.profile.known:
        workloads.append(replace(request.profile, name=f"pending {request.instance.id}", platform=""))
    return ClusterSnapshot.build(
        Inventory((host,), tuple(placed), tuple(workloads)),
        seen={host.id: snapshot.taken_at},
        pending=coming,
        taken_at=snapshot.taken_at,
        subjects=snapshot.scenes.table.subjects,
    )


def _without(layout: Layout, places: Sequence[int]) -> Layout:
    """The slots at these places alone."""
    at = list(places)
    return replace(layout, **{name: getattr(layout, name)[at] for name in ("affinity", *PER_SLOT)})


def _reason(step: TuningStep) -> Reason:
    """A change that comes first, as a reason."""
    neighbour = step.instance or None
    return Reason("cpu", 0.0, f"If {step.subject} {step.why}.", neighbour=neighbour, kind="counterfactual")


# Mitigates the best hosts on which the placement violates a limit, and rejects the others with a reason.

MAX_MITIGATED_HOSTS = 3  # hosts on which mitigation is tried; each costs as much as a small request
NEEDS_SETTINGS = "limit.settings"  # code of hosts that would need changed settings where the request allows none


def mitigate(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    ranked_host: RankedHost,
    host_class: int,
    others: Sequence[str],
) -> tuple[tuple[MitigationStep, ...], RankedHost | None]:
    """Try mitigation on a host of a class: the steps tried, and the ranked host if they succeeded.

    A step that names another host does not succeed here. `others` are hosts that keep all limits, best first.
    """
    placed_new_vm = place(question, [ranked_host.host], [ranked_host.option])
    steps = mitigation.escalate(
        placed_new_vm.hosts[0],
        placed_new_vm.residents[0],
        placed_new_vm.new_vms[0],
        table=question.table,
        row=question.row,
        predictor=question.predictor,
        others=others,
    )
    if not steps or not steps[-1].satisfies or steps[-1].action == "host":
        return steps, None
    row = slice(host_class, host_class + 1)
    after = _empty_prediction(classes.present[row])
    write_effects(after, 0, steps[-1].effects, slots_by_id(placed_new_vm, 0))
    scores = scoring.score(
        after,
        classes.present[row],
        predicted.before[row],
        classes.limits[row],
        classes.used[row],
        question.request.objective,
        half_before=predicted.half_before[row],
        more_short=scoring.more_short(after.time_short(), predicted.short_before[row], classes.profiled[row]),
    ).less(np.array([ranked_host.reserved]))
    value, expected, half_width = (float(values[0]) for values in (scores.score, scores.expected, scores.half_width))
    lowest = float(np.nanmin(after.throughput.expected))
    speed = np.nan if np.isnan(ranked_host.speed) else float(1 / after.latency.expected[0, -1])
    ranked = replace(ranked_host, score=value, expected=expected, half_width=half_width, lowest=lowest, speed=speed)
    return steps, replace(ranked, steps=steps)


def _empty_prediction(present: Bools) -> InterferencePrediction:
    """A prediction to be filled in."""
    throughput, latency, jitter = (BandArrays(*(np.full(present.shape, np.nan) for _ in range(3))) for _ in range(3))
    share, worst, short = (np.full(present.shape, np.nan) for _ in range(3))
    no = np.zeros(present.shape, dtype=bool)
    pressure = CpuPressure(share, worst, short, no.copy(), np.full(len(present), np.nan))
    return InterferencePrediction(throughput, latency, jitter, no, pressure)


def rejections(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    hosts: Sequence[tuple[int, int, int]],
    steps_by_host: Mapping[int, tuple[MitigationStep, ...]],
) -> list[Rejection]:
    """Why hosts that pass all filters are rejected for a limit.

    `hosts` are (position, class, option); `steps_by_host` the steps that failed, by position.
    """
    return [
        _with_outcome(question, _rejection(question, classes, predicted, *host_entry), steps_by_host.get(host_entry[0]))
        for host_entry in hosts
    ]


def _with_outcome(
    question: PlacementQuestion, rejection: Rejection, steps: tuple[MitigationStep, ...] | None
) -> Rejection:
    if not question.request.mitigate:
        return replace(
            rejection, code=NEEDS_SETTINGS, reason=f"{rejection.reason}, and settings of instances may not change"
        )
    tried = "; isolation was tried on better hosts only" if steps is None else ", and no mitigation step restores it"
    return replace(rejection, reason=rejection.reason + tried, mitigation=steps or ())


def _rejection(
    question: PlacementQuestion,
    classes: HostClasses,
    predicted: ClassPredictions,
    position: int,
    host_class: int,
    option: int,
) -> Rejection:
    """The new VM's own limit is named before a neighbour's, and throughput before latency and time short."""
    snapshot, new_vm = question.snapshot, question.request.instance
    ratio, least = predicted.expected[option, host_class], classes.limits[host_class] - SLACK
    slow, short = (
        (limit.after[0], (limit.after > limit.highest + SLACK) & (limit.before <= limit.highest + SLACK))
        for limit in predicted.ceilings(classes, np.array([option]), np.array([host_class]))
    )
    kinds = (
        ("limit.{}", ratio, (ratio < least) & (predicted.before[host_class] >= least)),
        ("limit.{}_latency", slow[0], slow[1][0]),
        ("limit.{}_time_short", short[0], short[1][0]),
    )
    host, present = snapshot.hosts[position].id, classes.present[host_class]
    last = len(present) - 1
    for code, values, broken in kinds:
        if present[last] and broken[last]:
            return _limit_rejection(host, code.format("new_vm"), new_vm, float(values[last]))
    for code, values, broken in kinds:
        for slot in np.flatnonzero(broken & present)[:1].tolist():
            resident = snapshot.residents[position][slot]
            return _limit_rejection(host, code.format("neighbour"), resident, float(values[slot]))
    raise AssertionError("a host that breaks no limit is not rejected for one")


def _limit_rejection(host: str, code: str, instance: Instance, value: float) -> Rejection:
    if code.endswith("_latency"):
        late = f"{value:.2f}" if value <= LONGEST_KNOWN_LATENCY else f"more than {LONGEST_KNOWN_LATENCY:g}"
        text = f"would wait {late} times as long as alone, its limit is {instance.max_latency_ratio:g}"
    elif code.endswith("_time_short"):
        longest = time_part(instance.max_time_short or 0.0)
        text = f"would be contended {time_part(value)} of the time, its limit is {longest}"
    else:
        text = f"would run at {speed(value)}, its limit is {100 * (instance.min_throughput_ratio or 0.0):g} %"
    return Rejection(host, code, f"{instance.id} {text}")
