"""A window of a host is taken as its samples one by one are: what is stored, learned, refused and counted."""

from __future__ import annotations

import contextvars
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.access.audit import acting
from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.serving.telemetry import _Sent
from advisor.settings import Settings
from advisor.store import demands
from advisor.store import samples as store
from advisor.telemetry import layouts as layout_bounds
from advisor.telemetry.layouts import SentWindow, WindowRow
from models.profiling.tallies import Tallies
from tests.advisor.service.service_clock import Clock
from tests.examples import examples
from tests.servers.fixtures import sqlite_with_tables

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
METRICS = ("cpu", "waiting", "net_mbit", "disk_mb_s", "execution", "throttled")
NAMES = ("a", "b", "c")
MINUTES = 30


def cloud(*, without: str = "") -> Inventory:
    there = tuple(Instance(name, vcpus=2, host="h1") for name in NAMES if name != without)
    return Inventory((Host("h1", "kvm", 8, 16_384), Host("h2", "kvm", 8, 16_384)), there)


def window(at: int, host: str = "h1") -> SentWindow:
    rows = [
        WindowRow(
            name,
            "instance",
            [10.0 + rank + at % 7, 1.0 + at % 3, 2.5, None if rank == 1 else 0.5, 100.0, 0.0],
            {"waited_for:a": 1.0} if name == "b" and at % 2 else {},
        )
        for rank, name in enumerate(NAMES)
    ]
    own = {"busy": 100.0 + at % 5, "psi_memory": float(at % 4), "available_mb": 1000.0 + at}
    rows.append(WindowRow(None, "host", [None] * len(METRICS), own))
    rows.append(WindowRow(None, "driver_domain", [5.0, *[None] * 5]))
    return SentWindow(host, NOW.timestamp() - 60.0 * (MINUTES - at), METRICS, rows)


@contextmanager
def opened(folder: Path, clock: Clock, **more: Any) -> Iterator[tuple[Advisor, Advisor]]:
    """One that is sent samples, and one that is sent windows."""
    with ExitStack() as stack:
        made = []
        for name in ("samples", "windows"):
            (folder / name).mkdir()
            database = sqlite_with_tables(folder / name / "cotenant.sqlite3")
            advisor = Advisor(Settings(database=database, state_dir=folder / name, **more), clock=clock)
            made.append(stack.enter_context(advisor))
            advisor.inventory.put(cloud(), mode="replace", generation=None)
        yield made[0], made[1]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[tuple[Advisor, Advisor]]:
    with opened(tmp_path, Clock(NOW)) as made:
        yield made


def send(services: tuple[Advisor, Advisor], *windows: SentWindow, only: str | None = None) -> Mapping[str, Any]:
    """What both say, which is the same."""
    one_by_one, whole = services
    flat = [sample for one in windows for sample in one.samples()]
    said = one_by_one.telemetry.ingest(flat, only=only)
    assert whole.telemetry.ingest_windows(windows, only=only) == said
    return said


def known(advisor: Advisor) -> Any:
    """Everything that is stored and learned."""
    with advisor._transactions.read() as connection:
        rows = connection.execute(sa.select(demands.demands)).all()
        learned = {(row.instance, row.resource): Tallies.of([row.resource], [row.state]).tally(0) for row in rows}
        stored = [store.of_instance(connection, name) for name in (*NAMES, "")]
    instances = advisor.cloud.inventory().instances
    checkup = advisor.cloud.checkup()
    return stored, {one.id: one.demand for one in instances}, asdict(checkup), learned


def test_the_same_is_stored_and_learned(services: tuple[Advisor, Advisor]) -> None:
    for at in range(MINUTES):
        said = send(services, window(at))
        assert (said["accepted"], said["duplicate"]) == (len(window(at).samples()), 0)
    assert len(services[1].telemetry._layouts._known["h1"]) == 2
    one_by_one, whole = (known(advisor) for advisor in services)
    assert one_by_one == whole
    assert whole[3]["a", "cpu"].n == 5


