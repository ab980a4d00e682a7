"""What a push of one host costs the service, and how many bytes a sample takes on disk, by the store of samples.

    python -m research.benchmarks.sample_stores [--kind KIND] [--pushes N] [--days D] [--rounds N] [--one-by-one]
        [--hosts N] [--at-once N] [--services N]

Senders are simulated, service and stores are real. A push is one window of 60 s of a host of 30 VMs: 16 metrics of each
and five of the host, values as agents round them. A third of the VMs idle; CPU use, waiting and rates follow an
autoregressive process with noise, five of the sixteen metrics are nearly always 0. Pushes go one
after the other, or so many at once, over HTTP to services of one worker on one database, of hosts in turn; CPU time is
that of the services' processes, and of the store's beside it, without the first pushes. For the bytes, a time-series
database gets `--days` of the same windows of two hosts without the service, and is flushed and merged; a database gets
as much, and its table and index are counted.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
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
from advisor.telemetry.remote_samples import RemoteSamples
from profiler.agent.spool import SampleBatch, short
from profiler.collectors.samples import SampleRow
from profiler.metrics import Scope
from profiler.observed import MetricSample
from research.benchmarks.measuring import circumstances, cpu_s, processes_of
from tests.servers.postgres import postgres
from tests.servers.running import NotInstalled, Running
from tests.servers.service import Service
from tests.servers.victoria_metrics import victoria_metrics

KINDS = ("sqlite", "postgresql", "victoria-metrics")
HOSTS, VMS, WINDOW_S = 10, 30, 60
MOVING = {"cpu": 40.0, "cpu_p95": 60.0, "waiting": 3.0, "waiting_p95": 6.0, "execution": 300.0, "block": 55.0}
MOVING |= {"net_mbit": 2.0, "disk_mb_s": 0.8, "disk_iops": 12.0, "system": 8.0, "run_queue_p99_us": 900.0}
STILL = ("throttled", "psi_io", "psi_memory", "swap_mb", "net_drops")
OF_HOST = {"busy": 1200.0, "switch": 20_000.0, "event": 3_000.0, "psi_memory": 0.2, "available_mb": 90_000.0}
MONTH_S = 30 * 86_400


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time of a push in ms, by process, and bytes of a sample on disk."""

    kind: str
    hosts: int
    at_once: int
    services: int
    pushes: int
    samples: int
    pushes_per_s: float
    service_ms: float
    store_ms: float
    bytes_per_sample: float
    samples_on_disk: int

    @property
    def month_gb(self) -> float:
        """Of 1,000 such hosts, all samples kept."""
        return self.samples / self.pushes * MONTH_S / WINDOW_S * 1000 * self.bytes_per_sample / 1e9


class Sender:
    """Windows of one host, each after the one before; values are `rounded` as an agent sends them, or whole."""

    def __init__(self, number: int, *, rounded: bool = True) -> None:
        self._rounded = rounded
        self._host, self._noise = f"h{number}", random.Random(number)
        self._state: dict[tuple[int, str], float] = {}

    def window(self, time_s: float) -> list[MetricSample]:
        """One sample of each metric."""
        sent = []
        for vm in range(VMS):
            scale = 0.05 if vm % 3 == 0 else 1.0
            for metric, level in MOVING.items():
                value = self._next((vm, metric)) * level * scale
                sent.append(self._sample(f"{self._host}-i{vm}", "instance", metric, value, time_s))
            for metric in STILL:
                value = self._noise.random() if self._noise.random() < 0.02 else 0.0
                sent.append(self._sample(f"{self._host}-i{vm}", "instance", metric, value, time_s))
        for metric, level in OF_HOST.items():
            sent.append(self._sample(None, "host", metric, self._next((-1, metric)) * level, time_s))
        return sent

    def _next(self, key: tuple[int, str]) -> float:
        """A logarithm that forgets over ten windows, with a spread of a third."""
        self._state[key] = now = 0.9 * self._state.get(key, 0.0) + 0.145 * self._noise.gauss(0, 1)
        return math.exp(now)

    def _sample(self, instance: str | None, scope: str, metric: str, value: float, time_s: float) -> MetricSample:
        sent = short(value, metric) if self._rounded else value
        return MetricSample(self._host, instance, scope, metric, sent, time_s)  # type: ignore[arg-type]


