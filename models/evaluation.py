"""Errors of the model and of every baseline under each protocol, on the same folds; nothing is tuned here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.baselines import BASELINES
from models.dataset import DatasetError, load_dataset
from models.estimators import LEAST_ROWS, Fold, pair_folds, workload_folds
from models.examples import Examples, build_examples, metrics_of
from models.fitted import Estimate, fit_target
from models.prior import band, prior_spread

Floats = NDArray[np.float64]
Progress = Callable[[str, float], None]

INTERFERING = 1.10  # slowdown from which a row counts as interfering (contract, section 3)
RANDOM_FOLDS = 5
PROTOCOLS = ("random_row", "unseen_pair", "unseen_workload", "unseen_platform", "unseen_setting", "pairs_to_n")
DEFAULT_PROTOCOLS = ("unseen_pair", "unseen_workload")
LOWEST_COUNTED = 0.01  # T/B below this makes slowdown ratios meaningless; it is clipped there


def folds_of(examples: Examples, protocol: str) -> list[Fold]:
    """Which rows train and which are judged; DatasetError for a protocol that does not exist."""
    _check_protocol(protocol)
    rows = np.arange(len(examples))
    if protocol == "random_row":
        number = np.random.default_rng(0).permutation(len(examples)) % RANDOM_FOLDS
        return [(rows[number != fold], rows[number == fold]) for fold in range(RANDOM_FOLDS)]
    if protocol == "unseen_pair":
        return pair_folds(examples, seed=1, folds=min(10, len(set(examples.pair))))
    if protocol == "unseen_workload":
        return workload_folds(examples, most=len(examples.workloads))
    if protocol == "unseen_platform":
        return _left_out(examples.platform)
    if protocol == "unseen_setting":
        # whoever has it and however many there are: a run of three under the same pins is no new setting
        return _left_out([" ".join(sorted(set(setting.split(" ")))) for setting in examples.setting])
    return [(rows[examples.size <= 2], rows[examples.size > 2])]


def _check_protocol(protocol: str) -> None:
    if protocol not in PROTOCOLS:
        raise DatasetError(f"protocol {protocol!r} is none of {', '.join(PROTOCOLS)}")


def _left_out(labels: Sequence[str]) -> list[Fold]:
    column = np.array(labels)
    values = sorted(set(labels))
    if len(values) < 2:
        return []
    return [(np.flatnonzero(column != value), np.flatnonzero(column == value)) for value in values]


def evaluate(
    dataset: Path, protocols: Sequence[str] = DEFAULT_PROTOCOLS, progress: Progress | None = None
) -> dict[str, Any]:
    """Evaluate on one dataset; the result has the shape of contract.md section 3.

    A protocol that the dataset cannot answer (one platform, pairs only) says so under `skipped`.
    """
    say = progress or (lambda _what, _done: None)
    for protocol in protocols:
        _check_protocol(protocol)
    data = load_dataset(dataset)
    examples = build_examples([data], metrics_of([data]))
    if len(examples) < LEAST_ROWS:
        raise DatasetError(f"{data.name}: {len(examples)} measured throughput ratios, at least {LEAST_ROWS} are needed")
    result: dict[str, Any] = {"dataset": data.name, "origin": data.origin, "rows": len(examples), "protocols": {}}
    for number, protocol in enumerate(protocols):
        folds = [fold for fold in folds_of(examples, protocol) if len(fold[0]) >= LEAST_ROWS and len(fold[1])]
        if not folds:
            result["protocols"][protocol] = {"skipped": _why_skipped(protocol), "models": {}}
            continue

        def step(what: str, done: float, number: int = number) -> None:
            say(what, (number + done) / len(protocols))

        result["protocols"][protocol] = _run(examples, protocol, folds, step)
    say("done", 1.0)
    return result


def _why_skipped(protocol: str) -> str:
    return {
        "unseen_platform": "the dataset has one platform only",
        "unseen_setting": "the dataset has one setting only",
        "pairs_to_n": "the dataset has no run of three or more instances",
    }.get(protocol, "too few rows to train on")


def _run(examples: Examples, protocol: str, folds: Sequence[Fold], say: Progress) -> dict[str, Any]:
    judged = np.concatenate([fold[1] for fold in folds])
    guesses: dict[str, list[Floats]] = {name: [] for name in ("cotenant", "prior", *BASELINES)}
    edges: dict[str, list[tuple[Floats, Floats]]] = {"cotenant": [], "prior": []}
    for number, (trained, tested) in enumerate(folds):
        say(f"{protocol}: fold {number + 1} of {len(folds)}", number / len(folds))
        train, test = examples.take(trained), examples.take(tested)
        ours = predict_rows(train, test)
        guesses["cotenant"].append(ours.expected)
        edges["cotenant"].append((ours.lower, ours.upper))
        plain = band(test.base, prior_spread(test.base, np.zeros(len(test), dtype=bool)), 1.1)
        guesses["prior"].append(plain.expected)
        edges["prior"].append((plain.lower, plain.upper))
        for name, baseline in BASELINES.items():
            guesses[name].append(baseline(train, test))
    part = examples.take(judged)
    by_name = {name: np.concatenate(values) for name, values in guesses.items()}
    out: dict[str, Any] = {"rows": len(judged), "folds": len(folds), "models": {}}
    for name, guess in by_name.items():
        figures = errors(part, guess)
        if name in edges:
            lower = np.concatenate([one for one, _ in edges[name]])
            upper = np.concatenate([other for _, other in edges[name]])
            inside = (part.ratio >= lower) & (part.ratio <= upper)
            figures |= {"coverage": _round(inside.mean()), "interval_width": _round((upper - lower).mean())}
        else:
            figures |= {"coverage": None, "interval_width": None}
        out["models"][name] = figures
    if protocol == "unseen_workload":
        new = _left_out_workload(examples, folds)
        victim = np.array([one == two for one, two in zip(part.victim, new, strict=True)])
        for label, mask in (("unseen_victim", victim), ("unseen_neighbour", ~victim)):
            for name, guess in by_name.items():
                rows = np.flatnonzero(mask)
                out["models"][name][label] = errors(part.take(rows), guess[rows]) if len(rows) else None
    return out


def _left_out_workload(examples: Examples, folds: Sequence[Fold]) -> list[str]:
    """For every judged row the workload that its fold left out: the one in all of its runs (others may miss too)."""
    found: list[str] = []
    for trained, tested in folds:
        test = examples.take(tested)
        missing = sorted(set(test.workloads) - set(examples.take(trained).workloads))
        found += [next((one for one in missing if test.involves(one).all()), "")] * len(tested)
    return found


def predict_rows(train: Examples, test: Examples) -> Estimate:
    """Our whole method fitted on `train` and asked about `test`."""
    target = fit_target(train, "throughput")
    known = target.model.all_known(test.victim, test.neighbours)
    correction = target.model.log_correction(test.x, test.victim, test.neighbours)
    return target.estimate(test.x, test.base, correction, known, test.size)


def errors(examples: Examples, guess: Floats) -> dict[str, Any]:
    """Errors of T/B and of slowdown B/T; `pair_ranking_accuracy` is over pairs of rows of one victim (see there)."""
    measured = examples.ratio
    off = np.abs(measured - guess)
    slow, slow_guess = 1 / np.clip(measured, LOWEST_COUNTED, None), 1 / np.clip(guess, LOWEST_COUNTED, None)
    slow_off = np.abs(slow - slow_guess) / slow
    interfering = slow > INTERFERING
    return {
        "mape": _round((off / np.clip(measured, LOWEST_COUNTED, None)).mean()),
        "mae": _round(off.mean()),
        "p90_abs_error": _round(np.quantile(off, 0.9)),
        "spearman": _spearman(measured, guess),
        "pair_ranking_accuracy": pair_ranking_accuracy(examples, guess),
        "mape_slowdown": _round(slow_off.mean()),
        "mape_interfering": _round(slow_off[interfering].mean()) if interfering.any() else None,
    }


def _spearman(measured: Floats, guess: Floats) -> float | None:
    from scipy.stats import spearmanr

    if len(measured) < 3 or np.ptp(measured) == 0 or np.ptp(guess) == 0:
        return None
    return _round(spearmanr(measured, guess).statistic)


def pair_ranking_accuracy(examples: Examples, guess: Floats) -> float | None:
    """Of two neighbours of the same victim in the same setting, how often the right one is said to hurt less.

    Counted where the measured means differ by more than twice their joint standard error (by more than 2 % where
    nothing was repeated). Equal guesses count half.
    """
    groups: dict[tuple[str, str, str], dict[tuple[str, ...], list[int]]] = {}
    for row in range(len(examples)):
        around = tuple(sorted(one.workload for one in examples.neighbours[row]))
        key = (examples.victim[row], examples.platform[row], examples.setting[row])
        groups.setdefault(key, {}).setdefault(around, []).append(row)
    right = total = 0.0
    for by_neighbours in groups.values():
        means = [
            (examples.ratio[rows].mean(), _standard_error(examples.ratio[rows]), guess[rows].mean())
            for rows in by_neighbours.values()
        ]
        for one in range(len(means)):
            for other in range(one):
                gap = means[one][0] - means[other][0]
                if abs(gap) <= 2 * np.hypot(means[one][1], means[other][1]):
                    continue
                said = means[one][2] - means[other][2]
                right += 0.5 if said == 0 else float((said > 0) == (gap > 0))
                total += 1
    return _round(right / total) if total else None


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.01


def _round(value: Any) -> float:
    return round(float(value), 5)
