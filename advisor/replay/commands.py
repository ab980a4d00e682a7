"""Replays of trace files for the command line; heavy modules are imported on use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.domain import Host, Inventory, Replay, ReplayRequest
from advisor.errors import InvalidInput
from advisor.extras import require
from advisor.inventories.static import load_inventory
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.progress import Progress
from advisor.settings import Settings

# A usual size of host; another one is the caller's to name.
HOST_TYPE = Host("host", "kvm", pcpus=32, memory_mb=262_144.0, nic_mbit=10_000.0)


def replay_trace(
    path: Path,
    request: ReplayRequest,
    *,
    form: str | None = None,
    interval_s: float = 300.0,
    most_instances: int | None = None,
    host_type: Path | None = None,
    model: Path | None = None,
    settings: Settings,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Replay a trace file under several policies, with the active model or the one in the folder `model`.

    `host_type` is an inventory file with one host, the type of all hosts, and with the workloads and datasets that
    instances may run. InvalidInput names file and field.
    """
    require("traces", "a replay")
    from advisor.replay.coordinator import replay  # imports readers and predictors, so it is imported on use
    from advisor.replay.traces import load_trace

    cloud = Inventory((HOST_TYPE,)) if host_type is None else load_inventory(host_type)
    if len(cloud.hosts) != 1:
        message = f"{host_type} has {len(cloud.hosts)} hosts; exactly one describes the type of all hosts"
        raise InvalidInput(message, field="host_type")
    if not cloud.hosts[0].enabled:
        raise InvalidInput(
            f"{host_type}: host {cloud.hosts[0].id} is disabled; no policy could use it", field="host_type"
        )
    chosen = active.newest(settings.model_dir) if model is None else ActivePredictor(active.load(model))
    trace, unsaid = load_trace(path, form=form, interval_s=interval_s, most_instances=most_instances)
    return replay(
        trace,
        unsaid,
        request,
        chosen,
        host=cloud.hosts[0],
        workloads=cloud.workloads,
        now=datetime.now(UTC),
        cluster=cluster,
        progress=progress,
    )


def replay_as_json(replay: Replay) -> Mapping[str, Any]:
    """Every number of a replay as plain values."""
    return {**asdict(replay), "generated_at": replay.generated_at.isoformat()}
