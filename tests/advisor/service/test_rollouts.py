"""A plan is previewed, approved, carried out on control groups, judged by windows, and taken back where it did harm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from advisor.domain import Band, Effect, Host, Instance, Inventory, IsolationSettings, Plan, PlanStep, RolloutStanding
from advisor.errors import Conflict, InvalidInput, NotFound
from advisor.service import Advisor, acting, backup_database, restore_database
from advisor.settings import Settings
from advisor.store import answers, models
from profiler.observed import MetricSample
from tests.advisor.changes.hierarchy import FILES
from tests.advisor.service.service_clock import Clock

NAMES = ("shop", "batch", "other")
WINDOW_S = 60.0


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "groups"
    for controller, files in FILES[1].items():
        for name in NAMES:
            group = folder / controller / f"lxc.payload.{name}"
            group.mkdir(parents=True)
            for file, text in files.items():
                (group / file).write_text(text)
    mounts = {controller: str(folder / controller) for controller in FILES[1]}
    monkeypatch.setattr("profiler.acting.group_files.find_mounts", lambda source: mounts)
    return folder


@pytest.fixture
def settings(tmp_path: Path, settings: Settings) -> Settings:
    return settings.model_copy(
        update={"apply_mode": "ask", "apply_here": "h1", "apply_canary": False, "apply_measure_windows": 5}
    )


@pytest.fixture
def service(advisor: Advisor, groups: Path) -> Iterator[Advisor]:
    hosts = tuple(Host(name, "lxc", pcpus=2, memory_mb=4096, labels={"cgroup_version": "1"}) for name in ("h1", "h2"))
    there = tuple(Instance(name, vcpus=1, memory_mb=1, host="h1", workload="w") for name in NAMES)
    alike = Instance("alike", vcpus=1, memory_mb=1, host="h2", workload="w")
    advisor.inventory.put(Inventory(hosts, (*there, alike)), mode="replace", generation=None)
    yield advisor


def effect(instance: str, now: float, then: float) -> tuple[Effect, Effect]:
    bands = [Band(value, value - 0.05, value + 0.05) for value in (now, then)]
    before, after = (Effect(instance, band, Band(1.0, 1.0, 1.0)) for band in bands)
    return before, after


def weigh(name: str, weight: int) -> PlanStep:
    return PlanStep(name, "h1", action="settings", source="h1", settings=IsolationSettings(weight=weight))


def plan_of(service: Advisor, clock: Clock, *steps: PlanStep, name: str = "p1") -> Plan:
    pairs = [effect("shop", 0.6, 0.8), effect("batch", 0.9, 0.8)]
    before, after = ({"h1": tuple(pair[at] for pair in pairs)} for at in (0, 1))
    plan = Plan(name, clock(), "analytic", "analytic", steps, before, after)
    with service._transactions.write() as connection:
        answers.add_plan(connection, plan)
    return plan


def shares(groups: Path) -> dict[str, str]:
    return {name: (groups / "cpu" / f"lxc.payload.{name}" / "cpu.shares").read_text().strip() for name in NAMES}


def windows(service: Advisor, clock: Clock, number: int, delivered: Mapping[str, float]) -> None:
    """So many windows pass, in which each instance runs and waits like that."""
    samples = []
    for _ in range(number):
        clock.turn(WINDOW_S)
        for name, share in delivered.items():
            for metric, value in (("cpu", 50.0 * share), ("waiting", 50.0 * (1 - share))):
                host = "h2" if name == "alike" else "h1"
                samples.append(MetricSample(host, name, "instance", metric, value, clock().timestamp()))
    service.telemetry.ingest(samples)


def carried_out(service: Advisor, clock: Clock, *steps: PlanStep) -> RolloutStanding:
    windows(service, clock, 20, {"shop": 0.6, "batch": 0.9, "alike": 0.7})
    rollout = service.changes.of_plan(plan_of(service, clock, *steps))
    service.changes.store(rollout)
    with acting("token:ann", "r1"):
        service.changes.approve(rollout.id)
    return service.changes.carry_out(rollout.id)


STEPS = (weigh("shop", 1024), weigh("batch", 128))


def test_a_tuning_is_carried_out_measured_and_taken_back(service: Advisor, clock: Clock, groups: Path) -> None:
    standing = carried_out(service, clock, *STEPS)
    assert standing.state == "carried_out"
    assert standing.approved_by == "token:ann"
    assert shares(groups) == {"shop": "4096", "batch": "512", "other": "1024"}
    assert service.changes.watch(standing.rollout.id).effects == (), "no window is over yet"
    windows(service, clock, 12, {"shop": 0.81, "batch": 0.81, "alike": 0.7})
    standing = service.changes.watch(standing.rollout.id)
    assert {one.instance: one.verdict for one in standing.effects} == {"shop": "as predicted", "batch": "as predicted"}
    shop = next(one for one in standing.effects if one.instance == "shop")
    assert shop.effect is not None
    assert shop.effect.expected == pytest.approx(0.21, abs=0.001)
    assert shop.controls == ("alike",)
    assert standing.state == "carried_out"
    undone = service.changes.undo(standing.rollout.id, "by hand")
    assert undone.state == "taken_back"
    assert set(shares(groups).values()) == {"1024"}


def test_what_was_measured_is_learned_as_the_hosts_were_before_and_after(
    service: Advisor, clock: Clock, groups: Path
) -> None:
    standing = carried_out(service, clock, *STEPS)
    windows(service, clock, 12, {"shop": 0.81, "batch": 0.81, "alike": 0.8})
    service.changes.watch(standing.rollout.id)
    with service._transactions.read() as connection:
        found = {one.colocation.repeat: one for one in models.newest_colocations(connection, 10, 1000)}
    assert found.keys() == {"before", "after"}
    assert {one.sender for one in found.values()} == {"changes"}
    weights = {
        repeat: {each.instance.id: each.instance.settings.weight for each in one.colocation.outcomes}
        for repeat, one in found.items()
    }
    assert weights["before"] == {"shop": 256, "batch": 256, "other": 256}, "as it was, whatever the inventory says"
    assert weights["after"] == {"shop": 1024, "batch": 128, "other": 256}
    reached = {each.instance.id: each.colocated for each in found["after"].colocation.outcomes}
    assert reached["shop"] == pytest.approx(0.71, abs=0.001), "0.6 + 0.21 - 0.1, which all alike got"
    assert reached["other"] is None, "it was not measured, and is beside them"
    dataset = service.posted_dataset()
    assert dataset is not None
    assert "CPU delivered" in (dataset / "colocations.csv").read_text()


def test_what_is_unknown_teaches_nothing(service: Advisor, clock: Clock, groups: Path) -> None:
    standing = carried_out(service, clock, *STEPS)
    clock.turn(3600)
    service.changes.watch(standing.rollout.id)
    with service._transactions.read() as connection:
        assert models.newest_colocations(connection, 10, 1000) == ()


def test_a_victim_that_falls_beyond_doubt_is_helped_without_a_person(
    service: Advisor, clock: Clock, groups: Path
) -> None:
    standing = carried_out(service, clock, *STEPS)
    windows(service, clock, 12, {"shop": 0.4, "batch": 0.81, "alike": 0.7})
    standing = service.changes.watch(standing.rollout.id)
    assert standing.state == "taken_back"
    assert standing.verdict == "harmful"
    assert standing.why.startswith("shop fell")
    assert set(shares(groups).values()) == {"1024"}


def test_a_fall_of_all_alike_is_no_harm_of_the_change(service: Advisor, clock: Clock, groups: Path) -> None:
    standing = carried_out(service, clock, *STEPS)
    windows(service, clock, 12, {"shop": 0.6, "batch": 0.6, "alike": 0.5})
    standing = service.changes.watch(standing.rollout.id)
    assert standing.state == "carried_out"
    assert {one.verdict for one in standing.effects} == {"as predicted"}


def test_without_windows_the_verdict_is_unknown_and_nothing_is_taken_back(
    service: Advisor, clock: Clock, groups: Path
) -> None:
    standing = carried_out(service, clock, *STEPS)
    clock.turn(3600)
    standing = service.changes.watch(standing.rollout.id)
    assert (standing.state, standing.verdict, len(standing.effects)) == ("carried_out", "unknown", 2)


def test_a_canary_is_measured_before_the_rest_goes_on(
    settings: Settings, clock: Clock, groups: Path, service: Advisor
) -> None:
    service.close()
    with Advisor(settings.model_copy(update={"apply_canary": True}), clock=clock) as careful:
        standing = carried_out(careful, clock, *STEPS)
        assert standing.state == "canary"
        assert shares(groups) == {"shop": "4096", "batch": "1024", "other": "1024"}
        windows(careful, clock, 12, {"shop": 0.7, "batch": 0.85, "alike": 0.7})
        standing = careful.changes.watch(standing.rollout.id)
        assert standing.state == "carried_out"
        assert shares(groups) == {"shop": "4096", "batch": "512", "other": "1024"}


def test_a_preview_changes_nothing_and_says_what_is_there(service: Advisor, clock: Clock, groups: Path) -> None:
    rollout = service.changes.of_plan(plan_of(service, clock, *STEPS))
    previewed, refused = service.changes.preview(rollout)
    assert [one.now for one in previewed] == [{"cpu.shares": "1024"}, {"cpu.shares": "1024"}]
    assert refused == ()
    assert set(shares(groups).values()) == {"1024"}
    with pytest.raises(NotFound):
        service.changes.get(rollout.id)


def test_nothing_is_carried_out_without_an_approval_in_a_freeze_or_too_soon(
    service: Advisor, clock: Clock, groups: Path
) -> None:
    rollout = service.changes.of_plan(plan_of(service, clock, *STEPS))
    service.changes.store(rollout)
    with pytest.raises(Conflict, match="need an approval"):
        service.changes.carry_out(rollout.id)
    service.changes.approve(rollout.id)
    with pytest.raises(Conflict, match="waits for no approval"):
        service.changes.approve(rollout.id)
    service.changes.freeze("release week")
    with pytest.raises(Conflict, match="release week"):
        service.changes.carry_out(rollout.id)
    service.changes.thaw()
    assert service.changes.carry_out(rollout.id).state == "carried_out"
    again = service.changes.of_plan(plan_of(service, clock, weigh("other", 512), name="p2"))
    assert any("under way" in reason for reason in service.changes.preview(again)[1])
    clock.turn(1800)
    again = service.changes.of_plan(plan_of(service, clock, weigh("shop", 512), name="p3"))
    assert any("cooldown" in reason for reason in service.changes.preview(again)[1])
    clock.turn(10)
    named = {event.name for event in service.access.events("0" * 14)[0] if event.kind == "change"}
    assert named == {"change.planned", "change.frozen", "change.thawed", "change.carried_out"}


def test_the_default_mode_advises_only(settings: Settings, clock: Clock, groups: Path, service: Advisor) -> None:
    service.close()
    with Advisor(settings.model_copy(update={"apply_mode": "advise"}), clock=clock) as adviser:
        rollout = adviser.changes.of_plan(plan_of(adviser, clock, *STEPS))
        adviser.changes.store(rollout)
        adviser.changes.approve(rollout.id)
        with pytest.raises(Conflict, match="mode is advise"):
            adviser.changes.carry_out(rollout.id)
    assert set(shares(groups).values()) == {"1024"}


@pytest.mark.parametrize(
    "step",
    [
        PlanStep("shop", "h1", action="resize", vcpus=2, source="h1"),
        PlanStep("shop", "h1", action="place"),
        PlanStep("gone", "h1", action="settings", settings=IsolationSettings(weight=512)),
        PlanStep("shop", "h2", action="move", source="h1"),
    ],
)
def test_a_step_that_cannot_be_carried_out_refuses_the_whole_plan(
    service: Advisor, clock: Clock, step: PlanStep
) -> None:
    with pytest.raises(InvalidInput):
        service.changes.of_plan(plan_of(service, clock, weigh("batch", 512), step))


def test_the_ledger_is_in_backups(
    service: Advisor, settings: Settings, clock: Clock, groups: Path, tmp_path: Path
) -> None:
    standing = carried_out(service, clock, *STEPS)
    backup = tmp_path / "kept.backup"
    backup_database(settings, backup, samples=False)
    other = Settings(database=f"sqlite:///{tmp_path}/other.sqlite3", state_dir=tmp_path)
    restore_database(other, backup)
    with Advisor(other, clock=clock) as restored:
        assert restored.changes.get(standing.rollout.id) == standing
