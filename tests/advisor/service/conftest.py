"""An Advisor on a fresh database, with a clock that tests turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service_clock import Clock

from advisor.service import Advisor
from advisor.settings import Settings


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        database=f"sqlite:///{tmp_path / 'cotenant.sqlite3'}", state_dir=tmp_path, fresh_s=3600, reserve_s=60
    )


@pytest.fixture
def advisor(settings: Settings, clock: Clock) -> Iterator[Advisor]:
    with Advisor(settings, clock=clock) as advisor:
        yield advisor
