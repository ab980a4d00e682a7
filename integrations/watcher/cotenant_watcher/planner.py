"""A planner that runs the moves of a plan stage by stage."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import networkx as nx
from watcher.decision_engine.planner import weight


class CotenantStages(weight.WeightPlanner):
    """Actions of one stage may run together; each waits for all of the stage before.

    Watcher's own planners cut the list of moves into pairs, or give it no order at all. Then moves may run together
    that Cotenant has not checked together: capacity may be missing in between, or a limit may break.
    """

    def schedule(self, context: Any, audit_id: int, solution: Any) -> Any:
        """The action plan in Watcher's database."""
        self._stages = [move.stage for move in solution.strategy.planned.moves]
        return super().schedule(context, audit_id, solution)

    def compute_action_graph(self, sorted_weighted_actions: Any) -> nx.DiGraph:
        """The actions as a graph; the parents of each are all actions of the stage before."""
        actions = [action for _, group in sorted_weighted_actions for action in group]
        stages: dict[int, list[Any]] = {}
        for stage, action in zip(self._stages, actions, strict=True):
            stages.setdefault(stage, []).append(action)
        graph = nx.DiGraph()
        graph.add_nodes_from(actions)
        ordered = [stages[stage] for stage in sorted(stages)]
        for before, after in pairwise(ordered):
            for action in after:
                action.parents.extend(parent.uuid for parent in before)
                graph.add_edges_from((parent, action) for parent in before)
        return graph
