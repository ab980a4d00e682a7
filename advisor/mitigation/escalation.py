"""Climbing: rung after rung in order of cost, each at the strength that is just enough, until no limit is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from advisor.domain import Host, Instance, IsolationSettings, MitigationAction, MitigationStep
from advisor.mitigation import cpu, disk, driver, network, pins, wording
from advisor.mitigation.limit_violation import Standing, stand
from advisor.mitigation.shared_host import SharedHost, Trial, kept, part
from advisor.render import unmet
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable
from models.prediction import InterferencePrediction, Predictor

# What each rung tries, in order of cost, and the one setting that it changes; the driver domain's CPUs are the host's.
RUNGS: tuple[tuple[MitigationAction, Callable[[Standing], list[Trial]], str], ...] = (
    ("weight", cpu.weights, "weight"),
    ("cap", cpu.caps, "cap_percent"),
    ("pinning", pins.pins, "pinning"),
    ("network", network.classes, "network"),
    ("disk", disk.limits, "disk_limit_mb_s"),
    ("driver_domain", driver.driver_cpus, ""),
)
GAIN = 0.02  # what a rung must give the sufferer to be kept where it does not satisfy, as a pin must (PIN_GAIN)
FELT = 1.01  # times as much left for the sufferer: less is no help at all
HALF = 0.5  # of its T/B without the ladder, left at least to whom no limit protects, short of the last resort
AT_ONCE = 100  # trials of one call; of more, every so many first and then those around the first that is enough


@dataclass(frozen=True, slots=True)
class _Found:
    """The trial that a rung settles on: what it does, and what that is worth; `spares` as in `_spares`."""

    trial: Trial
    prediction: InterferencePrediction
    satisfies: bool
    helps: bool
    spares: float


@dataclass(frozen=True, slots=True)
class _Resort:
    """A rung that satisfies at the expense of whom no limit protects, where it stands and what it stands on."""

    action: MitigationAction
    standing: Standing
    found: _Found
    earlier: Mapping[MitigationAction, str]
    field: str


def climb(
    host: Host,
    residents: Sequence[Instance],
    newcomer: Instance,
    *,
    table: ProfileTable,
    row: int | None,
    predictor: Predictor,
    others: Sequence[str] = (),
) -> tuple[MitigationStep, ...]:
    """The rungs that were tried on a host where placing `newcomer` breaks a limit; () where it breaks none.

    `newcomer.settings` hold the pinning chosen for it; `row` is its row of `table` where it brings a profile of its own
    (None = look it up by name); `others` are hosts that break no limit, best first. A limit is the newcomer's, or a
    resident's that holds without the newcomer, and is judged by the expected ratio.

    Rungs come in order of cost and the ladder ends at the first that satisfies. Each is taken at its mildest strength
    that satisfies. Where none does, a rung that helps the sufferer by more than GAIN, and not at the expense of others
    below their limits, is kept at the strength that leaves the worst-off best off, and the next ones stand on it; what
    turns out not to be needed at the end is left out again. Nothing breaks a limit that holds, loosens a setting or
    moves a pin. At most ten predict calls.

    Who has no throughput limit, or one that is broken without the newcomer already, keeps at least HALF of the T/B that
    it has beside the newcomer without the ladder. Only a weight that satisfies may take more, for it gives back what
    others leave idle. Where every rung fails by that, the one that leaves the hardest hit most comes last, out of
    order, and says so. A limit of its own, however low, takes the place of that half.
    """
    there = sorted((one for one in residents if one.id != newcomer.id), key=lambda one: one.id)
    shared = SharedHost(host, (*there, newcomer), table, row, predictor)
    held = shared.held()
    placed = shared.predict([Trial()])
    protected = held[:, 0] & ~np.isnan(shared.limits()[:, 0])
    least = np.where(protected, np.nan, HALF * kept(placed)[0, :, 0])
    standing = stand(shared, {}, placed, held, least)
    if standing is None:
        return ()
    rungs: list[MitigationStep] = []
    resorts: list[_Resort] = []
    earlier: dict[MitigationAction, str] = {}  # rungs that are kept, with the setting that each changes
    for action, trials_of, field in RUNGS:
        if action == "driver_domain" and (hint := network.vhost_hint(standing)):
            rungs.append(MitigationStep("hint", hint))
        trials = trials_of(standing)
        if not trials:
            continue
        found, harsh = _settle(standing, trials)
        if action == "weight" and harsh is not None and not found.satisfies:
            found = harsh
        if found.satisfies:
            rungs.append(_last(action, standing, found, earlier, field))
            return tuple(rungs)
        if harsh is not None:
            resorts.append(_Resort(action, standing, harsh, dict(earlier), field))
        rungs.append(_rung(action, standing, found, _shortfall(standing, found)))
        if found.helps and field:
            earlier[action] = field
            after = stand(shared, found.trial.changes, found.prediction, held, least)
            standing = after or standing  # a limit is still broken, or the rung would satisfy
    if resorts:
        last = max(resorts, key=lambda one: round(one.found.spares, 9))  # of equal ones the cheapest
        rungs.append(_last(last.action, last.standing, last.found, last.earlier, last.field))
        return tuple(rungs)
    rungs.append(MitigationStep("host", wording.another_host(host, newcomer, others)))
    return tuple(rungs)


def _settle(standing: Standing, trials: Sequence[Trial]) -> tuple[_Found, _Found | None]:
    """Predict trials, mildest first, in one call (two where there are very many), and settle as `_choose` does."""
    if len(trials) > AT_ONCE:
        coarse = sorted({*range(0, len(trials), -(-len(trials) // AT_ONCE)), len(trials) - 1})
        prediction = standing.shared.predict([trials[at] for at in coarse])
        still = _any(_under(standing, prediction) & standing.under & standing.held)
        first = int((~still).argmax())
        among = _choose(standing, [trials[at] for at in coarse], prediction)
        if still[first] or first == 0:
            return among
        trials = trials[coarse[first - 1] + 1 : coarse[first] + 1]
        found, harsh = _choose(standing, trials, standing.shared.predict(trials))
        return (found, None) if found.satisfies else (among[0], harsh or among[1])
    return _choose(standing, trials, standing.shared.predict(trials))


def _under(standing: Standing, prediction: InterferencePrediction) -> Bools:
    """Which limits are not kept in each trial; (trials, N, 2)."""
    return np.asarray(kept(prediction) < standing.shared.limits() - SLACK)


def _missing(standing: Standing, prediction: InterferencePrediction) -> Floats:
    """What everybody together lacks to the held limits; (trials,)."""
    short = np.where(standing.held, standing.shared.limits() - kept(prediction), 0.0)
    return np.asarray(np.round(np.fmax(short, 0.0).sum(axis=(1, 2)), 9))


def _any(limits: Bools) -> Bools:
    """In which trials any of them; (trials,)."""
    return np.asarray(limits.any(axis=(1, 2)))


def _spares(standing: Standing, prediction: InterferencePrediction) -> Floats:
    """What the hardest hit of those whom no limit protects keeps, as part of the least it should; (trials,)."""
    left = kept(prediction)[:, :, 0] / standing.least
    return np.asarray(np.round(np.where(np.isnan(standing.least), np.inf, left).min(axis=1), 9))


def _choose(
    standing: Standing, trials: Sequence[Trial], prediction: InterferencePrediction
) -> tuple[_Found, _Found | None]:
    """The trial to settle on: the first that satisfies, else the best of those that help, else the least useless.

    And where none satisfies without taking too much from whom no limit protects, the first that does by that.
    """
    under = _under(standing, prediction)
    allowed = ~_any(under & ~standing.under)
    satisfies = allowed & ~_any(under & standing.held)
    spares = _spares(standing, prediction)
    gentle = allowed & (spares >= 1)
    left = kept(prediction)
    gain = np.round(left[:, standing.sufferer, int(standing.of_latency)] - standing.value, 9)
    missing = _missing(standing, prediction)
    helps = gentle & (gain > GAIN) & (missing < _missing(standing, standing.prediction))

    def found(at: int) -> _Found:
        return _Found(trials[at], part(prediction, at, at + 1), bool(satisfies[at]), bool(helps[at]), float(spares[at]))

    if (satisfies & gentle).any():
        return found(int((satisfies & gentle).argmax())), None
    harsh = found(int(satisfies.argmax())) if satisfies.any() else None
    if helps.any():
        return found(int(np.where(helps, np.round(left[:, :, 0].min(axis=1), 9), -np.inf).argmax())), harsh
    rest = gentle if gentle.any() else allowed | ~allowed.any()
    at = int(np.where(rest, gain, -np.inf).argmax())
    return replace(found(at), satisfies=False), harsh


def _last(
    action: MitigationAction, standing: Standing, found: _Found, earlier: Mapping[MitigationAction, str], field: str
) -> MitigationStep:
    """The rung that satisfies, with as few of the earlier ones as it needs, the cheapest first."""
    subsets = [some for size in range(len(earlier)) for some in combinations(earlier, size)]
    if subsets:
        under = [_only(standing, {earlier[one] for one in some}) for some in subsets]
        less = [
            replace(found.trial, changes=_only(standing, {field, *(earlier[one] for one in some)}, found.trial.changes))
            for some in subsets
        ]
        prediction = standing.shared.predict([*less, *(Trial(changes=changes) for changes in under)])
        gentle, harsh = _choose(standing, less, part(prediction, 0, len(less)))
        enough = gentle if gentle.satisfies else harsh
        if enough is not None and enough.spares >= min(found.spares, 1.0):
            at = next(at for at, trial in enumerate(less) if trial is enough.trial)
            scene = len(less) + at
            before = replace(standing, changes=under[at], prediction=part(prediction, scene, scene + 1))
            spare = [one for one in earlier if one not in subsets[at]]
            needless = f"; {' and '.join(spare)} above {'is' if len(spare) == 1 else 'are'} not needed then"
            return _rung(action, before, enough, needless + _cost(action, before, enough))
    return _rung(action, standing, found, _cost(action, standing, found))


def _cost(action: MitigationAction, standing: Standing, found: _Found) -> str:
    """What a rung that satisfies says of taking more than half from whom no limit protects."""
    if found.spares >= 1 or action == "weight":
        return ""
    return f"; a last resort, for {_hardest(standing, found)}"


def _hardest(standing: Standing, found: _Found) -> str:
    """Who loses most of those whom no limit protects, in words."""
    left = kept(found.prediction)[0, :, 0] / standing.least
    return f"{standing.party(int(np.nanargmin(left))).id}, which no limit protects, would lose more than half"


def _only(
    standing: Standing, fields: set[str], changes: Mapping[str, IsolationSettings] | None = None
) -> dict[str, IsolationSettings]:
    """Changes (those that are kept, unless others are given) as far as they are about these fields of the settings."""
    changes = standing.changes if changes is None else changes
    found = {}
    for one in standing.shared.parties:
        if one.id in changes:
            new = changes[one.id]
            settings = replace(one.settings, **{field: getattr(new, field) for field in sorted(fields) if field})
            if settings != one.settings:
                found[one.id] = settings
    return found


def _rung(action: MitigationAction, standing: Standing, found: _Found, outcome: str) -> MitigationStep:
    trial, shared = found.trial, standing.shared
    missing = unmet(shared.host, shared.parties, trial.changes, trial.driver_cpus)
    outcome += "".join(f"; {one}" for one in missing)
    return MitigationStep(
        action,
        wording.sentence(standing, trial, found.prediction, outcome),
        changes=trial.changes,
        effects=wording.effects(standing, found.prediction),
        satisfies=found.satisfies,
        driver_cpus=trial.driver_cpus,
        notes=(*(_starved(standing, found) if found.satisfies else ()), *missing),
    )


def _starved(standing: Standing, found: _Found) -> Iterator[str]:
    """Everybody whom no limit protects and who loses more than half, with how much, in words."""
    left = np.round(kept(found.prediction)[0, :, 0], 9)
    for at in np.flatnonzero(left < np.round(standing.least, 9)).tolist():
        would = f"{standing.party(at).id} would keep {left[at]:.2f} of its own speed"
        yield f"{would} instead of {standing.least[at] / HALF:.2f}, and no limit protects it"


def _shortfall(standing: Standing, found: _Found) -> str:
    """How the sentence about a rung that does not satisfy ends."""
    new = _under(standing, found.prediction)[0] & ~standing.under
    if new.any():
        return f", and a limit of {standing.party(int(new.any(axis=1).argmax())).id} breaks"
    if found.spares < 1:
        return f", and {_hardest(standing, found)}"
    if found.helps:
        return ", which is not enough"
    value = float(kept(found.prediction)[0, standing.sufferer, int(standing.of_latency)])
    if value - standing.value > GAIN:
        return ", and who else is below a limit loses as much"
    return ", which is too little" if value > standing.value * FELT else ", which does not help"
