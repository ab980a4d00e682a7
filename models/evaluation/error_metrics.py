"""Error metrics of T/B and of the slowdown B/T over test rows: overall, by label and by predicted value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from models.arrays import Bools, Floats
from models.evaluation.pairwise_ranking import PairwiseRanking
from models.features.examples import Examples

INTERFERING = 1.10  # slowdown from which a row counts as interfering (contract, section 3)
LOWEST_COUNTED = 0.01  # T/B below this makes slowdown ratios meaningless; it is clipped there
MOST_GROUPS = 200  # platforms beyond are not listed
PREDICTED_BINS = 8


def errors(examples: Examples, guess: Floats, ranking: PairwiseRanking | None = None) -> dict[str, Any]:
    """Errors of T/B and of slowdown B/T of `guess` (R,); None where a figure has no meaning.

    `ranking` can be passed to reuse it for several methods on the same rows.
    """
    measured = examples.ratio
    off, relative = absolute(measured, guess)
    slow, slow_guess = 1 / np.clip(measured, LOWEST_COUNTED, None), 1 / np.clip(guess, LOWEST_COUNTED, None)
    slow_off = np.abs(slow - slow_guess) / slow
    interfering = slow > INTERFERING
    return {
        "mape": rounded(relative.mean()),
        "mae": rounded(off.mean()),
        "p90_abs_error": rounded(np.quantile(off, 0.9)),
        "spearman": _spearman(measured, guess),
        "pair_ranking_accuracy": (ranking or PairwiseRanking.of(examples)).accuracy(guess),
        "mape_slowdown": rounded(slow_off.mean()),
        "mape_interfering": rounded(slow_off[interfering].mean()) if interfering.any() else None,
    }


def absolute(measured: Floats, guess: Floats) -> tuple[Floats, Floats]:
    """|error| of T/B, and as a share of what was measured; both (R,)."""
    off = np.abs(measured - guess)
    return off, off / np.clip(measured, LOWEST_COUNTED, None)


def by_label(
    labels: Sequence[str], measured: Floats, guess: Floats, base: Floats, inside: Bools
) -> list[dict[str, Any]]:
    """Error of `guess` and of the prior (`base`) and coverage for each label, the most rows first."""
    column = np.array(labels)
    names, counts = np.unique(column, return_counts=True)
    found = []
    for at in np.argsort(-counts, kind="stable")[:MOST_GROUPS]:
        rows = column == names[at]
        off, relative = absolute(measured[rows], guess[rows])
        found.append(
            {
                "label": str(names[at]),
                "rows": int(counts[at]),
                "mae": rounded(off.mean()),
                "mape": rounded(relative.mean()),
                "prior_mae": rounded(np.abs(measured[rows] - base[rows]).mean()),
                "coverage": rounded(inside[rows].mean()),
            }
        )
    return found


def by_predicted(measured: Floats, guess: Floats, inside: Bools) -> list[dict[str, Any]]:
    """Means of predicted and measured T/B and the coverage in bins of about equally many rows, by predicted value."""
    order = np.argsort(guess, kind="stable")
    parts = [part for part in np.array_split(order, min(PREDICTED_BINS, len(order))) if len(part)]
    return [
        {
            "predicted": rounded(guess[part].mean()),
            "measured": rounded(measured[part].mean()),
            "rows": len(part),
            "coverage": rounded(inside[part].mean()),
        }
        for part in parts
    ]


def _spearman(measured: Floats, guess: Floats) -> float | None:
    from scipy.stats import spearmanr

    if len(measured) < 3 or np.ptp(measured) == 0 or np.ptp(guess) == 0:
        return None
    return rounded(spearmanr(measured, guess).statistic)


def rounded(value: Any) -> float:
    """A number rounded to 5 decimals for JSON."""
    return round(float(value), 5)
