"""Hypothesis strategies for the values that the store keeps; valid ones only."""

from __future__ import annotations

from datetime import UTC
from typing import Literal

from hypothesis import strategies as st

from advisor.domain import (
    Band,
    Candidate,
    Command,
    Constraints,
    Effect,
    MitigationStep,
    ModelCard,
    PlacementRequest,
    Reason,
    Recommendation,
    Rejection,
    WorkloadProfile,
)
from advisor.store.pending import Pending
from advisor.store.recommendations import RecordedOutcome
from profiler.demand import ORIGINS, RESOURCES, Demand, Resource
from profiler.observed import (
    Colocation,
    Host,
    Instance,
    IsolationSettings,
    MetricSample,
    NetworkSettings,
    Outcome,
    Pinning,
)

ids = st.text(st.sampled_from("abcXYZ019._:-"), min_size=1, max_size=12).filter(lambda one: one not in {".", ".."})
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
labels = st.dictionaries(texts, texts, max_size=3)
amounts = st.floats(0, 1e15)
positive = st.floats(1e-6, 1e12)
times = st.datetimes(timezones=st.just(UTC))
cpu_sets = st.lists(st.integers(0, 63), unique=True, max_size=4).map(lambda cpus: tuple(sorted(cpus)))
pinnings = st.builds(Pinning, st.lists(cpu_sets, min_size=1, max_size=3).map(tuple))


def _network(mode: Literal["shared", "dedicated"], rate: float, extra: float | None) -> NetworkSettings:
    return NetworkSettings(mode, rate, None if extra is None else rate + extra)


networks = st.one_of(
    st.just(NetworkSettings()),
    st.builds(_network, st.sampled_from(["shared", "dedicated"]), st.floats(1, 1e5), st.none() | st.floats(0, 1e5)),
)
settings = st.builds(
    IsolationSettings,
    pinning=st.none() | pinnings,
    cap_percent=st.none() | positive,
    weight=st.none() | st.integers(1, 65_535),
    network=st.none() | networks,
    disk_limit_mb_s=st.none() | positive,
)
hosts = st.builds(
    Host,
    id=ids,
    kind=st.sampled_from(["xen", "kvm", "lxc"]),
    pcpus=st.integers(64, 4096),
    memory_mb=positive,
    threads_per_core=st.integers(1, 8),
    cpu_mhz=st.none() | amounts,
    l2_mb=st.none() | amounts,
    l3_mb=st.none() | amounts,
    nic_mbit=st.none() | amounts,
    disk_gb=st.none() | amounts,
    disk_kind=st.sampled_from(["", "hdd", "ssd", "nvme", "network"]),
    disk_mb_s=st.none() | amounts,
    mem_bw_mb_s=st.none() | amounts,
    numa=st.lists(cpu_sets, max_size=2).map(tuple),
    driver_cpus=cpu_sets,
    labels=labels,
    enabled=st.booleans(),
    cpu_overcommit=positive,
    memory_overcommit=positive,
    driver_overcommit=positive,
    platform=ids | st.just(""),
)
quantiles = st.lists(amounts, min_size=3, max_size=3).map(sorted)


@st.composite
def demands(draw: st.DrawFn) -> dict[Resource, Demand]:
    found: dict[Resource, Demand] = {}
    for resource in draw(st.lists(st.sampled_from(RESOURCES), unique=True)):
        p50, p95, p99 = draw(quantiles)
        found[resource] = Demand(
            mean=draw(st.floats(0, 3)),
            resource=resource,
            spread=draw(amounts),
            p50=draw(st.none() | st.just(p50)),
            p95=p95,
            p99=p99,
            hours=draw(st.just(()) | st.just((1.0,) * 24)),
            common=draw(st.none() | st.floats(0, 1)),
            windows=draw(amounts),
            doubt=draw(amounts),
            burst_ms=draw(st.none() | amounts),
            origin=draw(st.sampled_from(ORIGINS)),
        )
    return found


