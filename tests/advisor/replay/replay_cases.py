"""Small traces, as arrays and as files, and replays of them."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from advisor.domain import Host, Replay, Replayed, ReplayRequest, WorkloadProfile
from advisor.prediction.active import ActivePredictor
from advisor.replay.coordinator import replay
from advisor.replay.grid import Trace
from models.physics.prior import PriorPredictor

STEP_S = 300.0
WHEN = datetime(2026, 1, 2, tzinfo=UTC)
HOST = Host("host", "kvm", pcpus=4, memory_mb=16_384.0, nic_mbit=1000.0, cpu_overcommit=4.0)
PUBLIC = Path(__file__).parents[4] / "shared" / "data" / "traces"
Row = Mapping[str, Any]


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Sequence[Row]) -> Path:
    parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def made_trace(instances: int = 12, steps: int = 24, *, seed: int = 0, net: bool = False) -> Trace:
    """Instances of 1-2 vCPUs that come and go, with demands that vary."""
    random = np.random.default_rng(seed)
    cpu = random.uniform(0.05, 1.0, (steps, instances)).astype(np.float32)
    comes, stays = random.integers(0, steps // 2, instances), random.integers(4, steps, instances)
    for who in range(instances):
        cpu[: 0 if who % 2 else comes[who], who] = np.nan
        cpu[comes[who] + stays[who] :, who] = np.nan
    return Trace(
        name="made",
        form="csv",
        interval_s=STEP_S,
        ids=tuple(f"vm{who}" for who in range(instances)),
        vcpus=random.integers(1, 3, instances),
        memory_mb=np.full(instances, 1024.0),
        workloads=(None,) * instances,
        cpu=cpu,
        net_mbit=random.uniform(0, 300, cpu.shape).astype(np.float32) if net else None,
    )


def replayed(
    trace: Trace, request: ReplayRequest | None = None, *, workloads: Sequence[WorkloadProfile] = (), **options: Any
) -> Replay:
    """A replay in this process, by the analytic model."""
    return replay(
        trace,
        (),
        request or ReplayRequest(hosts=6),
        ActivePredictor(PriorPredictor()),
        workloads=workloads,
        now=WHEN,
        **{"processes": 1, "host": HOST, **options},
    )


def timeless(policies: Sequence[Replayed]) -> list[Replayed]:
    """What two replays of the same have in common: not how long decisions took."""
    return [replace(one, decision_s=0.0, longest_decision_s=0.0) for one in policies]
