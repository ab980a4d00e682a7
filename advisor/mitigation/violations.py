"""The worst limit violation among all instances on one host under trial settings, and what a step does to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from advisor.domain import Effect, Host, Instance, IsolationSettings, latency_in_words, time_part
from advisor.prediction.active import effect
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.physics.demands import Demands
from models.physics.prior import RESOURCES, PriorResult, solve
from models.prediction import InterferencePrediction, Predictor

# All instances on one host, the new VM last, under trial settings: scenes, predictions, limits.

# Kinds of limits, in the order of `limits` and `kept`.
THROUGHPUT, LATENCY, TIME_SHORT = range(3)


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings to try.

    `changes` are the whole settings of instances that would run under different ones, by id; `driver_cpus` the CPUs of
    the driver domain, None = unchanged; `says` the action in words, without a full stop.
    """

    says: str = ""
    changes: Mapping[str, IsolationSettings] = field(default_factory=dict)
    driver_cpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class SharedHost:
    """A host and its instances: residents sorted by id, so that their order does not matter, and the new VM last.

    `row` is the new VM's row of `table` if it has a profile of its own, None = by its workload's name.
    """

    host: Host
    parties: tuple[Instance, ...]
    table: ProfileTable
    row: int | None
    predictor: Predictor

    def scenes(self, trials: Sequence[Trial], without: str = "") -> SceneBatch:
        """One scene for each trial, one slot for each party except the one with the id `without`."""
        batch = build_batch([self._scene(trial, without) for trial in trials], self.table)
        new_vm = self.parties[-1].id
        if self.row is None or without == new_vm:
            return batch
        return batch.with_last(profile=self.row)

    def _scene(self, trial: Trial, without: str) -> tuple[Host, list[Instance]]:
        host = self.host if trial.driver_cpus is None else replace(self.host, driver_cpus=trial.driver_cpus)
        return host, [
            replace(party, settings=trial.changes.get(party.id, party.settings))
            for party in self.parties
            if party.id != without
        ]

    def predict(self, trials: Sequence[Trial]) -> InterferencePrediction:
        """The effect of every trial on every instance, in one call; (trials, parties)."""
        return self.predictor.predict(self.scenes(trials))

    def limits(self) -> Floats:
        """The lowest accepted values of `kept` for each party; (N, 3), nan = any."""
        return np.array(
            [
                [
                    np.nan if party.min_throughput_ratio is None else party.min_throughput_ratio,
                    np.nan if party.max_latency_ratio is None else 1 / party.max_latency_ratio,
                    np.nan if party.max_time_short is None else 1 - party.max_time_short,
                ]
                for party in self.parties
            ]
        )

    def held(self) -> Bools:
        """Which limits a placement can violate: the new VM's, and those that residents keep without it; (N, 3)."""
        held = np.ones((len(self.parties), 3), dtype=bool)
        if len(self.parties) > 1:
            before = self.predictor.predict(self.scenes([Trial()], without=self.parties[-1].id))
            held[:-1] = ~(kept(before)[0] < self.limits()[:-1] - SLACK)
        return held


def kept(prediction: InterferencePrediction) -> Floats:
    """What remains: T/B, solo over shared latency, and the part of the time not short of CPU; (S, N, 3)."""
    return np.stack(
        [prediction.throughput.expected, 1 / prediction.latency.expected, 1 - prediction.time_short()], axis=2
    )


# The worst limit violation on a host: its victim, the contended resource, and the antagonist (terms of CPI2).

