"""Runs a replay: validates the request, splits it into tasks, executes them, and merges their results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from advisor.background import spread
from advisor.deadline import Progress
from advisor.domain import (
    OBJECTIVES,
    PLAN_FOR,
    REPLAY_JUDGES,
    Host,
    Inventory,
    PlanFor,
    Replay,
    ReplayJudge,
    ReplayRequest,
    WorkloadProfile,
)
from advisor.errors import InvalidInput
from advisor.inventories.static import load_inventory
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.replay import simulation
from advisor.replay.grid import Trace
from advisor.replay.packed_cloud import QUANTILES, TraceDemand, demand_of, fewest_kept, room
from advisor.replay.simulation import ADVISED, BOUND, POLICIES, FairShares, SimulationTask, policy_named, simulate
from advisor.rounding import with_slack
from advisor.settings import Settings
from advisor.validation import check_one_of, check_unique, check_value
from models.physics.prior import PriorPredictor
from models.prediction import Predictor

# Replays of trace files for the command line; heavy modules are imported on use.

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
    from advisor.replay.trace_formats import load_trace

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


DAY_S = 86_400.0
SPARE_FACTOR = 1.5  # hosts relative to the busiest moment, where the request names no number
MAX_HOSTS, MAX_SEEDS = 100_000, 100


def replay(
    trace: Trace,
    unsaid: Sequence[str],
    request: ReplayRequest,
    chosen: ActivePredictor,
    *,
    host: Host,
    workloads: Sequence[WorkloadProfile] = (),
    now: datetime,
    processes: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Replay a trace under policies on identical hosts like `host`.

    Instances run `workloads` where the trace names none. Every policy, seed and shard is a separate task
    (advisor.background), in processes or on the Dask `cluster` with this address. InvalidInput names the field.
    """
    named = POLICIES if request.policies is None else tuple(map(policy_named, request.policies))
    request = replace(request, policies=named)
    _check(trace, request, host)
    host = replace(host, labels={}, probed=dict(host.probed))  # a mapping proxy cannot be pickled
    first = _first_step(trace, request)
    hosts = request.hosts or _enough(trace, host)
    if hosts < request.shards:
        raise InvalidInput(f"{hosts} hosts cannot be dealt out to {request.shards} shards", field="shards")
    judges: dict[ReplayJudge, Predictor] = {
        "demand": FairShares(),
        "model": chosen.predictor,
        "analytic": PriorPredictor(),
    }
    evaluator = judges[request.judge]
    demands = {seed: demand_of(trace, unsaid, host, workloads, seed) for seed in request.seeds}
    every = max(1, round(request.rebalance_s / trace.interval_s)) if request.rebalance_s else 0
    tasks = [
        SimulationTask(
            policy=policy,
            seed=seed,
            demand=_shard(demands[seed], shard, request.shards),
            hosts=len(range(shard, hosts, request.shards)),
            predictor=chosen.predictor,
            evaluator=evaluator,
            first=first,
            keep_ratio=request.keep_ratio,
            objective=request.objective,
            plan_for=request.plan_for,
            rebalance_steps=every,
        )
        for policy, seed, shard in product(named, request.seeds, range(request.shards))
    ]
    runs = spread(simulate, tasks, processes=processes, cluster=cluster, progress=progress)
    policies = tuple(
        simulation.replayed([run for run in runs if run.policy == policy], request.seeds) for policy in named
    )
    return Replay(
        trace=trace.name,
        form=trace.form,
        instances=len(trace),
        steps=trace.steps - first,
        interval_s=trace.interval_s,
        times_s=tuple((np.arange(first, trace.steps) * trace.interval_s).tolist()),
        hosts=hosts,
        host_type=_described(host),
        keep_ratio=request.keep_ratio,
        seeds=request.seeds,
        assumptions=(*demands[request.seeds[0]].assumptions, *_assumed(trace, request, first, every)),
        model_version=chosen.predictor.version,
        model_origin=chosen.predictor.origin,
        policies=policies,
        conclusion=simulation.conclusion(
            policies,
            request.keep_ratio,
            judge="model" if evaluator.version == chosen.predictor.version else request.judge,
        ),
        generated_at=now,
        judge_version=evaluator.version,
        judge_origin=evaluator.origin,
        shards=request.shards,
    )


