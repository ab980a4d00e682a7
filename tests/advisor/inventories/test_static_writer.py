"""A cloud as a file: what is read back is the same, and made-up names change no answer and betray no name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, IsolationSettings, Pinning, WorkloadProfile
from advisor.domain.rules import rules_of
from advisor.inventories.static import load_inventory
from advisor.inventories.static_writer import renamed, text_of, written
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from profiler.demand import Demand, Resource
from profiler.observed import NetworkSettings
from tests.examples import examples

ROOT = Path(__file__).parents[3]
NAMES = st.sampled_from(["web-1", "web-2", "db", "0b7a9f0e-1111-4222-8333-444455556666", "a.b_7"])
LABELS = st.dictionaries(
    st.sampled_from(["zone", "name", "require.zone", "affinity", "aggregate.fast"]),
    st.sampled_from(["az1", "yes", "1.0", "null", "web: x", "~", "true"]), max_size=3,
)  # fmt: skip
NUMBERS = st.floats(0.001, 1000).map(lambda value: float(f"{value:.6g}"))


def demands(vcpus: int) -> st.SearchStrategy[Mapping[Resource, Demand]]:
    cpu = st.builds(
        Demand, mean=st.floats(0.0, vcpus).map(lambda value: float(f"{value:.3g}")), spread=NUMBERS,
        window_s=NUMBERS, hours=st.sampled_from([(), (1.0,) * 24]), windows=NUMBERS, doubt=NUMBERS,
        open_loop=st.sampled_from([None, 0.0, 0.25]), burst_ms=st.sampled_from([None, 5.0]),
        origin=st.sampled_from(["given", "measured", "trace"]),
    )  # fmt: skip
    return st.fixed_dictionaries({}, optional={"cpu": cpu})


@st.composite
def inventories(draw: st.DrawFn) -> Inventory:
    hosts = [
        Host(
            f"h{at}", draw(st.sampled_from(["kvm", "xen", "lxc"])), pcpus=4, memory_mb=draw(NUMBERS),
            nic_mbit=draw(st.none() | NUMBERS), numa=draw(st.sampled_from([(), ((0, 1), (2, 3))])),
            siblings=draw(st.sampled_from([(), ((0, 1), (2, 3)), ((1, 2),)])),
            driver_cpus=draw(st.sampled_from([(), (0,), (1, 2)])), labels=draw(LABELS),
            enabled=draw(st.booleans()), platform=draw(st.sampled_from(["", "lab-2cpu"])),
        )
        for at in range(draw(st.integers(1, 3)))
    ]  # fmt: skip
    instances = []
    for name in draw(st.lists(NAMES, unique=True, max_size=4)):
        vcpus = draw(st.integers(1, 4))
        settings_ = IsolationSettings(
            pinning=draw(st.sampled_from([None, Pinning.all_on((0, 2), vcpus)])),
            cap_percent=draw(st.sampled_from([None, 50.0])), weight=draw(st.sampled_from([None, 512])),
            network=draw(st.sampled_from([None, NetworkSettings("dedicated", 100.0, 100.0)])),
        )  # fmt: skip
        instances.append(
            Instance(
                name, vcpus=vcpus, memory_mb=draw(NUMBERS), host=draw(st.sampled_from([None, "h0"])),
                workload=draw(st.sampled_from([None, "spin"])), settings=settings_, labels=draw(LABELS),
                demand=draw(demands(vcpus)), min_throughput_ratio=draw(st.sampled_from([None, 0.8])),
                exclusive=draw(st.booleans()),
            )
        )  # fmt: skip
    return Inventory(tuple(hosts), tuple(instances), (WorkloadProfile("spin", {"cpu": 100.0}),))


def read(tmp_path: Path, text: str) -> Inventory:
    path = tmp_path / "cloud.yaml"
    path.write_text(text, "utf-8")
    return load_inventory(path)


@settings(max_examples=examples(60), deadline=None)
@given(inventories())
def test_what_is_written_is_read_back_the_same(tmp_path_factory: pytest.TempPathFactory, cloud: Inventory) -> None:
    back = read(tmp_path_factory.mktemp("cloud"), written(cloud))
    assert (back.hosts, back.instances, back.workloads) == (cloud.hosts, cloud.instances, cloud.workloads)


def test_every_field_of_hosts_instances_and_demand_can_be_written_and_read() -> None:
    from advisor.inventories import static

    assert {one.name for one in fields(Host)} == set(static.HOST)
    assert {one.name for one in fields(Instance)} - {"settings"} <= set(static.INSTANCE)
    assert {one.name for one in fields(IsolationSettings)} == set(static.SETTINGS)
    assert {one.name for one in fields(Demand)} - {"resource"} == set(static.DEMAND)


def answers(cloud: Inventory) -> Any:
    from tests.advisor.core.core_clouds import NOW

    snapshot = ClusterSnapshot.build(cloud, seen={one.id: NOW for one in cloud.hosts}, pending=(), taken_at=NOW)
    return PriorPredictor().predict(snapshot.scenes, ()).throughput.expected


@pytest.mark.parametrize("example", ["kvm-64.yaml", "cloud.yaml"])
def test_made_up_names_change_no_prediction_and_leave_no_name_behind(tmp_path: Path, example: str) -> None:
    cloud = load_inventory(ROOT / "examples" / example)
    text = written(renamed(cloud))
    other = read(tmp_path, text)
    before, after = answers(cloud), answers(other)
    assert np.allclose(np.sort(before, axis=1), np.sort(after, axis=1), equal_nan=True)
    names = (
        {one.id for one in cloud.hosts} | {one.id for one in cloud.instances} | {one.name for one in cloud.workloads}
    )
    found = set(re.findall(r"[\w.:-]+", text))
    assert not names & found - {"cpu", "disk", "memory"}  # which are words of the format, too


def test_equal_names_stay_equal_and_different_ones_different() -> None:
    zones = {"a1": "az1", "a2": "az2"}
    hosts = tuple(Host(name, "kvm", pcpus=4, memory_mb=1.0, labels={"zone": zone}) for name, zone in zones.items())
    names = ["web-7", "web_7", "web-9", "db", "0b7a9f0e-1111-4222-8333-444455556666"]
    made = tuple(Instance(name, host="a1", labels={"require.zone": "az1", "never_move": "true"}) for name in names)
    other = renamed(Inventory(hosts, made, ()))
    assert len({one.id for one in other.instances}) == len(names)
    assert not {one.id for one in other.instances} & set(names)
    assert other.instances[0].id.endswith("-7")
    assert other.instances[0].id.partition("-")[0] == other.instances[2].id.partition("-")[0]
    first, second = other.hosts
    assert first.labels["zone"] != second.labels["zone"]
    for one in other.instances:
        assert (one.host, one.labels["require.zone"]) == (first.id, first.labels["zone"])
        assert one.never_moves


def test_rules_about_made_up_names_still_hold(tmp_path: Path) -> None:
    rules = {
        "require.source": "xapi:berlin", "require.sr.secret-store": "true", "require_any.id": "prod-1, prod-2",
        "needs.hugepages_1gib": "2", "require_none.rack": "r-7",
    }  # fmt: skip
    there = {"source": "xapi:berlin", "sr.secret-store": "true", "has.hugepages_1gib": "4", "rack": "r-1",
             "hugepages_1gib_by_node": "2 2"}  # fmt: skip
    cloud = Inventory(
        tuple(Host(name, "xen", 4, 8192.0, labels=there) for name in ("prod-1", "prod-2", "prod-3")),
        (Instance("db", memory_mb=2048.0, host="prod-1", labels=rules),),
    )
    text = text_of(cloud, rename=True)
    assert not re.search(r"berlin|secret|prod", text)
    (tmp_path / "other.yaml").write_text(text, encoding="utf-8")
    other = load_inventory(tmp_path / "other.yaml")
    kept = [rules_of(other.instances[0]).refusal(host) == "" for host in other.hosts]
    assert kept == [rules_of(cloud.instances[0]).refusal(host) == "" for host in cloud.hosts] == [True, True, False]
    assert other.hosts[0].ordinary_memory_mb == 4096.0


def test_an_inventory_without_anything_is_one_of_empty_lists(tmp_path: Path) -> None:
    assert read(tmp_path, written(Inventory())) == replace(Inventory(), observed_at=None)
