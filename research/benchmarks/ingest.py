"""How many samples per second a database takes, through the service and without it, and whether all of them are there.

    python -m research.benchmarks.ingest [--kind sqlite|postgresql] [--seconds S] [--workers N] [--batch N] [--json]

Each batch is what a host of 25 instances sends: 20 metrics of each, windows of ten seconds one after the other. Senders
send as fast as they are answered. Both ways run one after the other, each on a database of its own: PostgreSQL with
fsync, SQLite as the service opens it. Beside the rate over all stands that of the slowest tenth of
the time, and samples per second of CPU time of whoever serves (PostgreSQL's own processes left out), which a busy
machine changes less. At the end the stored rows are counted: every accepted sample must be there.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import sqlalchemy as sa
from rich.console import Console
from rich.table import Table

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import samples
from advisor.store.engine import Database
from profiler.observed import MetricSample
from research.benchmarks.measuring import cpu_s, processes_of
from tests.servers.postgres import postgres
from tests.servers.running import NotInstalled, Running
from tests.servers.service import Service

KINDS = ("sqlite", "postgresql")
TARGETS = {"sqlite": 10_000, "postgresql": 20_000}  # samples per second
INSTANCES, METRICS = 25, 20
SENDERS = 4
BEGIN_S = time.time() - 5 * 86_400

Send = Callable[[int, int], int]  # sender and batch → how many samples were accepted


@dataclass(frozen=True, slots=True)
class Rate:
    """What was accepted: `per_s` over all, `slowest_per_s` in the slowest tenth of the time; per second of CPU time."""

    kind: str
    way: str
    seconds: float
    samples: int
    stored: int
    per_s: float
    slowest_per_s: float
    per_cpu_s: float


def cloud() -> Inventory:
    hosts = tuple(Host(f"h{sender}", "kvm", 64, 262_144) for sender in range(SENDERS))
    there = tuple(
        Instance(f"h{sender}-i{one}", host=f"h{sender}") for sender in range(SENDERS) for one in range(INSTANCES)
    )
    return Inventory(hosts, there)


def drive(send: Send, seconds: float) -> tuple[int, float, list[int]]:
    """Let all senders send; returns how many samples were accepted, in how many seconds, and in each tenth of those."""
    began = time.perf_counter()
    taken: list[tuple[float, int]] = []

    def work(sender: int) -> None:
        batch = 0
        while time.perf_counter() < began + seconds:
            count = send(sender, batch)
            taken.append((time.perf_counter() - began, count))
            batch += 1

    together([partial(work, sender) for sender in range(SENDERS)])
    tenths = [0] * 10
    for at, count in taken:
        if at < seconds:
            tenths[int(at / seconds * 10)] += count
    return sum(count for _, count in taken), time.perf_counter() - began, tenths


def together(works: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own; raises what went wrong in one."""
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()


def by_the_store(settings: Settings, seconds: float, windows: int) -> tuple[int, float, list[int], float]:
    """Calls of `Advisor.ingest` in this process, on samples that are made before the clock starts to count them."""
    with Advisor(settings) as advisor:
        advisor.inventory.put(cloud(), mode="replace", generation=None)
        before = time.process_time()
        making = [0.0] * SENDERS

        def send(sender: int, batch: int) -> int:
            began = time.thread_time()
            made = _samples(sender, batch, windows)
            making[sender] += time.thread_time() - began
            return int(advisor.telemetry.ingest(made)["accepted"])

        done = drive(send, seconds)
        return *done, time.process_time() - before - sum(making)


