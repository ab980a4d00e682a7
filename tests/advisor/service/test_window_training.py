"""Windows kept for training: bounded, with the scene as it was, and what becomes of a model that they made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from advisor.domain import Activation
from advisor.errors import InvalidInput
from advisor.lifecycle import training
from advisor.service import Advisor
from advisor.store import models as registry
from advisor.store import predictions, windows
from advisor.store.engine import Database
from models.data.dataset import load_dataset
from models.data.window_dataset import SharedWindow
from models.evaluation.prediction_checks import WindowFigures, WindowKey
from profiler.demand import Demand
from profiler.observed import Host, Instance, IsolationSettings
from tests.advisor.service.test_held_windows import HOSTS, VMS, Cloud, cloud
from tests.advisor.service.two_models import use
from tests.servers.fixtures import empty_url, kind, postgres_server

__all__ = ["cloud", "empty_url", "kind", "postgres_server"]

DAY_S = 86_400.0


def window(ends_s: float, load: float = 1.0, *names: str) -> SharedWindow:
    settings, demand = IsolationSettings(weight=512), Demand(load, common=0.0, origin="measured")
    there = tuple(Instance(name, 2, settings=settings, demand={"cpu": demand}) for name in names or ("a", "b"))
    return SharedWindow(Host("h", "kvm", pcpus=4, memory_mb=1e4), there, dict.fromkeys(("a", "b"), 0.75), ends_s)


@pytest.fixture
def database(advisor: Advisor) -> Database:
    return advisor._database


@pytest.mark.parametrize(("pcpus", "memory_mb"), [(4, 1e4), (1, 1.0)])
def test_a_window_comes_back_as_it_was_kept(database: Database, pcpus: int, memory_mb: float) -> None:
    kept = replace(window(300.0), host=Host("h", "kvm", pcpus, memory_mb))
    with database.write() as connection:
        windows.keep(connection, kept)
        assert list(windows.since(connection, 0.0)) == [kept]
        assert list(windows.since(connection, 300.0)) == []


def test_steady_company_is_kept_once_a_day_for_each_load_as_it_was_last(database: Database) -> None:
    with database.write() as connection:
        again, busier, alone = window(600.0, 1.01), window(900.0, 1.5), window(1200.0, 1.0, "a")
        for one in (window(300.0), again, busier, alone, window(DAY_S + 300.0)):
            windows.keep(connection, one)
        assert [one.ends_s for one in windows.since(connection, 0.0)] == [600.0, 900.0, 1200.0, DAY_S + 300.0]


def test_no_more_windows_are_kept_than_the_bound(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_KEPT", 3)
    with database.write() as connection:
        for day in range(5):
            windows.keep(connection, window(day * DAY_S + 300.0))
        assert [one.ends_s // DAY_S for one in windows.since(connection, 0.0)] == [2, 3, 4]
        windows.keep(connection, window(200 * DAY_S))
        assert [one.ends_s // DAY_S for one in windows.since(connection, 0.0)] == [200]


def test_calm_windows_do_not_push_out_contended_ones(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "MOST_KEPT", 4)
    with database.write() as connection:
        for day in range(12):
            shares = dict.fromkeys(("a", "b"), 0.5 if day in {0, 1} else 1.0)
            windows.keep(connection, replace(window(day * DAY_S + 300.0), shares=shares))
        assert [one.ends_s // DAY_S for one in windows.since(connection, 0.0)] == [0, 1, 10, 11]


def test_windows_that_were_held_become_a_dataset(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "LEAST_SHARES", 10)
    with pytest.raises(InvalidInput, match="0 windows of that time are stored"):
        cloud.advisor.window_dataset(DAY_S)
    cloud.truth = lambda share: share**0.5
    cloud.windows(5)
    made = load_dataset(cloud.advisor.window_dataset(DAY_S))
    assert set(made.platforms) == {host.id for host in HOSTS}
    rows = [one for each in made.colocations for one in each.outcomes]
    assert {one.instance.id for one in rows} == {one.id for one in VMS}
    assert all(one.colocated and 0.5 < one.colocated < 1 for one in rows)
    assert all(0.8 < one.instance.demand["cpu"].mean < 1.1 for one in rows)


def groups(error: float, scenes: float, days: float = 2.0) -> dict[WindowKey, WindowFigures]:
    """How a model m-1 of this mean error held in windows, beside a prior of 0.05."""
    of = {"m-1": (error, scenes, days), "analytic": (0.05, 1000.0, 9.0)}
    return {
        WindowKey(version, "kvm", "", "forecast", contended): WindowFigures(
            rows=10 * number, scenes=number, first_s=0.0, last_s=DAY_S * span, absolute=10 * number * mean
        )
        for version, (mean, number, span) in of.items()
        for contended in (True, False)
    }


def test_a_model_that_turned_out_worse_is_distinguished_from_one_that_did_not() -> None:
    assert training.turned_out("m-1", groups(0.09, 20)) is None
    assert training.turned_out("m-1", groups(0.09, 200, 0.5)) is None
    for error, worse in ((0.09, True), (0.052, False), (0.02, False)):
        found = training.turned_out("m-1", groups(error, 200))
        assert found is not None and found.worse is worse


@pytest.mark.parametrize(("cause", "answers"), [("activate", "analytic"), ("force", "m-1")])
def test_a_model_that_turned_out_worse_goes_back_unless_it_was_forced(
    advisor: Advisor, cause: str, answers: str
) -> None:
    use(advisor, active="m-1", shadow="m-2")
    with advisor._database.write() as connection:
        registry.record(connection, Activation(datetime(2026, 1, 1, tzinfo=UTC), "analytic", "m-1", cause))
        predictions.put(connection, groups(0.03, 200))
    found = advisor.roll_back_if_worse()
    assert found is not None and not found.worse
    with advisor._database.write() as connection:
        predictions.put(connection, groups(0.09, 200))
    found = advisor.roll_back_if_worse()
    assert found is not None
    assert (found.version, found.scenes, found.worse) == ("m-1", 400, True)
    assert [found.error, found.prior] == pytest.approx([0.09, 0.05])
    assert [one.version for one in advisor.models.listing() if one.status == "active"] == [answers]
