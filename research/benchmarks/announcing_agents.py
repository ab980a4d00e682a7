"""What a thousand agents cost a service: each announces its host, and pushes the windows of the instances there.

    python -m research.benchmarks.announcing_agents [--kind sqlite|postgresql] [--agents 1000] [--instances 30]
                                                    [--window 60] [--minutes 5] [--json]

Senders are simulated, the service and PostgreSQL (with fsync) are real. First every agent announces, as after a power
cut. Then each announces once a minute and pushes a window of METRICS metrics per instance, every minute unless
`--window` says otherwise, as `cotenant-profiler run --push` does; in every minute one agent in
CHANGING has a new instance in place of an old one. The lag of the inventory is the time from the moment at which an
announcement was due until the service has it, queueing included. A question about a new VM is asked each few seconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from profiler.cli.run import PUSHED_WINDOW_S
from profiler.metrics import EIGHT
from research.benchmarks.ingest import together
from research.benchmarks.measuring import cpu_s, ended_children_cpu_s, processes_of
from tests.servers.postgres import Postgres, postgres
from tests.servers.running import NotInstalled, Running
from tests.servers.service import Service

KINDS = ("postgresql", "sqlite")
SENDERS = 8
CHANGING = 100
ANNOUNCED_S = 60.0
WINDOW_S = PUSHED_WINDOW_S
ASK_EVERY_S = 5.0
METRICS = tuple(name for one in EIGHT for name in (one.name, f"{one.name}_p95"))
_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True, slots=True)
class Cost:
    """What it cost; times in seconds, CPUs of service and database apart, memory in MB (resident)."""

    kind: str
    agents: int
    instances: int
    window_s: float
    first_s: float  # until every agent had announced
    seconds: float
    samples_per_s: float
    late: float  # part of the pushes that began over a second after they were due
    refused: int
    service_cpus: float
    database_cpus: float
    service_mb: float
    lag_p50_s: float
    lag_p95_s: float
    lag_max_s: float
    asked_p50_s: float
    asked_p95_s: float


class Agents:
    """All agents of a part of the hosts, on one connection."""

    def __init__(self, port: int, hosts: Sequence[int], instances: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._there = {host: [f"h{host}-i{one}" for one in range(instances)] for host in hosts}
        self._next = instances
        self.lags: list[float] = []
        self.samples = self.late = self.pushes = self.refused = 0

    def announce(self, host: int, due_s: float, *, changed: bool) -> None:
        """Tell which instances are on a host; the lag counts from `due_s` of the monotonic clock."""
        there = self._there[host]
        if changed:
            there[0] = f"h{host}-i{self._next}"
            self._next += 1
            there.append(there.pop(0))
        body = {
            "host": {"id": f"h{host}", "kind": "kvm", "pcpus": 64, "memory_mb": 262_144},
            "instances": [{"id": name, "vcpus": 2, "memory_mb": 4096} for name in there],
            "machine": f"{host:016x}", "every_s": ANNOUNCED_S, "time": _now(),
        }  # fmt: skip
        self.refused += self._post("/v1/announcements", json.dumps(body)) != 200
        self.lags.append(time.monotonic() - due_s)

    def push(self, host: int, due_s: float, rng: np.random.Generator) -> None:
        """Send one window of a host."""
        self.pushes += 1
        self.late += time.monotonic() - due_s > 1
        now, start = _now(), f'{{"host":"h{host}","scope":"instance","instance":"'
        values = rng.uniform(0, 100, (len(self._there[host]), len(METRICS))).round(3).tolist()
        rows = [
            f'{start}{name}","metric":"{metric}","value":{value},"time":"{now}"}}'
            for name, row in zip(self._there[host], values, strict=True)
            for metric, value in zip(METRICS, row, strict=True)
        ]
        self.refused += self._post("/v1/samples", '{"samples":[' + ",".join(rows) + "]}") != 200
        self.samples += len(rows)

    def _post(self, path: str, body: str) -> int:
        self._connection.request("POST", path, body, {"Content-Type": "application/json"})
        with self._connection.getresponse() as answer:
            answer.read()
            return answer.status

    def close(self) -> None:
        self._connection.close()


def measure(kind: str, *, agents: int, instances: int, window_s: float, minutes: float) -> Cost:
    """Start a service on a database of its own and let all agents speak to it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-agents-")))
        server: Postgres | None = None
        if kind == "postgresql":
            server = stack.enter_context(postgres(durable=True))
        database = server.url(server.new_database()) if server else f"sqlite:///{folder}/cotenant.sqlite3"
        service = Service(database, folder).start()
        assert isinstance(service.running, Running)
        stack.callback(service.running.stop)
        assert service.running.process is not None
        pid = service.running.process.pid
        parts = [Agents(service.port, range(part, agents, SENDERS), instances) for part in range(min(SENDERS, agents))]
        for part in parts:
            stack.callback(part.close)
        first_s = _all_at_once(parts)
        answered_s: list[float] = []
        with _asking(service.port, answered_s):
            before = sum(map(cpu_s, processes_of(pid))), _of_postgres_s(server)
            began = time.monotonic()
            together([partial(_speak, part, began, window_s, minutes) for part in parts])
            seconds = time.monotonic() - began
            after = sum(map(cpu_s, processes_of(pid))), _of_postgres_s(server)
            memory_mb = _resident_mb(pid)
        lags = np.concatenate([part.lags for part in parts])
        return Cost(
            kind, agents, instances, window_s, first_s, seconds, sum(part.samples for part in parts) / seconds,
            sum(part.late for part in parts) / max(sum(part.pushes for part in parts), 1),
            sum(part.refused for part in parts), (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds,
            memory_mb, *(float(np.quantile(lags, one)) for one in (0.5, 0.95, 1.0)),
            *(float(np.quantile(answered_s, one)) for one in (0.5, 0.95)),
        )  # fmt: skip


def _all_at_once(parts: Sequence[Agents]) -> float:
    began = time.monotonic()

    def all_of(part: Agents) -> None:
        for host in part._there:
            part.announce(host, began, changed=False)
        part.lags.clear()

    together([partial(all_of, part) for part in parts])
    return time.monotonic() - began


def _speak(part: Agents, began: float, window_s: float, minutes: float) -> None:
    """What the agents of one part say in some minutes, each at times of its own."""
    rng = np.random.default_rng(len(part._there))
    due: list[tuple[float, int, bool]] = []
    for host in part._there:
        first, offset = rng.uniform(0, ANNOUNCED_S), rng.uniform(0, window_s)
        due += [(at, host, True) for at in np.arange(first, 60 * minutes, ANNOUNCED_S)]
        due += [(at, host, False) for at in np.arange(offset, 60 * minutes, window_s)]
    for at, host, announces in sorted(due):
        time.sleep(max(0.0, began + at - time.monotonic()))
        if announces:
            part.announce(host, began + at, changed=bool(rng.random() < 1 / CHANGING))
        else:
            part.push(host, began + at, rng)


@contextmanager
def _asking(port: int, asked: list[float]) -> Iterator[None]:
    """Ask for a host for a new VM from time to time while the block lasts."""
    over = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        body = json.dumps({"instance": {"id": "new", "vcpus": 2, "memory_mb": 4096}, "dry_run": True, "limit": 5})
        while not over.is_set():
            began = time.monotonic()
            connection.request("POST", "/v1/placements", body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                answer.read()
            asked.append(time.monotonic() - began)
            over.wait(ASK_EVERY_S)
        connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _of_postgres_s(server: Postgres | None) -> float:
    """CPU time of all processes of the database so far, with that of its sessions that ended."""
    if server is None or server.running.process is None:
        return 0.0
    pid = server.running.process.pid
    return sum(map(cpu_s, processes_of(pid))) + ended_children_cpu_s(pid)


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_MB


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", choices=KINDS, default="postgresql")
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--instances", type=int, default=30, help="of each agent")
    parser.add_argument("--window", type=float, action="append", metavar="S", help=f"of an agent ({WINDOW_S:g})")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    try:
        costs = [
            measure(
                options.kind, agents=options.agents, instances=options.instances, window_s=one, minutes=options.minutes
            )
            for one in options.window or [WINDOW_S]
        ]
    except NotInstalled as error:
        print(f"{options.kind} is left out: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps([asdict(cost) for cost in costs]))
        return 0
    table = Table(title=f"{options.agents:,} agents of {options.instances} instances, {options.kind}")
    table.add_column("")
    for cost in costs:
        table.add_column(f"windows of {cost.window_s:g} s", justify="right")
    for name in Cost.__dataclass_fields__:
        if name not in {"kind", "agents", "instances", "window_s"}:
            table.add_row(name, *(f"{getattr(cost, name):,.3f}" for cost in costs))
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
