"""The residual model: base learners for what the prior does not explain, stacked, plus effects of known workloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import product

import numpy as np
from threadpoolctl import ThreadpoolController

from models.arrays import Bools, Floats, Ints
from models.features.examples import Examples, Neighbour
from models.features.folds import pair_folds
from models.features.repeats import GroupedExamples
from models.learning.boosting import fit_boosters, fit_forest, predict
from models.learning.effects import Effects
from models.learning.kernel_ridge import KernelRidge, fit_kernel_ridge
from models.learning.quickscorer import QuickScorer
from models.learning.stored_trees import Trees

LEAST_ROWS = 8  # with fewer rows nothing is learned, and the prior's prediction is used
BASE_LEARNERS = ("boosters", "forest", "smooth", "direct")
FEW_ANSWERS = 500
STEPS = 4  # stacking weights are compared in steps of 1/4: finer differences are noise
INNER_FOLDS = 4  # for the choice of the kernel ridge's penalties
HIGHEST = {"throughput": 1.1, "latency": 1000.0, "jitter": 1000.0, "share": 1.0}
_LEAST_RATIO = 1e-3
LOWEST = {"throughput": 1e-3, "latency": 0.5, "jitter": 1e-3, "share": 1e-3}


@dataclass(frozen=True)  # without slots: the leaves are read when the members first answer, not while they are judged
class BaseLearners:
    """Base learners of the residual of the log ratio: boosted trees, a random forest, and a kernel ridge.

    `direct` are boosted trees of the ratio itself (see `levelled`), for whom the prior is one feature among others.
    Where the prior is far off and there are many rows, they tell more (decision 111). None = they have no weight.
    """

    boosters: tuple[Trees, ...]
    forest: Trees
    smooth: KernelRidge
    direct: tuple[Trees, ...] = ()
    _answered: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)  # rows so far

    def predict(self, x: Floats, base: Floats) -> Floats:
        """The correction of log `base` (R,) by each base learner, in the order of BASE_LEARNERS; (R, 4)."""
        return self._parts(x, base, predict(self.boosters, x), predict(self.direct, x) if self.direct else None)

    def answer(self, x: Floats, base: Floats) -> Floats:
        """The same as `predict`, bit by bit, but faster after FEW_ANSWERS rows: small trees then use QuickScorer.

        To prepare that takes as long as some hundreds of rows take without it."""
        if self._answered[0] < FEW_ANSWERS:
            self._answered[0] += len(x)
            return self.predict(x, base)
        boosted = predict(self.boosters, x) if self._leaves is None else np.mean(self._leaves(x), axis=0)
        ratio = None
        if self.direct:
            ratio = predict(self.direct, x) if self._direct is None else np.mean(self._direct(x), axis=0)
        return self._parts(x, base, boosted, ratio)

    def _parts(self, x: Floats, base: Floats, boosted: Floats, ratio: Floats | None) -> Floats:
        direct = np.zeros(len(x)) if ratio is None else np.log(unlevelled(ratio)) - np.log(base)
        return np.stack([boosted, predict([self.forest], x), self.smooth.predict(x), direct], axis=1)

    def trees(self) -> dict[str, Trees]:
        """Every booster by a name of its own, as the artifact calls its file; in the order of BASE_LEARNERS."""
        return {
            **{f"booster{number}": booster for number, booster in enumerate(self.boosters)},
            "forest": self.forest,
            **{f"direct{number}": booster for number, booster in enumerate(self.direct)},
        }

    @cached_property
    def _leaves(self) -> QuickScorer | None:
        return QuickScorer.of(self.boosters)

    @cached_property
    def _direct(self) -> QuickScorer | None:
        return QuickScorer.of(self.direct)


def levelled(ratio: Floats) -> Floats:
    """What `direct` learns: the ratio itself up to 1, where errors of it count, and beyond 1 + its log; (R,)."""
    return np.where(ratio <= 1, ratio, 1 + np.log(np.maximum(ratio, 1)))


def unlevelled(value: Floats) -> Floats:
    """The ratio of which `levelled` makes this; (R,)."""
    return np.maximum(np.where(value <= 1, value, np.exp(np.maximum(value, 1) - 1)), _LEAST_RATIO)


@cache
def _libraries() -> ThreadpoolController:
    """The libraries that compute in threads, sought once: that takes 12 ms, and a training fits dozens of times."""
    return ThreadpoolController()


def fit_base_learners(
    rows: GroupedExamples,
    which: Ints,
    *,
    seed: int = 0,
    boosters: int | None = None,
    direct: bool = True,
) -> BaseLearners:
    """Fit the base learners on rows `which`; without `direct`, no trees of T/B itself."""
    part = rows.examples.take(which)
    residual, weight = rows.residual[which], rows.weight[which]
    # the matrices are small: synchronising threads costs more than it saves
    with _libraries().limit(limits=1, user_api="blas"):
        smooth = fit_kernel_ridge(
            part.x, residual, weight, part.names, pair_folds(part, seed + 1, INNER_FOLDS), seed=seed
        )
    return BaseLearners(
        fit_boosters(part.x, residual, weight, part.monotone, seed=seed, count=boosters),
        fit_forest(part.x, residual, weight, part.monotone, seed=seed),
        smooth,
        fit_boosters(part.x, levelled(np.exp(residual) * part.base), weight, part.monotone, seed=seed, count=boosters)
        if direct
        else (),
    )


@dataclass(frozen=True, slots=True)
class StackingWeights:
    """Stacking weights of the base learners (4,) and of the known workloads' effects; all 0 = the prior alone."""

    base_learners: tuple[float, ...] = (0.0,) * len(BASE_LEARNERS)
    effects: float = 0.0

    def named(self) -> dict[str, float]:
        """The weights by name, as the artifact stores them."""
        return {**dict(zip(BASE_LEARNERS, self.base_learners, strict=True)), "effects": self.effects}

    def of(self, base_learner: str) -> float:
        """The weight of one base learner."""
        return self.base_learners[BASE_LEARNERS.index(base_learner)]

    def without(self, base_learner: str) -> StackingWeights:
        """The same with what one base learner has left to the prior."""
        at = BASE_LEARNERS.index(base_learner)
        return replace(self, base_learners=(*self.base_learners[:at], 0.0, *self.base_learners[at + 1 :]))

    @property
    def prior_only(self) -> bool:
        """Whether all weights are 0, so that the prior's prediction is not changed."""
        return not any(self.base_learners) and not self.effects