def test_few_layouts_of_a_host_are_kept_and_no_more_values_than_memory_is_for(
    services: tuple[Advisor, Advisor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an instance was not measured, or waited for another one, the layout differs: those may never end."""
    layouts = services[1].telemetry._layouts
    for at in range(MINUTES):
        others = {f"mine-{at}": 1.0}
        assert send(services, replace(window(at), rows=[*window(at).rows, WindowRow(None, "host", [None] * 6, others)]))
        send(services, replace(window(at), host="h2"))
    kept = {name: list(of_host.values()) for name, of_host in layouts._known.items()}
    assert {name: len(of_host) for name, of_host in kept.items()} == {"h1": layout_bounds.MOST_OF_HOST, "h2": 2}
    assert layouts._values == sum(len(one.ids) for of_host in kept.values() for one in of_host)
    monkeypatch.setattr(layout_bounds, "MOST_VALUES", 60)
    send(services, replace(window(0), rows=window(0).rows[:1]))
    assert list(layouts._known) == ["h1"]
    for advisor in services:
        advisor.inventory.put(cloud(without="a"), mode="replace", generation=None)
    send(services, window(3))
    assert layouts._values == sum(len(one.ids) for one in layouts._known["h1"].values())
    assert known(services[0]) == known(services[1])


def test_what_is_sent_again_is_counted_once(services: tuple[Advisor, Advisor]) -> None:
    sent = [window(at) for at in range(10)]
    number = sum(len(one.samples()) for one in sent)
    assert send(services, *sent)["accepted"] == number
    assert send(services, *sent) == {"accepted": 0, "duplicate": number, "dropped": ()}
    assert send(services, *sent, window(10))["accepted"] == len(window(10).samples())
    assert known(services[0]) == known(services[1])


@pytest.mark.parametrize(
    "wrong",
    [
        replace(window(5), host="stranger"),
        replace(window(5), time_s=NOW.timestamp() + 3600),
        replace(window(5), metrics=("no such:\n", *METRICS[1:])),
        replace(window(5), rows=[*window(5).rows, WindowRow("nobody", "instance", [1.0] * 6)]),
        replace(window(5), rows=[*window(5).rows, WindowRow("a", "instance", [-1.0, *[2.0] * 5])]),
        replace(window(5), rows=[WindowRow("a", "instance", [math.inf, *[2.0] * 5])]),
        replace(window(5), rows=[WindowRow("a", "instance", [-1.0, *[2.0] * 5])]),
    ],
)
def test_one_bad_value_is_refused_with_its_reason_and_the_rest_is_taken(
    services: tuple[Advisor, Advisor], wrong: SentWindow
) -> None:
    for at in range(3):
        send(services, window(at))
    said = send(services, wrong, window(6))
    assert said["dropped"]
    assert said["accepted"] >= len(window(6).samples())
    assert known(services[0]) == known(services[1])


def test_an_instance_that_went_is_refused_at_once(services: tuple[Advisor, Advisor]) -> None:
    for at in range(3):
        send(services, window(at))
    for advisor in services:
        advisor.inventory.put(cloud(without="b"), mode="replace", generation=None)
    said = send(services, window(3))
    assert {reason for _, reason in said["dropped"]} == {"unknown instance 'b'"}
    for advisor in services:
        advisor.inventory.put(cloud(), mode="replace", generation=None)
    assert send(services, window(4))["dropped"] == ()


def test_an_agent_speaks_for_its_own_host_only(services: tuple[Advisor, Advisor]) -> None:
    for at in range(3):
        assert send(services, window(at), only="h1")["dropped"] == ()
    said = send(services, window(3), only="h2")
    assert said["accepted"] == 0
    assert said["dropped"][0][1] == "this token is for the agent of host h2, not of h1"


def test_a_series_twice_in_a_window_counts_once(services: tuple[Advisor, Advisor]) -> None:
    twice = replace(window(0), rows=[*window(0).rows, WindowRow("a", "instance", [99.0] * 6)])
    for at in range(3):
        said = send(services, replace(twice, time_s=window(at).time_s))
        assert said["duplicate"] == 6
    assert known(services[0]) == known(services[1])


@pytest.mark.parametrize("row", [WindowRow(None, "host", []), WindowRow("a", "instance", [None])], ids=["no", "null"])
def test_a_window_without_a_value_counts_nothing_and_others_beside_it_are_taken(
    services: tuple[Advisor, Advisor], row: WindowRow
) -> None:
    advisor = services[1]
    empty = SentWindow("h1", NOW.timestamp() - 60, METRICS[: len(row.values)], [row])
    assert dict(advisor.telemetry.ingest_windows([empty])) == {"accepted": 0, "duplicate": 0, "dropped": ()}
    counts = advisor.telemetry.ingest_windows([empty, window(0)])
    assert (counts["accepted"], counts["dropped"]) == (len(window(0).samples()), ())


def test_windows_of_one_host_and_time_are_one_and_of_a_value_that_both_have_the_first_stays(
    services: tuple[Advisor, Advisor],
) -> None:
    for at in range(3):
        for some in parts(window(at)):
            send(services, some)
    assert send(services, *parts(window(3)))["accepted"] == len(window(3).samples())
    said = send(services, window(4), replace(window(5), time_s=window(4).time_s))
    assert said["accepted"] == len(window(4).samples() + window(5).samples()) - said["duplicate"]
    assert known(services[0]) == known(services[1])


def parts(whole: SentWindow) -> tuple[SentWindow, SentWindow]:
    return replace(whole, rows=whole.rows[:2]), replace(whole, rows=whole.rows[2:])


AFTER_MIDNIGHT = datetime(2026, 2, 1, 0, 5, tzinfo=UTC)


@st.composite
def _windows(draw: st.DrawFn) -> SentWindow:
    """Of a host or a part of it, around midnight, seldom of any time up to two days ago."""
    whole = window(draw(st.integers(0, 6)), draw(st.sampled_from(["h1", "h1", "h1", "h2"])))
    minutes = draw(st.one_of(st.integers(-30, 5), st.integers(-30, 5), st.integers(-2 * 1440, 9)))
    some = draw(st.sampled_from([slice(0, 5), slice(0, 5), slice(0, 2), slice(2, 5)]))
    time_s = AFTER_MIDNIGHT.timestamp() + 60.0 * minutes + draw(st.sampled_from([0.0, 0.0, 0.5]))
    return replace(whole, time_s=time_s, rows=whole.rows[some])


_SENDS = st.tuples(st.just("send"), st.lists(_windows(), min_size=1, max_size=3))
_CLOCK = st.tuples(st.just("clock"), st.sampled_from([-300.0, 60.0, 3600.0, 86_400.0]))
_OTHERS = st.sampled_from([("retention", None), ("without", ""), ("without", "b")])


@settings(max_examples=examples(25, 4), deadline=None)
@given(steps=st.lists(st.one_of(_SENDS, _SENDS, _SENDS, _CLOCK, _OTHERS), min_size=4, max_size=10))
def test_in_any_order_with_gaps_over_midnight_and_the_border_of_retention_both_ways_are_one(
    steps: Sequence[tuple[str, Any]],
) -> None:
    clock = Clock(AFTER_MIDNIGHT)
    days = {"keep_samples_days": 1.0, "keep_rollups_days": 1.0}
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), clock, **days) as services:
        for what, value in steps:
            if what == "send":
                send(services, *value)
            elif what == "clock":
                clock.turn(value)
            elif what == "retention":
                assert services[0].prune() == services[1].prune()
            else:
                for advisor in services:
                    advisor.inventory.put(cloud(without=value), mode="replace", generation=None)
        assert known(services[0]) == known(services[1])


def of_host(at: int, host: str) -> SentWindow:
    """Of the second cloud below: each host has instances of its own."""
    seed = int(host[1:]) + at
    rows = [
        WindowRow(f"{host}-{name}", "instance", [20.0 + seed * 7 % 90, 1.0, 2.5 + seed % 4, 0.5, 100.0, 0.0])
        for name in NAMES
    ]
    own = WindowRow(None, "host", [None] * len(METRICS), {"busy": 400.0 + seed % 9, "psi_memory": float(seed % 4)})
    return SentWindow(host, NOW.timestamp() - 60.0 * (200 - at), METRICS, [*rows, own])


def test_requests_that_come_at_once_are_learned_from_as_one_after_the_other(
    services: tuple[Advisor, Advisor],
) -> None:
    """The last bits of how busy all others were depend on the order in which hosts are added up, as ever."""
    hosts = [f"h{number}" for number in range(1, 9)]
    there = tuple(Instance(f"{host}-{name}", vcpus=2, host=host) for host in hosts for name in NAMES)
    for advisor in services:
        inventory = Inventory(tuple(Host(host, "kvm", 8, 16_384) for host in hosts), there)
        advisor.inventory.put(inventory, mode="replace", generation=None)
    alone, together = (advisor.telemetry for advisor in services)
    for at in range(190):
        windows = [of_host(at, host) for host in hosts]
        one_by_one = [dict(alone.ingest_windows([window])) for window in windows]
        if at == 0:
            at_once = [dict(together.ingest_windows([window])) for window in windows]
        else:
            sent = [_Sent([window.flat(None)], contextvars.copy_context()) for window in windows]
            at_once = [dict(said or {}) for said in together._store_quick(sent)]
        assert at_once == one_by_one
    found = []
    for advisor in services:
        with advisor._transactions.read() as connection:
            rows = connection.execute(sa.select(demands.demands)).all()
            own = sorted(connection.execute(sa.text("SELECT id, measured_own_cpus, own_until_s FROM hosts")).all())
            memory = sorted(connection.execute(sa.text("SELECT host, until_s, state FROM host_memory")).all())
        tallies = {row[:2]: Tallies.of([row.resource], [row.state]).tally(0) for row in rows}
        shared = {key: tally.shared for key, tally in tallies.items()}
        assert min(one[0] for one in shared.values()) > 20, "it was learned how busy the others were"
        found.append(({key: replace(tally, shared=[]) for key, tally in tallies.items()}, own, memory, shared))
    assert found[0][:3] == found[1][:3]
    for key, of_both in found[0][3].items():
        assert found[1][3][key] == pytest.approx(of_both, rel=1e-9)
    demand = [{one.id: one.demand for one in advisor.cloud.inventory().instances} for advisor in services]
    assert demand[0].keys() == demand[1].keys()
    for name, of_one in demand[0].items():
        for resource, one in of_one.items():
            assert replace(demand[1][name][resource], common=one.common) == one


def test_each_request_has_its_own_actor_and_its_own_failure(services: tuple[Advisor, Advisor]) -> None:
    telemetry = services[1].telemetry
    telemetry.ingest_windows([window(0)])

    def sent(at: int, actor: str) -> _Sent:
        with acting(actor, ""):
            return _Sent([window(at).flat(None)], contextvars.copy_context())

    unknown = _Sent([replace(window(1), host="stranger").flat(None)], contextvars.copy_context())
    said = telemetry._store_quick([sent(1, "agent-a"), unknown, sent(2, "agent-b"), sent(1, "agent-b")])
    number = len(window(2).samples())
    assert [one and (one["accepted"], one["duplicate"]) for one in said] == [None, None, (number, 0), None]
    said = telemetry._store_quick([sent(4, "agent-a"), sent(4, "agent-b")])
    assert [one and (one["accepted"], one["duplicate"]) for one in said] == [(number, 0), (0, number)]
    entries = services[1].access.audit(limit=3).items
    assert [(entry.actor, entry.detail["accepted"]) for entry in entries] == [
        ("agent-b", 0),
        ("agent-a", number),
        ("agent-b", number),
    ]
