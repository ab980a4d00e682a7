"""Chooses pairs to measure next by value of information: simulates what knowing each would change in open decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from models.arrays import Bools, Floats, Ints

Cost = Callable[[Sequence[int], int], float]  # (pairs planned so far, one more) -> seconds that it adds
Progress = Callable[[str, float], None]
Ended = Literal["settled", "budget", "no gain"]

Z90 = 1.6448536269514722  # standard deviations from the median to either end of a 90 % interval
DRAWS = 512  # shares are good to 2 %
SETTLED = 0.05  # a choice that full knowledge would change in fewer of the draws is not worth measuring for
LEAST_GAIN = 5e-4  # of T/B: less is below what repeated measurements differ by
MOST_PAIRS = 10  # of a question that are weighed at a time: those that go with what full knowledge would gain
SURE = 2.0  # standard errors that a gain must be above 0, so that no noise of the simulation is measured


@dataclass(frozen=True, slots=True)
class UncertainRatios:
    """R uncertain ratios of one question, and the shared errors that they depend on.

    `expected`, `lower`, `upper` (R,) are median and 90 % interval, above 0. `errors` (E,) are positions among the
    errors that all questions share, each standard normal; `weights` (R, E) say how a ratio's error is made of them,
    with squares that sum to 1, or to 0 for a ratio that no probe says more about.
    """

    expected: Floats
    lower: Floats
    upper: Floats
    errors: Ints
    weights: Floats

    def at(self, error: Floats) -> Floats:
        """Ratios (..., R) at errors in standard deviations: -Z90 is `lower`, 0 `expected`, Z90 `upper`.

        Monotone, so that quantiles of errors are quantiles of ratios, also of those that remain once others are known.
        """
        below = np.log(self.expected / self.lower) / Z90
        above = np.log(np.maximum(self.upper / self.expected, 1.0)) / Z90
        return np.asarray(self.expected * np.exp(error * np.where(error < 0, below, above)))

    def known(self, drawn: Floats, known: Bools) -> tuple[Floats, Floats]:
        """Expected ratios and their lower ends, both (M, R), once the `known` (E,) errors are as `drawn` (M, E)."""
        error = drawn[:, known] @ self.weights[:, known].T
        left = np.sqrt(np.maximum(1 - (self.weights[:, known] ** 2).sum(axis=1), 0.0))
        return self.at(error), self.at(error - Z90 * left)


class UncertainQuestion(Protocol):
    """A choice among options by uncertain ratios."""

    @property
    def uncertain(self) -> UncertainRatios: ...

    def choose(self, expected: Floats, lower: Floats) -> Ints:
        """The option taken, (M,), by expected ratios and lower ends, both (M, R)."""

    def worth(self, ratios: Floats) -> Floats:
        """The true worth of each option, (M, options), given the true ratios (M, R)."""


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """What one measurement changes in one question: the most common change of option, and the share of draws with
    any."""

    question: int
    before: int
    after: int
    probability: float
    gain: float


@dataclass(frozen=True, slots=True)
class PlannedMeasurement:
    """A pair to measure, the share of draws in which it changes a decision, and its gain beyond the steps before."""

    pair: int
    seconds: float
    probability: float
    gain: float
    turns: tuple[DecisionChange, ...]


@dataclass(frozen=True, slots=True)
class DecisionDoubt:
    """Of every question (Q,): the option taken now, how probably full knowledge of all pairs would take another one,
    and what that would gain, the expected regret, before and after the plan."""

    choice: Ints
    probability_before: Floats
    probability_after: Floats
    regret_before: Floats
    regret_after: Floats


@dataclass(frozen=True, slots=True)
class MeasurementPlan:
    """The measurements in order, the doubt about each question, and why the plan ends."""

    steps: tuple[PlannedMeasurement, ...]
    doubt: DecisionDoubt
    ended: Ended


def plan(
    questions: Sequence[UncertainQuestion],
    pair_of: Ints,
    cost: Cost,
    budget_s: float,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Progress | None = None,
) -> MeasurementPlan:
    """Choose pairs greedily by gain per second until every choice is settled or the budget is spent.

    `pair_of` (errors,) is which measurement reveals each error, -1 = none. A gain is how much better, by its true
    worth, the option is that is taken with the pair known than the one taken without: the part of the expected regret
    that the measurement removes. It is computed anew after every pick, with the same draws for all pairs and steps.
    Where no pair alone gains anything, the pair is taken whose gain is highest when all others are known; steps at the
    end that gained nothing are dropped. The same input and seed give the same plan.
    """
    drawn = _draw(seed, draws, len(pair_of))
    tables = [_Table(question, drawn, pair_of) for question in questions]
    before = _doubt(tables)
    done: list[PlannedMeasurement] = []
    left, ended = budget_s, "settled"
    while open_tables := [at for at, table in enumerate(tables) if table.doubt()[0] >= SETTLED]:
        if progress:
            progress("weighing measurements", 1 - max(left, 0.0) / budget_s)
        picked = [step.pair for step in done]
        candidates = sorted({pair for at in open_tables for pair in tables[at].likely})
        seconds = {pair: cost(picked, pair) for pair in candidates}
        worth = _worthwhile(tables, open_tables, candidates)
        affordable = [pair for pair in worth if seconds[pair] <= left]
        if not affordable:
            ended = "budget" if worth else "no gain"
            break
        best = max(affordable, key=lambda pair: (worth[pair] / seconds[pair], -pair))
        done.append(_step(tables, open_tables, best, seconds[best]))
        left -= seconds[best]
        for table in tables:
            table.learn(best)
    steps = _without_idle_end(done)
    for table in tables:
        table.know([step.pair for step in steps])
    after = _doubt(tables)
    return MeasurementPlan(
        steps,
        DecisionDoubt(
            np.array([table.today for table in tables], dtype=np.int64), before[0], after[0], before[1], after[1]
        ),
        ended,  # type: ignore[arg-type]
    )


def _draw(seed: int, draws: int, errors: int) -> Floats:
    """Antithetic standard normal errors, (draws, errors): half of them are the negatives of the others; their mean is
    0."""
    half = np.random.default_rng(seed).standard_normal(((draws + 1) // 2, errors))
    return np.concatenate([half, -half])[:draws]


class _Table:
    """One question over all draws: the true worth of its options, and the choice once some pairs are known.

    `likely` are the pairs that are worth a look: of those it depends on that are unknown and can be measured, the
    MOST_PAIRS most likely to matter.
    """

    def __init__(self, question: UncertainQuestion, drawn: Floats, pair_of: Ints) -> None:
        self._question = question
        self._uncertain = question.uncertain
        self._drawn = drawn[:, self._uncertain.errors]
        self._pair_of = pair_of[self._uncertain.errors]
        self._rows = np.arange(len(drawn))
        self._worth = question.worth(self._uncertain.at(self._drawn @ self._uncertain.weights.T))
        self._cache: dict[tuple[int, bool], tuple[float, float]] = {}
        self._full = self._choices(self._pair_of >= 0)
        self.know([])
        self.today = int(self.choice[0])  # nothing is known yet: the same in every draw

    def know(self, pairs: Sequence[int]) -> None:
        """Start again with only these pairs known."""
        self._known = np.isin(self._pair_of, pairs)
        self._settle()

    def learn(self, pair: int) -> None:
        if pair in self._pair_of:
            self._known = self._known | (self._pair_of == pair)
            self._settle()

    def doubt(self) -> tuple[float, float]:
        """The probability that full knowledge would change the choice, and its expected gain."""
        return float((self._full != self.choice).mean()), float((self._of(self._full) - self._of(self.choice)).mean())

    def with_pair(self, pair: int) -> Ints:
        """The choices (M,) with this pair known as well."""
        return self._choices(self._known | (self._pair_of == pair))

    def gain(self, pair: int, *, last: bool) -> tuple[float, float]:
        """Mean and variance over draws of the gain of knowing the pair now or, with `last`, after all others."""
        if pair not in self.likely:
            return 0.0, 0.0
        if (pair, last) not in self._cache:
            if last:
                rest = (self._pair_of >= 0) & (self._pair_of != pair)
                gained = self._of(self._full) - self._of(self._choices(rest))
            else:
                gained = self._of(self.with_pair(pair)) - self._of(self.choice)
            self._cache[pair, last] = float(gained.mean()), float(gained.var())
        return self._cache[pair, last]

    def _settle(self) -> None:
        self._cache.clear()
        self.choice = self._choices(self._known)
        self.likely = self._likeliest()

    def _likeliest(self) -> set[int]:
        """Pairs whose errors correlate most (over draws) with the gain of full knowledge."""
        unknown = np.flatnonzero(~self._known & (self._pair_of >= 0))
        gained = self._of(self._full) - self._of(self.choice)
        strength: dict[int, float] = {}
        for at, value in zip(unknown, np.abs((gained - gained.mean()) @ self._drawn[:, unknown]), strict=True):
            pair = int(self._pair_of[at])
            strength[pair] = max(strength.get(pair, 0.0), float(value))
        return set(sorted(strength, key=lambda pair: (-strength[pair], pair))[:MOST_PAIRS])

    def _choices(self, known: Bools) -> Ints:
        return self._question.choose(*self._uncertain.known(self._drawn, known))

    def _of(self, choice: Ints) -> Floats:
        return np.asarray(self._worth[self._rows, choice])

    def turn(self, number: int, pair: int) -> tuple[DecisionChange | None, Bools]:
        """What knowing the pair changes here, None for nothing, and in which draws (M,)."""
        after = self.with_pair(pair) if pair in self.likely else self.choice
        changed = after != self.choice
        if not changed.any():
            return None, changed
        changes, counts = np.unique(np.stack([self.choice, after])[:, changed], axis=1, return_counts=True)
        now, then = changes[:, counts.argmax()].tolist()
        return DecisionChange(number, now, then, float(changed.mean()), self.gain(pair, last=False)[0]), changed


def _worthwhile(tables: Sequence[_Table], open_tables: Sequence[int], candidates: Sequence[int]) -> dict[int, float]:
    """Pairs with a significant gain, by themselves or, where none has one, as the last unknown pair; with the gain."""
    draws = len(tables[0].choice)
    for last in (False, True):
        found = {}
        for pair in candidates:
            parts = [tables[at].gain(pair, last=last) for at in open_tables]
            mean, error = sum(part[0] for part in parts), np.sqrt(sum(part[1] for part in parts) / draws)
            if mean > max(LEAST_GAIN, SURE * error):
                found[pair] = mean
        if found:
            return found
    return {}


def _step(tables: Sequence[_Table], open_tables: Sequence[int], pair: int, seconds: float) -> PlannedMeasurement:
    found = [tables[at].turn(at, pair) for at in open_tables]
    turned = np.any([changed for _, changed in found], axis=0)
    turns = sorted((turn for turn, _ in found if turn), key=lambda turn: (-turn.gain, turn.question))
    gain = sum(tables[at].gain(pair, last=False)[0] for at in open_tables)
    return PlannedMeasurement(pair, seconds, float(turned.mean()), gain, tuple(turns))


def _without_idle_end(steps: Sequence[PlannedMeasurement]) -> tuple[PlannedMeasurement, ...]:
    """The steps up to the highest total gain; later steps gained nothing."""
    total = np.cumsum([0.0, *(step.gain for step in steps)])
    return tuple(steps[: int(total.argmax())])


def _doubt(tables: Sequence[_Table]) -> tuple[Floats, Floats]:
    pairs = np.array([table.doubt() for table in tables]).reshape(len(tables), 2)
    return pairs[:, 0], pairs[:, 1]
