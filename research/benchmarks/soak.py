"""Memory of a service that is asked for an hour what no question was asked before: is there anything that it never lets
go of?

    python -m research.benchmarks.soak [--minutes 60] [--warm-up 20] [--hosts 100] [--rate 10] [--workers 1]
                              [--every 30] [--model DIRECTORY] [--prior] [--folder FOLDER]

A service of its own on SQLite is asked `rate` questions a second, no two alike: another name, load, size and limit
each; one in KEPT of them is no dry run and holds its host. Beside them hosts report samples, instances change, hosts
come and go under new names, lists and pages are read, outcomes are reported and plans are made. Every `every` seconds
the memory of all its processes is read: resident (RSS), its share of what processes share (PSS), and what it has
written itself (anonymous).

Written are `soak.csv`, one row for each reading, and `soak.png`; printed are the readings, and by how many KB memory
grew per 1,000 questions after the warm-up, with a 95 % interval from the means of STRETCHES stretches of time: single
readings lie too close together to be independent. With 0 in the interval the growth cannot be distinguished from none.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from models.training import train
from profiler.pictures import SERIES, label, legend, line_at, new_figure, save
from research.benchmarks.http_load import DATASETS, LoadedCloud, service
from research.benchmarks.measuring import cpu_s, processes_of

STRETCHES = 10  # of the time after the warm-up
TIMEOUT_S = 180.0  # a busy machine makes answers late; the service itself refuses what takes 60 s
ASKERS = 4  # connections that ask questions
KEPT = 20  # one of so many questions holds its host
NEW = 20  # one of so many is at a load that was never asked about, which the model must be asked for every host
BUSY = {"samples": 1.0, "inventory": 0.5, "hosts": 0.2, "reads": 1.0, "outcomes": 0.2, "plans": 0.02}  # a second
PAGES = ("/cloud", "/placements", "/", "/v1/hosts?limit=20", "/v1/instances?limit=20", "/v1/audit?limit=5", "/metrics",
         "/v1/inventory", "/plans", "/models", "/hosts/h00001", "/v1/no-such-thing")  # fmt: skip

Request = tuple[str, str, Any]  # method, path, body
Make = Callable[[int], Request]


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """All processes of the service after `seconds` and so many `questions`; memory in KB, CPU time in seconds."""

    seconds: float
    questions: int
    rss_kb: int
    pss_kb: int
    anonymous_kb: int
    cpu_s: float
    processes: int


@dataclass(frozen=True, slots=True)
class Slope:
    """KB per 1,000 questions, and where it lies with 95 % confidence."""

    value: float
    low: float
    high: float


class Traffic:
    """What is asked, and how often each answer came; `questions` counts those for a host."""

    def __init__(self, port: int, cloud: LoadedCloud) -> None:
        self.port = port
        self.cloud = cloud
        self.statuses: Counter[int] = Counter()
        self.questions = 0
        self._counting = threading.Lock()
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self._answered: dict[str, Any] | None = None  # the last answer that has a host
        self._threads: list[threading.Thread] = []

    def start(self, rate: float) -> None:
        askers = [partial(self._turn, asker) for asker in range(ASKERS)]
        kinds: list[tuple[Make, float]] = [(make, rate / ASKERS) for make in askers]
        kinds += [(getattr(self, f"_{name}"), per_s) for name, per_s in BUSY.items()]
        self._threads = [threading.Thread(target=self._ask, args=kind) for kind in kinds]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Raises what went wrong in any thread."""
        self._over.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def check(self) -> None:
        if self._failed:
            raise self._failed[0]

    def _turn(self, asker: int, turn: int) -> Request:
        return self._question(turn * ASKERS + asker)

    def _ask(self, make: Make, per_s: float) -> None:
        """Ask one question after the other at the times that the rate gives, a late one at once."""
        began, connection = time.monotonic(), http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            for turn in range(10**9):
                if self._over.wait(max(began + turn / per_s - time.monotonic(), 0.0)):
                    return
                method, path, body = make(turn)
                text = None if body is None else json.dumps(body)
                connection.request(method, path, text, {"Content-Type": "application/json"})
                with connection.getresponse() as answer:
                    self._count(path, answer.status, answer.read())
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._failed.append(error)
        finally:
            connection.close()

    def _count(self, path: str, status: int, body: bytes) -> None:
        with self._counting:
            self.statuses[status] += 1
            if path == "/v1/placements":
                self.questions += 1
                document = json.loads(body)
                if document.get("candidates"):
                    self._answered = document

    def _question(self, turn: int) -> Request:
        chance = random.Random(turn)
        instance = {
            "id": f"new-{turn}",
            "vcpus": chance.choice((1, 2, 4)),
            "memory_mb": chance.randint(1024, 8192),
            "workload": chance.choice(self.cloud.names),
            "load": chance.uniform(0.3, 1.0) if turn % NEW == 0 else chance.randint(6, 20) / 20,
        }
        question = {"instance": instance, "dry_run": chance.randrange(KEPT) > 0, "limit": chance.randint(1, 5)}
        return "POST", "/v1/placements", question

    def _samples(self, turn: int) -> Request:
        host = self.cloud.inventory.hosts[turn % len(self.cloud.inventory.hosts)].id
        now = datetime.now(UTC).isoformat()
        return "POST", "/v1/samples", {
            "samples": [
                {"host": host, "instance": f"i{slot}-{host}", "scope": "instance", "metric": metric, "value": turn % 97,
                 "time": now}
                for slot in range(8)
                for metric in ("cpu", "net_mbit", "disk_mb_s", "mem_bw_mb_s", "ipc")
            ]
        }  # fmt: skip

    def _inventory(self, turn: int) -> Request:
        return "PUT", "/v1/inventory", json.loads(self.cloud.change(turn))

    def _hosts(self, turn: int) -> Request:
        """Add a host that was never there, and remove it again."""
        path = f"/v1/hosts/passing-{turn // 2}"
        if turn % 2:
            return "DELETE", path, None
        return "PUT", path, {"kind": "lxc", "pcpus": 16, "memory_mb": 262_144, "nic_mbit": 10_000}

    def _reads(self, turn: int) -> Request:
        return "GET", PAGES[turn % len(PAGES)], None

    def _outcomes(self, turn: int) -> Request:
        del turn
        with self._counting:
            answered = self._answered
        if answered is None:
            return "GET", "/healthz", None
        first = answered["candidates"][0]
        kept = {one["instance"]: one["throughput_ratio"]["expected"] for one in first["neighbours"]}
        path = f"/v1/placements/{answered['id']}/outcome"
        return "POST", path, {"host": first["host"], "throughput_ratios": kept}

    def _plans(self, turn: int) -> Request:
        new_vms = [{"id": f"planned-{turn}-{at}", "vcpus": 2, "workload": self.cloud.names[at]} for at in range(3)]
        return "POST", "/v1/plans", {"instances": new_vms, "time_limit_s": 1}


