"""Fixtures of a service without hosts, for the tests of packages beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import Host, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables

EQUAL_HOSTS = tuple(str(number) for number in range(6))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Those of a test; what the environment says does not count."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"COTENANT_{name.upper()}", raising=False)
    database = sqlite_with_tables(tmp_path / "db.sqlite3")
    return Settings(database=database, state_dir=tmp_path, max_body_mb=0.25, max_batch=20)


@pytest.fixture
def advisor(settings: Settings) -> Iterator[Advisor]:
    with Advisor(settings) as opened:
        yield opened


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    return Client(create_app(advisor, settings))


@pytest.fixture
def equal(advisor: Advisor) -> Advisor:
    """Six equal hosts with nothing on them, and the workload `busy`."""
    hosts = tuple(Host(name, "kvm", 1, 16_384.0) for name in EQUAL_HOSTS)
    busy = WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0})
    advisor.inventory.put(Inventory(hosts, (), (busy,)), mode="replace", generation=None)
    return advisor