@dataclass(frozen=True, slots=True)
class ResidualModel:
    """log ratio = log base + weighted base learners + weighted effects.

    `known_weights` apply where the platform and all workloads of a scene were in training, `platforms` and `known`. On
    other platforms `platform_weights` do, unless they are None, and otherwise `unknown_weights`. With `base_learners`
    None the base ratio is not corrected.
    """

    base_learners: BaseLearners | None
    effects: Effects
    known_weights: StackingWeights
    unknown_weights: StackingWeights
    known: frozenset[str]
    platforms: frozenset[str] = frozenset()
    platform_weights: StackingWeights | None = None

    def parts(self, x: Floats, base: Floats) -> Floats:
        """The predictions of the base learners for rows with this base ratio (R,); (R, 4)."""
        if self.base_learners is None or not len(x):
            return np.zeros((len(x), len(BASE_LEARNERS)))
        return self.base_learners.answer(x, base)

    def correction(self, parts: Floats, effects: Floats, known: Bools, elsewhere: Bools | bool = False) -> Floats:
        """Combine the base learners' predictions (R, 4) and the effects (R,) by the stacking weights; (R,).

        `elsewhere` says of all rows, or each (R,), whether its platform was not in training.
        """
        blends = [stacked(parts, effects, blend) for blend in (self.known_weights, self.unknown_weights)]
        found: Floats = np.where(known, *blends)
        if self.platform_weights is None or not np.any(elsewhere):
            return found
        return np.where(elsewhere, stacked(parts, effects, self.platform_weights), found)

    def all_known(self, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> Bools:
        """Whether a row's victim and all its neighbours were in the training data; (R,)."""
        return np.array(
            [
                victim in self.known and all(one.workload in self.known for one in around)
                for victim, around in zip(victims, neighbours, strict=True)
            ],
            dtype=bool,
        )


NOTHING_LEARNED = ResidualModel(None, Effects(), StackingWeights(), StackingWeights(), frozenset())


def stacked(parts: Floats, effects: Floats, blend: StackingWeights) -> Floats:
    """The weighted sum of base learners' predictions (R, 4) and effects (R,); (R,)."""
    return np.asarray(parts @ np.array(blend.base_learners) + blend.effects * effects)


def _weight_grid() -> Iterator[tuple[float, ...]]:
    """All weights in steps of 1/STEPS that sum to at most 1, smallest sums first: these are closest to the prior."""
    grid = product(range(STEPS + 1), repeat=len(BASE_LEARNERS))
    for steps in sorted((one for one in grid if sum(one) <= STEPS), key=lambda one: (sum(one), one)):
        yield tuple(step / STEPS for step in steps)


def choose_stacking_weights(
    examples: Examples, ratio: Floats, rows: Ints, parts: Floats, effects: Floats
) -> StackingWeights:
    """Choose the stacking weights that predict left-out rows best, by the mean |error of T/B| over pairs.

    `ratio` (G,) was measured; `rows` (J,) are indices of left-out examples; `parts` (J, 4) and `effects` (J,) are
    out-of-fold predictions for them. Every pair counts once, however often it was repeated. Candidates whose loss is
    within one standard error (over pairs) of the best are averaged: the mean is more stable than any of them. With 21
    pairs, the best candidate alone was worse than the prior on new pairs. Where the prior alone is best, all weights
    are 0.
    """
    if not len(rows):
        return StackingWeights()
    measured, base = ratio[rows], examples.base[rows]
    pairs = np.unique([examples.pair[row] for row in rows], return_inverse=True)[1]
    count = np.bincount(pairs)

    def loss(blend: StackingWeights) -> Floats:
        """Mean error of T/B of every pair."""
        return np.bincount(pairs, np.abs(measured - base * np.exp(stacked(parts, effects, blend)))) / count

    shares = (0.0, 0.5, 1.0) if effects.any() else (0.0,)
    blends = [StackingWeights(members, share) for members in _weight_grid() for share in shares]
    losses = np.stack([loss(blend) for blend in blends])
    best = int(np.argmin(np.round(losses.mean(axis=1), 6)))
    if blends[best].prior_only:
        return blends[best]
    worse = losses - losses[best]
    noise = worse.std(axis=1) / np.sqrt(len(count))
    _, first = np.unique(np.round(losses.mean(axis=1), 6), return_index=True)  # of ties, the one closest to the prior
    equal = [blends[number] for number in first if worse[number].mean() <= noise[number]]
    mean = StackingWeights(
        tuple(float(part) for part in np.mean([blend.base_learners for blend in equal], axis=0)),
        float(np.mean([blend.effects for blend in equal])),
    )
    return mean if loss(mean).mean() <= losses[0].mean() else blends[best]
