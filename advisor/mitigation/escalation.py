"""Escalation: tries mitigation steps by cost, each at its mildest sufficient strength, until all limits hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.domain import Host, Instance, IsolationSettings, MitigationAction, MitigationStep, speed
from advisor.mitigation import steps, violations
from advisor.mitigation.violations import LimitViolation, SharedHost, Trial, kept, worst_violation
from advisor.render import unmet
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable
from models.prediction import InterferencePrediction, Predictor

# The trials of each step in order of cost, and the setting that it changes; driver-domain CPUs belong to the host.
STEP_KINDS: tuple[tuple[MitigationAction, Callable[[LimitViolation], list[Trial]], str], ...] = (
    ("weight", steps.weights, "weight"),
    ("cap", steps.caps, "cap_percent"),
    ("pinning", steps.pinnings, "pinning"),
    ("network", steps.classes, "network"),
    ("disk", steps.limits, "disk_limit_mb_s"),
    ("driver_domain", steps.driver_cpus, ""),
)
MIN_GAIN = 0.02  # ratio that an insufficient step must give the victim to be kept, as for a pin (PIN_GAIN)
NOTICEABLE = 1.01  # factor of the remaining share; smaller changes count as no help
UNPROTECTED_SHARE = 0.5  # of its T/B without mitigation, kept by an instance without a limit
TRIALS_PER_CALL = 100  # trials per call; more are sampled first, then refined around the first sufficient one


@dataclass(frozen=True, slots=True)
class _Settled:
    """The trial chosen for a step and its effect; `unprotected_share` as in `_unprotected_shares`."""

    trial: Trial
    prediction: InterferencePrediction
    satisfies: bool
    helps: bool
    unprotected_share: float


@dataclass(frozen=True, slots=True)
class _Sufficient:
    """A step that satisfies all limits, where it starts, and which setting each of the `earlier` steps changes."""

    action: MitigationAction
    violation: LimitViolation
    settled: _Settled
    earlier: Mapping[MitigationAction, str]
    field: str


def escalate(
    host: Host,
    residents: Sequence[Instance],
    new_vm: Instance,
    *,
    table: ProfileTable,
    row: int | None,
    predictor: Predictor,
    others: Sequence[str] = (),
) -> tuple[MitigationStep, ...]:
    """The steps tried on a host where placing `new_vm` violates a limit; () where it violates none.

    `new_vm.settings` hold the pinning chosen for it; `row` is its row of `table` if it has a profile of its own (None
    = look it up by name); `others` are hosts that violate no limit, best first. Limits are the new VM's, and
    residents' that hold without the new VM; expected ratios are compared.

    Steps come in order of cost, each at the mildest strength that satisfies, and end at the first that satisfies all
    limits. Where no strength does, a step is kept if it helps the victim by more than MIN_GAIN and harms no other
    instance below a limit; it is kept at the strength that is best for the most affected, and the next steps build on
    it. Steps that prove needless are dropped in the end. No step violates a limit that holds, loosens a setting or
    changes an existing pin. There are at most ten predict calls.

    An instance without a throughput limit, or whose limit is violated without the new VM already, keeps at least
    UNPROTECTED_SHARE of the T/B that it has beside the new VM without mitigation. Only a sufficient weight may take
    more, because it gives back what others leave idle. Where every step fails by this rule alone, the one that leaves
    the hardest-hit most comes last as a last resort and says so. A limit of its own, however low, replaces this share.
    """
    there = sorted((resident for resident in residents if resident.id != new_vm.id), key=lambda resident: resident.id)
    shared = SharedHost(host, (*there, new_vm), table, row, predictor)
    held_limits = shared.held()
    placed = shared.predict([Trial()])
    protected = held_limits[:, 0] & ~np.isnan(shared.limits()[:, 0])
    unprotected_floor = np.where(protected, np.nan, UNPROTECTED_SHARE * kept(placed)[0, :, 0])
    violation = worst_violation(shared, {}, placed, held_limits, unprotected_floor)
    if violation is None:
        return ()
    mitigation_steps: list[MitigationStep] = []
    last_resorts: list[_Sufficient] = []  # they take too much from an instance without a limit
    earlier: dict[MitigationAction, str] = {}  # steps that are kept, with the setting that each changes
    for action, propose, field in STEP_KINDS:
        if action == "driver_domain" and (hint := steps.vhost_hint(violation)):
            mitigation_steps.append(MitigationStep("hint", hint))
        trials = propose(violation)
        if not trials:
            continue
        settled, costly = _settle_trials(violation, trials)
        if action == "weight" and costly is not None and not settled.satisfies:
            settled = costly
        if settled.satisfies:
            return (*mitigation_steps, _final_step(_Sufficient(action, violation, settled, earlier, field)))
        if costly is not None:
            last_resorts.append(_Sufficient(action, violation, costly, dict(earlier), field))
        mitigation_steps.append(_step_of(action, violation, settled, _shortfall(violation, settled)))
        if settled.helps and field:
            earlier[action] = field
            after = worst_violation(shared, settled.trial.changes, settled.prediction, held_limits, unprotected_floor)
            violation = after or violation  # not None: a limit is still violated, or the step would satisfy
    if last_resorts:
        # Of equals the cheapest, which comes first.
        resort = max(last_resorts, key=lambda option: round(option.settled.unprotected_share, 9))
        return (*mitigation_steps, _final_step(resort))
    return (*mitigation_steps, MitigationStep("host", violations.another_host(host, new_vm, others)))


def _settle_trials(violation: LimitViolation, trials: Sequence[Trial]) -> tuple[_Settled, _Settled | None]:
    """Predict the trials, mildest first, in one call (two if there are very many), and choose as `_choose` does."""
    if len(trials) > TRIALS_PER_CALL:
        coarse = sorted({*range(0, len(trials), -(-len(trials) // TRIALS_PER_CALL)), len(trials) - 1})
        prediction = violation.shared.predict([trials[at] for at in coarse])
        still_broken = _any_per_trial(_broken_limits(violation, prediction) & violation.broken_limits & violation.held)
        first_enough = int((~still_broken).argmax())
        coarse_choice = _choose(violation, [trials[at] for at in coarse], prediction)
        if still_broken[first_enough] or first_enough == 0:
            return coarse_choice
        trials = trials[coarse[first_enough - 1] + 1 : coarse[first_enough] + 1]
        settled, costly = _choose(violation, trials, violation.shared.predict(trials))
        return (settled, None) if settled.satisfies else (coarse_choice[0], costly or coarse_choice[1])
    return _choose(violation, trials, violation.shared.predict(trials))


def _broken_limits(violation: LimitViolation, prediction: InterferencePrediction) -> Bools:
    """Which limits are violated in each trial; (trials, N, 3)."""
    return np.asarray(kept(prediction) < violation.shared.limits() - SLACK)


def _total_shortfall(violation: LimitViolation, prediction: InterferencePrediction) -> Floats:
    """The total shortfall from the held limits; (trials,)."""
    short = np.where(violation.held, violation.shared.limits() - kept(prediction), 0.0)
    return np.asarray(np.round(np.fmax(short, 0.0).sum(axis=(1, 2)), 9))


def _any_per_trial(limits: Bools) -> Bools:
    """Which trials have any of them; (trials,)."""
    return np.asarray(limits.any(axis=(1, 2)))


def _unprotected_shares(violation: LimitViolation, prediction: InterferencePrediction) -> Floats:
    """What the hardest-hit instance without a limit keeps, relative to its floor; (trials,)."""
    left = kept(prediction)[:, :, 0] / violation.unprotected_floor
    return np.asarray(np.round(np.where(np.isnan(violation.unprotected_floor), np.inf, left).min(axis=1), 9))


def _choose(
    violation: LimitViolation, trials: Sequence[Trial], prediction: InterferencePrediction
) -> tuple[_Settled, _Settled | None]:
    """The trial to choose, and the first that satisfies only by taking too much from an instance without a limit.

    The choice is the first that satisfies, else the best that helps, else the one with the largest gain.
    """
    broken = _broken_limits(violation, prediction)
    allowed = ~_any_per_trial(broken & ~violation.broken_limits)
    satisfies = allowed & ~_any_per_trial(broken & violation.held)
    unprotected_share = _unprotected_shares(violation, prediction)
    acceptable = allowed & (unprotected_share >= 1)
    left = kept(prediction)
    gain = np.round(left[:, violation.victim, violation.kind] - violation.victim_share, 9)
    missing = _total_shortfall(violation, prediction)
    helps = acceptable & (gain > MIN_GAIN) & (missing < _total_shortfall(violation, violation.prediction))

    def settle_on(at: int) -> _Settled:
        return _Settled(
            trials[at],
            prediction.take(slice(at, at + 1)),
            bool(satisfies[at]),
            bool(helps[at]),
            float(unprotected_share[at]),
        )

    if (satisfies & acceptable).any():
        return settle_on(int((satisfies & acceptable).argmax())), None
    costly = settle_on(int(satisfies.argmax())) if satisfies.any() else None
    if helps.any():
        best = int(np.where(helps, np.round(left[:, :, 0].min(axis=1), 9), -np.inf).argmax())
        return settle_on(best), costly
    rest = acceptable if acceptable.any() else allowed | ~allowed.any()
    at = int(np.where(rest, gain, -np.inf).argmax())
    return replace(settle_on(at), satisfies=False), costly


def _final_step(step: _Sufficient) -> MitigationStep:
    """The step that satisfies, with as few of the earlier ones as it needs, the cheapest first."""
    action, violation, settled, earlier = step.action, step.violation, step.settled, step.earlier
    subsets = [subset for size in range(len(earlier)) for subset in combinations(earlier, size)]
    if subsets:
        changes_before = [
            _changes_of_fields(violation, {earlier[kept_action] for kept_action in subset}) for subset in subsets
        ]
        reduced_trials = [
            replace(
                settled.trial,
                changes=_changes_of_fields(
                    violation, {step.field, *(earlier[kept_action] for kept_action in subset)}, settled.trial.changes
                ),
            )
            for subset in subsets
        ]
        prediction = violation.shared.predict(
            [*reduced_trials, *(Trial(changes=changes) for changes in changes_before)]
        )
        gentle, costly = _choose(violation, reduced_trials, prediction.take(slice(len(reduced_trials))))
        sufficient = gentle if gentle.satisfies else costly
        if sufficient is not None and sufficient.unprotected_share >= min(settled.unprotected_share, 1.0):
            at = next(at for at, trial in enumerate(reduced_trials) if trial is sufficient.trial)
            scene = len(reduced_trials) + at
            before = replace(violation, changes=changes_before[at], prediction=prediction.take(slice(scene, scene + 1)))
            needless_actions = [kept_action for kept_action in earlier if kept_action not in subsets[at]]
            verb = "is" if len(needless_actions) == 1 else "are"
            needless = f"; {' and '.join(needless_actions)} above {verb} not needed then"
            return _step_of(action, before, sufficient, needless + _cost(action, before, sufficient))
    return _step_of(action, violation, settled, _cost(action, violation, settled))


def _cost(action: MitigationAction, violation: LimitViolation, settled: _Settled) -> str:
    """A remark on a sufficient step that takes more than half from an instance without a limit."""
    if settled.unprotected_share >= 1 or action == "weight":
        return ""
    return f"; a last resort, for {_hardest(violation, settled)}"


def _hardest(violation: LimitViolation, settled: _Settled) -> str:
    """The instance without a limit that loses most, in words."""
    left = kept(settled.prediction)[0, :, 0] / violation.unprotected_floor
    return f"{violation.party(int(np.nanargmin(left))).id}, which no limit protects, would lose more than half"


def _changes_of_fields(
    violation: LimitViolation, fields: set[str], changes: Mapping[str, IsolationSettings] | None = None
) -> dict[str, IsolationSettings]:
    """Changes (those kept, unless others are given) restricted to these fields of the settings."""
    changes = violation.changes if changes is None else changes
    selected = {}
    for party in violation.shared.parties:
        if party.id in changes:
            changed = changes[party.id]
            settings = replace(party.settings, **{field: getattr(changed, field) for field in sorted(fields) if field})
            if settings != party.settings:
                selected[party.id] = settings
    return selected


def _step_of(action: MitigationAction, violation: LimitViolation, settled: _Settled, outcome: str) -> MitigationStep:
    trial, shared = settled.trial, violation.shared
    missing = unmet(shared.host, shared.parties, trial.changes, trial.driver_cpus)
    outcome += "".join(f"; {text}" for text in missing)
    return MitigationStep(
        action,
        violations.sentence(violation, trial, settled.prediction, outcome),
        changes=trial.changes,
        effects=violations.effects(violation, settled.prediction),
        satisfies=settled.satisfies,
        driver_cpus=trial.driver_cpus,
        notes=(*(_starved(violation, settled) if settled.satisfies else ()), *missing),
    )


def _starved(violation: LimitViolation, settled: _Settled) -> Iterator[str]:
    """Notes about instances without a limit that lose more than half."""
    left = np.round(kept(settled.prediction)[0, :, 0], 9)
    for at in np.flatnonzero(left < np.round(violation.unprotected_floor, 9)).tolist():
        former = 100 * violation.unprotected_floor[at] / UNPROTECTED_SHARE
        would = f"{violation.party(at).id} would run at {speed(left[at])} instead of {former:.0f} %"
        yield f"{would}, and no limit protects it"


def _shortfall(violation: LimitViolation, settled: _Settled) -> str:
    """The end of the sentence about a step that does not satisfy."""
    new = _broken_limits(violation, settled.prediction)[0] & ~violation.broken_limits
    if new.any():
        return f", and a limit of {violation.party(int(new.any(axis=1).argmax())).id} breaks"
    if settled.unprotected_share < 1:
        return f", and {_hardest(violation, settled)}"
    if settled.helps:
        return ", which is not enough"
    value = float(kept(settled.prediction)[0, violation.victim, violation.kind])
    if value - violation.victim_share > MIN_GAIN:
        return ", and another instance below its limit loses as much"
    return ", which is too little" if value > violation.victim_share * NOTICEABLE else ", which does not help"
