"""`cotenant history` with windows of seconds in place of minutes, so that a minute is a history."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry import monitoring_history
from profiler.demand import Demand, Resource
from tests.api import cli_runs
from tests.servers.prometheus import Prometheus

WINDOW_S, HISTORY_S = 10, 60


@dataclass(frozen=True, slots=True)
class Known:
    """What the command said, and what the inventory then knows; `end_s` is when its last window ended."""

    end_s: float
    said: Any
    demands: Mapping[str, Mapping[Resource, Demand]]


class ShortHistory:
    """Runs the command in a folder of its own, on an inventory of a host and some instances."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        patch.chdir(folder)
        (folder / "var").mkdir()
        patch.setattr(monitoring_history, "WINDOW_S", WINDOW_S)
        patch.setattr(monitoring_history, "ENOUGH", 4)

    def of(self, preset: str, store: Prometheus, *instances: Instance) -> Known:
        with Advisor(Settings()) as advisor:
            cloud = Inventory((Host("h1", "lxc", 16, 65536.0),), instances)
            advisor.inventory.put(cloud, mode="replace", generation=None)
        argv = ["history", preset, "--prometheus", store.url, "--since", "1m", "--json"]
        end_s = time.time() // WINDOW_S * WINDOW_S
        reported = cli_runs.run(*argv)
        assert reported.exit_code == 0, reported.stderr
        with Advisor(Settings()) as advisor:
            known = {one.id: advisor.inventory.instance(one.id).demand for one in instances}
        return Known(end_s, json.loads(reported.stdout), known)
