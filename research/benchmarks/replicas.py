"""Several processes of the service on one PostgreSQL: throughput, how stale an answer may be, and one that is killed.

    python -m research.benchmarks.replicas [--counts 1,2,4] [--hosts 100] [--seconds 10] [--trials 100] [--json]

Real services of one worker each, real PostgreSQL with fsync, a simulated cloud (`research.benchmarks.unlike_hosts`).
Two askers for each replica send one question after the other, no two alike: dry runs, then answers that hold their
host. Processes, database and askers share the CPUs of one machine, so that CPU time of a question says more than their
rate. Staleness: while askers go on, one replica holds the last place of a host, and as soon as it has said so another
one is asked about that host until it knows; a stale answer is one that still offers it. Last, one replica is killed
(SIGKILL) while all answer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from advisor.domain import Host, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store.engine import Database
from advisor.store.instances import pending
from research.benchmarks.http_load import instance_body
from research.benchmarks.measuring import circumstances, cpu_s, processes_of
from research.benchmarks.unlike_hosts import made_inventory, new_vm
from tests.servers.postgres import Postgres, postgres
from tests.servers.running import NotInstalled, Running
from tests.servers.service import Service

ASKERS = 2  # of each replica
PLACE_MB = 1024.0
_NAMES = itertools.count()


@dataclass(frozen=True, slots=True)
class Rate:
    """Answers a second of all replicas, times of an answer in ms, and CPU ms of an answer."""

    replicas: int
    holds: bool
    per_s: float
    p50_ms: float
    p99_ms: float
    service_ms: float
    database_ms: float


@dataclass(slots=True)
class Load:
    """Askers of replicas and what came back."""

    replicas: Sequence[Service]
    holds: bool
    seconds: list[float] = field(default_factory=list)
    failed: dict[int, int] = field(default_factory=dict)  # by replica
    stopping: threading.Event = field(default_factory=threading.Event)

    def ask(self, at: int, seed: int) -> None:
        """One question after the other, each about another VM."""
        random = np.random.default_rng(seed)
        while not self.stopping.is_set():
            body = {"instance": instance_body(new_vm(random, f"vm-{next(_NAMES)}")), "dry_run": not self.holds}
            begun = time.perf_counter()
            try:
                status = self.replicas[at].ask("POST", "/v1/placements", body, timeout=60).status
            except OSError:
                status = 0
            if status == 200:
                self.seconds.append(time.perf_counter() - begun)
            else:
                self.failed[at] = self.failed.get(at, 0) + 1
                self.stopping.wait(0.05)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Within it all ask."""
        threads = [
            threading.Thread(target=self.ask, args=(at, seed))
            for seed, at in enumerate(at for at in range(len(self.replicas)) for _ in range(ASKERS))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            for thread in threads:
                thread.join()


@contextmanager
def replicas_of(url: str, count: int, folder: Path) -> Iterator[list[Service]]:
    """So many services, which have answered once."""
    with ExitStack() as opened:
        services = [Service(url, folder) for _ in range(count)]
        for service in services:
            opened.callback(service.running.stop)
            service.start()
            body = {"instance": instance_body(new_vm(np.random.default_rng(0), "warm")), "dry_run": True}
            service.ask("POST", "/v1/placements", body, timeout=120)
        yield services


def rate(services: Sequence[Service], database: Sequence[int], seconds: float, *, holds: bool) -> Rate:
    """Ask for so long."""
    pids = [_pid(service) for service in services]
    load = Load(services, holds)
    before = _cpu(pids), _cpu(database)
    with load.going():
        begun = time.perf_counter()
        time.sleep(seconds)
        asked, lasted = len(load.seconds), time.perf_counter() - begun
    spent = _cpu(pids) - before[0], _cpu(database) - before[1]
    if load.failed:
        raise RuntimeError(f"questions failed: {load.failed}")
    took = np.array(load.seconds) * 1000
    each = [1000 * one / len(load.seconds) for one in spent]
    return Rate(
        len(services), holds, asked / lasted, float(np.median(took)), float(np.percentile(took, 99)), each[0], each[1]
    )


def staleness(services: Sequence[Service], trials: int) -> dict[str, Any]:
    """How long another replica offers a place that one has given away, in ms from when that was said."""
    one, other = services[:2]
    stale, first = [], []
    with Load(services, holds=False).going():
        for trial in range(trials):
            name = f"last-{trial}"
            host = {"kind": "kvm", "pcpus": 4, "memory_mb": PLACE_MB}
            one.ask("PUT", f"/v1/hosts/{name}", host)
            question = _about(f"s-{trial}", name, dry_run=True)
            other.ask("POST", "/v1/placements", question)
            held = one.ask("POST", "/v1/placements", _about(f"h-{trial}", name, dry_run=False))
            if not held.body["candidates"]:
                raise RuntimeError(f"{name} was not given")
            begun, answered = time.perf_counter(), 0
            known = 0.0
            while True:
                asked = time.perf_counter()
                if not other.ask("POST", "/v1/placements", question).body["candidates"]:
                    break
                known, answered = asked - begun, answered + 1
            first.append(1000 * (time.perf_counter() - asked))
            stale.append(1000 * known if answered else 0.0)
    fresh = sum(value == 0 for value in stale)
    return {
        "trials": trials,
        "fresh_at_once": fresh,
        "stale_p50_ms": statistics.median(stale),
        "stale_p95_ms": float(np.percentile(stale, 95)),
        "stale_max_ms": max(stale),
        "answer_p50_ms": statistics.median(first),
        "answer_p95_ms": float(np.percentile(first, 95)),
    }


def _about(instance: str, host: str, *, dry_run: bool) -> dict[str, Any]:
    return {
        "instance": {"id": instance, "vcpus": 1, "memory_mb": PLACE_MB - 24},
        "hosts": [host],
        "dry_run": dry_run,
    }


def killed(services: Sequence[Service], url: str, seconds: float) -> dict[str, Any]:
    """Kill the first while all hold, and ask the others on."""
    load = Load(services, holds=True)
    with load.going():
        time.sleep(seconds / 2)
        before = len(load.seconds)
        services[0].kill()
        died = time.perf_counter()
        while len(load.seconds) <= before + ASKERS:  # what was under way at the others
            time.sleep(0.005)
        next_s = time.perf_counter() - died
        time.sleep(seconds / 2)
        after = len(load.seconds) - before
    database = Database(url)
    with database.read() as connection:
        held = set(connection.scalars(sa.select(pending.c.recommendation)))
    database.close()
    lost = [name for name in held if services[1].ask("GET", f"/v1/placements/{name}").status != 200]
    return {
        "answers_before": before,
        "answers_after": after,
        "next_answer_ms": 1000 * next_s,
        "failed_at_others": sum(count for at, count in load.failed.items() if at != 0),
        "holds": len(held),
        "holds_without_an_answer": len(lost),
    }


def _pid(service: Service) -> int:
    assert isinstance(service.running, Running)
    assert service.running.process is not None
    return service.running.process.pid


def _cpu(pids: Sequence[int]) -> float:
    return sum(cpu_s(one) for pid in pids for one in processes_of(pid))


def measured(server: Postgres, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All of it, on one database for each part."""
    made = made_inventory(options.hosts, residents_of=(30, 30))
    assert server.running.process is not None
    pids = [server.running.process.pid]
    rows: list[Rate] = []
    document: dict[str, Any] = {**circumstances(), "hosts": options.hosts, "vms": len(made.instances)}
    for count in options.counts:
        url = _filled(server, made, folder)
        with replicas_of(url, count, folder) as services:
            rows += [rate(services, pids, options.seconds, holds=holds) for holds in (False, True)]
    url = _filled(server, made, folder)
    with replicas_of(url, 2, folder) as services:
        document["staleness"] = staleness(services, options.trials)
        document["killed"] = killed(services, url, options.seconds)
    return document | {"rates": [asdict(row) for row in rows]}


def _filled(server: Postgres, made: Inventory, folder: Path) -> str:
    url = server.url(server.new_database())
    with Advisor(Settings(database=url, state_dir=folder)) as advisor:
        roomy = tuple(Host(host.id, host.kind, 256, 8e6, cpu_overcommit=16.0) for host in made.hosts)
        advisor.inventory.put(Inventory(roomy, made.instances), mode="replace", generation=None)
    return url


def main() -> int:
    """Print tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with suppress(KeyboardInterrupt), tempfile.TemporaryDirectory() as folder:
        try:
            with postgres(durable=True) as server:
                document = measured(server, options, Path(folder))
        except NotInstalled as error:
            print(error, file=sys.stderr)
            return 1
        print(json.dumps(document, indent=1) if options.json else shown(document))
    return 0


def shown(document: dict[str, Any]) -> str:
    """The tables."""
    lines = [f"{document['hosts']} hosts, {document['vms']} VMs, {document['machine']}, {document['date']}"]
    for row in document["rates"]:
        kind = "holds" if row["holds"] else "dry runs"
        lines.append(
            f"  {row['replicas']} replicas, {kind:8} {row['per_s']:7.1f}/s  p50 {row['p50_ms']:6.0f} p99 "
            f"{row['p99_ms']:6.0f} ms  CPU {row['service_ms']:5.1f} + {row['database_ms']:4.1f} ms"
        )
    lines += [
        f"  {part}: " + ", ".join(f"{name} {value:g}" for name, value in document[part].items())
        for part in ("staleness", "killed")
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
