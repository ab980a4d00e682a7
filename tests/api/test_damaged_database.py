"""Where a disk has damaged the database, answers and commands say so, and what to do; none is an internal error."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.errors import StorageDamaged
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import ROUTES, create_app
from tests.api import cli_runs
from tests.api.api_client import Client
from tests.api.conftest import CLOUD
from tests.servers.fixtures import sqlite_with_cloud

PAGE = 4096
SENT = {"host": "h1", "instance": "shop-3", "workload": "batch", "version": "analytic"}
PATHS = [
    re.sub(r"\{(\w+)\}", lambda found: SENT.get(found[1], "x"), route.path)
    for route in ROUTES
    if route.method == "GET" and route.path != "/v1/events"
]


def garbage(page: bytearray, rng: random.Random) -> None:
    """As a lost write leaves it."""
    page[:] = rng.randbytes(len(page))


def flipped_bytes(page: bytearray, rng: random.Random) -> None:
    for _ in range(40):
        page[rng.randrange(len(page))] = rng.randrange(256)


def other_letters(page: bytearray, rng: random.Random) -> None:
    """What SQLite itself does not notice: text that is no JSON, no time and no number any more."""
    for at in range(0, len(page), 7):
        if 32 <= page[at] < 127:
            page[at] = rng.randrange(33, 126)


def _damaged(settings: Settings, damage: Callable[[bytearray, random.Random], None], first: int, seed: int) -> None:
    file = Path(settings.database.removeprefix("sqlite:///"))
    data, rng = bytearray(file.read_bytes()), random.Random(seed)
    pages = len(data) // PAGE
    for at in rng.sample(range(first, pages), (pages - first) // 2):
        page = data[at * PAGE : (at + 1) * PAGE]
        damage(page, rng)
        data[at * PAGE : (at + 1) * PAGE] = page
    file.write_bytes(data)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(database=sqlite_with_cloud(tmp_path / "db.sqlite3", CLOUD), state_dir=tmp_path)


@pytest.mark.parametrize("damage", [garbage, flipped_bytes, other_letters])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_answer_that_needs_a_damaged_page_says_that_the_database_is_damaged(
    settings: Settings, damage: Callable[[bytearray, random.Random], None], seed: int
) -> None:
    _damaged(settings, damage, 12, seed)  # the pages before hold the tables' own descriptions
    try:
        advisor = Advisor(settings)
    except StorageDamaged:
        return
    with advisor:
        client = Client(create_app(advisor, settings))
        answers = [client.get(path) for path in PATHS]
    codes = {answer.json()["code"] for answer in answers if answer.status_code >= 500}
    assert codes <= {"storage.damaged"}


def test_a_damaged_row_is_named_with_what_to_do(settings: Settings) -> None:
    file = Path(settings.database.removeprefix("sqlite:///"))
    whole = file.read_bytes()
    assert whole.count(b'{"zone":"a"}') >= 2
    file.write_bytes(whole.replace(b'{"zone":"a"}', b'{"zone"~"a"}'))
    with Advisor(settings) as advisor:
        client = Client(create_app(advisor, settings))
        found, ready = client.get("/v1/hosts/h1"), client.get("/readyz")
        assert (found.status_code, found.json()["code"], ready.json()["code"]) == (503, *["storage.damaged"] * 2)
        assert "cotenant db restore" in found.json()["detail"]
        assert client.get("/v1/hosts/h3").status_code == 200


@pytest.mark.parametrize("command", [["doctor"], ["db", "prune"], ["token", "list"]])
def test_commands_say_it_without_a_traceback(settings: Settings, command: list[str]) -> None:
    _damaged(settings, garbage, 1, 3)
    found = cli_runs.run(*command, "--database", settings.database)
    assert found.exit_code != 0
    assert "is damaged" in found.stderr
    assert "db restore" in found.stderr
    assert "Traceback" not in found.stderr
