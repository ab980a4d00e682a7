"""Errors of the model and of every baseline under each protocol, on the same folds; nothing is tuned here."""

from __future__ import annotations

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
