"""Events are what the audit log has of alarms, plans, models and the inventory: in order, once, and without names."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from advisor.access.audit import Audit, event_of
from advisor.domain import AuditEntry, Host, Instance, Inventory, PlanRequest, ServiceEvent, WorkloadProfile
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.store import callers
from advisor.store.engine import Database
from tests.advisor.service.service_clock import Clock
from tests.models.made_models import make
from tests.servers.fixtures import empty_url, kind, postgres_server

__all__ = ["empty_url", "kind", "postgres_server"]
CLOUD = Inventory((Host("h1", "kvm", 4, 8192),), (Instance("a", host="h1"),), (WorkloadProfile("web", {"cpu": 80.0}),))


def reported(events: tuple[ServiceEvent, ...]) -> list[tuple[str, Any]]:
    return [(one.name, {key: value for key, value in one.details.items() if key != "at"}) for one in events]


def heard(advisor: Advisor, clock: Clock, after: str) -> tuple[list[tuple[str, Any]], str]:
    """Everything since, once it is old enough."""
    clock.turn(5)
    events, mark = advisor.access.events(after)
    return reported(events), mark


def test_changes_of_the_inventory_and_plans_are_sent_in_their_order_and_only_once(
    advisor: Advisor, clock: Clock
) -> None:
    _, mark = advisor.access.events(None)
    clock.turn(5)
    advisor.inventory.put(CLOUD, mode="replace", generation=None)
    advisor.inventory.put_host(Host("h2", "kvm", 4, 8192))
    plan = advisor.plans.make(PlanRequest(instances=(Instance("m", vcpus=1),)))
    events, mark = heard(advisor, clock, mark)
    assert events == [
        ("inventory.changed", {"operation": "inventory.put", "objects": [], "generation": 1}),
        ("inventory.changed", {"operation": "host.put", "objects": ["h2"], "generation": 2}),
        ("plan.made", {"plan": plan.id, "kind": plan.request.kind, "instances": 1}),
    ]
    assert heard(advisor, clock, mark)[0] == []


def test_a_model_that_is_activated_and_taken_back_is_reported(
    advisor: Advisor, clock: Clock, trained: Path, tmp_path: Path
) -> None:
    version = advisor.models.register(make(trained, tmp_path / "made", "m-1")).version
    _, mark = advisor.access.events(None)
    clock.turn(5)
    advisor.models.activate(version, force=True)
    clock.turn(1)
    advisor.models.roll_back()
    (activated, back), _ = heard(advisor, clock, mark)
    assert activated[0] == "model.activated"
    assert (activated[1]["version"], activated[1]["before"]) == (version, "analytic")
    assert back == ("model.rolled_back", {"version": "analytic", "before": version, "cause": "rollback"})


def test_an_alarm_says_who_where_and_why() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    detail = {"since": "2026-01-01T23:00:00+00:00", "raised": "2026-01-01T23:30:00+00:00", "why": "a waits for b"}
    for operation, name in (("alarm.raise", "alarm.raised"), ("alarm.end", "alarm.ended")):
        event = event_of(AuditEntry("x", at, "service", "", operation, ("a", "h1", "b"), detail))
        assert (event.name, event.kind) == (name, "alarm")
        assert event.details == {
            "at": "2026-01-02T00:00:00Z", "instance": "a", "host": "h1", "antagonist": "b",
            "since": "2026-01-01T23:00:00Z", "raised": "2026-01-01T23:30:00Z", "text": "a waits for b",
            "score": None,
        }  # fmt: skip
    no_instance = event_of(AuditEntry("x", at, "service", "", "alarm.raise", ("a", "h1"), detail))
    assert no_instance.details["antagonist"] is None


def test_who_goes_on_from_an_event_hears_what_came_after_it_and_never_who_did_it(
    advisor: Advisor, clock: Clock
) -> None:
    _, mark = advisor.access.events(None)
    for number in range(3):
        clock.turn(1)
        advisor.inventory.put_host(Host(f"h{number}", "kvm", 4, 8192))
    clock.turn(5)
    (first, *rest), _ = advisor.access.events(mark)
    assert advisor.access.events(first.id)[0] == tuple(rest)
    (entry,) = advisor.access.audit(limit=1).items
    assert rest[-1].id == entry.id
    assert entry.actor not in str(rest[-1].details)


def test_an_event_waits_until_those_that_began_before_it_are_committed(advisor: Advisor, clock: Clock) -> None:
    _, mark = advisor.access.events(None)
    clock.turn(5)
    advisor.inventory.put_host(Host("h1", "kvm", 4, 8192))
    clock.turn(1)
    events, mark = advisor.access.events(mark)
    assert events == ()
    clock.turn(3)
    assert len(advisor.access.events(mark)[0]) == 1


def test_a_mark_ahead_of_the_clock_is_not_taken_back(advisor: Advisor, clock: Clock) -> None:
    _, mark = advisor.access.events(None)
    clock.turn(-60)
    assert advisor.access.events(mark) == ((), mark)


@pytest.mark.parametrize(
    "mark", ["", "x", "0" * 13, f"{'0' * 14}-1", "' OR 1=1 --", f"{'0' * 14}-{'0' * 6}-{'0' * 8}\n"]
)
def test_what_is_no_id_of_an_event_is_refused(advisor: Advisor, mark: str) -> None:
    with pytest.raises(InvalidInput, match="not the id of an event"):
        advisor.access.events(mark)


def test_many_events_come_in_parts_and_none_is_lost(
    advisor: Advisor, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.access.audit.EVENTS_AT_ONCE", 2)
    _, mark = advisor.access.events(None)
    clock.turn(5)
    for number in range(5):
        advisor.inventory.put_host(Host(f"h{number}", "kvm", 4, 8192))
    clock.turn(5)
    found: list[str] = []
    while part := advisor.access.events(mark)[0]:
        mark = advisor.access.events(mark)[1]
        found += [one.details["objects"][0] for one in part]
    assert found == [f"h{number}" for number in range(5)]


def operations() -> list[str]:
    return re.findall(r"'([\w.]+)'", str(callers._IS_EVENT))


@pytest.fixture
def database(empty_url: str) -> Any:
    from advisor.store import migrate

    found = Database(empty_url)
    migrate.upgrade(found)
    yield found
    found.close()


def test_every_kind_of_entry_that_is_an_event_can_be_reported_and_no_other_is(database: Database) -> None:
    clock = Clock()
    log = Audit(clock, timedelta(days=1))
    detail = {"since": clock().isoformat(), "raised": clock().isoformat(), "why": "w", "generation": 1}
    others: list[Any] = ["samples.add", "token.create", "session.begin", "placement.answer", "model.refuse"]
    with database.write() as connection:
        _, mark = log.events(connection, None)
        clock.turn(1)
        for operation in [*others, *operations()]:
            log.record(connection, operation, ["a", "h1"], **detail)
        clock.turn(5)
        found, _ = log.events(connection, mark)
    assert len(found) == len(operations()) == 19
    assert {one.kind for one in found} == {"alarm", "change", "plan", "model", "inventory"}


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)  # a table this small PostgreSQL reads whole
def test_who_was_away_for_long_does_not_go_over_all_other_entries(database: Database) -> None:
    sent: list[tuple[str, Any]] = []
    with database.read() as connection:
        sa.event.listen(
            connection, "before_cursor_execute", lambda _, __, text, values, *___: sent.append((text, values))
        )
        callers.events(connection, "0", "1", most=500)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sent[0][0]}", sent[0][1]).mappings().all()
    assert [row["detail"] for row in plan] == ["SEARCH audit USING INDEX ix_audit_events (id>? AND id<?)"]
