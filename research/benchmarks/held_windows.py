"""What it costs to hold windows against predictions, and to look at how arrivals fare: CPU time of a push and a pass.

Simulated agents on a cloud of hosts that are alike, on SQLite: ``python -m research.benchmarks.held_windows``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import numpy as np

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from models.physics import cpu_contention
from profiler.observed import MetricSample

WINDOW_S = 300.0
PERIOD_S = 60.0  # of samples; what a window costs does not depend on it


@dataclass
class SimulatedAgents:
    """Hosts of 64 CPUs with instances of 4, the busier the higher their number."""

    hosts: int
    instances: int
    now: datetime = datetime(2026, 1, 2, tzinfo=UTC)
    pushes_s: list[float] = field(default_factory=list)
    passes_s: list[float] = field(default_factory=list)
    looks_s: list[float] = field(default_factory=list)

    def __call__(self) -> datetime:
        return self.now

    def inventory(self) -> Inventory:
        hosts = tuple(Host(f"h{at:04}", "kvm", pcpus=64, memory_mb=1e6) for at in range(self.hosts))
        there = (
            Instance(f"{host.id}-{at:03}", vcpus=4, memory_mb=4096, host=host.id)
            for host in hosts
            for at in range(self.instances)
        )
        return Inventory(hosts, tuple(there))

    def window(self, advisor: Advisor, random: np.random.Generator, inventory: Inventory) -> None:
        """One window: a pass before it, and what every agent pushes in it."""
        begin_s = self.now.timestamp()
        started = time.process_time()
        advisor.hold_windows()
        self.passes_s.append(time.process_time() - started)
        started = time.process_time()
        advisor.look_at_arrivals()
        self.looks_s.append(time.process_time() - started)
        for at in range(round(WINDOW_S / PERIOD_S)):
            time_s = begin_s + PERIOD_S * at + 1
            self.now = datetime.fromtimestamp(time_s, UTC)
            for number, host in enumerate(inventory.hosts):
                busy = 64 / self.instances * (0.5 + 0.6 * number / self.hosts)
                runs = busy * random.gamma(25.0, 1 / 25.0, self.instances)
                batch = [
                    MetricSample(host.id, f"{host.id}-{who:03}", "instance", metric, 100 * value, time_s)
                    for who, run in enumerate(np.minimum(runs, 4.0).tolist())
                    for metric, value in (("cpu", run), ("waiting", 0.05 * run), ("net_mbit", 0.1), ("disk_mb_s", 0.01))
                ]
                started = time.process_time()
                advisor.telemetry.ingest(batch)
                self.pushes_s.append(time.process_time() - started)
        self.now = datetime.fromtimestamp(begin_s, UTC) + timedelta(seconds=WINDOW_S)


def main() -> None:
    """Run the agents and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--instances", type=int, default=30, help="on each host")
    parser.add_argument("--windows", type=int, default=10)
    asked = parser.parse_args()
    cpu_contention.compile_all()
    agents, random = SimulatedAgents(asked.hosts, asked.instances), np.random.default_rng(0)
    inventory = agents.inventory()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(database=f"sqlite:///{folder}/cotenant.sqlite3", state_dir=Path(folder))
        with Advisor(settings, clock=agents) as advisor:
            last = f"-{asked.instances - 1:03}"
            before = tuple(one for one in inventory.instances if not one.id.endswith(last))
            advisor.inventory.put(replace(inventory, instances=before), mode="replace", generation=None)
            advisor.look_at_arrivals()
            advisor.inventory.put(inventory, mode="replace", generation=None)
            started = time.process_time()
            advisor.look_at_arrivals()
            noted_s = time.process_time() - started
            for _ in range(asked.windows):
                agents.window(advisor, random, inventory)
            told = advisor.outcomes.quality("prior").windows
    held = sum(one.scenes for one in told if one.question == "forecast" and not one.level)
    print(f"{asked.hosts} hosts of {asked.instances} instances, {asked.windows} windows, {held} scenes of hosts held")
    print(f"push: median {1000 * median(agents.pushes_s):.1f} ms of CPU time, {len(agents.pushes_s)} pushes")
    busy = agents.passes_s[4:]  # from the first that holds windows and tells others
    print(f"pass: median {1000 * median(busy):.0f} ms, most {1000 * max(busy):.0f} ms of CPU time, one in five minutes")
    looked = agents.looks_s[2:]
    print(
        f"arrivals: {1000 * noted_s:.0f} ms to note one on each host, then median {1000 * median(looked):.0f} ms, most "
        f"{1000 * max(looked):.0f} ms to look at a window of 20 hosts, one in a minute at most"
    )


if __name__ == "__main__":
    main()
