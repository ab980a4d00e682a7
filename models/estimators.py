"""The learned residual: gradient boosting on what the prior leaves unexplained, plus effects of known workloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import lightgbm
import numpy as np
from numpy.typing import NDArray

from models.effects import Effects, fit_main, fit_pairs, joined
from models.examples import Examples, Neighbour

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FOLDS = 5
MOST_FOLDS = 12  # leave-one-workload-out up to here, groups of workloads beyond
LEAST_ROWS = 8  # below this nothing is learned and the prior answers
TRUSTS = (0.0, 0.25, 0.5, 0.75, 1.0)
HIGHEST = {"throughput": 1.1, "latency": 1000.0}
LOWEST = {"throughput": 1e-3, "latency": 0.5}


@dataclass(frozen=True, slots=True)
class ResidualModel:
    """log ratio = log base + trust x (booster(x) + effects(workloads)); `trust_known` holds where all workloads of a
    scene were in training, else `trust_unknown`. `booster` None = the base alone."""

    booster: lightgbm.Booster | None
    effects: Effects
    trust_known: float
    trust_unknown: float
    known: frozenset[str]

    def log_correction(self, x: Floats, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> Floats:
        """What to add to the log of the base ratio; (R,)."""
        if self.booster is None or not len(x):
            return np.zeros(len(x))
        # one thread: on few rows the hand-over between threads costs more than the trees
        threads = 1 if len(x) < 2000 else 0
        learned = np.asarray(self.booster.predict(x, num_threads=threads)) + self.effects.predict(victims, neighbours)
        return learned * self.trust(self.all_known(victims, neighbours))

    def trust(self, known: Bools) -> Floats:
        """How much of the correction holds for each row; (R,)."""
        return np.where(known, self.trust_known, self.trust_unknown)

    def all_known(self, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> Bools:
        """Rows whose victim and neighbours were all in the training data; (R,)."""
        return np.array(
            [
                victim in self.known and all(one.workload in self.known for one in around)
                for victim, around in zip(victims, neighbours, strict=True)
            ],
            dtype=bool,
        )


NOTHING_LEARNED = ResidualModel(None, Effects(), 0.0, 0.0, frozenset())


def target_of(examples: Examples) -> Floats:
    """log(measured / base): what the residual model learns; (R,)."""
    return np.asarray(np.log(examples.ratio) - np.log(examples.base))


def fit(examples: Examples, *, seed: int = 0) -> ResidualModel:
    """Fit booster and effects; the effects learn from residuals of pairs that the booster had not seen."""
    if len(examples) < LEAST_ROWS:
        return NOTHING_LEARNED
    residual = target_of(examples)
    booster = fit_booster(examples.x, residual, seed=seed)
    folds = pair_folds(examples, seed)
    left_over = residual - out_of_fold(examples, residual, folds, seed)
    main = fit_main(examples.victim, examples.neighbours, left_over, folds)
    explained = np.asarray(booster.predict(examples.x)) + main.predict(examples.victim, examples.neighbours)
    pairs = fit_pairs(examples.victim, examples.neighbours, residual - explained)
    return ResidualModel(booster, joined(main, pairs), 1.0, 1.0, frozenset(examples.workloads))


def fit_booster(x: Floats, target: Floats, *, seed: int) -> lightgbm.Booster:
    """Gradient boosting with settings that follow from the number of rows alone, the same for every dataset."""
    rows = len(x)
    options = {
        "objective": "regression",
        "learning_rate": 0.05,
        "num_leaves": 7 if rows < 400 else 15 if rows < 4000 else 63,
        "min_data_in_leaf": max(3, min(20, rows // 30)),
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "verbosity": -1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1 if rows < 2000 else 0,
        "max_bin": 63 if rows < 4000 else 255,
        "min_data_in_bin": 1,
    }
    data = lightgbm.Dataset(x, target, params={"verbosity": -1, "max_bin": options["max_bin"], "min_data_in_bin": 1})
    return lightgbm.train(options, data, num_boost_round=150 if rows < 4000 else 400)


Fold = tuple[Ints, Ints]  # rows to train on, rows to judge


def pair_folds(examples: Examples, seed: int = 0, folds: int = FOLDS) -> list[Fold]:
    """Folds that keep all rows of one set of workloads, repeats and settings included, on one side."""
    pairs = sorted(set(examples.pair))
    order = np.random.default_rng(seed).permutation(len(pairs))
    fold_of = {pairs[pair]: number % folds for number, pair in enumerate(order)}
    number = np.array([fold_of[pair] for pair in examples.pair])
    return list(_by_number(number, folds))


def workload_folds(examples: Examples, most: int = MOST_FOLDS) -> list[Fold]:
    """Folds in which every run that contains one workload (or one of a group) is left out of training."""
    workloads = examples.workloads
    groups = [workloads[start::most] for start in range(min(most, len(workloads)))]
    folds: list[Fold] = []
    for group in groups:
        inside = np.zeros(len(examples), dtype=bool)
        for workload in group:
            inside |= examples.involves(workload)
        if inside.any() and not inside.all():
            folds.append((np.flatnonzero(~inside), np.flatnonzero(inside)))
    return folds


def _by_number(number: Ints, folds: int) -> Iterator[Fold]:
    for fold in range(folds):
        judged = np.flatnonzero(number == fold)
        trained = np.flatnonzero(number != fold)
        if len(judged) and len(trained):
            yield trained, judged


def out_of_fold(examples: Examples, target: Floats, folds: Sequence[Fold], seed: int) -> Floats:
    """The booster's prediction of every row by a booster that did not see its fold; 0 where no fold judges a row."""
    predicted = np.zeros(len(examples))
    for trained, judged in folds:
        booster = fit_booster(examples.x[trained], target[trained], seed=seed)
        predicted[judged] = np.asarray(booster.predict(examples.x[judged]))
    return predicted