def cloud(number: int = HOSTS) -> Inventory:
    names = [f"h{host}" for host in range(number)]
    hosts = tuple(Host(name, "kvm", 64, 262_144) for name in names)
    return Inventory(hosts, tuple(Instance(f"{name}-i{vm}", vcpus=2, host=name) for name in names for vm in range(VMS)))


@dataclass(frozen=True, slots=True)
class Load:
    """How many pushes, of how many hosts, how many of them at once, and to how many services."""

    pushes: int
    hosts: int = HOSTS
    at_once: int = 1
    services: int = 1
    one_by_one: bool = False


def pushed(settings: Settings, load: Load, store: Sequence[int]) -> tuple[int, float, float, float]:
    """Samples of the pushes that count, CPU seconds of the services and of these processes of a store, and seconds."""
    with Advisor(settings) as advisor:
        advisor.inventory.put(cloud(load.hosts), mode="replace", generation=None)
    more = {"samples_url": settings.samples_url} if settings.samples_url else {}
    services = [
        Service(settings.database, settings.state_dir, port=None, forked=False, **more) for _ in range(load.services)
    ]
    with ExitStack() as stack:
        pids = []
        for service in services:
            service.start()
            assert isinstance(service.running, Running)
            stack.callback(service.running.stop)
            assert service.running.process is not None
            pids.append(service.running.process.pid)
        senders, warm = [Sender(number) for number in range(load.hosts)], 2 * load.hosts
        begin_s = time.time() - (load.pushes + warm) // load.hosts * WINDOW_S
        bodies = []  # made before the clock starts: they take as long as their pushes
        for number in range(warm + load.pushes):
            window = senders[number % load.hosts].window(begin_s + number // load.hosts * WINDOW_S)
            bodies.append((number % load.hosts, len(window), _body(window, one_by_one=load.one_by_one)))
        with ThreadPoolExecutor(load.at_once) as pool:
            push = partial(_push, [service.port for service in services], threading.local())
            for _ in range(2):  # of a host no two at once
                sent, bodies = bodies[: load.hosts], bodies[load.hosts :]
                list(pool.map(push, sent))
            before, begun = (_cpu(pids), _cpu(store)), time.monotonic()
            list(pool.map(push, bodies))
            taken_s = time.monotonic() - begun
        return sum(number for _, number, _ in bodies), _cpu(pids) - before[0], _cpu(store) - before[1], taken_s


def _push(ports: Sequence[int], mine: threading.local, sent: tuple[int, int, bytes]) -> None:
    """A window of a host to its service, by a connection that this thread keeps."""
    host, number, body = sent
    port = ports[host % len(ports)]
    connections = mine.__dict__.setdefault("connections", {})
    if port not in connections:
        connections[port] = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connections[port].request("POST", "/v1/samples", body, {"Content-Type": "application/json"})
    with connections[port].getresponse() as answer:
        document = json.loads(answer.read())
    if answer.status != 200 or document["accepted"] != number:
        raise RuntimeError(f"the service says {answer.status}: {document}")


def _cpu(pids: Sequence[int]) -> float:
    return sum(cpu_s(one) for pid in pids for one in processes_of(pid))


def _body(window: Sequence[MetricSample], *, one_by_one: bool) -> bytes:
    """As an agent sends it, or as agents did before there were windows."""
    when = datetime.fromtimestamp(window[0].time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    rows: dict[tuple[str | None, Scope], dict[str, float]] = {}
    for sample in window:
        rows.setdefault((sample.instance, sample.scope), {})[sample.metric] = sample.value
    batch = SampleBatch(window[0].host, when, tuple(SampleRow(*key, values) for key, values in rows.items()))
    body = {"samples": list(batch.samples())} if one_by_one else {"windows": [batch.window()]}
    return json.dumps(body, separators=(",", ":")).encode()


def measure(kind: str, load: Load, days: float) -> Cost:
    """Both figures of one kind of store, on new ones."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-samples-")))
        database, samples_url, pids = f"sqlite:///{folder}/cotenant.sqlite3", None, []
        if kind == "postgresql":
            server = stack.enter_context(postgres(durable=True))
            assert isinstance(server.running, Running)
            assert server.running.process is not None
            database, pids = server.url(server.new_database()), [server.running.process.pid]
        if kind == "victoria-metrics":
            tsdb = stack.enter_context(victoria_metrics())
            assert tsdb.running.process is not None
            samples_url, pids = tsdb.url, [tsdb.running.process.pid]
        settings = Settings(database=database, state_dir=folder, samples_url=samples_url)
        sent, service_s, store_s, taken_s = pushed(settings, load, pids)
        if kind == "victoria-metrics":
            other = stack.enter_context(victoria_metrics())
            store = RemoteSamples(Settings(samples_url=other.url))
            on_disk = _fill(lambda batch: not store.send(batch), days)
            size = other.bytes_on_disk()
        else:
            _fill_table(database, days)
            size, on_disk = _table(database)
        pushes = load.pushes
        how = (kind, load.hosts, load.at_once, load.services, pushes, sent, pushes / taken_s)
        return Cost(*how, 1000 * service_s / pushes, 1000 * store_s / pushes, size / on_disk, on_disk)


def _fill(take: Callable[[Sequence[MetricSample]], bool], days: float) -> int:
    """Windows of two hosts up to now; returns how many samples."""
    senders, windows, number = [Sender(one) for one in range(2)], int(days * 86_400 / WINDOW_S), 0
    begin_s = time.time() - windows * WINDOW_S
    for at in range(0, windows, 10):
        batch = [
            one for later in range(10) for sender in senders for one in sender.window(begin_s + (at + later) * WINDOW_S)
        ]
        number += len(batch)
        if not take(batch):
            raise RuntimeError("the store refuses samples")
    return number


def _fill_table(url: str, days: float) -> None:
    database = Database(url)

    def take(batch: Sequence[MetricSample]) -> bool:
        with database.write(synced=False) as connection:
            return samples.add(connection, batch) > 0

    _fill(take, days)
    database.close()


def _table(url: str) -> tuple[int, int]:
    """Bytes of the table of packs with its index, and the samples in them."""
    database = Database(url)
    with database.read() as connection:
        rows = connection.scalar(sa.text("SELECT sum(number) FROM sample_packs")) or 0
        size = "SELECT sum(pgsize) FROM dbstat WHERE name = 'sample_packs'"
        if not database.is_sqlite:
            size = "SELECT sum(pg_total_relation_size(relid)) FROM pg_partition_tree('sample_packs')"
        of_table = int(connection.scalar(sa.text(size)) or 0)
    database.close()
    return of_table, rows


def costs(kinds: Sequence[str], load: Load, days: float) -> Iterator[Cost]:
    for kind in kinds:
        try:
            yield measure(kind, load, days)
        except NotInstalled as error:
            print(f"{kind} is left out: {error}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--pushes", type=int, default=300)
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=1, help="each kind so often, one after the other")
    parser.add_argument("--one-by-one", action="store_true", help="samples as agents sent them before")
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--at-once", type=int, default=1, help="so many pushes at a time, of different hosts")
    parser.add_argument("--services", type=int, default=1, help="on one PostgreSQL; each has some of the hosts")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    kinds = [kind for _ in range(options.rounds) for kind in options.kind or KINDS]
    load = Load(options.pushes, options.hosts, options.at_once, options.services, one_by_one=options.one_by_one)
    found = list(costs(kinds, load, options.days))
    if options.json:
        print(json.dumps({**circumstances(), "costs": [asdict(cost) for cost in found]}))
        return 0
    table = Table(title="Samples of windows, simulated senders: {date}, {machine}".format(**circumstances()))
    for title in (
        "store",
        "samples a push",
        "pushes/s",
        "service, ms",
        "store, ms",
        "bytes a sample",
        "1,000 hosts, GB a month",
    ):
        table.add_column(title, justify="left" if title == "store" else "right")
    for cost in found:
        per_push = f"{cost.samples / cost.pushes:.0f}"
        figures = (cost.service_ms, cost.store_ms, cost.bytes_per_sample, cost.month_gb)
        table.add_row(cost.kind, per_push, f"{cost.pushes_per_s:.0f}", *(f"{figure:,.2f}" for figure in figures))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
