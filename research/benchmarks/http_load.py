"""Ranking over HTTP: a real service under open-loop load beside a bare FastAPI endpoint that returns the same bytes.

    python -m research.benchmarks.http_load [--sizes 100,1000] [--rates 200,20] [--seconds 20] [--workers 2]
                                   [--model DIRECTORY] [--keep] [--json] [--unlike]

Hosts have 8 residents of 20 measured workloads and one of 40 contents; questions are drawn from the same 20 workloads,
each with a name of its own, while 5 instances change once a second. Latency counts from when a question was due, so
that a service that stalls is not spared. In every round service and bare endpoint are asked in turn, and with wrk both
are asked as fast as they answer: how many times as many the bare one answers, and how many times its CPU time an answer
of the service takes, say more of the service than milliseconds, which are the machine's. Questions are dry runs, which
are stored like all others; --keep reserves, too.

--unlike asks about the clouds of research.benchmarks.unlike_hosts, where every instance has a demand of its own and no
model is trained: hosts of 64 CPUs, 10 to 30 residents each, new VMs of 20 sizes and demands, and every resident's
demand changes once in five minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from models.data.dataset import load_dataset
from models.training import train
from research.benchmarks.fastapi_baseline import ANSWER
from research.benchmarks.measuring import ONE_THREAD, circumstances, cpu_s, processes_of
from research.benchmarks.open_loop import LoadResults, ask
from research.benchmarks.unlike_hosts import made_inventory, new_vm, random_demand
from tests.servers.service import Service

DATASETS = ("datasets/lab-neighbours", "datasets/lab-colocations", "datasets/lab-findings")
WORKLOADS, RESIDENTS, CONTENTS, FEW, QUESTIONS, ROUNDS = 20, 8, 40, 5, 2000, 3
CHANGE_S = 300  # after so long every instance of a cloud without two alike hosts has changed
TARGETS = {100: 50.0, 1000: 150.0}  # p99 in ms by hosts
PATH = "/v1/placements"


@dataclass(frozen=True, slots=True)
class LoadedCloud:
    """The inventory that the service gets, and the questions that it is asked."""

    inventory: Inventory
    names: tuple[str, ...]

    @classmethod
    def of(cls, size: int) -> LoadedCloud:
        """A cloud of so many hosts of 16 pCPUs."""
        profiles = _profiles()
        names = tuple(profile.name for profile in profiles)
        random = np.random.default_rng(0)
        contents = random.choice(names, (CONTENTS, RESIDENTS))
        hosts = tuple(Host(f"h{at:05}", "lxc", pcpus=16, memory_mb=262_144, nic_mbit=10_000) for at in range(size))
        instances = tuple(
            Instance(f"i{slot}-{host.id}", vcpus=2, memory_mb=4096, host=host.id, workload=str(contents[which, slot]))
            for host, which in zip(hosts, random.integers(0, CONTENTS, size).tolist(), strict=True)
            for slot in range(RESIDENTS)
        )
        return cls(Inventory(hosts, instances, profiles), names)

    def questions(self, *, keep: bool) -> list[bytes]:
        """Bodies in the order in which they are asked."""
        chosen = np.random.default_rng(1).choice(self.names, QUESTIONS).tolist()
        return [
            json.dumps(
                {"instance": {"id": f"new-{at}", "vcpus": 2, "memory_mb": 4096, "workload": name}, "dry_run": not keep}
            ).encode()
            for at, name in enumerate(chosen)
        ]

    def change(self, turn: int) -> bytes:
        """An update in which some instances run another workload, at a load that no host had before."""
        random = np.random.default_rng(2 + turn)
        drawn = [self.inventory.instances[at] for at in random.choice(len(self.inventory.instances), FEW).tolist()]
        changed = [
            {
                "id": one.id,
                "vcpus": 2,
                "memory_mb": 4096,
                "host": one.host,
                "workload": str(random.choice(self.names)),
                "load": float(random.uniform(0.5, 1.0)),
            }
            for one in {one.id: one for one in drawn}.values()
        ]
        return json.dumps({"mode": "merge", "instances": changed}).encode()


@dataclass(frozen=True, slots=True)
class UnlikeCloud:
    """An inventory and questions as of LoadedCloud, where no two hosts are alike."""

    inventory: Inventory

    @classmethod
    def of(cls, size: int) -> UnlikeCloud:
        """A cloud of so many hosts of 64 CPUs."""
        return cls(made_inventory(size))

    def questions(self, *, keep: bool) -> list[bytes]:
        """Bodies in the order in which they are asked."""
        random = np.random.default_rng(1)
        kinds = [new_vm(random) for _ in range(WORKLOADS)]
        return [
            json.dumps({"instance": instance_body(replace(kinds[which], id=f"new-{at}")), "dry_run": not keep}).encode()
            for at, which in enumerate(random.integers(0, WORKLOADS, QUESTIONS).tolist())
        ]

    def change(self, turn: int) -> bytes:
        """An update of as many instances as have to change in a second for all to have changed after CHANGE_S."""
        random = np.random.default_rng(2 + turn)
        every = self.inventory.instances
        count = -(-len(every) // CHANGE_S)
        changed = [every[at % len(every)] for at in range(turn * count, (turn + 1) * count)]
        return json.dumps(
            {
                "mode": "merge",
                "instances": [
                    instance_body(
                        replace(one, demand={"cpu": random_demand(random, one.demand["cpu"].mean, one.vcpus)})
                    )
                    for one in changed
                ],
            }
        ).encode()


def instance_body(instance: Instance) -> dict[str, Any]:
    """An instance with its demand for CPUs, as the body of a question has it."""
    demand = {key: value for key, value in asdict(instance.demand["cpu"]).items() if value not in (None, (), "cpu")}
    demand.pop("origin")
    return {
        "id": instance.id,
        "vcpus": instance.vcpus,
        "memory_mb": instance.memory_mb,
        "demand": {"cpu": demand},
        **({"host": instance.host} if instance.host else {}),
    }


def _profiles() -> tuple[WorkloadProfile, ...]:
    """Measured profiles of WORKLOADS names, taken to hold everywhere."""
    found: dict[str, WorkloadProfile] = {}
    for path in DATASETS:
        for profile in load_dataset(Path(path)).profiles:
            found.setdefault(profile.name, replace(profile, platform=""))
    return tuple(list(found.values())[:WORKLOADS])


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--rates", default="200,20", help="questions a second, by size")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", type=Path, help="an artifact; without it one is trained on the lab's neighbours")
    parser.add_argument("--keep", action="store_true", help="questions that reserve their host")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--unlike", action="store_true", help="clouds where no two hosts are alike, by the prior")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model or (None if options.unlike else train([Path(DATASETS[0])], Path(folder)))
        sizes = [int(size) for size in options.sizes.split(",")]
        rates = [float(rate) for rate in options.rates.split(",")]
        rows = [measured(size, rate, model, options) for size, rate in zip(sizes, rates, strict=True)]
    document = {**circumstances(), "workers": options.workers, "kept": options.keep, "rows": rows}
    print(json.dumps(document, indent=1) if options.json else _shown(document))


def measured(size: int, rate: float, model: Path | None, options: argparse.Namespace) -> dict[str, Any]:
    """One cloud: every figure with how it was come by."""
    cloud = UnlikeCloud.of(size) if options.unlike else LoadedCloud.of(size)
    bodies = cloud.questions(keep=options.keep)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        running = stack.enter_context(service(Path(folder), cloud, model, options.workers))
        port = running.port
        for body in bodies[:40]:  # every worker has seen every workload
            answer = post(port, body)
        (Path(folder) / "answer.json").write_bytes(answer)
        stack.enter_context(_changing(port, cloud))
        beside = stack.enter_context(_bare(Path(folder), options.workers))
        bare = beside.port
        turns: dict[str, list[LoadResults]] = {"service": [], "bare": []}
        looked, known = _counted(port, "lookups"), _counted(port, "answers")
        for turn in range(options.rounds):
            for name, to, path, what in (("service", port, PATH, bodies), ("bare", bare, PATH, bodies)):
                turns[name].append(ask(to, path, what, rate=rate, seconds=options.seconds, seed=turn))
        return {
            "hosts": size,
            "rate": rate,
            "answer_bytes": len(answer),
            "answers": _shares(known, _counted(port, "answers")),
            "lookups": _shares(looked, _counted(port, "lookups")),
            "open_loop": {name: _figures(found) for name, found in turns.items()},
            "wrk": _wrk(Path(folder), {"service": running, "bare": beside}, bodies, options),
            "rss_mb": rss_mb(port),
        }


def _figures(turns: list[LoadResults]) -> dict[str, Any]:
    """Medians over turns, and all of them."""
    each = [{"p50_ms": turn.at(0.5), "p99_ms": turn.at(0.99), "max_ms": turn.at(1.0)} for turn in turns]
    return {
        **{name: statistics.median(one[name] for one in each) for name in each[0]},
        "answered_per_s": statistics.median(len(one.latency_ms) / one.seconds for one in turns),
        "statuses": {str(status): number for status, number in sum((one.statuses for one in turns), Counter()).items()},
        "lost": sum(one.lost for one in turns),
        "turns": each,
    }


class RunningService(NamedTuple):
    """A service that runs: its port, and the process that it was started as."""

    port: int
    pid: int


@contextlib.contextmanager
def service(
    folder: Path, cloud: LoadedCloud | UnlikeCloud, model: Path | None, workers: int
) -> Iterator[RunningService]:
    """The product itself, started as users start it, with a model or the prior alone."""
    settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=folder)
    with Advisor(settings) as advisor:
        advisor.inventory.put(cloud.inventory, mode="replace", generation=None)
        if model is not None:
            advisor.models.activate(advisor.models.register(model).version, force=True)
    with patch.dict(os.environ, ONE_THREAD):
        started = Service(settings.database, folder, "--workers", str(workers), log_level="warning")
    try:
        process = started.start().running.process
        assert process is not None
        yield RunningService(started.port, process.pid)
    finally:
        started.running.stop()


@contextlib.contextmanager
def _bare(folder: Path, workers: int) -> Iterator[RunningService]:
    """The bare endpoint under uvicorn with as many workers."""
    # A socket of ours, without Nagle's delay as the service's has none: of uvicorn's own, which leaves it on, whoever
    # waits for an answer before the next question gets each 40 ms late. Connections inherit it from their listener.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind(("127.0.0.1", 0))
    port, number = int(listener.getsockname()[1]), listener.fileno()
    app = "research.benchmarks.fastapi_baseline:app"
    argv = [sys.executable, "-m", "uvicorn", app, "--fd", str(number), "--http", "h11"]
    argv += ["--workers", str(workers), "--log-level", "warning", "--no-access-log"]
    process = subprocess.Popen(argv, env=os.environ | {ANSWER: str(folder / "answer.json")}, pass_fds=[number])
    listener.close()
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                post(port, b"{}")
                break
            time.sleep(0.1)
        yield RunningService(port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


@contextlib.contextmanager
def _changing(port: int, cloud: LoadedCloud | UnlikeCloud) -> Iterator[None]:
    """Change the cloud once a second while the block lasts."""
    over = threading.Event()

    def change() -> None:
        turn = 0
        due = time.monotonic()
        while not over.wait(max((due := due + 1.0) - time.monotonic(), 0.0)):
            post(port, cloud.change(turn), "/v1/inventory", "PUT")
            turn += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def post(port: int, body: bytes, path: str = PATH, method: str = "POST") -> bytes:
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers, method=method)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        found: bytes = answer.read()
    return found


def _counted(port: int, what: str) -> Counter[str]:
    """Answers, or predictions (`lookups`), by where they came from, of all workers."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    found = re.findall(rf'^cotenant_remembered_{what}_total{{result="(\w+)"}} (\S+)', text, re.MULTILINE)
    return Counter({result: int(float(number)) for result, number in found})


