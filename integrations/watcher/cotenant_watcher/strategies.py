"""Strategies that let Cotenant plan moves: so that every server keeps its limit, or so that hosts get free."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from oslo_log import log
from watcher.common import exception
from watcher.decision_engine.model import element
from watcher.decision_engine.strategy.strategies import base

from cotenant_watcher import settings
from cotenant_watcher.planned import NoPlan, Planned, plan

LOG = log.getLogger(__name__)
ACTIVE = element.InstanceState.ACTIVE.value
PARAMETERS = {
    "max_moves": {"type": "integer", "minimum": 0, "description": "most moves; without it, any number"},
    "keep_ratio": {
        "type": "number",
        "minimum": 0.01,
        "maximum": 1,
        "default": 0.8,
        "description": "lowest accepted part of the uncontended speed of servers without a limit of their own",
    },
    "time_limit_s": {
        "type": "number",
        "minimum": 0.1,
        "maximum": 3600,
        "default": 30,
        "description": "seconds that the search may take",
    },
    "at_once": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 2, "description": "moves in one stage"},
    "at_once_per_host": {
        "type": "integer",
        "minimum": 1,
        "maximum": 8,
        "default": 1,
        "description": "of them to or from one host; Nova runs one unless max_concurrent_live_migrations says more",
    },
}
# Watcher fills them in only where an audit gives no parameter at all.
DEFAULTS = {name: parameter["default"] for name, parameter in PARAMETERS.items() if "default" in parameter}


class CotenantStrategy(base.BaseStrategy):
    """What both strategies share: they ask about the audited part of the cloud and make the moves Watcher's actions."""

    KIND: ClassVar[Literal["rebalance", "consolidate"]]
    TITLE: ClassVar[str]

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self._planner = "cotenant_stages"
        self.planned = Planned((), ())

    @classmethod
    def get_display_name(cls) -> str:
        return cls.TITLE

    @classmethod
    def get_translatable_display_name(cls) -> str:
        return cls.TITLE

    @classmethod
    def get_config_opts(cls) -> list[Any]:
        """The strategies have no options: both ask the service of the group [cotenant], and no datasource."""
        return []

    @classmethod
    def get_schema(cls) -> dict[str, Any]:
        return {"properties": PARAMETERS, "additionalProperties": False}

    def pre_execute(self) -> None:
        self._pre_execute()

    def do_execute(self, audit: Any = None) -> None:
        """Ask and fill the solution. WatcherException says why there is no plan; the audit is then FAILED."""
        del audit
        model = self.compute_model
        nodes = {node.hostname: node for node in self.available_nodes()}
        servers = {
            server.uuid: (server, node.hostname)
            for node in nodes.values()
            for server in model.get_node_instances(node)
            if server.state == ACTIVE and not server.watcher_exclude and not server.locked
        }
        places = {uuid: host for uuid, (_, host) in servers.items()}
        try:
            with settings.client() as client:
                self.planned = plan(client, self.KIND, nodes, places, {**DEFAULTS, **self.input_parameters})
        except (NoPlan, ValueError) as error:
            raise exception.WatcherException(str(error)) from error
        for note in self.planned.notes:
            LOG.warning("%s: %s", self.name, note)
        for move in self.planned.moves:
            server, source, target = servers[move.instance][0], nodes[move.source], nodes[move.target]
            model.migrate_instance(server, source, target)
            self.add_action_migrate(server, "live", source, target)

    def post_execute(self) -> None:
        self.solution.model = self.compute_model

    def available_nodes(self) -> list[Any]:
        """The compute nodes that are up and enabled."""
        return [
            node
            for node in self.compute_model.get_all_compute_nodes().values()
            if node.state == element.ServiceState.ONLINE.value and node.status == element.ServiceState.ENABLED.value
        ]


class CotenantRebalance(CotenantStrategy):
    """The fewest moves that bring every server within its limit, then the moves that pay.

    Its goal is that no server suffers from neighbours, not that hosts are equally full, so it reports no deviation.
    """

    KIND = "rebalance"
    TITLE = "Cotenant: every server within its limit"

    @classmethod
    def get_name(cls) -> str:
        return "cotenant_rebalance"

    @classmethod
    def get_goal_name(cls) -> str:
        return "noisy_neighbor"


class CotenantConsolidation(CotenantStrategy):
    """The fewest hosts with every server within its limit. Hosts that get free stay enabled."""

    KIND = "consolidate"
    TITLE = "Cotenant: fewest hosts with every server within its limit"

    @classmethod
    def get_name(cls) -> str:
        return "cotenant_consolidation"

    @classmethod
    def get_goal_name(cls) -> str:
        return "server_consolidation"

    def post_execute(self) -> None:
        super().post_execute()
        nodes = self.available_nodes()
        sources = {move.source for move in self.planned.moves}
        empty = [node for node in nodes if node.hostname in sources and not self.compute_model.get_node_instances(node)]
        self.solution.set_efficacy_indicators(
            compute_nodes_count=len(nodes),
            released_compute_nodes_count=len(empty),
            instance_migrations_count=len(self.planned.moves),
        )
