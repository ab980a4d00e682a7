"""Runs in the environment of Watcher: one strategy on a cluster that standard input describes; prints its actions.

Usage: python inside.py < QUESTION.json. The question: `strategy`, its `parameters`, the compute data `model` as
Watcher's own XML, `readings` by Watcher's name of the metric and by UUID, and a `seed` for strategies that draw hosts.
Nothing of Watcher is replaced but where it reads metrics and its model.
"""

import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from oslo_config import cfg
from oslo_log import log
from watcher import objects
from watcher.common import utils
from watcher.decision_engine.datasources import base
from watcher.decision_engine.loading import default as loading
from watcher.decision_engine.model.model_root import ModelRoot


class GivenReadings(base.DataSourceBase):
    """A datasource that answers with the readings of the question, whatever the period and the aggregate."""

    NAME = "told"

    def __init__(self, readings: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__()
        self._readings = readings

    def _statistic_aggregation(self, resource: Any = None, meter_name: str = "", **_: object) -> float:
        return self._readings[meter_name][resource.uuid]


def _getter(metric: str) -> Callable[..., float]:
    return lambda self, resource, *_, **__: float(self._readings[metric][resource.uuid])


for name in base.DataSourceBase.METRIC_MAP:
    setattr(GivenReadings, f"get_{name}", _getter(name))


def main() -> None:
    """Print `actions` and the CPU seconds that they took."""
    question = json.load(sys.stdin)
    log.register_options(cfg.CONF)
    cfg.CONF([], project="watcher", default_config_files=[])
    objects.register_all()
    random.seed(question["seed"])
    strategy = loading.DefaultStrategyLoader().load(question["strategy"], osc=None)
    strategy._compute_model = ModelRoot.from_xml(question["model"])
    strategy._datasource_backend = GivenReadings(question["readings"])
    parameters = question["parameters"]
    utils.StrictDefaultValidatingDraft4Validator(strategy.get_schema()).validate(parameters)
    strategy.input_parameters = utils.Struct(parameters)
    first = time.process_time()
    solution = strategy.execute()
    found = {"actions": solution.actions, "cpu_seconds": time.process_time() - first}
    json.dump(found, sys.stdout)


main()
