"""What is particular to known workloads: shrunken victim, aggressor and pair effects on the log ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from models.examples import Neighbour

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PENALTIES = (0.5, 2.0, 8.0, 32.0)  # in rows: with 2, ten rows of one workload count ten twelfths
PAIR_PENALTY = 1.0


@dataclass(frozen=True, slots=True)
class Effects:
    """Additive effects on log(ratio), by name: `victim|near|web-1k`, `neighbour|far|cpu`, `pair|near|web-1k|cpu`.

    Near is the share of a neighbour's pCPUs that it may use together with the victim, far the rest. A ridge penalty
    shrinks what few rows support (best linear unbiased prediction with equal variances), so that workloads
    measured in no, one or many pairs get steadily better.
    """

    values: dict[str, float] = field(default_factory=dict)

    def predict(self, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> Floats:
        """Sum of the effects of each row, 0 where nothing is known; (R,)."""
        return np.array(
            [
                sum(self.values.get(name, 0.0) * share for name, share in _terms(victim, around, pairs=True))
                for victim, around in zip(victims, neighbours, strict=True)
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dict(sorted(self.values.items()))


def fit_main(
    victims: Sequence[str],
    neighbours: Sequence[Sequence[Neighbour]],
    residual: Floats,
    folds: Sequence[tuple[Ints, Ints]],
) -> Effects:
    """Victim and aggressor effects from residuals of log ratio (R,).

    The penalty is the one that predicts left-out folds best; where no penalty beats none at all there are no effects.
    """

    def fit_on(rows: Ints, penalty: float) -> Effects:
        return _fit([victims[row] for row in rows], [neighbours[row] for row in rows], residual[rows], False, penalty)

    losses: dict[float | None, float] = {None: float(sum(np.abs(residual[judged]).sum() for _, judged in folds))}
    for penalty in PENALTIES:
        loss = 0.0
        for trained, judged in folds:
            guess = fit_on(trained, penalty).predict(
                [victims[row] for row in judged], [neighbours[row] for row in judged]
            )
            loss += float(np.abs(residual[judged] - guess).sum())
        losses[penalty] = loss
    best = min(losses, key=lambda penalty: losses[penalty])
    return Effects() if best is None else fit_on(np.arange(len(residual)), best)


def fit_pairs(victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]], residual: Floats) -> Effects:
    """Effects of ordered pairs that were measured, from what is left after everything else."""
    return _fit(victims, neighbours, residual, True, PAIR_PENALTY)


def joined(main: Effects, pairs: Effects) -> Effects:
    """Both sets of effects as one."""
    return Effects({**main.values, **pairs.values})


def _fit(
    victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]], residual: Floats, pairs: bool, penalty: float
) -> Effects:
    from scipy.sparse import csr_matrix

    columns: dict[str, int] = {}
    rows, positions, shares = [], [], []
    for row, (victim, around) in enumerate(zip(victims, neighbours, strict=True)):
        for name, share in _terms(victim, around, pairs=pairs):
            if name.startswith("pair|") == pairs:
                rows.append(row)
                positions.append(columns.setdefault(name, len(columns)))
                shares.append(share)
    if not columns:
        return Effects()
    design = csr_matrix((shares, (rows, positions)), shape=(len(residual), len(columns)))
    ridge = Ridge(alpha=penalty, fit_intercept=False, solver="sparse_cg", tol=1e-8).fit(design, residual)
    return Effects({name: float(ridge.coef_[position]) for name, position in columns.items()})


def _terms(victim: str, around: Sequence[Neighbour], *, pairs: bool) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for domain in ("near", "far"):
        shares = [(one.workload, one.overlap if domain == "near" else 1 - one.overlap) for one in around]
        total = sum(share for _, share in shares)
        if total > 0:
            found.append((f"victim|{domain}|{victim}", total))
        for workload, share in shares:
            if share > 0:
                found.append((f"neighbour|{domain}|{workload}", share))
                if pairs:
                    found.append((f"pair|{domain}|{victim}|{workload}", share))
    return found
