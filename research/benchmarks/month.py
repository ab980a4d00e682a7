"""What a month of a large cloud takes: storage and upkeep on PostgreSQL, and training from its windows.

    python -m research.benchmarks.month storage [--hosts N] [--instances N] [--json]
    python -m research.benchmarks.month training [--windows N] [--instances N] [--dask] [--json]

Everything is simulated. `storage` fills a PostgreSQL of its own as a service would have left it after 30 days: windows
of a minute for as long as samples are kept, five-minute means of the days before. It weighs the tables, then lets one
more day become old, and measures what its roll-up takes. Size and time go with the number of hosts, so a few are
measured and told per 1,000. `training` trains as `cotenant train --from-telemetry` on windows of hosts whose instances
get a known function of the prior's share, in this process and, with --dask, on Dask's workers of loopback.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import psycopg
from rich.console import Console
from rich.table import Table

from advisor.settings import Settings
from advisor.store.engine import Database
from advisor.store.migrate import upgrade
from advisor.store.retention import Retention
from advisor.store.rollups import BUCKET_S
from models import training as model_training
from models.arrays import Floats
from models.data.dataset import load_dataset
from models.data.scene import ProfileTable, build_batch
from models.data.window_dataset import SharedWindow, write_windows
from models.evaluation.comparison import errors
from models.features.examples import build_examples
from models.features.feature_matrix import WANTED
from models.learning import artifact
from models.learning.held_out import held_out_of
from models.physics.prior import PriorPredictor
from profiler.cli.run import PUSHED_WINDOW_S
from profiler.demand import Demand, Resource
from profiler.observed import Host, Instance
from research.benchmarks.announcing_agents import _of_postgres_s
from tests.servers.dask import scheduler, workers
from tests.servers.postgres import postgres

DAYS = 30
DAY_S = 86_400.0
METRICS, OF_HOST = 14, 4  # that an agent of containers pushes for each instance, and for its host
TOLD_FOR = 1_000  # hosts
GAINED = 0.75  # the power of the prior's share that simulated instances get
NOISE = 0.03


@dataclass(frozen=True, slots=True)
class MonthOfSamples:
    """Rows and bytes on disk with indexes; CPU seconds of both sides for rolling up a day of `rolled` samples."""

    hosts: int
    instances: int
    samples: int
    sample_bytes: float
    rollups: int
    rollup_bytes: float
    gigabytes_of_1000: float
    rolled: int
    roll_up_s: float
    service_cpu_s: float
    database_cpu_s: float
    cpus_of_1000: float


@dataclass(frozen=True, slots=True)
class MonthTrained:
    """Seconds of training here and on Dask's workers; the mean error of the share on left-out hosts and on the newest
    windows, prior and learned; how far the boosted trees of both are apart, and what they add (means)."""

    windows: int
    rows: int
    seconds: float
    seconds_of_dask: float | None
    peak_mb: float
    errors: dict[str, tuple[float, float]]
    apart: tuple[float, float] | None


def storage(hosts: int, instances: int) -> MonthOfSamples:
    """Fill, weigh and roll up."""
    settings = Settings()
    with postgres(durable=True) as server:
        url = server.url(server.new_database())
        database = Database(url)
        upgrade(database)
        series = hosts * (instances * METRICS + OF_HOST)
        now_s = datetime.now(UTC).timestamp() // BUCKET_S * BUCKET_S
        raw_s = now_s - settings.keep_samples_days * DAY_S
        _fill(url, series, (now_s - DAYS * DAY_S, raw_s, now_s))
        (samples, sample_bytes), (rollups, rollup_bytes) = (_weigh(url, name) for name in ("samples", "rollups"))
        per_host = settings.keep_samples_days * DAY_S / PUSHED_WINDOW_S * sample_bytes
        per_host += (DAYS - settings.keep_samples_days) * DAY_S / BUCKET_S * rollup_bytes
        later = datetime.fromtimestamp(now_s, UTC) + timedelta(days=1)
        before, began = (time.process_time(), _of_postgres_s(server)), time.monotonic()
        removed = Retention(database, settings, lambda: later).run()
        took_s = time.monotonic() - began
        cpu = time.process_time() - before[0], _of_postgres_s(server) - before[1]
        database.close()
    return MonthOfSamples(
        hosts, instances, samples, sample_bytes, rollups, rollup_bytes,
        TOLD_FOR * per_host * (instances * METRICS + OF_HOST) / 1e9,
        removed.samples, took_s, *cpu, sum(cpu) * TOLD_FOR / hosts / DAY_S,
    )  # fmt: skip


def _fill(url: str, series: int, borders: tuple[float, float, float]) -> None:
    """Rows in the order in which a service writes them: by time, so that pages of indexes are as full as there."""
    random = np.random.default_rng(1)
    begin_s, raw_s, now_s = borders
    with psycopg.connect(url) as connection:
        with connection.cursor().copy("COPY series (id, host, instance, scope, metric) FROM STDIN") as copy:
            for one in range(1, series + 1):
                copy.write_row((one, f"h{one}", "", "host", "cpu"))
        for table, columns, width_s, since_s, until_s in (
            ("rollups", "series, time_s, mean, most, number", BUCKET_S, begin_s, raw_s),
            ("samples", "series, time_s, value", PUSHED_WINDOW_S, raw_s, now_s),
        ):
            for end_s in np.arange(since_s + width_s, until_s + 1, width_s):
                values = random.uniform(0, 100, (series, 2)).round(3)
                with connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                    copy.write("".join(_lines(table, end_s, values)))
            connection.commit()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


def _lines(table: str, end_s: float, values: np.ndarray) -> Iterator[str]:
    more = "\t{}\t5\n" if table == "rollups" else "\n"
    for at, (mean, most) in enumerate(values.tolist(), 1):
        yield f"{at}\t{end_s}\t{mean}" + more.format(max(mean, most))


def _weigh(url: str, table: str) -> tuple[int, float]:
    """Rows, and bytes of each with its part of the index."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT count(*), pg_total_relation_size('{table}') FROM {table}").fetchone()
    assert rows is not None
    return rows[0], rows[1] / rows[0]


