"""From the agent to the real Cotenant API with its database: every sample stored once, strangers named."""

from __future__ import annotations

import io
import shutil
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import packs
from api.app import create_app
from profiler.agent.http_client import HttpClient, parse_url
from profiler.agent.loop import Agent, Log, Pace
from profiler.agent.push import Delivery, Pusher
from profiler.agent.spool import Spool
from profiler.collectors.windows import MetricWindow
from profiler.metrics import EIGHT
from profiler.observed import Host, Instance
from tests.profiler.steady_backend import SteadyBackend
from tests.servers.fixtures import sqlite_with_tables


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "api.sqlite3"


@pytest.fixture
def url(tmp_path: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The service on a free port, which knows host h1 and instance a."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"COTENANT_{name.upper()}", raising=False)
    settings = Settings(database=sqlite_with_tables(database), state_dir=tmp_path / "state")
    with Advisor(settings) as advisor, socket.create_server(("127.0.0.1", 0)) as listener:
        advisor.inventory.put_host(Host("h1", "lxc", 2, 1024))
        advisor.inventory.put_instance(Instance("a", host="h1"))
        app = create_app(advisor, settings)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


def windows(names: tuple[str, ...]) -> list[MetricWindow]:
    """The first three windows that a real agent makes of a steady host; beside other work some are too thin."""
    backend = SteadyBackend()
    backend.names = names
    made: list[MetricWindow] = []

    def keep(window: MetricWindow) -> None:
        made.append(window)
        if len(made) == 3:
            agent.stop()

    agent = Agent(backend, Pace(0.05, 0.5), keep, Log(io.StringIO()))
    agent.run()
    return made


def stored(database: Path) -> dict[tuple[str, str, str, float], list[float]]:
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select time_s, data from sample_packs").fetchall()
        series = {number: key for number, *key in connection.execute("select id, instance, scope, metric from series")}
    connection.close()
    found: dict[tuple[str, str, str, float], list[float]] = {}
    for time_s, data in rows:
        ids, (values,) = packs.unpack(data)
        for number, value in zip(ids.tolist(), values.tolist(), strict=True):
            found.setdefault((*series[number], time_s), []).append(value)
    return found


def drain(directory: Path, url: str) -> Pusher:
    log = Log(io.StringIO())
    spool, wire = Spool(directory, 10**9, log), HttpClient(parse_url(url), lambda: None, "test/1")
    pusher = Pusher(spool, wire, log)
    while (wait := pusher.step()) is not None:
        assert wait == 0, pusher.status()
    wire.close()
    spool.close()
    return pusher


def spooled(made: list[MetricWindow], directory: Path) -> Path:
    """The windows in a spool, as while the server is away."""
    log = Log(io.StringIO())
    unreachable = HttpClient(parse_url("http://127.0.0.1:1"), lambda: None, "test/1")
    delivery = Delivery(Spool(directory, 10**9, log), unreachable, log)
    for window in made:
        delivery.deliver(window)
    delivery.close(5)
    return directory


def test_samples_are_stored_exactly_once_though_every_batch_is_sent_twice(
    url: str, database: Path, tmp_path: Path
) -> None:
    made = windows(("a",))
    assert len(made) >= 3
    first = spooled(made, tmp_path / "spool")
    second = tmp_path / "copy"
    shutil.copytree(first, second)

    once = drain(first, url).status()
    assert (once.duplicate, sum(once.dropped.values()), once.refused) == (0, 0, 0)
    before = stored(database)
    twice = drain(second, url).status()
    assert (twice.accepted, twice.duplicate) == (0, once.accepted)
    after = stored(database)
    assert after == before
    assert all(len(values) == 1 for values in after.values())
    assert sum(map(len, after.values())) == once.accepted

    for window in made:
        end_s = round(window.end_s, 3)
        values = {key[:3]: value for key, (value,) in after.items() if abs(key[3] - end_s) < 0.002}
        expected = {(key[0] or "", *key[1:]): statistic for key, statistic in window.series.items()}
        eight = {metric.name for metric in EIGHT}
        assert len(values) == len(expected) + sum(key[2] in eight for key in expected)
        for key, statistic in expected.items():
            assert values[key] == pytest.approx(statistic.mean, rel=0.005, abs=0.5)
            if key[2] in eight:
                assert values[(*key[:2], f"{key[2]}_p95")] == pytest.approx(statistic.p95, rel=0.05, abs=0.5)


def test_samples_of_an_instance_that_the_server_does_not_know_are_counted_and_the_others_stored(
    url: str, database: Path, tmp_path: Path
) -> None:
    status = drain(spooled(windows(("a", "stranger")), tmp_path / "spool"), url).status()
    assert status.dropped["unknown_instance"] == sum(status.dropped.values()) > 0
    assert {key[0] for key in stored(database)} == {"", "a"}
