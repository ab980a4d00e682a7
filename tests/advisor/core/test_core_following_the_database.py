"""What a service that follows the database's changes sees is what one that reads everything sees."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.domain import Inventory, IsolationSettings, PlacementRequest, WorkloadProfile
from advisor.errors import AdvisorError
from advisor.service import Advisor
from advisor.serving.snapshot_cache import CloudView, SnapshotCache
from advisor.settings import Settings
from advisor.store import counters, instances
from advisor.store.instances import Pending
from advisor.telemetry import demands
from profiler.demand import Demand
from profiler.observed import MetricSample
from tests.advisor.core.core_clouds import NOW, WORKLOADS, host, same, vm
from tests.examples import examples
from tests.servers.fixtures import sqlite_with_tables

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
    st.tuples(st.just("measured"), st.sampled_from(VMS), st.sampled_from([0.2, 0.4])),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 500])),
)


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


def do(advisor: Advisor, clock: Clock, step: tuple[Any, ...]) -> None:
    match step:
        case ("host", name, pcpus):
            advisor.inventory.put_host(host(name, pcpus=pcpus))
        case ("no host", name):
            advisor.inventory.delete_host(name)
        case ("instance", name, on, workload):
            advisor.inventory.put_instance(vm(name, workload, on=on))
        case ("no instance", name):
            advisor.inventory.delete_instance(name)
        case ("workload", name, value, platform):
            advisor.inventory.put_workload(WorkloadProfile(name, {"cpu": 10.0 * value}, platform=platform))
        case ("no workload", name):
            advisor.inventory.delete_workload(name)
        case ("place", name, own):
            profile = WorkloadProfile("", {"cpu": 33.0}) if own else None
            advisor.placements.place(PlacementRequest(vm(name, "web"), profile=profile))
        case ("replace", names):
            there = [vm("x", "web", on=name) for name in sorted(names)[:1]]
            inventory = Inventory(tuple(host(name) for name in names), tuple(there), WORKLOADS)
            advisor.inventory.put(inventory, mode="replace", generation=None)
        case ("sample", name):
            advisor.telemetry.ingest([MetricSample(name, None, "host", "cpu", 1.0, clock.now.timestamp())])
        case ("measured", name, mean):
            with advisor._database.write() as connection:
                demands.tell(connection, {name: {"cpu": Demand(mean, windows=20.0, origin="measured")}})
        case ("wait", seconds):
            clock.now += timedelta(seconds=seconds)


def same_view(one: CloudView, other: CloudView, *, ages: bool) -> None:
    """Equal views, but for their ages where these are not to be looked at."""
    assert (one.inventory, one.pending) == (other.inventory, other.pending)
    same(one.snapshot, other.snapshot, but={"taken_at"} if ages else {"taken_at", "age_s"})


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(taken=st.lists(steps, min_size=1, max_size=10))
def test_who_follows_changes_sees_what_one_sees_who_reads_everything(taken: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        wanted = Settings(
            state_dir=Path(folder), database=sqlite_with_tables(Path(folder, "c.db")), fresh_s=600.0, reserve_s=60.0
        )
        clock = Clock()
        with Advisor(wanted, clock=clock) as advisor:
            do(advisor, clock, ("replace", {"a", "B"}))
            for step in taken:
                with suppress(AdvisorError):  # such as a host that is not there
                    do(advisor, clock, step)
                view, _ = advisor._cache.at(clock.now)
                fresh, _ = SnapshotCache(advisor._transactions, wanted).at(clock.now)
                # a sample moves no counter while its host is fresh: a follower hears of it when it looks again
                heard = any(step[0] == "sample" for step in taken)
                same_view(view, fresh, ages=view.snapshot.taken_at == clock.now and not heard)


def test_a_changed_instance_is_read_alone_and_sightings_are_not_read_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Settings(state_dir=tmp_path, database=sqlite_with_tables(tmp_path / "c.db"))
    with Advisor(wanted, clock=lambda: NOW) as advisor:
        advisor.inventory.put(Inventory((host("a"),), (vm("x", on="a"),), WORKLOADS), mode="replace", generation=None)
        advisor.cloud.ready()

        def all_of_them(*_: Any) -> Any:
            raise AssertionError("everything was read")

        monkeypatch.setattr(instances, "load_all", all_of_them)
        monkeypatch.setattr("advisor.store.hosts.sightings", all_of_them)
        advisor.inventory.put_instance(vm("y", "web", on="a"))
        advisor.inventory.delete_instance("x")
        view, _ = advisor._cache.at(NOW)
    assert [one.id for one in view.inventory.instances] == ["y"]
    assert [[one.id for one in there] for there in view.snapshot.residents] == [["y"]]


def test_what_an_answer_changes_for_residents_counts_until_it_expires(tmp_path: Path) -> None:
    wanted = Settings(state_dir=tmp_path, database=sqlite_with_tables(tmp_path / "c.db"), fresh_s=600.0, reserve_s=60.0)
    clock = Clock()
    there = (*(vm(f"a{number}", on="h1") for number in range(3)), vm("b", on="h1", min_throughput_ratio=0.95))
    with Advisor(wanted, clock=clock) as advisor:

        def weight_of_b() -> int | None:
            view, _ = advisor._cache.at(clock.now)
            same_view(view, SnapshotCache(advisor._transactions, wanted).at(clock.now)[0], ages=False)
            (found,) = (one for one in view.snapshot.residents[0] if one.id == "b")
            assert found in view.expected.instances
            return found.settings.weight

        advisor.inventory.put(Inventory((host("h1"),), there, WORKLOADS), mode="replace", generation=None)
        assert weight_of_b() is None
        (first,) = advisor.placements.place(PlacementRequest(vm("n"))).recommendation.candidates
        assert weight_of_b() == first.changes["b"].weight is not None
        later = advisor.placements.place(PlacementRequest(vm("m"))).recommendation
        for one in later.candidates:  # b keeps its limit, or there is no candidate
            (effect,) = (it for it in one.neighbours if it.instance == "b")
            assert effect.before is not None and effect.before.expected >= 0.95
            assert effect.throughput_ratio.expected >= 0.95
        clock.now += timedelta(seconds=61)
        assert weight_of_b() is None


def test_where_an_answer_lets_the_driver_domain_run_counts_and_so_do_changes_of_who_is_pending(tmp_path: Path) -> None:
    wanted = Settings(state_dir=tmp_path, database=sqlite_with_tables(tmp_path / "c.db"))
    later = NOW + timedelta(seconds=60)
    light = IsolationSettings(weight=64)
    with Advisor(wanted, clock=lambda: NOW) as advisor:
        advisor.inventory.put(Inventory((host("h1"),), (vm("x", on="h1"),), WORKLOADS), mode="replace", generation=None)
        advisor.cloud.ready()
        with advisor._database.write() as connection:
            counters.bump(connection, "pending")
            instances.hold_pending(connection, [Pending("1", vm("n", on="h1"), None, NOW + timedelta(seconds=30))])
            instances.hold_pending(
                connection, [Pending("2", vm("m", on="h1"), None, later, {"n": light, "gone": light}, (0, 1))]
            )
        for current in (advisor._cache, SnapshotCache(advisor._transactions, wanted)):
            view, _ = current.at(NOW)
            assert view.snapshot.hosts[0].driver_cpus == view.expected.hosts[0].driver_cpus == (0, 1)
            assert view.inventory.hosts[0].driver_cpus == ()
            for there in (view.snapshot.residents[0], view.expected.instances):
                assert {one.id: one.settings.weight for one in there} == {"x": None, "n": 64, "m": None}
        advisor.inventory.put_host(host("h1", pcpus=1))  # no room for what was advised
        assert advisor._cache.at(NOW)[0].snapshot.hosts[0].driver_cpus == ()