_CPU, _DRIVER = RESOURCES.index("cpu"), RESOURCES.index("driver_domain")
MIN_EFFECT = 0.005  # smaller losses in ratio name no antagonist
TIE_DIGITS = 9  # digits to which ratios are compared, so that rounding decides nothing


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """The host under the settings `changes`, its prediction (one scene), and its worst violation.

    `held` is as in SharedHost. `unprotected_floor` (N,) is the T/B that instances without a throughput limit should
    keep, nan = has a limit. `victim` is the position of the instance whose limit is violated worst, and `kind` the
    kind of that limit, as in SharedHost. `antagonist` is the position of the instance that presses most on the
    `resource` that costs the victim most, None = no instance. `want` is the demand of every instance, (1, N) each.
    """

    shared: SharedHost
    changes: Mapping[str, IsolationSettings]
    prediction: InterferencePrediction
    held: Bools
    unprotected_floor: Floats
    victim: int
    kind: int
    antagonist: int | None
    resource: str
    want: Demands

    def party(self, at: int) -> Instance:
        return self.shared.parties[at]

    def settings(self, at: int) -> IsolationSettings:
        """The settings of a party, with what mitigation has kept so far."""
        party = self.party(at)
        return self.changes.get(party.id, party.settings)

    def trial(self, says: str, new: Mapping[int, IsolationSettings]) -> Trial:
        """A trial with new settings for these positions in addition to those kept."""
        return Trial(says, {**self.changes, **{self.party(at).id: settings for at, settings in new.items()}})

    @property
    def broken_limits(self) -> Bools:
        """Which limits are violated; (N, 3)."""
        return np.asarray(kept(self.prediction)[0] < self.shared.limits() - SLACK)

    @property
    def victim_share(self) -> float:
        """The victim's remaining share of the violated quantity."""
        return float(kept(self.prediction)[0, self.victim, self.kind])


def worst_violation(
    shared: SharedHost,
    changes: Mapping[str, IsolationSettings],
    prediction: InterferencePrediction,
    held: Bools,
    unprotected_floor: Floats,
) -> LimitViolation | None:
    """The worst violation under `changes`, whose prediction is given; None where every held limit holds."""
    shortfall = np.where(held, shared.limits() - kept(prediction)[0], np.nan)
    broken = [(at, kind) for at, kind in np.ndindex(*shortfall.shape) if shortfall[at, kind] > SLACK]
    if not broken:
        return None
    victim, kind = min(broken, key=lambda position: (-round(float(shortfall[position]), TIE_DIGITS), *position))
    scene = shared.scenes([Trial(changes=changes)])
    prior = solve(scene)
    broken_already = frozenset(at for at, _ in broken)
    resource, antagonist = _resource_and_antagonist(len(shared.parties), scene, prior, victim, broken_already, kind)
    return LimitViolation(
        shared,
        changes,
        prediction,
        held,
        unprotected_floor,
        victim,
        kind,
        antagonist,
        RESOURCES[resource],
        prior.demands,
    )


def _resource_and_antagonist(
    parties: int, scene: SceneBatch, prior: PriorResult, victim: int, broken: frozenset[int], kind: int
) -> tuple[int, int | None]:
    """The resource that costs the victim most, and the instance that presses most on it, by the prior.

    Where throughput is lost, the prior names the resource, and who is short of CPU lacks that. Where only latency is
    too long, or the prior sees no loss, the antagonist is the instance without which the victim would be best off, on
    the resource where it presses most. An instance below a limit of its own is the antagonist only where no other
    instance presses. Of equals the first counts, the new VM last, whatever it is called.
    """
    presses = _pressure_on_victim(scene, prior.demands, victim)
    costs = -np.log(prior.limits[0, victim])
    if kind == THROUGHPUT and costs.max() > MIN_EFFECT:
        resource = int(costs.argmax())
        return resource, _strongest(parties, presses[:, resource], victim, broken, 0.0)
    relief = _relief(scene, victim, kind)
    antagonist = _strongest(parties, relief, victim, broken, MIN_EFFECT)
    if antagonist is None:
        antagonist = _strongest(parties, presses.max(axis=1), victim, broken, MIN_EFFECT)
    if kind == TIME_SHORT:
        return _CPU, antagonist
    asked = np.array([_demand_matrix(prior.demands)[victim, at] > 0 for at in range(len(RESOURCES))])
    met = presses.sum(axis=0) if antagonist is None else presses[antagonist]
    return int(np.where(asked, met, 0.0).argmax()), antagonist


def _strongest(parties: int, amounts: Floats, victim: int, broken: frozenset[int], above: float) -> int | None:
    others = [at for at in range(parties) if at != victim and amounts[at] > above]
    return min(others, key=lambda at: (at in broken, -round(float(amounts[at]), TIE_DIGITS), at), default=None)


def _demand_matrix(want: Demands) -> Floats:
    """Demands in the order of RESOURCES; (N, 5)."""
    return np.stack([want.cpu[0], want.driver[0], want.net[0], want.disk[0], want.memory[0]], axis=1)


