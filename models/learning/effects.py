"""Effects of known workloads on the log ratio: shrunken effects of victims, neighbours and pairs, and low-rank
factors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.features.examples import Neighbour
from models.learning.low_rank import START, FactorPair, FactorProducts, factorise

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

PENALTIES = (0.5, 2.0, 8.0, 32.0)  # in rows: with penalty 2, the mean of ten rows is shrunken to 10/12
PAIR_PENALTY = 1.0
RANKS, FACTOR_PENALTIES = (2, 3), (0.5, 1.0, 2.0, 4.0, 8.0)  # of residuals scaled to a mean square of 1
SWEEPS = 20
# Standard errors (over pairs) by which factors must improve the prediction to be used. On simulated noise for the
# workloads of three measured datasets they were used in 3, 3 and 7 of 100 cases; with one standard error in 7, 10, 23.
SURE_BY = 2.0
# Measured pairs needed per learned number. With four workloads in sixteen ordered pairs there were as many numbers as
# pairs, and intervals that covered 90 % of rows without factors covered 82 %.
PAIRS_PER_NUMBER = 2.0


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects on log(ratio) by name.

    `values` has names such as `victim|near|web-1k`, `neighbour|far|cpu` and `pair|near|web-1k|cpu`. `factors` has K
    numbers for each `victim|near|web-1k` and `neighbour|near|cpu`; their dot product is added for the pair, measured or
    not. "near" is weighted by the share of a neighbour's pCPUs that the victim may use too, "far" by the rest.

    A ridge penalty shrinks effects that few rows support (best linear unbiased prediction with equal variances).
    """

    values: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def predict(self, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> Floats:
        """The sum of the effects of each row, 0 for unknown workloads; (R,)."""
        return np.array(
            [
                sum(share * self._of(name) for name, share in _terms(victim, around))
                for victim, around in zip(victims, neighbours, strict=True)
            ],
            dtype=float,
        )

    def _of(self, name: str) -> float:
        """The effect of this name; for a pair, its factors' product is added."""
        value = self.values.get(name, 0.0)
        if not name.startswith("pair|"):
            return value
        left, right = (self.factors.get(side, ()) for side in _sides(name))
        return value + sum(one * other for one, other in zip(left, right, strict=False))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        factors = {name: list(numbers) for name, numbers in sorted(self.factors.items())}
        return {"values": dict(sorted(self.values.items())), "factors": factors}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Effects:
        """Inverse of `to_json`; KeyError, TypeError, AttributeError or ValueError on anything else."""
        made = cls(
            {str(name): float(effect) for name, effect in value["values"].items()},
            {str(name): tuple(float(number) for number in numbers) for name, numbers in value["factors"].items()},
        )
        if not np.isfinite([*made.values.values(), *chain.from_iterable(made.factors.values())]).all():
            raise ValueError("an effect is not a finite number")
        if len({len(numbers) for numbers in made.factors.values()}) > 1:
            raise ValueError("the factors of workloads differ in number")
        return made


@dataclass(frozen=True, slots=True)
class EffectDesign:
    """Design matrix of the effects: `shares` (R, E), sparse, is how much each effect of `names` (E,) acts on a row."""

    names: tuple[str, ...]
    shares: csr_matrix

    def fit(self, residual: Floats, penalty: float, rows: Ints | slice = slice(None)) -> Floats:
        """Fit the effects (E,) to the residuals (R,) of these rows by ridge regression."""
        if not self.names:
            return np.zeros(0)
        from sklearn.linear_model import Ridge  # which takes a second of CPU time, and only trainings need

        ridge = Ridge(alpha=penalty, fit_intercept=False, solver="sparse_cg", tol=1e-8)
        return np.asarray(ridge.fit(self.shares[rows], residual[rows]).coef_)

    def named(self, values: Floats) -> dict[str, float]:
        """The effects (E,) by name."""
        return dict(zip(self.names, values.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Regularisation:
    """The penalty of the main effects (None = no main effects), and rank (0 = no factors) and penalty of the
    factors."""

    main: float | None = None
    rank: int = 0
    factors: float = 0.0


@dataclass(frozen=True, slots=True)
class EffectTerms:
    """All effects that can act on R rows: main effects of victims and neighbours, effects of ordered pairs, and
    products of the factors that `victims` and `neighbours` name."""

    main: EffectDesign
    pairs: EffectDesign
    products: FactorProducts
    victims: tuple[str, ...]
    neighbours: tuple[str, ...]

    def predict_residual(self, residual: Floats, strength: Regularisation, rows: Ints) -> Floats:
        """Fit main effects and factors to the residuals (R,) of these rows, and predict the residuals of all rows;
        (R,)."""
        main = self.main.shares @ self.fit_main(residual, strength, rows)
        return np.asarray(main + self.products.predict(*self.fit_factors(residual - main, strength, rows)))

    def fit_main(self, residual: Floats, strength: Regularisation, rows: Ints) -> Floats:
        """Fit the main effects; (E,)."""
        if strength.main is None:
            return np.zeros(len(self.main.names))
        return self.main.fit(residual, strength.main, rows)

    def fit_factors(self, left: Floats, strength: Regularisation, rows: Ints) -> FactorPair:
        """Fit the victims' and the neighbours' factors to what the main effects leave (R,) of these rows."""
        scale = float(np.sqrt(np.mean(left[rows] ** 2))) if len(rows) else 0.0
        if not strength.rank or not scale:
            return np.zeros((len(self.victims), 0)), np.zeros((len(self.neighbours), 0))
        random = np.random.default_rng(0)
        start = [START * random.normal(size=(len(one), strength.rank)) for one in (self.victims, self.neighbours)]
        found = factorise(
            self.products.of_rows(rows), left / scale, (start[0], start[1]), strength.factors, sweeps=SWEEPS
        )
        return found[0] * np.sqrt(scale), found[1] * np.sqrt(scale)


def terms_of(victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> EffectTerms:
    """All effects that can act on rows with these victims and neighbours."""
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    entries: tuple[list[tuple[int, int, float]], list[tuple[int, int, float]]] = ([], [])
    for row, (victim, around) in enumerate(zip(victims, neighbours, strict=True)):
        for name, share in _terms(victim, around):
            which = int(name.startswith("pair|"))
            entries[which].append((row, numbers[which].setdefault(name, len(numbers[which])), share))
    from scipy.sparse import csr_matrix  # which predictions do without

    made, table = [], np.zeros((0, 3))
    for names, several in zip(numbers, entries, strict=True):
        table = np.array(several, dtype=float).reshape(-1, 3)
        at = (table[:, 0].astype(int), table[:, 1].astype(int))
        made.append(EffectDesign(tuple(names), csr_matrix((table[:, 2], at), shape=(len(victims), len(names)))))
    sides = [np.array(side, dtype=np.str_) for side in zip(*map(_sides, numbers[1]), strict=True)] or [
        np.zeros(0, "U1")
    ] * 2
    (left, of_left), (right, of_right) = (np.unique(side, return_inverse=True) for side in sides)
    of_row, pair = table[:, 0].astype(int), table[:, 1].astype(int)
    products = FactorProducts(len(victims), of_row, of_left[pair], of_right[pair], table[:, 2])
    return EffectTerms(made[0], made[1], products, tuple(left.tolist()), tuple(right.tolist()))


def choose_regularisation(
    terms: EffectTerms, residual: Floats, folds: Sequence[tuple[Ints, Ints]], pair: Sequence[str]
) -> tuple[Regularisation, tuple[Regularisation, ...]]:
    """Choose the regularisation that predicts left-out folds best: first of main effects, then of factors.

    Returns the choice, and the choice without each of the folds. The latter are used to predict the fold's own rows:
    otherwise intervals would cover these rows more often than new ones. Factors are used only with enough pairs
    (PAIRS_PER_NUMBER) and where they improve the prediction by SURE_BY standard errors over `pair` (R,). Rows whose
    residual (R,) is nan are ignored.
    """
    usable_rows = np.isfinite(residual)
    usable = [(train[usable_rows[train]], test[usable_rows[test]]) for train, test in folds]
    test = np.concatenate([np.zeros(0, dtype=np.int64), *(rows for train, rows in usable if len(train))])
    fold = np.repeat(np.arange(len(usable)), [len(rows) if len(train) else 0 for train, rows in usable])
    pairs = np.unique(np.array(pair, dtype=np.str_)[test], return_inverse=True)[1]
    losses: dict[Regularisation, Floats] = {}

    def errors(strength: Regularisation) -> Floats:
        """The absolute error of every test row."""
        if strength not in losses:
            left = [
                (residual - terms.predict_residual(residual, strength, train))[rows]
                for train, rows in usable
                if len(train)
            ]
            losses[strength] = np.abs(np.concatenate(left))
        return losses[strength]

    def choose(rows: Bools) -> Regularisation:
        if not rows.any():
            return Regularisation()
        mains = {one: float(errors(one)[rows].sum()) for one in (Regularisation(), *map(Regularisation, PENALTIES))}
        best = min(mains, key=lambda one: mains[one])
        sure = {best: mains[best]}
        at = np.unique(pairs[rows], return_inverse=True)[1]
        numbers = len(terms.victims) + len(terms.neighbours)
        for rank in (one for one in RANKS if len(terms.pairs.names) >= PAIRS_PER_NUMBER * one * numbers):
            for penalty in FACTOR_PENALTIES:
                one = replace(best, rank=rank, factors=penalty)
                gain = np.bincount(at, (errors(best) - errors(one))[rows]) / np.bincount(at)
                if gain.mean() > SURE_BY * gain.std() / np.sqrt(len(gain)):
                    sure[one] = float(errors(one)[rows].sum())
        return min(sure, key=lambda one: sure[one])

    return choose(np.ones(len(test), dtype=bool)), tuple(choose(fold != number) for number in range(len(folds)))


def fit_effects(terms: EffectTerms, residual: Floats, strength: Regularisation) -> Effects:
    """Fit main effects, then factors to what they leave, then effects of ordered pairs to the rest.

    Rows whose residual is nan are ignored.
    """
    rows = np.flatnonzero(np.isfinite(residual))
    if not len(rows):
        return Effects()
    main = terms.fit_main(residual, strength, rows)
    left = residual - terms.main.shares @ main
    factors = terms.fit_factors(left, strength, rows)
    pairs = terms.pairs.fit(left - terms.products.predict(*factors), PAIR_PENALTY, rows)
    named = zip((terms.victims, terms.neighbours), factors, strict=True)
    return Effects(
        (terms.main.named(main) if strength.main is not None else {}) | terms.pairs.named(pairs),
        {
            name: tuple(row.tolist())
            for names, matrix in named
            for name, row in zip(names, matrix, strict=True)
            if len(row)
        },
    )


def _sides(pair: str) -> tuple[str, str]:
    """The names of the two factors of a pair."""
    _, domain, victim, neighbour = pair.split("|")
    return f"victim|{domain}|{victim}", f"neighbour|{domain}|{neighbour}"


def _terms(victim: str, around: Sequence[Neighbour]) -> list[tuple[str, float]]:
    terms: list[tuple[str, float]] = []
    for domain in ("near", "far"):
        shares = [(one.workload, one.overlap if domain == "near" else 1 - one.overlap) for one in around]
        total = sum(share for _, share in shares)
        if total > 0:
            terms.append((f"victim|{domain}|{victim}", total))
        for workload, share in shares:
            if share > 0:
                terms.append((f"neighbour|{domain}|{workload}", share))
                terms.append((f"pair|{domain}|{victim}|{workload}", share))
    return terms
