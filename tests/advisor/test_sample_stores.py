"""One seam, three stores: the same samples in, the same windows, demand, CPU delivered and waits out."""

from __future__ import annotations

import io
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.errors import SeriesUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import samples as table
from profiler.agent.http_client import HttpClient, parse_url
from profiler.agent.loop import Log
from profiler.agent.push import Pusher
from profiler.agent.spool import SampleBatch, Spool
from profiler.agent.store_connection import StoreConnection
from profiler.collectors.samples import SampleRow
from profiler.metrics import WAITED_FOR
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.prometheus import prometheus
from tests.servers.running import NotInstalled
from tests.servers.victoria_metrics import VictoriaMetrics, victoria_metrics

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

MINUTES = 4 * 60
ON = {"shop": "h1", "cache": "h1", "calm": "h2"}
NAMES = (*ON, "mover")
CLOSE = 1e-9
LATE = {"storage": {"tsdb": {"out_of_order_time_window": "8d"}}}


@dataclass(frozen=True)
class Kept:
    """A service, its clock, and a way to make what was written readable at once."""

    advisor: Advisor
    clock: Clock
    flush: Callable[[], None]


def cloud(mover_on: str) -> Inventory:
    hosts = tuple(Host(name, "kvm", pcpus=8, memory_mb=65_536) for name in ("h1", "h2"))
    on = {**ON, "mover": mover_on}
    return Inventory(hosts, tuple(Instance(name, vcpus=2, memory_mb=2048, host=on[name]) for name in NAMES))


def minute(at: int, time_s: float) -> list[MetricSample]:
    """What the agents of both hosts send at the end of a minute: `mover` goes from h1 to h2 after half of the time."""
    noise = random.Random(at)
    mover_on = "h1" if at < MINUTES // 2 else "h2"
    sent: list[MetricSample] = []
    for host in ("h1", "h2"):
        there = [name for name in NAMES if (mover_on if name == "mover" else ON[name]) == host]
        used = 0.0
        for rank, name in enumerate(there):
            cpu = 40.0 + 30.0 * rank + 20.0 * math.sin(at / 20 + rank) + noise.random()
            used += cpu
            values = {
                "cpu": cpu,
                "cpu_p95": 1.5 * cpu,
                "waiting": 5.0 + 10.0 * noise.random(),
                "throttled": noise.random(),
            }
            values |= {"execution": 200.0, "net_mbit": 3.0 + noise.random(), "disk_mb_s": noise.random(), "psi_io": 2.0}
            values |= {"rss_mb": 500.0 + at, "swap_mb": 1.0, "waited_for_host": 1.0, "sessions.open": float(at % 7)}
            values |= {f"{WAITED_FOR}{other}": 3.0 for other in there if other != name}
            sent += [MetricSample(host, name, "instance", metric, value, time_s) for metric, value in values.items()]
        own = {"busy": used + 250.0, "switch": 9_000.0, "event": 100.0, "psi_memory": 0.5}
        sent += [MetricSample(host, None, "host", metric, value, time_s) for metric, value in own.items()]
        sent.append(MetricSample(host, None, "driver_domain", "cpu", 10.0 + noise.random(), time_s))
    return sent


def filled(folder: Path, now: datetime, flush: Callable[[], None], samples_url: str | None = None) -> Kept:
    """A service that took four hours of both hosts, in batches of ten minutes, one of them twice."""
    clock = Clock(now)
    database = sqlite_with_tables(folder / "cotenant.sqlite3")
    advisor = Advisor(Settings(database=database, state_dir=folder, samples_url=samples_url), clock=clock)
    advisor.inventory.put(cloud("h1"), mode="replace", generation=None)
    begin_s = now.timestamp() // 60 * 60 - 60 * MINUTES + 0.25
    for at in range(0, MINUTES, 10):
        if at == MINUTES // 2:
            advisor.inventory.put(cloud("h2"), mode="replace", generation=None)
        batch = [sample for one in range(at, at + 10) for sample in minute(one, begin_s + 60 * one)]
        answer = advisor.telemetry.ingest(batch)
        assert (answer["accepted"], answer["dropped"]) == (len(batch), ())
        if at == 50:
            assert advisor.telemetry.ingest(batch)["duplicate"] == len(batch)
    flush()
    return Kept(advisor, clock, flush)


@pytest.fixture(scope="module")
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, now: datetime) -> Iterator[Kept]:
    kept = filled(tmp_path_factory.mktemp("embedded"), now, lambda: None)
    with kept.advisor:
        yield kept


