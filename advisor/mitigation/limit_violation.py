"""The worst limit violation on a host: its victim, the contended resource, and the antagonist (terms of CPI2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Instance, IsolationSettings
from advisor.mitigation.shared_host import LATENCY, THROUGHPUT, TIME_SHORT, SharedHost, Trial, kept
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.physics.demands import Demands
from models.physics.prior import RESOURCES, PriorResult, solve
from models.prediction import InterferencePrediction

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
