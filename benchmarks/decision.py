"""Speed of one decision: ranking 100 and 1,000 hosts with eight residents each, whole and the model's share.

    python -m benchmarks.decision

The baseline in the same run is the model's own predict on the same scenes. Medians of interleaved repeats.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from advisor import pinning, placement
from advisor.domain import Host, Instance, Inventory, PlacementRequest
from advisor.snapshot import ClusterSnapshot
from models.artifact import load
from models.dataset import load_dataset
from models.training import train

SIZES, RESIDENTS, REPEATS = (100, 1000), 8, 7
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def main() -> None:
    """Print one line per size."""
    datasets = sorted(path.parent for path in Path("datasets").glob("*/dataset.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        predictor = load(train(datasets, Path(folder)))
    profiles = tuple(profile for path in datasets for profile in load_dataset(path).profiles if profile.platform)
    names = sorted({profile.name for profile in profiles})
    random = np.random.default_rng(0)
    rows = []
    for size in SIZES:
        hosts = tuple(
            Host(f"h{number:05}", "lxc", pcpus=16, memory_mb=262_144, nic_mbit=10_000) for number in range(size)
        )
        instances = tuple(
            Instance(f"i{at}-{host.id}", vcpus=2, memory_mb=4096, host=host.id, workload=str(random.choice(names)))
            for host in hosts
            for at in range(RESIDENTS)
        )
        inventory = Inventory(hosts, instances, profiles)
        seen = {host.id: NOW for host in hosts}
        snapshot = ClusterSnapshot.build(inventory, seen=seen, pending=(), taken_at=NOW)
        request = PlacementRequest(Instance("new", vcpus=2, memory_mb=4096, workload=names[0]))
        options = pinning.options(snapshot.scenes, request.instance)
        asked = len(options) + 1

        def whole(snapshot: ClusterSnapshot = snapshot, request: PlacementRequest = request) -> object:
            return placement.recommend(snapshot, predictor, request, recommendation_id="b", now=NOW, fresh_s=1.0)

        def model(snapshot: ClusterSnapshot = snapshot, asked: int = asked, size: int = size) -> object:
            return predictor.predict(snapshot.scenes.take(np.tile(np.arange(size), asked)))

        times = _interleaved(whole, model)
        rows.append(
            {
                "hosts": size,
                "scenes": size * asked,
                "whole_ms": times[0],
                "model_ms": times[1],
                "whole_over_model": times[0] / times[1],
            }
        )
    if "--json" in sys.argv:
        print(json.dumps({"machine": platform.platform(), "rows": rows}, indent=1))
        return
    print(
        f"One decision, {RESIDENTS} residents per host; median of {REPEATS} interleaved repeats; {platform.platform()}"
    )
    for row in rows:
        print(
            f"{row['hosts']:5} hosts, {row['scenes']:5} scenes: whole {row['whole_ms']:8.1f} ms, predict alone "
            f"{row['model_ms']:8.1f} ms, ratio {row['whole_over_model']:.2f}"
        )


def _interleaved(*calls: Callable[[], object]) -> list[float]:
    """Median milliseconds of each call, run in turns so that noise hits all alike; the first turn warms up."""
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(REPEATS + 1):
        for number, call in enumerate(calls):
            start = time.perf_counter()
            call()
            if turn:
                taken[number].append(1000 * (time.perf_counter() - start))
    return [statistics.median(values) for values in taken]


if __name__ == "__main__":
    main()
