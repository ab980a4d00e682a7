"""Errors of the model and of every baseline under each protocol, on the same folds; nothing is tuned here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models.evaluation.baselines import BASELINES
    from models.evaluation.errors import INTERFERING, LOWEST_COUNTED, errors
    from models.evaluation.methods import METHODS, Guess, predict_rows
    from models.evaluation.protocols import DEFAULT_PROTOCOLS, PROTOCOLS, Fold, folds_of
    from models.evaluation.ranking import pair_ranking_accuracy
    from models.evaluation.run import Evaluation, Points, evaluate, examine
    from models.evaluation.table import average_ranks

__all__ = [
    "BASELINES",
    "DEFAULT_PROTOCOLS",
    "INTERFERING",
    "LOWEST_COUNTED",
    "METHODS",
    "PROTOCOLS",
    "Evaluation",
    "Fold",
    "Guess",
    "Points",
    "average_ranks",
    "errors",
    "evaluate",
    "examine",
    "folds_of",
    "pair_ranking_accuracy",
    "predict_rows",
]

# The baselines need scikit-learn, whose import takes a second; who reads only quality figures does not wait for it.
_HOME = {
    "BASELINES": "models.evaluation.baselines",
    "INTERFERING": "models.evaluation.errors",
    "LOWEST_COUNTED": "models.evaluation.errors",
    "errors": "models.evaluation.errors",
    "METHODS": "models.evaluation.methods",
    "Guess": "models.evaluation.methods",
    "predict_rows": "models.evaluation.methods",
    "DEFAULT_PROTOCOLS": "models.evaluation.protocols",
    "PROTOCOLS": "models.evaluation.protocols",
    "Fold": "models.evaluation.protocols",
    "folds_of": "models.evaluation.protocols",
    "pair_ranking_accuracy": "models.evaluation.ranking",
    "Evaluation": "models.evaluation.run",
    "Points": "models.evaluation.run",
    "evaluate": "models.evaluation.run",
    "examine": "models.evaluation.run",
    "average_ranks": "models.evaluation.table",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
