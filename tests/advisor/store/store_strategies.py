"""Hypothesis strategies for the values that the store keeps; valid ones only, with a value for every field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from advisor.domain import Band, ModelCard, Recommendation, WorkloadProfile
from advisor.store.answers import RecordedOutcome
from advisor.store.instances import Pending
from profiler.demand import RESOURCES, Demand, Resource
from profiler.observed import Colocation, Host, Instance, IsolationSettings, MetricSample, NetworkSettings, Pinning

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
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    float: amounts,
    int: st.integers(0, 4096),
    bool: st.booleans(),
    datetime: times,
    IsolationSettings: settings,
    Pinning: pinnings,
}


def every(kind: Any, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a dataclass: every field by its type, so that none is forgotten, unless it is `given`."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{one.name: of(hints[one.name]) for one in fields(kind)} | given)


def of(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    if origin in (Union, UnionType):
        (inner,) = (argument for argument in arguments if argument is not NoneType)
        return st.none() | of(inner)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(of(arguments[0]), max_size=1).map(tuple)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=1)
    assert is_dataclass(hint), hint
    return every(hint)


def _numbered(host: Host, gap: bool) -> Host:
    """With CPUs 0-63 and, where there is a gap, the last ones below 4096."""
    last = range(4096 - (host.pcpus - 64), 4096)
    return replace(host, cpu_ids=(*range(64), *last)) if gap else host


plain_hosts = every(
    Host,
    id=ids,
    pcpus=st.integers(64, 4096),
    memory_mb=positive,
    threads_per_core=st.integers(1, 8),
    numa=st.lists(cpu_sets, max_size=2).map(tuple),
    driver_cpus=cpu_sets,
    cpu_ids=st.just(()),
    siblings=st.sampled_from([(), ((0, 1), (2, 3)), ((1, 62),)]),
    isolated_cpus=cpu_sets,
    dedicated_cpus=cpu_sets,
    cpu_overcommit=positive,
    memory_overcommit=positive,
    driver_overcommit=positive,
    driver_weight=st.integers(1, 65_535),
    platform=ids | st.just(""),
    second_thread=st.none() | st.floats(0, 1),
    disk_iops=st.none() | st.floats(1, 1e6),
    probed=st.just({}),  # which is read from results of probes
)
hosts = st.builds(_numbered, plain_hosts, st.booleans())
quantiles = st.lists(amounts, min_size=3, max_size=3).map(sorted)


@st.composite
def demands(draw: st.DrawFn) -> dict[Resource, Demand]:
    found: dict[Resource, Demand] = {}
    for resource in draw(st.lists(st.sampled_from(RESOURCES), unique=True)):
        p50, p95, p99 = draw(quantiles)
        found[resource] = draw(
            every(
                Demand,
                resource=st.just(resource),
                mean=st.floats(0, 3),
                p50=st.none() | st.just(p50),
                p95=st.just(p95),
                p99=st.just(p99),
                hours=st.just(()) | st.just((1.0,) * 24),
                seen_hours=st.just(()) | st.just((2.0,) * 24),
                common=st.none() | st.floats(0, 1),
                window_s=positive,
                autocorrelation_s=st.none() | positive,
                open_loop=st.none() | st.floats(0, 1),
            )
        )
    return found


instances = every(
    Instance,
    id=ids,
    host=st.none(),
    vcpus=st.integers(3, 4096),
    load=st.floats(0.001, 10),
    min_throughput_ratio=st.none() | st.floats(0.001, 1),
    max_latency_ratio=st.none() | st.floats(1, 1e3),
    max_time_short=st.none() | st.floats(0, 0.99),
    dedicated_vcpus=st.integers(0, 3),
    demand=demands(),
)
profiles = every(WorkloadProfile, name=texts.filter(bool), metrics=st.dictionaries(ids, amounts, max_size=4))
BY_TYPE |= {Instance: instances, WorkloadProfile: profiles, Band: every(Band, upper=amounts | st.just(float("inf")))}
samples = every(MetricSample, host=ids, instance=st.just("i1"), metric=ids, time_s=st.floats(0, 4e9))
colocations = every(Colocation, run=ids, driver_cpus=cpu_sets)
recommendations = every(Recommendation, id=ids, model_version=ids)
outcomes = every(RecordedOutcome, host=ids)
held = every(Pending)
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