def over_http(settings: Settings, seconds: float, windows: int, workers: int) -> tuple[int, float, list[int], float]:
    """`POST /v1/samples` to a service of its own, on connections that stay open."""
    with Advisor(settings) as advisor:
        advisor.inventory.put(cloud(), mode="replace", generation=None)
    service = Service(settings.database, settings.state_dir, "--workers", str(workers)).start()
    assert isinstance(service.running, Running)
    assert service.running.process is not None
    running, pid = service.running, service.running.process.pid
    connections = [http.client.HTTPConnection("127.0.0.1", service.port, timeout=120) for _ in range(SENDERS)]
    texts = [_window(sender) for sender in range(SENDERS)]
    try:
        before = sum(map(cpu_s, processes_of(pid)))

        def send(sender: int, batch: int) -> int:
            times = (_time(batch * windows + one) for one in range(windows))
            body = '{"samples":[' + ",".join(texts[sender].replace("@", when) for when in times) + "]}"
            connections[sender].request("POST", "/v1/samples", body, {"Content-Type": "application/json"})
            with connections[sender].getresponse() as answer:
                document = json.loads(answer.read())
            if answer.status != 200:
                raise RuntimeError(f"the service says {answer.status}: {document}")
            return int(document["accepted"])

        done = drive(send, seconds)
        return *done, sum(map(cpu_s, processes_of(pid))) - before
    finally:
        for connection in connections:
            connection.close()
        running.stop()


def _samples(sender: int, batch: int, windows: int) -> list[MetricSample]:
    host = f"h{sender}"
    return [
        MetricSample(host, f"{host}-i{one}", "instance", f"m{metric}", 50.0 + metric, BEGIN_S + 10.0 * window)
        for window in range(batch * windows, (batch + 1) * windows)
        for one in range(INSTANCES)
        for metric in range(METRICS)
    ]


def _window(sender: int) -> str:
    """The samples of one window as JSON with @ in place of the time."""
    host = f"h{sender}"
    return ",".join(
        f'{{"host":"{host}","instance":"{host}-i{one}","scope":"instance","metric":"m{metric}","value":{50.0 + metric},'
        '"time":"@"}'
        for one in range(INSTANCES)
        for metric in range(METRICS)
    )


def _time(window: int) -> str:
    return datetime.fromtimestamp(BEGIN_S + 10.0 * window, UTC).isoformat()


def _stored(url: str) -> int:
    database = Database(url)
    with database.read() as connection:
        count = connection.scalar(sa.select(sa.func.sum(samples.sample_packs.c.number))) or 0
    database.close()
    return count


@contextmanager
def _settings(kind: str) -> Iterator[Settings]:
    """Settings of a service on a new database."""
    with tempfile.TemporaryDirectory(prefix="cotenant-ingest-") as folder:
        if kind == "sqlite":
            yield Settings(database=f"sqlite:///{folder}/cotenant.sqlite3", state_dir=Path(folder))
            return
        with postgres(durable=True) as server:
            yield Settings(database=server.url(server.new_database()), state_dir=Path(folder))


def measure(kind: str, way: str, *, seconds: float, windows: int, workers: int) -> Rate:
    with _settings(kind) as settings:
        if way == "store":
            count, took, tenths, cpu = by_the_store(settings, seconds, windows)
        else:
            count, took, tenths, cpu = over_http(settings, seconds, windows, workers)
        stored = _stored(settings.database)
        return Rate(kind, way, took, count, stored, count / took, min(tenths) / (seconds / 10), count / cpu)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when an accepted sample is not there, or when a database takes fewer than its target over HTTP."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=5000, help="samples in a batch, in whole windows of 500")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    windows = max(options.batch // (INSTANCES * METRICS), 1)
    rates = []
    for kind in options.kind or KINDS:
        for way in ("store", "http"):
            try:
                rates.append(measure(kind, way, seconds=options.seconds, windows=windows, workers=options.workers))
            except NotInstalled as error:
                print(f"{kind} is left out: {error}", file=sys.stderr)
                break
    if options.json:
        print(json.dumps([asdict(rate) for rate in rates]))
    else:
        _show(rates)
    lost = any(rate.stored != rate.samples for rate in rates)
    return int(lost or any(rate.per_s < TARGETS[rate.kind] for rate in rates if rate.way == "http"))


def _show(rates: Sequence[Rate]) -> None:
    table = Table(title="Samples per second")
    for title in ("database", "by", "seconds", "samples", "stored", "per s", "slowest tenth", "per CPU s", "target"):
        table.add_column(title, justify="left" if title in {"database", "by"} else "right")
    for rate in rates:
        figures = (rate.samples, rate.stored, rate.per_s, rate.slowest_per_s, rate.per_cpu_s, TARGETS[rate.kind])
        table.add_row(rate.kind, rate.way, f"{rate.seconds:.0f}", *(f"{figure:,.0f}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
