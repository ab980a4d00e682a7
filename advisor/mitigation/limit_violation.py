"""How things stand on a host: what is kept of the ladder so far, which limit is broken worst, and who presses on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.domain import Instance, IsolationSettings
from advisor.mitigation.shared_host import SharedHost, Trial, kept
from advisor.rounding import SLACK
from models.arrays import Bools, Floats
from models.data.scene import SceneBatch
from models.physics.demands import Demands
from models.physics.prior import RESOURCES, PriorResult, solve
from models.prediction import InterferencePrediction

_CPU, _DRIVER = RESOURCES.index("cpu"), RESOURCES.index("driver_domain")
FELT = 0.005  # of a ratio: what the prior takes away below it names nobody
_DIGITS = 9  # ratios that are equal so far count as equal, so that the last bit decides nothing


@dataclass(frozen=True, slots=True)
class Standing:
    """The host under the settings `changes`, with what is predicted for it (one scene); `held` as in SharedHost.

    `least` is the T/B that those whom no throughput limit protects should keep all the same, (N,), nan = one does;
    `sufferer` is the position of whom the worst broken limit belongs to and `of_latency` whether it is one of latency;
    `culprit` the position of who presses most on the `resource` that costs the sufferer most, None = nobody does;
    `want` is what everybody asks for, (1, N) each.
    """

    shared: SharedHost
    changes: Mapping[str, IsolationSettings]
    prediction: InterferencePrediction
    held: Bools
    least: Floats
    sufferer: int
    of_latency: bool
    culprit: int | None
    resource: str
    want: Demands

    def party(self, at: int) -> Instance:
        return self.shared.parties[at]

    def settings(self, at: int) -> IsolationSettings:
        """What a party runs under, with what the ladder has kept so far."""
        one = self.party(at)
        return self.changes.get(one.id, one.settings)

    def trial(self, says: str, new: Mapping[int, IsolationSettings]) -> Trial:
        """New settings for the parties at these positions, on top of what was kept."""
        return Trial(says, {**self.changes, **{self.party(at).id: settings for at, settings in new.items()}})

    @property
    def under(self) -> Bools:
        """Which limits are not kept; (N, 2)."""
        return np.asarray(kept(self.prediction)[0] < self.shared.limits() - SLACK)

    @property
    def value(self) -> float:
        """What is left of what the sufferer minds."""
        return float(kept(self.prediction)[0, self.sufferer, int(self.of_latency)])


def stand(
    shared: SharedHost,
    changes: Mapping[str, IsolationSettings],
    prediction: InterferencePrediction,
    held: Bools,
    least: Floats,
) -> Standing | None:
    """How things stand under `changes`, for which `prediction` was made; None where no held limit is broken."""
    short = np.where(held, shared.limits() - kept(prediction)[0], np.nan)
    broken = [(at, kind) for at, kind in np.ndindex(*short.shape) if short[at, kind] > SLACK]
    if not broken:
        return None
    sufferer, kind = min(broken, key=lambda one: (-round(float(short[one]), _DIGITS), *one))
    scene = shared.scenes([Trial(changes=changes)])
    prior = solve(scene)
    broken_already = frozenset(at for at, _ in broken)
    resource, culprit = _pressed(len(shared.parties), scene, prior, sufferer, broken_already, of_latency=bool(kind))
    return Standing(
        shared, changes, prediction, held, least, sufferer, bool(kind), culprit, RESOURCES[resource], prior.demands
    )


def _pressed(
    parties: int,
    scene: SceneBatch,
    prior: PriorResult,
    sufferer: int,
    broken: frozenset[int],
    *,
    of_latency: bool,
) -> tuple[int, int | None]:
    """The resource that costs the sufferer most, and who presses most on it; by the prior, of equals the first,
    the newcomer last, whatever it is called.

    Where throughput is lost the prior says which resource takes it. Where only waiting is too long, or the prior sees
    no loss, the culprit is the one without whom the sufferer would be best off, on the resource where it presses most.
    Who is below a limit of its own is asked to give way only where nobody else presses.
    """
    presses = _presses(scene, prior.demands, sufferer)
    costs = -np.log(prior.limits[0, sufferer])
    if not of_latency and costs.max() > FELT:
        resource = int(costs.argmax())
        return resource, _most(parties, presses[:, resource], sufferer, broken, 0.0)
    relief = _relief(scene, sufferer, of_latency=of_latency)
    culprit = _most(parties, relief, sufferer, broken, FELT)
    if culprit is None:
        culprit = _most(parties, presses.max(axis=1), sufferer, broken, FELT)
    asked = np.array([_of(prior.demands)[sufferer, at] > 0 for at in range(len(RESOURCES))])
    met = presses.sum(axis=0) if culprit is None else presses[culprit]
    return int(np.where(asked, met, 0.0).argmax()), culprit


def _most(parties: int, amounts: Floats, sufferer: int, broken: frozenset[int], above: float) -> int | None:
    others = [at for at in range(parties) if at != sufferer and amounts[at] > above]
    return min(others, key=lambda at: (at in broken, -round(float(amounts[at]), _DIGITS), at), default=None)


def _of(want: Demands) -> Floats:
    """Demands in the order of RESOURCES; (N, 5)."""
    return np.stack([want.cpu[0], want.driver[0], want.net[0], want.disk[0], want.memory[0]], axis=1)


def _presses(scene: SceneBatch, want: Demands, sufferer: int) -> Floats:
    """What each party asks of every resource where the sufferer meets it; (N, 5).

    CPU counts on the CPUs that the sufferer may use, and there the driver domain's work counts as its instance's; what
    CPU-bound ones ask of the driver domain's CPUs is pressed on the driver domain. The link's Mbit/s become its share.
    """
    asked = _of(want)
    nic = scene.host_numbers[0, 6]
    net = np.minimum(want.net[0], scene.net_ceil[0])
    asked[:, RESOURCES.index("nic")] = net / (nic if nic > 0 else 1e6)  # a link of unknown speed holds nobody back
    may = scene.affinity[0].astype(float)
    driver = scene.driver_cpus[0].astype(float)
    cpu = np.minimum(want.cpu[0], scene.cap[0]) / np.maximum(may.sum(axis=1), 1)
    pages = want.driver[0] / max(driver.sum(), 1.0)
    asked[:, _CPU] = cpu * (may @ may[sufferer]) + pages * (driver @ may[sufferer])
    asked[:, _DRIVER] = want.driver[0] + (cpu * (may @ driver) if want.driver[0, sufferer] > 0 else 0.0)
    return asked


def _relief(scene: SceneBatch, sufferer: int, *, of_latency: bool) -> Floats:
    """What the sufferer would keep more, by the prior, without each of the others; (N,)."""
    count = scene.slots
    scenes = scene.take(np.zeros(count + 1, dtype=np.int64))
    scenes.present[np.arange(count), np.arange(count)] = False
    prior = solve(scenes)
    left = 1 / prior.latency[:, sufferer] if of_latency else prior.throughput[:, sufferer]
    relief = left[:-1] - left[-1]
    relief[sufferer] = 0.0
    return np.asarray(relief)