def _shares(before: Counter[str], now: Counter[str]) -> dict[str, float]:
    since = {result: now[result] - before[result] for result in now}
    return {result: number / max(sum(since.values()), 1.0) for result, number in since.items()}


def rss_mb(port: int) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
    found = re.search(r"^process_resident_memory_bytes (\S+)", text, re.MULTILINE)
    return float(found[1]) / 2**20 if found else float("nan")


def _wrk(
    folder: Path, asked: dict[str, RunningService], bodies: list[bytes], options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Answers a second with 8 connections that wait for each answer, and CPU time of each (ms), in rounds of all in
    turn, medians; nothing where wrk is not installed."""
    if shutil.which("wrk") is None:
        return {}
    (folder / "bodies").write_bytes(b"\n".join(bodies))
    script = folder / "ask.lua"
    script.write_text(
        f'bodies = {{}} for line in io.lines("{folder}/bodies") do bodies[#bodies + 1] = line end at = 0\n'
        'request = function() at = at % #bodies + 1 return wrk.format("POST", nil, '
        '{["Content-Type"] = "application/json"}, bodies[at]) end\n'
    )
    seconds, turns = (
        max(int(options.seconds), 1),
        [(name, one) for _ in range(options.rounds) for name, one in asked.items()],
    )
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in asked}
    for name, (port, pid) in turns:
        before = sum(map(cpu_s, processes_of(pid)))
        argv = ["wrk", "-t", "1", "-c", "8", "-d", f"{seconds}s", "-s", str(script), f"http://127.0.0.1:{port}{PATH}"]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        rate = float(re.search(r"Requests/sec:\s*([\d.]+)", text)[1])  # type: ignore[index]
        found[name].append((rate, 1000 * (sum(map(cpu_s, processes_of(pid))) - before) / (rate * seconds)))
    return {
        name: dict(zip(("per_s", "cpu_ms"), map(statistics.median, zip(*each, strict=True)), strict=True))
        for name, each in found.items()
    }


def _shown(document: dict[str, Any]) -> str:
    lines = [f"Ranking over HTTP, {document['workers']} workers; {document['machine']}"]
    for row in document["rows"]:
        lines.append(f"\n{row['hosts']} hosts, {row['rate']:g} questions/s")
        for name, one in row["open_loop"].items():
            target = f" (target p99 {TARGETS[row['hosts']]:g})" if name == "service" and row["hosts"] in TARGETS else ""
            lines.append(
                f"  {name:8} p50 {one['p50_ms']:7.1f}  p99 {one['p99_ms']:7.1f}  max {one['max_ms']:7.1f} ms{target}, "
                f"{one['answered_per_s']:.0f}/s, {one['statuses']}, {one['lost']} lost"
            )
        if row["wrk"]:
            own, bare = row["wrk"]["service"], row["wrk"]["bare"]
            lines.append(
                f"  as fast as they answer: {own['per_s']:.0f}/s, bare {bare['per_s']:.0f}/s, "
                f"{bare['per_s'] / own['per_s']:.1f} times as many; CPU time of an answer {own['cpu_ms']:.2f} ms, "
                f"{own['cpu_ms'] / bare['cpu_ms']:.1f} times the bare one's"
            )
            sent, predicted = row["answers"], row["lookups"]
            lines.append(
                f"  answers of {row['answer_bytes']} bytes, {sent['hit']:.1%} remembered, {sent['former']:.1%} of "
                f"a moment before; {predicted['hit']:.1%} of the predictions for the others were remembered"
            )
        lines.append(f"  memory of all workers: {row['rss_mb']} MB")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