@contextmanager
def asked(port: int, cloud: LoadedCloud, rate: float) -> Iterator[Traffic]:
    """Ask the service while the block lasts."""
    traffic = Traffic(port, cloud)
    traffic.start(rate)
    try:
        yield traffic
    finally:
        traffic.stop()


def read(pid: int, seconds: float, questions: int) -> ServiceReading:
    """The memory of a process and all that it started (proc(5), smaps_rollup)."""
    total: Counter[str] = Counter()
    pids = processes_of(pid)
    for one in pids:
        for line in Path(f"/proc/{one}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            name, _, value = line.partition(":")
            total[name] += int(value.split()[0])
    cpu = sum(map(cpu_s, pids))
    return ServiceReading(seconds, questions, total["Rss"], total["Pss"], total["Anonymous"], cpu, len(pids))


def slope(questions: Sequence[float], kb: Sequence[float], parts: int = STRETCHES) -> Slope:
    """The least-squares slope through the means of consecutive segments of readings."""
    across = [float(part.mean()) for part in np.array_split(np.asarray(questions, dtype=float) / 1000, parts)]
    up = [float(part.mean()) for part in np.array_split(np.asarray(kb, dtype=float), parts)]
    found = stats.linregress(across, up)
    half = float(stats.t.ppf(0.975, parts - 2)) * float(found.stderr)
    return Slope(float(found.slope), float(found.slope) - half, float(found.slope) + half)


def soak(options: argparse.Namespace) -> list[ServiceReading]:
    """Send questions for this time; each reading is written at once."""
    cloud = LoadedCloud.of(options.hosts)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cotenant-soak-")))
        model = None
        if not options.prior:
            model = options.model or train([Path(DATASETS[0])], folder)
        running = stack.enter_context(service(folder, cloud, model, options.workers))
        out = stack.enter_context((options.folder / "soak.csv").open("w", encoding="ascii", newline=""))
        table = csv.writer(out)
        table.writerow([field.name for field in fields(ServiceReading)])
        traffic = stack.enter_context(asked(running.port, cloud, options.rate))
        readings: list[ServiceReading] = []
        began = time.monotonic()
        while not readings or readings[-1].seconds < options.minutes * 60:
            time.sleep(max(began + len(readings) * options.every - time.monotonic(), 0.0))
            traffic.check()
            readings.append(read(running.pid, time.monotonic() - began, traffic.questions))
            table.writerow(asdict(readings[-1]).values())
            out.flush()
        print(f"answers by status: {dict(sorted(traffic.statuses.items()))}")
    return readings


def draw(found: Sequence[ServiceReading], warm_up_s: float, path: Path) -> None:
    """Memory over time; the warm-up ends at the line."""
    figure, (axes,) = new_figure(width=8.0, height=4.0)
    minutes = [one.seconds / 60 for one in found]
    for name, colour in zip(("rss_kb", "pss_kb", "anonymous_kb"), SERIES, strict=False):
        axes.plot(minutes, [getattr(one, name) / 1024 for one in found], color=colour, label=name.removesuffix("_kb"))
    line_at(axes, warm_up_s / 60, vertical=True)
    axes.set_ylim(bottom=0)
    label(axes, "Memory of the service, all processes", "minutes", "MB")
    legend(axes, loc="lower right")
    save(figure, path)


def main() -> None:
    """Print a table and the slope."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=20.0, help="minutes that the slope leaves out")
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--rate", type=float, default=10.0, help="questions a second")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two readings")
    parser.add_argument("--model", type=Path, help="an artifact; without it one is trained on the lab's neighbours")
    parser.add_argument("--prior", action="store_true", help="no model at all")
    parser.add_argument("--folder", type=Path, default=Path(), help="where soak.csv and soak.png go")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    readings = soak(options)
    draw(readings, options.warm_up * 60, options.folder / "soak.png")
    print(" minutes  questions  RSS MB  PSS MB  anonymous MB  CPU %")
    for former, one in pairwise(readings):
        cpu = 100 * (one.cpu_s - former.cpu_s) / (one.seconds - former.seconds)
        print(
            f"{one.seconds / 60:8.1f}  {one.questions:9,}  {one.rss_kb / 1024:6.1f}  {one.pss_kb / 1024:6.1f}"
            f"  {one.anonymous_kb / 1024:12.1f}  {cpu:5.1f}"
        )
    warm = [one for one in readings if one.seconds >= options.warm_up * 60]
    if len(warm) < 2 * STRETCHES:
        print("too few readings after the warm-up for a slope")
        return
    for name in ("rss_kb", "pss_kb", "anonymous_kb"):
        growth = slope([each.questions for each in warm], [getattr(each, name) for each in warm])
        print(
            f"{name.removesuffix('_kb'):9}  {growth.value:+.1f} KB per 1,000 questions (95 %: {growth.low:+.1f} to"
            f" {growth.high:+.1f})"
        )


if __name__ == "__main__":
    main()
