"""A cloud of ten thousand hosts with thirty VMs each on a real PostgreSQL: what its service takes to start and answer.

    python -m research.benchmarks.large_cloud [--hosts 10000] [--vms 30] [--model DIR] [--limits ...] [--json]

The inventory is simulated (`research.benchmarks.unlike_hosts`: hosts of 64 CPUs, every VM with a demand of its own);
all else is the product. First all is written to an empty database, and synced again twice: without news, and with 1 %
of VMs gone elsewhere. Then a process of its own reads it, as a replica that starts: building the snapshot, questions
cold (no prediction is remembered) and warm (after 1 % of hosts had news), of a VM without limit, with a least
throughput, with a latency limit and with a most contended time, the same by the learned model of `--model`, pages, and
a front that merges the short answers of ten such cells, by stand-ins.
Times are in milliseconds, wall and CPU of the service's process.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from advisor.domain import Host, Instance, Inventory, PlacementRequest, RecommendationSummary, codec
from advisor.inventories.reading import Part, Reading
from advisor.service import Advisor
from advisor.serving.cells import CellService
from advisor.settings import Settings
from research.benchmarks.measuring import apart, circumstances
from research.benchmarks.unlike_hosts import made_inventory, new_vm, random_demand
from tests.servers.local_http import QuietHandler, on_loopback

SOURCE = "simulated"
NEWS = 0.01
CELLS = 10
COLD, WARM = 2, 3  # questions of each kind
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "no limit": {},
    "throughput": {"min_throughput_ratio": 0.9},
    "latency": {"service": "latency", "max_latency_ratio": 1.5},
    "contended": {"max_time_short": 0.01},
}


def cloud(hosts: int, vms: int) -> Inventory:
    """So many hosts with so many VMs each."""
    made = made_inventory(hosts, residents_of=(vms, vms))
    named = [replace(host, labels={"source": SOURCE, "zone": f"z{at % 10}"}) for at, host in enumerate(made.hosts)]
    there = [replace(one, labels={"source": SOURCE}) for one in made.instances]
    return Inventory(tuple(named), tuple(there), ())


def reading(inventory: Inventory) -> Reading:
    """What a system reports that knows names, sizes and places."""
    return Reading(
        SOURCE,
        (Part("hosts", "read", len(inventory.hosts)), Part("instances", "read", len(inventory.instances))),
        tuple(_facts(host) for host in inventory.hosts),
        tuple(_facts(one) for one in inventory.instances),
        every_host=True,
        every_instance=True,
    )


def _facts(item: Host | Instance) -> dict[str, Any]:
    names = ("id", "kind", "pcpus", "memory_mb") if isinstance(item, Host) else ("id", "vcpus", "memory_mb", "host")
    return {name: getattr(item, name) for name in names} | {"labels": {}}


class Spent:
    """Wall and CPU time of what was done, by name."""

    def __init__(self) -> None:
        self.times: dict[str, list[tuple[float, float]]] = {}

    def of(self, name: str, work: Callable[[], Any]) -> Any:
        """What `work` returns."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        spent = 1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)
        self.times.setdefault(name, []).append(spent)
        print(f"{name}: {spent[0]:.0f} ms, {spent[1]:.0f} ms of CPU time", file=sys.stderr, flush=True)
        return result

    def medians(self) -> dict[str, tuple[float, float]]:
        """Wall and CPU by name, ms."""
        return {
            name: (statistics.median(one for one, _ in both), statistics.median(one for _, one in both))
            for name, both in self.times.items()
        }


def written(settings: Settings, hosts: int, vms: int) -> dict[str, Any]:
    """Fill an empty database and sync it again."""
    inventory, spent = cloud(hosts, vms), Spent()
    random = np.random.default_rng(5)
    moved = [
        replace(one, host=inventory.hosts[int(random.integers(hosts))].id) if random.random() < NEWS else one
        for one in inventory.instances
    ]
    with Advisor(settings) as advisor:
        spent.of("written whole", lambda: advisor.inventory.put(inventory, mode="replace", generation=None))
        spent.of("synced, no news", lambda: advisor.inventory.follow(reading(inventory)))
        spent.of(
            "synced, 1 % moved", lambda: advisor.inventory.follow(reading(replace(inventory, instances=tuple(moved))))
        )
    return {"times": spent.medians(), "peak_mb": peak_mb()}


def answered(settings: Settings, model: Path | None, limits: Sequence[str]) -> dict[str, Any]:
    """Ask a service that starts on that database."""
    spent, random = Spent(), np.random.default_rng(3)
    with Advisor(settings) as advisor:
        before_mb = resident_mb()
        spent.of("built", advisor.inventory.generation)  # connects, imports
        view, _ = spent.of("built", lambda: advisor._cache.at(advisor._clock()))
        built = spent.times.pop("built")[-1]
        peak = peak_mb()
        gc.collect()
        document = {"built": built, "snapshot_mb": resident_mb() - before_mb, "resident_mb": resident_mb()}
        document |= {"peak_mb_built": peak, "instances": len(view.inventory.instances)}
        _asked(advisor, spent, random, "analytic", limits)
        if model is not None:
            version = advisor.models.register(model).version
            advisor.models.activate(version, force=True)
            _asked(advisor, spent, random, "learned", limits)
        _merged(advisor, spent, new_vm(random, "in-cells"))
        _first_page(advisor, settings, spent)
    return document | {"times": spent.medians(), "resident_after_mb": resident_mb(), "peak_mb": peak_mb()}


