"""What is particular to known workloads: shrunken victim, aggressor and pair effects on the log ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
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
        if not self.values:
            return np.zeros(len(victims))
        return np.array(
            [
                sum(self.values.get(name, 0.0) * share for name, share in _terms(victim, around))
                for victim, around in zip(victims, neighbours, strict=True)
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return dict(sorted(self.values.items()))


@dataclass(frozen=True, slots=True)
class Design:
    """Which effects act on which rows: `names` (E,), `shares` (R, E) sparse."""

    names: tuple[str, ...]
    shares: csr_matrix

    def fit(self, residual: Floats, penalty: float, rows: Ints | slice = slice(None)) -> Floats:
        """The effects (E,) that explain the residuals (R,) of some rows, shrunken."""
        if not self.names:
            return np.zeros(0)
        ridge = Ridge(alpha=penalty, fit_intercept=False, solver="sparse_cg", tol=1e-8)
        return np.asarray(ridge.fit(self.shares[rows], residual[rows]).coef_)

    def named(self, values: Floats) -> dict[str, float]:
        """Effects by name."""
        return dict(zip(self.names, values.tolist(), strict=True))


def designs(victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> tuple[Design, Design]:
    """The main effects (victims and neighbours) and the pairs'."""
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    entries: tuple[list[tuple[int, int, float]], list[tuple[int, int, float]]] = ([], [])
    for row, (victim, around) in enumerate(zip(victims, neighbours, strict=True)):
        for name, share in _terms(victim, around):
            which = int(name.startswith("pair|"))
            entries[which].append((row, found[which].setdefault(name, len(found[which])), share))
    made = []
    for names, told in zip(found, entries, strict=True):
        cells = np.array(told, dtype=float).reshape(-1, 3)
        at = (cells[:, 0].astype(int), cells[:, 1].astype(int))
        made.append(Design(tuple(names), csr_matrix((cells[:, 2], at), shape=(len(victims), len(names)))))
    return made[0], made[1]


def choose_penalty(design: Design, residual: Floats, folds: Sequence[tuple[Ints, Ints]]) -> float | None:
    """The penalty that predicts left-out folds best; None where no effects at all predict better.

    Rows whose residual (R,) is nan are left out.
    """
    told = np.isfinite(residual)
    folds = [(trained[told[trained]], judged[told[judged]]) for trained, judged in folds]
    losses: dict[float | None, float] = {None: float(sum(np.abs(residual[judged]).sum() for _, judged in folds))}
    for penalty in PENALTIES:
        losses[penalty] = float(
            sum(
                np.abs(residual[judged] - design.shares[judged] @ design.fit(residual, penalty, trained)).sum()
                for trained, judged in folds
            )
        )
    return min(losses, key=lambda penalty: losses[penalty])


def fit_effects(main: Design, pairs: Design, residual: Floats, penalty: float | None) -> Effects:
    """Main effects at a penalty, and those of ordered pairs from what is left after them; rows of nan are left out."""
    told = np.flatnonzero(np.isfinite(residual))
    if not len(told):
        return Effects()
    if penalty is None:
        return Effects(pairs.named(pairs.fit(residual, PAIR_PENALTY, told)))
    values = main.fit(residual, penalty, told)
    left = residual - main.shares @ values
    return Effects(main.named(values) | pairs.named(pairs.fit(left, PAIR_PENALTY, told)))


def _terms(victim: str, around: Sequence[Neighbour]) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for domain in ("near", "far"):
        shares = [(one.workload, one.overlap if domain == "near" else 1 - one.overlap) for one in around]
        total = sum(share for _, share in shares)
        if total > 0:
            found.append((f"victim|{domain}|{victim}", total))
        for workload, share in shares:
            if share > 0:
                found.append((f"neighbour|{domain}|{workload}", share))
                found.append((f"pair|{domain}|{victim}|{workload}", share))
    return found
