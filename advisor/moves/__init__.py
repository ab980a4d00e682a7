"""Carries moves of a plan out in another system: the one part of the advisor that changes something elsewhere."""

from advisor.moves.outcome import MoveOutcome, Mover, Standing
from advisor.moves.systems import MOVERS, open_mover

__all__ = ["MOVERS", "MoveOutcome", "Mover", "Standing", "open_mover"]
