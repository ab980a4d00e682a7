"""Commands for control groups: of the version that the host's agent reports, in the group that the instance's has."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from profiler.demand import Demand
from profiler.observed import Instance
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database=sqlite_with_tables(tmp_path / "groups.sqlite3"), state_dir=tmp_path)


@pytest.fixture
def cloud(settings: Settings) -> Iterator[Advisor]:
    with Advisor(settings) as advisor:
        yield advisor


def _announce(client: Client, version: str) -> None:
    """A host whose `shop` and two others want more CPUs than it has."""
    names = ("shop", "crawler", "encoder")
    reported = {
        "host": {
            "id": "box", "kind": "lxc", "pcpus": 4, "memory_mb": 65_536,
            "labels": {"cgroup_version": version},
        },
        "instances": [
            {"id": name, "vcpus": 4, "memory_mb": 64, "labels": {"cgroup": f"pods/{name}-7f"}} for name in names
        ],
        "machine": "m", "time": datetime.now(UTC).isoformat(),
    }  # fmt: skip
    assert client.ask("POST", "/v1/announcements", json=reported).status_code == 200


def _wanted(cloud: Advisor) -> None:
    for name in ("shop", "crawler", "encoder"):
        known = cloud.inventory.instance(name)
        busy = Demand(1.5 if name == "shop" else 3.9, windows=100.0, origin="given", open_loop=0.0)
        least = 0.9 if name == "shop" else None
        fields: dict[str, Any] = {"vcpus": 2 if name == "shop" else 4, "host": "box", "labels": known.labels}
        cloud.inventory.put_instance(Instance(name, demand={"cpu": busy}, min_throughput_ratio=least, **fields))


@pytest.mark.parametrize(("version", "key", "now"), [("1", "cpu.shares", 1024), ("2", "cpu.weight", 100)])
def test_a_known_instance_gets_commands_for_its_group_on_its_host(
    cloud: Advisor, settings: Settings, version: str, key: str, now: int
) -> None:
    client = Client(create_app(cloud, settings))
    _announce(client, "2" if version == "1" else "1")
    _announce(client, version)  # booted with the other version since
    assert cloud.inventory.host("box").labels["cgroup_version"] == version
    _wanted(cloud)
    asked = {"instance": {"id": "shop"}, "commands": True, "dry_run": True}
    (candidate,) = client.ask("POST", "/v1/placements", json=asked).json()["candidates"]
    (command,) = [one for one in candidate["commands"] if any(key in part for part in one["argv"])]
    assert command["argv"][-1] == command["undo"][-1] == "pods/shop-7f"
    assert f"{key}={now}" in command["undo"]
    assert int(command["argv"][2].removeprefix(f"{key}=")) > now
