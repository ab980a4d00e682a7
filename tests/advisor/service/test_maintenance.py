"""A host is closed and emptied by a plan, reached or not, and opened again; the systems behind it are simulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from advisor.changes.agents import OwnHosts
from advisor.changes.controller import HOST, NO, OPEN, YES, ChangeFailed, ExecutorKind, Executors, Meaning, Reach
from advisor.domain import Change, Command, Host, Instance, Inventory, MaintenanceState
from advisor.errors import Conflict, InvalidInput, NotFound
from advisor.service import Advisor
from advisor.settings import Settings
from profiler.observed import NEVER_MOVE_LABEL
from tests.advisor.service.service_clock import Clock

NAMES = ("a", "b", "c")


class System:
    """Where instances really are, and which hosts its scheduler closed."""

    def __init__(self) -> None:
        self.places = {**dict.fromkeys(NAMES, "h1"), "fixed": "h2"}
        self.closed: set[str] = set()
        self.refuses: set[str] = set()
        self.moves: list[tuple[str, str]] = []

    def meaning(self, host: Host, command: Command) -> Meaning:
        raise InvalidInput("nothing but moves is changed here")

    def moving(self, instance: Instance, source: Host, target: Host) -> Meaning:
        return Meaning("move", instance.id, {HOST: source.id}, {HOST: target.id})

    def closing(self, host: Host) -> Meaning:
        return Meaning("host", host.id, {OPEN: YES}, {OPEN: NO})

    def read(self, change: Change) -> Mapping[str, str]:
        if change.kind == "host":
            return {OPEN: NO if change.target in self.closed else YES}
        return {HOST: self.places[change.target]}

    def write(self, change: Change, values: Mapping[str, str]) -> None:
        if change.kind == "host":
            (self.closed.add if values[OPEN] == NO else self.closed.discard)(change.target)
        elif change.target in self.refuses:
            raise ChangeFailed(f"{change.target} does not move now")
        else:
            self.places[change.target] = values[HOST]
            self.moves.append((change.target, values[HOST]))

    def same(self, setting: str, one: str, other: str) -> bool:
        return one == other


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"apply_mode": "ask"})


@pytest.fixture
def system() -> System:
    return System()


@pytest.fixture(params=["scheduler", "own"])
def service(advisor: Advisor, system: System, clock: Clock, request: pytest.FixtureRequest) -> Iterator[Advisor]:
    hosts = tuple(Host(name, "kvm", pcpus=8, memory_mb=16384) for name in ("h1", "h2", "h3"))
    there = tuple(Instance(name, vcpus=1, memory_mb=1024, host="h1") for name in NAMES)
    fixed = Instance("fixed", vcpus=1, memory_mb=1024, host="h2", labels={NEVER_MOVE_LABEL: "true"})
    advisor.inventory.put(Inventory(hosts, (*there, fixed)), mode="replace", generation=None)
    closes = ("kvm",) if request.param == "scheduler" else ()
    kinds = {"cloud": ExecutorKind(lambda reach: system, moves=("kvm",), closes=closes)}
    own = {"inventory": OwnHosts(advisor._transactions, clock)}
    advisor.changes._executors = Executors(Reach(), kinds, own=own)
    yield advisor


def state(service: Advisor, host: str = "h1") -> MaintenanceState:
    return service.maintenance.of(host).state


def carry(service: Advisor, rollout: str) -> str:
    service.changes.approve(rollout)
    return service.changes.carry_out(rollout).state


def test_a_host_is_closed_first_then_emptied_and_opened_again(service: Advisor, system: System, clock: Clock) -> None:
    assert state(service) == "none"
    planned = service.maintenance.start("h1").rollout
    assert state(service) == "planned"
    assert [change.kind for change in planned.changes] == ["host", "move", "move", "move"]
    assert (planned.source, planned.canary) == ("maintenance:h1", 0)
    assert system.moves == [], "nothing is carried out by a plan"
    assert carry(service, planned.id) == "carried_out"
    assert state(service) == "reached"
    assert {name for name, host in system.places.items() if host == "h1"} == set()
    host = service.inventory.host("h1")
    assert not host.enabled
    assert {one.id: one.host for one in service.inventory.instances().items} == system.places
    assert [one.host for one in service.maintenance.listing()] == ["h1"]
    clock.turn(60.0)
    opened = service.maintenance.end("h1").rollout
    assert state(service) == "planned"
    assert carry(service, opened.id) == "carried_out"
    assert state(service) == "ended"
    assert service.inventory.host("h1").enabled
    assert (system.closed, service.maintenance.listing()) == (set(), ())
    assert set(system.places.values()) <= {"h2", "h3"}, "it takes new instances; those that left stay where they are"


def test_the_instances_come_back_where_that_is_asked_for(service: Advisor, system: System) -> None:
    planned = service.maintenance.start("h1").rollout
    carry(service, planned.id)
    assert service.changes.undo(planned.id, "maintenance is over").state == "taken_back"
    assert system.places == {**dict.fromkeys(NAMES, "h1"), "fixed": "h2"}
    assert service.inventory.host("h1").enabled
    assert (system.closed, state(service)) == (set(), "none")


def test_a_move_that_fails_ends_it_with_the_rest_in_place_and_another_start_plans_for_who_is_left(
    service: Advisor, system: System, clock: Clock
) -> None:
    planned = service.maintenance.start("h1").rollout
    second = planned.changes[2].instance
    system.refuses.add(second)
    assert carry(service, planned.id) == "stopped"
    assert len(system.moves) == 1
    assert state(service) == "not reached"
    left = set(service.maintenance.of("h1").stays)
    assert left == {name for name in NAMES if system.places[name] == "h1"}
    assert second in left
    assert not service.inventory.host("h1").enabled
    system.refuses.clear()
    clock.turn(60.0)
    again = service.maintenance.start("h1").rollout
    assert {change.instance for change in again.changes if change.kind == "move"} == left
    assert carry(service, again.id) == "carried_out"
    assert state(service) == "reached"


def test_the_same_rollout_goes_on_with_the_step_that_failed(service: Advisor, system: System) -> None:
    planned = service.maintenance.start("h1").rollout
    system.refuses.add(planned.changes[2].instance)
    carry(service, planned.id)
    system.refuses.clear()
    assert service.changes.carry_out(planned.id).state == "carried_out"
    assert state(service) == "reached"
    assert len(system.moves) == len(set(system.moves)) == 3


def test_who_never_moves_stays_and_is_named(service: Advisor, system: System) -> None:
    planned = service.maintenance.start("h2").rollout
    assert [change.kind for change in planned.changes] == ["host"]
    assert len(planned.notes) == 1
    assert planned.notes[0].startswith("fixed stays")
    assert carry(service, planned.id) == "carried_out"
    assert service.maintenance.of("h2").state == "not reached"
    assert service.maintenance.of("h2").stays == ("fixed",)


def test_a_host_that_was_closed_by_the_operator_stays_closed_after_an_undo(service: Advisor, system: System) -> None:
    system.closed.add("h1")
    service.inventory.put_host(Host("h1", "kvm", pcpus=8, memory_mb=16384, enabled=False))
    planned = service.maintenance.start("h1").rollout
    carry(service, planned.id)
    service.changes.undo(planned.id, "by hand")
    assert not service.inventory.host("h1").enabled
    assert system.closed == {"h1"}


def test_a_second_start_waits_for_the_first_and_an_unknown_host_has_none(service: Advisor) -> None:
    planned = service.maintenance.start("h1").rollout
    service.changes.approve(planned.id)
    with pytest.raises(Conflict, match=planned.id):
        service.maintenance.start("h1")
    with pytest.raises(NotFound):
        service.maintenance.start("absent")


def test_each_step_has_its_lines_in_the_ledger(service: Advisor) -> None:
    planned = service.maintenance.start("h1").rollout
    carry(service, planned.id)
    lines = service.changes.get(planned.id).lines
    assert [line.event for line in lines] == ["planned", "approved", *("applying", "applied") * 4, "carried_out"]
