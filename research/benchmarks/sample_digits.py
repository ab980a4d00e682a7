"""What fewer digits of samples change in what is learned and answered.

    python -m research.benchmarks.sample_digits [--hours H]

Services in this process get the same simulated windows (`sample_stores`) of ten hosts, with all digits, as an agent
rounds them, and with two digits, and are asked where a new VM goes. Compared with all digits: demand of each VM and
resource, CPU delivered, the order of the hosts, and the new VM's relative throughput on each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from advisor.domain import Instance, PlacementRequest
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import demands
from advisor.telemetry.layouts import SentWindow, WindowRow
from models.profiling.demand_estimation import estimated
from models.profiling.tallies import Tallies
from profiler.agent.spool import short
from profiler.metrics import Scope
from profiler.observed import MetricSample
from research.benchmarks.measuring import circumstances
from research.benchmarks.sample_stores import HOSTS, WINDOW_S, Sender, cloud

FIGURES = ("mean", "spread", "p50", "p95", "p99")


@dataclass(frozen=True, slots=True)
class Known:
    """Demand by instance, resource and figure; CPU delivered by instance; the new VM's ratio by host, best first."""

    demand: dict[tuple[str, str, str], float]
    delivered: dict[str, float]
    hosts: dict[str, float]


def known(shorten: Callable[[float, str], float], hours: float) -> Known:
    """What a service knows and says after some hours of windows."""
    with tempfile.TemporaryDirectory(prefix="cotenant-digits-") as folder:
        settings = Settings(database=f"sqlite:///{folder}/cotenant.sqlite3", state_dir=Path(folder))
        with Advisor(settings) as advisor:
            advisor.inventory.put(cloud(), mode="replace", generation=None)
            senders, number = [Sender(one, rounded=False) for one in range(HOSTS)], int(hours * 3600 / WINDOW_S)
            begin_s = time.time() // 300 * 300 - number * WINDOW_S + 1.0
            for at in range(number):
                for sender in senders:
                    sent = sender.window(begin_s + at * WINDOW_S)
                    advisor.telemetry.ingest_windows([_window(sent, shorten)])
            asked = PlacementRequest(Instance("new", vcpus=4), limit=HOSTS)
            candidates = advisor.placements.place(asked).recommendation.candidates
            hosts = {one.host: one.new_vm.throughput_ratio.expected for one in candidates if one.new_vm is not None}
            with advisor._transactions.read() as connection:
                rows = connection.execute(sa.select(demands.demands)).all()
                waits = advisor._transactions.samples.run_and_wait(connection, begin_s, time.time())
            delivered = {name: one["cpu"] / (one["cpu"] + one["waiting"]) for (_, name), one in waits.items()}
            demand = {
                (row.instance, row.resource, figure): float(getattr(learned, figure) or 0.0)
                for row in rows
                for learned in [estimated(Tallies.of([row.resource], [row.state]).tally(0), vcpus=2)]
                for figure in FIGURES
            }
            return Known(demand, delivered, hosts)


def _window(sent: Sequence[MetricSample], shorten: Callable[[float, str], float]) -> SentWindow:
    rows: dict[tuple[str | None, Scope], dict[str, float]] = {}
    for sample in sent:
        rows.setdefault((sample.instance, sample.scope), {})[sample.metric] = shorten(sample.value, sample.metric)
    metrics = list(dict.fromkeys(sample.metric for sample in sent))
    table = [WindowRow(*key, [values.get(metric) for metric in metrics]) for key, values in rows.items()]
    return SentWindow(sent[0].host, sent[0].time_s, metrics, table)


def furthest(one: dict[str, float], other: dict[str, float]) -> float:
    """The largest relative difference."""
    return max(abs(one[key] - other[key]) / max(abs(one[key]), 1e-9) for key in one)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--hours", type=float, default=2.0)
    options = parser.parse_args(arguments)
    full = known(lambda value, _: value, options.hours)
    print(
        "Beside all digits, simulated senders, {hours} h: {date}, {machine}".format(
            hours=options.hours, **circumstances()
        )
    )
    ways: dict[str, Callable[[float, str], float]] = {
        "as agents round": short,
        "two digits": lambda value, _: float(f"{value:.2g}"),
    }
    for name, shorten in ways.items():
        found = known(shorten, options.hours)
        by_figure = [f"{figure} {100 * _of(full, found, figure):.3f}" for figure in FIGURES]
        print(
            f"{name}, largest differences in %: demand {', '.join(by_figure)}; CPU delivered "
            f"{100 * furthest(full.delivered, found.delivered):.3f}; the new VM's ratio "
            f"{100 * furthest(full.hosts, found.hosts):.3f}; order of {len(full.hosts)} hosts "
            f"{'the same' if list(full.hosts) == list(found.hosts) else 'another'}"
        )
    return 0


def _of(full: Known, found: Known, figure: str) -> float:
    """The largest difference of one figure of demand, in means of that instance and resource."""
    return max(
        abs(value - found.demand[key]) / max(full.demand[*key[:2], "mean"], 1e-9)
        for key, value in full.demand.items()
        if key[2] == figure and key in found.demand
    )


if __name__ == "__main__":
    raise SystemExit(main())