@dataclass(frozen=True, slots=True)
class Judged:
    """Out-of-fold results: `row` (J,) examples, `error` (J,) measured minus predicted log ratio, `known` (J,)."""

    row: Ints
    error: Floats
    known: Bools


def judge(examples: Examples, folds: Sequence[Fold], *, seed: int = 0) -> Judged:
    """Fit on every fold's training rows, at full trust, and judge on the rest."""
    rows, errors, known = [], [], []
    residual = target_of(examples)
    for trained, judged in folds:
        model = fit(examples.take(trained), seed=seed)
        part = examples.take(judged)
        rows.append(judged)
        errors.append(residual[judged] - model.log_correction(part.x, part.victim, part.neighbours))
        known.append(model.all_known(part.victim, part.neighbours))
    if not rows:
        return Judged(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool))
    return Judged(np.concatenate(rows), np.concatenate(errors), np.concatenate(known))


def choose_trust(examples: Examples, judged: Judged, which: Bools, *, untested: float = 1.0) -> float:
    """How much of the correction to keep for the judged rows `which`, by the mean |error of T/B| it leaves.

    With error e = residual - c, a correction scaled by s leaves residual - s c. Every pair counts once, however often
    it was repeated. Ties go to the smaller s, so that the model is not worse than the prior on what it was judged on.
    Where no row was judged it is `untested`.
    """
    rows = judged.row[which]
    if not len(rows):
        return untested
    correction = target_of(examples)[rows] - judged.error[which]
    measured, base = examples.ratio[rows], examples.base[rows]
    pairs = np.unique([examples.pair[row] for row in rows], return_inverse=True)[1]
    count = np.bincount(pairs)
    losses = np.stack(
        [
            np.bincount(pairs, np.abs(measured - base * np.exp(trust * correction))) / count  # per pair: rows repeat
            for trust in TRUSTS
        ]
    )
    return TRUSTS[int(np.argmin(np.round(losses.mean(axis=1), 6)))]


def at_trust(examples: Examples, judged: Judged, known: float, unknown: float) -> Judged:
    """The same judgement with corrections scaled by the trust in known and in unknown workloads."""
    residual = target_of(examples)[judged.row]
    trust = np.where(judged.known, known, unknown)
    return replace(judged, error=residual - trust * (residual - judged.error))
