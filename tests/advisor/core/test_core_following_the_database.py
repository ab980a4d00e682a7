"""What a service that follows the database's changes sees is what one that reads everything sees."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core_clouds import NOW, WORKLOADS, host, vm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.current import Current, View
from advisor.domain import Inventory, PlacementRequest, WorkloadProfile
from advisor.errors import AdvisorError
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.snapshot import ClusterSnapshot
from advisor.store import instances
from profiler.observed import MetricSample

HOSTS, VMS = ("a", "b", "B"), ("x", "y", "Y", "z")
steps = st.one_of(
    st.tuples(st.just("host"), st.sampled_from(HOSTS), st.sampled_from([2, 4])),
    st.tuples(st.just("no host"), st.sampled_from(HOSTS)),
    st.tuples(
        st.just("instance"), st.sampled_from(VMS), st.none() | st.sampled_from(HOSTS), st.sampled_from(["web", "own"])
    ),
    st.tuples(st.just("no instance"), st.sampled_from(VMS)),
    st.tuples(st.just("workload"), st.sampled_from(["web", "own"]), st.integers(1, 2), st.sampled_from(["", "p"])),
    st.tuples(st.just("no workload"), st.sampled_from(["web", "own"])),
    st.tuples(st.just("place"), st.sampled_from(VMS), st.booleans()),
    st.tuples(st.just("replace"), st.sets(st.sampled_from(HOSTS))),
    st.tuples(st.just("sample"), st.sampled_from(HOSTS)),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 500])),
)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> Any:
        return self.now


def do(advisor: Advisor, clock: Clock, step: tuple[Any, ...]) -> None:
    match step:
        case ("host", name, pcpus):
            advisor.put_host(host(name, pcpus=pcpus))
        case ("no host", name):
            advisor.delete_host(name)
        case ("instance", name, on, workload):
            advisor.put_instance(vm(name, workload, on=on))
        case ("no instance", name):
            advisor.delete_instance(name)
        case ("workload", name, value, platform):
            advisor.put_workload(WorkloadProfile(name, {"cpu": 10.0 * value}, platform=platform))
        case ("no workload", name):
            advisor.delete_workload(name)
        case ("place", name, own):
            profile = WorkloadProfile("", {"cpu": 33.0}) if own else None
            advisor.place(PlacementRequest(vm(name, "web"), profile=profile))
        case ("replace", names):
            there = [vm("x", "web", on=name) for name in sorted(names)[:1]]
            inventory = Inventory(tuple(host(name) for name in names), tuple(there), WORKLOADS)
            advisor.put_inventory(inventory, mode="replace", generation=None)
        case ("sample", name):
            advisor.ingest([MetricSample(name, None, "host", "cpu", 1.0, clock.now.timestamp())])
        case ("wait", seconds):
            clock.now += timedelta(seconds=seconds)


def same(one: View, other: View, *, ages: bool) -> None:
    """Equal views, but for their ages where these are not to be looked at."""
    assert one.inventory == other.inventory
    assert one.pending == other.pending
    for field in fields(ClusterSnapshot):
        mine, others = getattr(one.snapshot, field.name), getattr(other.snapshot, field.name)
        if field.name == "scenes":
            for part in fields(mine):
                if part.name != "table":
                    np.testing.assert_array_equal(getattr(mine, part.name), getattr(others, part.name), part.name)
            np.testing.assert_array_equal(mine.table.values, others.table.values)
        elif isinstance(mine, np.ndarray):
            if field.name != "age_s" or ages:
                np.testing.assert_array_equal(mine, others, field.name)
        elif field.name not in {"names", "taken_at"}:
            assert mine == others, field.name


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(taken=st.lists(steps, min_size=1, max_size=10))
def test_who_follows_changes_sees_what_one_sees_who_reads_everything(taken: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Settings(state_dir=Path(folder), database=f"sqlite:///{folder}/c.db", fresh_s=600.0, reserve_s=60.0)
        clock = Clock()
        with Advisor(wanted, clock=clock) as advisor:
            do(advisor, clock, ("replace", {"a", "B"}))
            for step in taken:
                with suppress(AdvisorError):  # such as a host that is not there
                    do(advisor, clock, step)
                view, _ = advisor._current.at(clock.now)
                fresh, _ = Current(advisor._database, wanted).at(clock.now)
                # a sample moves no counter while its host is fresh: a follower hears of it when it looks again
                heard = any(step[0] == "sample" for step in taken)
                same(view, fresh, ages=view.snapshot.taken_at == clock.now and not heard)


def test_a_changed_instance_is_read_alone_and_sightings_are_not_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Settings(state_dir=tmp_path, database=f"sqlite:///{tmp_path}/c.db")
    with Advisor(wanted, clock=lambda: NOW) as advisor:
        advisor.put_inventory(Inventory((host("a"),), (vm("x", on="a"),), WORKLOADS), mode="replace", generation=None)
        advisor.ready()

        def all_of_them(*_: Any) -> Any:
            raise AssertionError("everything was read")

        monkeypatch.setattr(instances, "load_all", all_of_them)
        monkeypatch.setattr("advisor.store.hosts.sightings", all_of_them)
        advisor.put_instance(vm("y", "web", on="a"))
        advisor.delete_instance("x")
        view, _ = advisor._current.at(NOW)
    assert [one.id for one in view.inventory.instances] == ["y"]
    assert [[one.id for one in there] for there in view.snapshot.residents] == [["y"]]