def _pressure_on_victim(scene: SceneBatch, want: Demands, victim: int) -> Floats:
    """The demand of each party on every resource where it meets the victim; (N, 5).

    CPU counts on the CPUs that the victim may use, including the driver domain's work for each instance. CPU-bound
    instances on the driver domain's CPUs press on the driver domain. Mbit/s are divided by the link's speed.
    """
    asked = _demand_matrix(want)
    nic = scene.host_numbers[0, 6]
    net = np.minimum(want.net[0], scene.net_ceil[0])
    asked[:, RESOURCES.index("nic")] = net / (nic if nic > 0 else 1e6)  # a link of unknown speed limits no instance
    may = scene.affinity[0].astype(float)
    driver = scene.driver_cpus[0].astype(float)
    cpu = np.minimum(want.cpu[0], scene.cap[0]) / np.maximum(may.sum(axis=1), 1)
    pages = want.driver[0] / max(driver.sum(), 1.0)
    asked[:, _CPU] = cpu * (may @ may[victim]) + pages * (driver @ may[victim])
    asked[:, _DRIVER] = want.driver[0] + (cpu * (may @ driver) if want.driver[0, victim] > 0 else 0.0)
    return asked


def _relief(scene: SceneBatch, victim: int, kind: int) -> Floats:
    """What the victim would gain, by the prior, without each of the others; (N,)."""
    count = scene.slots
    scenes = scene.take(np.zeros(count + 1, dtype=np.int64))
    scenes.present[np.arange(count), np.arange(count)] = False
    prior = solve(scenes)
    left = prior.throughput[:, victim]
    if kind == LATENCY:
        left = 1 / prior.latency[:, victim]
    elif kind == TIME_SHORT:
        left = 1 - prior.cpu.short[:, victim]
    relief = left[:-1] - left[-1]
    relief[victim] = 0.0
    return np.asarray(relief)


# A mitigation step in one sentence, and its effects on every instance as values of the answer.

WORTH_NAMING = 0.02  # change of T/B from which other instances are named
MOST_NAMED = 4


def sentence(violation: LimitViolation, trial: Trial, after: InterferencePrediction, outcome: str) -> str:
    """The action and its effect on the victim, on those whose settings change, and on others affected."""
    old, new = violation.prediction.throughput.expected[0], after.throughput.expected[0]
    change = np.round(np.abs(new - old), 9)
    settings = [trial.changes.get(party.id, party.settings) for party in violation.shared.parties]
    changed = [at for at in range(len(settings)) if at != violation.victim and settings[at] != violation.settings(at)]
    rest = [at for at in range(len(settings)) if at not in {violation.victim, *changed} and change[at] > WORTH_NAMING]
    named = [*sorted(changed, key=lambda at: -change[at]), *sorted(rest, key=lambda at: -change[at])]
    parts = [_change(violation, after, violation.victim, violation.kind)]
    parts += [_change(violation, after, at, THROUGHPUT) for at in named[: MOST_NAMED - 1]]
    return f"{trial.says}: {', '.join(parts)}{outcome}."


def _change(violation: LimitViolation, after: InterferencePrediction, at: int, kind: int) -> str:
    now = violation.prediction
    name = violation.party(at).id
    if kind == TIME_SHORT:
        old_short, new_short = (time_part(float(prediction.time_short()[0, at])) for prediction in (now, after))
        return f"{name} contended {old_short} -> {new_short} of the time"
    if kind == LATENCY:
        old_late, new_late = (latency_in_words(effect(name, prediction, 0, at)) for prediction in (now, after))
        return f"latency of {name} {old_late} -> {new_late}"
    old, new = (float(prediction.throughput.expected[0, at]) for prediction in (now, after))
    return f"{name} {old:.2f} -> {new:.2f}"


def another_host(host: Host, new_vm: Instance, others: Sequence[str]) -> str:
    """The advice where no setting on this host suffices."""
    if not others:
        return f"No setting that was tried on {host.id} meets every limit, and no other host is known that does."
    return f"No setting that was tried on {host.id} meets every limit: place {new_vm.id} on {others[0]}, which does."


def effects(violation: LimitViolation, after: InterferencePrediction) -> tuple[Effect, ...]:
    """The predicted effect on every instance, the new VM first and then by id; `before` is without the step."""
    count = len(violation.shared.parties)
    return tuple(
        effect(violation.party(at).id, after, 0, at, violation.prediction) for at in (count - 1, *range(count - 1))
    )
