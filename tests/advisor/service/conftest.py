"""An Advisor on a fresh database, with a clock that tests turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import models.learning.artifact
from advisor.service import Advisor
from advisor.settings import Settings
from tests.advisor.service.service_clock import Clock
from tests.advisor.service.two_models import CLOUD, Sure, use
from tests.servers.fixtures import sqlite_with_tables


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real artifact that passes the gate, outside of any service's model folder."""
    from tests.models.made_models import fitted, make

    return make(fitted(), tmp_path_factory.mktemp("made"), fitted().name)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    database = sqlite_with_tables(tmp_path / "cotenant.sqlite3")
    return Settings(database=database, state_dir=tmp_path, fresh_s=3600, reserve_s=60)


@pytest.fixture
def advisor(settings: Settings, clock: Clock) -> Iterator[Advisor]:
    with Advisor(settings, clock=clock) as advisor:
        yield advisor


@pytest.fixture(autouse=True)
def _trials_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes seconds to start, and knows none of the fakes here; tests/models has the real trial."""
    monkeypatch.setattr("advisor.prediction.active.try_out", lambda path: None)


@pytest.fixture
def cloud(advisor: Advisor) -> None:
    """The small cloud of `two_models`."""
    advisor.inventory.put(CLOUD, mode="replace", generation=None)


@pytest.fixture
def two(advisor: Advisor, cloud: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """m-1 (0.8) answers on it, m-2 (0.6) is its shadow."""
    loaded = {"m-1": Sure("m-1"), "m-2": Sure("m-2", 0.6)}
    monkeypatch.setattr(models.learning.artifact, "load", lambda path: loaded[Path(path).name])
    use(advisor, active="m-1", shadow="m-2")