instances = st.builds(
    Instance,
    id=ids,
    vcpus=st.integers(3, 4096),
    memory_mb=amounts,
    disk_gb=amounts,
    workload=st.none() | texts,
    load=st.floats(0.001, 10),
    settings=settings,
    service=st.sampled_from(["latency", "throughput"]),
    min_throughput_ratio=st.none() | st.floats(0.001, 1),
    labels=labels,
    max_latency_ratio=st.none() | st.floats(1, 1e3),
    max_time_short=st.none() | st.floats(0, 0.99),
    exclusive=st.booleans(),
    demand=demands(),
)
profiles = st.builds(
    WorkloadProfile,
    name=texts.filter(bool),
    metrics=st.dictionaries(ids, amounts, max_size=4),
    platform=ids | st.just(""),
    origin=st.sampled_from(["paper", "measured", "simulated", "given", "unknown"]),
)
samples = st.builds(
    MetricSample,
    host=ids,
    instance=st.just("i1"),
    scope=st.sampled_from(["instance", "driver_domain", "host"]),
    metric=ids,
    value=amounts,
    time_s=st.floats(0, 4e9),
)
colocations = st.builds(
    Colocation,
    run=ids,
    platform=texts,
    repeat=texts,
    outcomes=st.lists(
        st.builds(
            Outcome,
            instance=instances,
            outcome=ids,
            solo=st.none() | amounts,
            colocated=st.none() | amounts,
            unit=texts,
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    driver_cpus=cpu_sets,
)
bands = st.builds(Band, amounts, amounts, amounts | st.just(float("inf")))
effects = st.builds(
    Effect,
    instance=ids,
    throughput_ratio=bands,
    latency_ratio=bands,
    before=st.none() | bands,
    outside_training=st.booleans(),
    jitter_ratio=st.none() | bands,
)
rungs = st.builds(
    MitigationStep,
    action=st.sampled_from(["weight", "cap", "host"]),
    text=texts,
    changes=st.dictionaries(ids, settings, max_size=2),
    effects=st.lists(effects, max_size=2).map(tuple),
    satisfies=st.booleans(),
    driver_cpus=st.none() | cpu_sets,
)
reasons = st.builds(
    Reason,
    resource=texts,
    share=amounts,
    text=texts,
    neighbour=st.none() | ids,
    kind=st.sampled_from(["loss", "counterfactual"]),
    finding=texts,
    ratio=st.none() | amounts,
)
candidates = st.builds(
    Candidate,
    rank=st.integers(1, 100),
    host=ids,
    score=amounts,
    combined_score=amounts,
    pinning=st.none() | pinnings,
    isolation=settings,
    newcomer=effects,
    neighbours=st.lists(effects, max_size=2).map(tuple),
    tied_with=st.lists(ids, max_size=2).map(tuple),
    reasons=st.lists(reasons, max_size=2).map(tuple),
    commands=st.lists(st.builds(Command, texts, st.tuples(texts, texts), st.tuples(texts), texts), max_size=2).map(
        tuple
    ),
    rungs=st.lists(rungs, max_size=2).map(tuple),
    changes=st.dictionaries(ids, settings, max_size=2),
)
requests = st.builds(
    PlacementRequest,
    instance=instances,
    profile=st.none() | profiles,
    hosts=st.none() | st.lists(ids, max_size=2).map(tuple),
    constraints=st.builds(
        Constraints,
        labels=labels,
        exclude=st.lists(ids, max_size=2).map(tuple),
        affinity=st.lists(ids, max_size=2).map(tuple),
        kind=st.none() | st.just("xen"),
        allow_stale=st.booleans(),
    ),
    objective=st.sampled_from(["worst", "total", "pack"]),
    limit=st.integers(1, 100),
    explain=st.booleans(),
    commands=st.booleans(),
    dry_run=st.booleans(),
)
recommendations = st.builds(
    Recommendation,
    id=ids,
    created_at=times,
    request=requests,
    model_version=ids,
    model_origin=texts,
    degraded=st.booleans(),
    snapshot_age_s=amounts,
    candidates=st.lists(candidates, max_size=2).map(tuple),
    rejected=st.lists(st.builds(Rejection, ids, ids, texts, st.lists(rungs, max_size=1).map(tuple)), max_size=2).map(
        tuple
    ),
    notes=st.lists(texts, max_size=2).map(tuple),
)
outcomes = st.builds(RecordedOutcome, ids, st.dictionaries(ids, amounts, max_size=3), times)
held = st.builds(
    Pending,
    ids,
    instances,
    st.none() | profiles,
    times,
    st.dictionaries(ids, settings, max_size=2),
    st.none() | st.lists(st.integers(0, 9), max_size=3).map(tuple),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | amounts | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)
cards = st.builds(
    ModelCard,
    version=ids,
    status=st.sampled_from(["candidate", "shadow", "active", "retired"]),
    created_at=times,
    origin=ids,
    card=st.dictionaries(texts, json_values, max_size=3),
    verdict=st.none() | st.dictionaries(texts, json_values, max_size=3),
)