def _asked(advisor: Advisor, spent: Spent, random: np.random.Generator, by: str, limits: Sequence[str]) -> None:
    def ask(instance: Instance) -> Any:
        return advisor.placements.place(PlacementRequest(instance, dry_run=True))

    view, _ = advisor._cache.at(advisor._clock())
    hosts = [host.id for host in view.inventory.hosts]
    ask(new_vm(random, "compiles"))
    for limit in limits:
        more = LIMITS[limit]
        asked = [new_vm(random, f"{by}-{limit}-{turn}".replace(" ", "-"), **more) for turn in range(COLD)]
        for one in asked:
            _forget(advisor)
            spent.of(f"{by}, {limit}: cold", partial(ask, one))
        ask(asked[0])
        for turn in range(WARM):
            _news(advisor, random, view.inventory, hosts)
            spent.of("1 % of hosts have news", lambda: advisor._cache.at(advisor._clock()))
            again = replace(asked[0], id=f"{asked[0].id}-{turn}")
            spent.of(f"{by}, {limit}: warm", partial(ask, again))


def _forget(advisor: Advisor) -> None:
    """As in a service that has only just read the cloud."""
    cache = advisor._cache
    assert cache._chosen is not None
    active = replace(cache._chosen.active, remembered=type(cache._chosen.active.remembered)())
    cache._chosen, cache._answers = replace(cache._chosen, active=active), None


def _news(advisor: Advisor, random: np.random.Generator, inventory: Inventory, hosts: Sequence[str]) -> None:
    chosen = set(random.choice(hosts, max(1, int(NEWS * len(hosts))), replace=False).tolist())
    first = {one.host: one for one in inventory.instances if one.host in chosen}
    changed = tuple(
        replace(one, demand={"cpu": random_demand(random, one.demand["cpu"].mean, one.vcpus)}) for one in first.values()
    )
    advisor.inventory.put(Inventory((), changed, ()), mode="merge", generation=None)


def _merged(advisor: Advisor, spent: Spent, instance: Instance) -> None:
    """What a front needs beside the cells themselves: CELLS stand-ins give the short answer of this cloud at once."""
    whole = advisor.placements.place(PlacementRequest(instance, dry_run=True)).recommendation
    said = codec.answer_text(RecommendationSummary.of(whole))

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.request_body()
            self.reply(200, said)

    with ExitStack() as opened:
        servers = [opened.enter_context(on_loopback(Handler)) for _ in range(CELLS)]
        named = ",".join(f"c{at}=http://127.0.0.1:{server.server_port}" for at, server in enumerate(servers))
        front = CellService(Settings(cells=named, cells_wait_s=60.0))
        opened.callback(front.close)
        for _ in range(WARM):
            answer = spent.of(
                f"{CELLS} answers of {len(said)} bytes merged", lambda: front.place({}, limit=5, hold=False)
            )
            if len(answer.candidates) != 5 or {cell.state for cell in answer.cells} != {"answered"}:
                raise RuntimeError(f"cells: {answer.cells}")


def _first_page(advisor: Advisor, settings: Settings, spent: Spent) -> None:
    from fastapi.testclient import TestClient

    from api.app import create_app

    with TestClient(create_app(advisor, settings), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        client.get("/healthz")
        for name, path in (("first page", "/"), ("page of the cloud", "/cloud"), ("readyz", "/readyz")):
            for turn in range(3):
                answer = spent.of(f"{name}, first" if turn == 0 else name, partial(client.get, path))
                if answer.status_code != 200:
                    raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:300]}")


def resident_mb() -> float:
    """Resident memory of this process (proc(5), statm)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mb() -> float:
    """The most that this process had in memory so far (proc(5), VmHWM)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def main() -> int:
    """Print tables, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--vms", type=int, default=30)
    parser.add_argument("--model", type=Path, metavar="DIR")
    parser.add_argument("--limits", nargs="+", choices=tuple(LIMITS), default=list(LIMITS), help="of the new VM")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--database", help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("written", "answered"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.part is not None:
            settings = Settings(database=options.database, state_dir=Path(folder), fresh_s=86_400)
            if options.part == "written":
                print(json.dumps(written(settings, options.hosts, options.vms)))
            else:
                print(json.dumps(answered(settings, options.model, options.limits)))
            return 0
        return _whole(options)


def _whole(options: argparse.Namespace) -> int:
    from tests.servers.postgres import postgres
    from tests.servers.running import NotInstalled

    with ExitStack() as stack:
        try:
            url = options.database
            if url is None:
                server = stack.enter_context(postgres(durable=True))
                url = server.url(server.new_database())
        except NotInstalled as error:
            print(error, file=sys.stderr)
            return 1
        shared = ["--database", url, "--hosts", str(options.hosts), "--vms", str(options.vms)]
        document = {**circumstances(), "hosts": options.hosts, "vms": options.vms}
        document["written"] = apart("large_cloud", *shared, "--part", "written")
        more = ["--model", str(options.model)] if options.model else []
        more += ["--limits", *options.limits]
        document["answered"] = apart("large_cloud", *shared, "--part", "answered", *more)
    print(json.dumps(document, indent=1) if options.json else shown(document))
    return 0


def shown(document: Mapping[str, Any]) -> str:
    """The tables."""
    lines = [f"{document['hosts']} hosts of {document['vms']} VMs, {document['machine']}, {document['date']}"]
    for part in ("written", "answered"):
        rows = document[part]
        lines.append(f"\n{part}: peak {rows['peak_mb']:.0f} MB")
        if "built" in rows:
            wall, cpu = rows["built"]
            lines.append(f"  snapshot built: {wall:.0f} ms wall, {cpu:.0f} ms CPU, {rows['snapshot_mb']:.0f} MB")
        lines += [f"  {name:32} {wall:9.1f} ms wall {cpu:9.1f} ms CPU" for name, (wall, cpu) in rows["times"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
