"""Who goes where in a whole cloud: the search over hosts that the full model predicted, with its bound; no I/O."""

from advisor.planning.assignment.assign import assign
from advisor.planning.assignment.goal import Assignment, Goal

__all__ = ["Assignment", "Goal", "assign"]