def _check(trace: Trace, request: ReplayRequest, host: Host) -> None:
    check_value(request)
    check_one_of("objective", request.objective, OBJECTIVES)
    check_one_of("judge", request.judge, REPLAY_JUDGES)
    check_one_of("plan_for", request.plan_for, PLAN_FOR)
    check_unique(request.policies or (), "policy")
    check_unique(request.seeds, "seed")
    if request.policies == ():
        raise InvalidInput("policies: none is named", field="policies")
    for field, value, least, most in (
        ("keep_ratio", request.keep_ratio, 0.01, 1.0),
        ("hosts", 1 if request.hosts is None else request.hosts, 1, MAX_HOSTS),
        ("shards", request.shards, 1, len(trace)),
        ("seeds", len(request.seeds), 1, MAX_SEEDS),
    ):
        if not least <= value <= most:
            raise InvalidInput(f"{field} {value:g} is outside {least:g} to {most:g}", field=field)
    vcpus, memory_mb = room(host)
    for who, (cpus, memory) in enumerate(zip(trace.vcpus.tolist(), trace.memory_mb.tolist(), strict=True)):
        if cpus > min(with_slack(vcpus), host.pcpus) or memory > with_slack(memory_mb):
            raise InvalidInput(
                f"instance {trace.ids[who]} has {cpus} vCPUs and {memory:g} MB, which no host of {host.pcpus} pCPUs "
                f"and {host.memory_mb:g} MB can take; give a larger host type",
                field="host_type",
            )


def _counted(plan_for: PlanFor) -> str:
    if plan_for == "hours":
        return "as it varied, over the hours of a day, too, once a day was seen"
    if plan_for == "mean":
        return "the mean of an instance's last day"
    return f"what was enough for {100 * QUANTILES[plan_for]:g} % of an instance's last day"


def _enough(trace: Trace, host: Host) -> int:
    return math.ceil(SPARE_FACTOR * max(fewest_kept(trace, host, step, 1.0) for step in range(trace.steps)))


def _first_step(trace: Trace, request: ReplayRequest) -> int:
    history = DAY_S if request.history_s is None else request.history_s
    first = math.ceil(history / trace.interval_s - 1e-9)
    if request.history_s is None:
        return min(first, trace.steps // 4)
    if first >= trace.steps:
        whole = trace.steps * trace.interval_s
        trace_s = f"the trace, which has {whole:g} s in steps of {trace.interval_s:g}"
        raise InvalidInput(f"history {history:g} s leaves nothing to replay of {trace_s}", field="history")
    return first


def _shard(demand: TraceDemand, shard: int, shards: int) -> TraceDemand:
    return demand if shards == 1 else demand.of(np.arange(shard, len(demand.trace), shards))


def _described(host: Host) -> str:
    return (
        f"{host.kind}, {host.pcpus} pCPUs at overcommit {host.cpu_overcommit:g}, {host.memory_mb / 1024:g} GB of "
        f"memory at {host.memory_overcommit:g}"
    )


def _assumed(trace: Trace, request: ReplayRequest, first: int, every: int) -> list[str]:
    """The assumptions of a replay beside what the trace lacks; `every` = steps between rebalances."""
    policies = request.policies or ()
    assumptions = [
        "Demand is what the trace says on every host: an instance that is slowed down has no more demand later.",
        "Every policy may promise the same vCPUs and memory on a host, and pins no instance; an instance that no host "
        "has room for is refused for good, and counts nowhere else.",
        (
            f"The first {first * trace.interval_s / 3600:.3g} hours are only watched; the instances of that time are "
            "placed at their end, in the order of the trace."
            if first
            else "Nothing is watched before: the instances of the first moment are placed then, in the order of the "
            "trace."
        ),
    ]
    if ADVISED in policies:
        assumptions.append(
            f"cotenant decides by the demand seen till then ({_counted(request.plan_for)}); the other policies by "
            "sizes."
        )
    if BOUND in policies:
        assumptions.append("The lower bound knows every moment's demand, and may move every instance at every moment.")
    if every and ADVISED in policies:
        hours = every * trace.interval_s / 3600
        assumptions.append(f"cotenant may move residents every {hours:.3g} hours; the others move none.")
    if request.shards > 1:
        assumptions.append(
            f"The instances are dealt out to {request.shards} clouds, of which each is filled by itself."
        )
    return assumptions