def made_windows(number: int, instances: int, seed: int = 1) -> list[SharedWindow]:
    """Windows of a month of hosts of 64 CPUs, a hundred of each host, in which everybody gets a known share."""
    random = np.random.default_rng(seed)
    hosts, vcpus, scenes = max(number // 100, 12), round(128 / instances), []
    for at in range(number):
        busy = random.uniform(0.5, 1.3)  # of what the host has, wanted: windows that are kept are mostly contended ones
        there = []
        for one in range(instances):
            cpus = float(np.clip(random.gamma(3.0, busy * 64 / instances / 3), 0.05, vcpus - 0.1))
            demand: dict[Resource, Demand] = {
                "cpu": Demand(cpus, common=0.0, origin="measured", burst_ms=float(random.choice([5.0, 30.0])))
            }
            there.append(Instance(f"h{at % hosts}-i{one}", vcpus=vcpus, demand=demand, load=1.0))
        host = Host(f"h{at % hosts}", "kvm", pcpus=64, memory_mb=262_144.0)
        scenes.append((host, tuple(there), BUCKET_S * (at // hosts + 1)))
    found: list[SharedWindow] = []
    for begin in range(0, number, 500):
        some = scenes[begin : begin + 500]
        batch = build_batch([(host, there) for host, there, _ in some], ProfileTable.build(()))
        said = PriorPredictor().predict(batch, ()).throughput.expected ** GAINED
        got = np.clip(said * np.exp(random.normal(0, NOISE, said.shape)), 0.01, 1.0)
        found += [
            SharedWindow(host, there, {one.id: float(got[at, slot]) for slot, one in enumerate(there)}, ends_s)
            for at, (host, there, ends_s) in enumerate(some)
        ]
    return found


def training(number: int, instances: int, *, dask: bool) -> MonthTrained:
    """Train here, and on two workers of a Dask cluster, too."""
    with tempfile.TemporaryDirectory(prefix="cotenant-month-") as path:
        folder = Path(path)
        (folder / "windows").mkdir()
        write_windows(folder / "windows", "month", made_windows(number, instances), origin="simulated")
        here, seconds = _trained(folder, "here", None)
        told = {
            one.protocol: (float(errors(one, one.prior).mean()), float(errors(one, one.expected).mean()))
            for one in held_out_of(here)
        }
        there_s, apart = None, None
        if dask:
            with scheduler() as address, workers(address):
                there, there_s = _trained(folder, "there", address)
            mine, other = _boosted(here, folder), _boosted(there, folder)
            apart = float(np.abs(mine - other).mean()), float(np.abs(mine).mean())
        rows = sum(len(one.outcomes) for one in load_dataset(folder / "windows").colocations)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return MonthTrained(number, rows, seconds, there_s, peak_mb, told, apart)


def _trained(folder: Path, name: str, address: str | None) -> tuple[Path, float]:
    began = time.monotonic()
    return model_training.train([folder / "windows"], folder / name, scheduler=address), time.monotonic() - began


def _boosted(model: Path, folder: Path) -> Floats:
    """What the boosted trees of a model add to log(share / prior) in windows, the first ten thousand rows of them."""
    share = artifact.load(model).share
    assert share is not None and share.model.base_learners is not None
    examples = build_examples([load_dataset(folder / "windows")], (WANTED,), target="share")
    return share.model.base_learners.predict(examples.x[:10_000], examples.base[:10_000])[:, 0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_subparsers(dest="what", required=True)
    stored, learned = what.add_parser("storage"), what.add_parser("training")
    stored.add_argument("--hosts", type=int, default=3)
    learned.add_argument("--windows", type=int, default=10_000)
    learned.add_argument("--dask", action="store_true", help="train on two workers of a Dask cluster")
    for one in (stored, learned):
        one.add_argument("--instances", type=int, default=30, help="of each host")
        one.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if given.what == "storage":
        found = asdict(storage(given.hosts, given.instances))
    else:
        found = asdict(training(given.windows, given.instances, dask=given.dask))
    if given.json:
        print(json.dumps(found))
        return 0
    table = Table("", "simulated", title=f"a month, {given.what}")
    for name, value in found.items():
        table.add_row(name, f"{value:,.3f}" if isinstance(value, float) else f"{value}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