@pytest.fixture(scope="module", params=["victoria_metrics", "prometheus"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, now: datetime) -> Iterator[Kept]:
    with ExitStack() as stack:
        try:
            if request.param == "prometheus":
                url, flush = stack.enter_context(prometheus(LATE)).url, lambda: None
            else:
                server = stack.enter_context(victoria_metrics())
                url, flush = server.url, server.flush
        except NotInstalled as missing:
            pytest.skip(str(missing))
        kept = filled(tmp_path_factory.mktemp("other"), now, flush, samples_url=url)
        stack.enter_context(kept.advisor)
        yield kept


def batch_as_spooled(samples: Sequence[MetricSample]) -> SampleBatch:
    rows: dict[tuple[str | None, Any], dict[str, float]] = {}
    for sample in samples:
        rows.setdefault((sample.instance, sample.scope), {})[sample.metric] = sample.value
    time = datetime.fromtimestamp(samples[0].time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return SampleBatch(samples[0].host, time, tuple(SampleRow(*key, values) for key, values in rows.items()))


def plain(found: Any) -> Any:
    """Numbers and texts in dicts and lists, for pytest.approx does not go into dataclasses."""
    if isinstance(found, Mapping):
        return {str(key): plain(value) for key, value in found.items()}
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, list | tuple):
        return [plain(value) for value in found]
    return found


def alike(one: Any, other: Any, at: str = "") -> None:
    """Equal, numbers within a part in a billion, whichever is where it differs."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), at
        for key in one:
            alike(one[key], other[key], f"{at}.{key}")
    elif isinstance(one, list):
        assert len(one) == len(other), at
        for number, pair in enumerate(zip(one, other, strict=True)):
            alike(*pair, f"{at}[{number}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=CLOSE, abs=CLOSE), at
    else:
        assert one == other, at


def same(embedded: Kept, other: Kept, ask: Callable[[Kept], Any]) -> Any:
    first, second = plain(ask(embedded)), plain(ask(other))
    alike(first, second)
    return first


def test_the_database_keeps_the_last_hour_of_what_is_elsewhere(embedded: Kept, other: Kept) -> None:
    with embedded.advisor._transactions.read() as connection:
        everything = table.of_instance(connection, "shop")
    with other.advisor._transactions.read() as connection:
        kept = table.of_instance(connection, "shop")
    newest_s = everything[-1].time_s
    assert everything[0].time_s < newest_s - 3 * 3600
    assert kept == tuple(one for one in everything if one.time_s >= kept[0].time_s)
    assert newest_s - 3600 - 900 < kept[0].time_s <= newest_s - 3600 + 60


def test_demand_is_learned_alike(embedded: Kept, other: Kept) -> None:
    demand = same(
        embedded,
        other,
        lambda kept: {
            one.id: {name: asdict(known) for name, known in one.demand.items()}
            for one in kept.advisor.cloud.inventory().instances
        },
    )
    assert demand["shop"]["cpu"]["windows"] > 30
    checkup = same(embedded, other, lambda kept: asdict(kept.advisor.cloud.checkup()))
    assert [one["host"] for one in checkup["own_load"]] == ["h1", "h2"]
    assert checkup["measured_instances"] == len(NAMES)


@pytest.mark.parametrize("since", ["1h", "3h"])
def test_windows_and_cpu_delivered_are_alike(embedded: Kept, other: Kept, since: str) -> None:
    for name in NAMES:

        def obtained(kept: Kept, name: str = name) -> Any:
            return asdict(kept.advisor.telemetry.obtained(name, since=since))

        found = same(embedded, other, obtained)
        assert found["outcomes"][0]["metric"] == "cpu_share"


@pytest.mark.parametrize("since", ["1h", "4h"])
def test_drawings_are_alike(embedded: Kept, other: Kept, since: str) -> None:
    def drawn(kept: Kept) -> Any:
        series = [
            *kept.advisor.telemetry.histories(host="h1", since=since).found,
            *kept.advisor.telemetry.histories(instance="mover", since=since).found,
        ]
        return sorted([one.host, one.instance or "", one.metric, list(one.times), list(one.values)] for one in series)

    assert len(same(embedded, other, drawn)) > 10


def test_profiles_are_alike(embedded: Kept, other: Kept) -> None:
    found = same(embedded, other, lambda kept: asdict(kept.advisor.telemetry.profile("mover", since="24h")))
    assert found["phases"]
    longer = same(embedded, other, lambda kept: asdict(kept.advisor.telemetry.profile("shop", since="2d")))
    assert longer["phases"]


def test_waits_usage_and_memory_are_alike(embedded: Kept, other: Kept, now: datetime) -> None:
    slowing = same(embedded, other, lambda kept: asdict(kept.advisor.telemetry.slowing("h1", since="3h")))
    assert slowing["watched"] == ["cache", "shop"]
    assert slowing["found"]

    def lately(kept: Kept) -> Any:
        store = kept.advisor._transactions.samples
        with kept.advisor._transactions.read() as connection:
            span = now.timestamp() - 86_400, now.timestamp()
            used = store.usage(connection, NAMES, *span)
            window = store.host_window(
                connection, "h2", ("cpu", "waiting"), *(span[1] // 300 * 300 + at for at in (-600, -300))
            )
            return [
                {name: asdict(one) for name, one in used.items()},
                store.memory(connection, NAMES, *span),
                store.run_and_wait(connection, span[1] - 3600, span[1]),
                store.last_measured(connection),
                [sorted(window.ever), dict(window.counts), dict(window.means)],
            ]

    used, memory, *_, window = same(embedded, other, lately)
    assert used["shop"]["windows"] == MINUTES
    assert memory["calm"] == [500.0 + MINUTES - 1, 1.0]
    assert window[1] == {"calm": 5, "mover": 5}


def test_metrics_beside_the_agents_are_counted_for_each_host(embedded: Kept, other: Kept) -> None:
    def named(kept: Kept) -> Mapping[str, list[str]]:
        store = kept.advisor._transactions.samples
        with kept.advisor._transactions.read() as connection:
            names = store.metric_names(connection, ["h1", "h2"])
        return {host: sorted(name for name in of_host if "." in name) for host, of_host in names.items()}

    until_s = time.monotonic() + 60  # VictoriaMetrics keeps for seconds that there was none when it was asked first
    while (found := named(other)) != named(embedded) and time.monotonic() < until_s:
        time.sleep(1)
    assert found == {"h1": ["sessions.open"], "h2": ["sessions.open"]}


def test_a_store_that_is_away_takes_no_samples_and_questions_are_answered(tmp_path: Path, now: datetime) -> None:
    database = sqlite_with_tables(tmp_path / "cotenant.sqlite3")
    settings = Settings(database=database, state_dir=tmp_path, samples_url="http://127.0.0.1:1")
    with Advisor(settings, clock=Clock(now)) as advisor:
        advisor.inventory.put(cloud("h1"), mode="replace", generation=None)
        with pytest.raises(SeriesUnavailable, match=r"http://127\.0\.0\.1:1 does not answer"):
            advisor.telemetry.ingest(minute(0, now.timestamp()))
        assert len(advisor.cloud.inventory().instances) == len(NAMES)
        assert advisor.cloud.checkup().elsewhere
        assert advisor.telemetry.obtained("shop").elsewhere
        assert "does not answer" in advisor.telemetry.histories(host="h1").missing


def test_agents_may_write_to_the_store_themselves(tmp_path: Path, now: datetime) -> None:
    """The service then only learns from what they push, and reads what they wrote."""
    sent = [minute(at, now.timestamp() // 60 * 60 - 60 * (30 - at)) for at in range(30)]
    spool = Spool(tmp_path / "spool", 10**8, Log(io.StringIO()))
    with ExitStack() as stack:
        try:
            server = stack.enter_context(victoria_metrics())
        except NotInstalled as missing:
            pytest.skip(str(missing))
        written_by_agents(server, spool, sent)
        read_by_a_service(server, tmp_path, now, sent)


def written_by_agents(server: VictoriaMetrics, spool: Spool, sent: Sequence[Sequence[MetricSample]]) -> None:
    for batch in sent:
        for host in ("h1", "h2"):
            spool.put(batch_as_spooled([sample for sample in batch if sample.host == host]))
    spool.store()
    client = HttpClient(parse_url(f"{server.url}/api/v1/write"), lambda: None, "test/1")
    pusher = Pusher(spool, StoreConnection(client), Log(io.StringIO()))
    while (wait := pusher.step()) is not None:
        assert wait == 0, pusher.status()
    client.close()
    spool.close()
    server.flush()
    assert pusher.status().accepted == sum(len(batch) for batch in sent)


def read_by_a_service(
    server: VictoriaMetrics, folder: Path, now: datetime, sent: Sequence[Sequence[MetricSample]]
) -> None:
    settings = Settings(
        database=sqlite_with_tables(folder / "c.sqlite3"),
        state_dir=folder,
        samples_url=server.url,
        samples_write_url="",
    )
    with Advisor(settings, clock=Clock(now)) as advisor:
        advisor.inventory.put(cloud("h1"), mode="replace", generation=None)
        assert advisor.telemetry.obtained("shop", since="1h").outcomes[0].windows >= 6
        for batch in sent:
            advisor.telemetry.ingest(batch)
        shop = next(one for one in advisor.cloud.inventory().instances if one.id == "shop")
        assert shop.demand["cpu"].origin == "measured"


def test_what_the_store_refuses_is_dropped_with_its_reason_and_the_rest_is_taken(
    other: Kept, request: pytest.FixtureRequest, now: datetime
) -> None:
    if "prometheus" not in request.node.name:
        pytest.skip("VictoriaMetrics takes every time within its retention")
    old = MetricSample("h1", "shop", "instance", "cpu", 1.0, now.timestamp() - 20 * 86_400)
    new = MetricSample("h1", "shop", "instance", "cpu", 1.0, now.timestamp())
    answer = other.advisor.telemetry.ingest([old, new])
    assert (answer["accepted"], [at for at, _ in answer["dropped"]]) == (1, [0])
    assert "the store of samples refuses it" in answer["dropped"][0][1]
