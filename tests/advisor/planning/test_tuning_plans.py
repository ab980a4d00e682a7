"""Plans of the kind tune: steps with commands and undo, the worst host first, and the same over the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import (
    Host,
    Instance,
    Inventory,
    IsolationSettings,
    Pinning,
    Plan,
    PlanRequest,
    codec,
    plan_from_json,
)
from advisor.errors import InvalidInput
from advisor.planning.plan_context import PlanContext
from advisor.reports.plan_sentences import headline
from api.schemas.placements import PlanAnswer
from tests.advisor.planning.planning_asked import Swift, plan
from tests.advisor.planning.planning_cases import WORKLOADS
from tests.advisor.tuning.tuning_hosts import SMALL_FILES, server, vm

HOLES = Host("h", "kvm", 8, 8192, cpu_ids=(0, 1, 2, 3, 8, 9, 10, 11), isolated_cpus=(11,), labels={"cgroup": "2"})
XEN = Host("x", "xen", 4, 8192, labels={"scheduler": "credit"})
TUNE = PlanRequest(kind="tune", commands=True)


def asked(*residents: Instance, request: PlanRequest = TUNE, hosts: tuple[Host, ...] = (HOLES, XEN)) -> Plan:
    return plan(Inventory(hosts, residents, (*WORKLOADS, SMALL_FILES)), request)


def on(host: str, instance: Instance) -> Instance:
    return replace(instance, host=host)


def test_pins_are_removed_by_the_numbers_that_a_host_gives_its_cpus() -> None:
    answer = asked(vm("db", 2.5, (8,), vcpus=4))
    (step,) = answer.steps
    assert (step.instance, step.host, step.action, step.settings) == ("db", "h", "settings", IsolationSettings())
    assert [command.argv[-1] for command in step.commands if command.argv[1] == "vcpupin"] == ["0-3,8-10"] * 4
    assert step.commands[0].undo[-1] == "8"
    assert answer.after["h"][0].throughput_ratio.expected > 0.98
    (back,) = answer.undo
    assert back.settings == IsolationSettings(pinning=Pinning.all_on((8,), 4))
    assert [command.argv for command in back.commands] == [command.undo for command in reversed(step.commands)]


def test_the_driver_domain_is_confined_by_its_own_step() -> None:
    answer = asked(on("x", server("a")), on("x", server("b")))
    (step,) = answer.steps
    assert (step.instance, step.subject, step.action) == ("", "driver domain", "driver_domain")
    assert len(step.driver_cpus) == 1
    assert [command.argv[:3] for command in step.commands] == [
        ("xl", "vcpu-set", "Domain-0"), ("xl", "vcpu-pin", "Domain-0"),
    ]  # fmt: skip
    assert sorted(effect.instance for effect in step.effects) == ["a", "b"]
    assert answer.undo[0].driver_cpus == (0, 1, 2, 3)


def test_the_host_with_the_most_affected_instance_comes_first_and_only_hosts_asked_about_change() -> None:
    residents = (vm("a", 0.6, (0,)), vm("b", 0.6, (0,)), on("x", vm("c", 2.5, (0,), vcpus=4)))
    assert [step.host for step in asked(*residents).steps] == ["x", "h"]
    assert [step.host for step in asked(*residents, request=replace(TUNE, hosts=("h",))).steps] == ["h"]


def test_the_headline_is_about_the_tuned_host_and_not_about_a_worse_one_elsewhere() -> None:
    residents = (vm("a", 0.6, (0,)), vm("b", 0.6, (0,)), on("x", vm("c", 2.5, (0,), vcpus=4)))
    answer = asked(*residents, request=replace(TUNE, hosts=("h",)))
    before, after = (
        min(one.throughput_ratio.expected for one in state["h"]) for state in (answer.before, answer.after)
    )
    assert answer.sums_after
    assert answer.sums_after.worst < before < after
    assert f"from {100 * before:.0f} % to {100 * after:.0f} %" in headline(answer).replace("\xa0", " ")


def test_nothing_to_gain_is_already_fine() -> None:
    answer = asked(vm("a", 0.6), vm("b", 0.6))
    assert (answer.steps, answer.search and answer.search.ended) == ((), "already fine")


def test_a_model_that_predicts_no_gain_has_no_change_advised() -> None:
    residents = (vm("a", 0.6, (0,)), vm("b", 0.6, (0,)))
    answer = plan(Inventory((HOLES,), residents, WORKLOADS), TUNE, predictor=Swift())
    assert answer.steps == ()


def test_packing_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        asked(vm("a", 0.6), request=replace(TUNE, objective="pack"))
    assert refused.value.field == "objective"


def test_no_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PlanContext, "wall_until", 0.0)
    answer = asked(vm("a", 0.6, (0,)), vm("b", 0.6, (0,)))
    assert answer.steps == ()
    assert answer.notes == ("Time limit reached before 1 of 1 hosts were looked at.",)
    assert answer.search is not None
    assert answer.search.ended == "time"


def test_a_weight_of_the_driver_domain_is_rendered_with_its_undo() -> None:
    from advisor.render import whole

    (command,) = whole.weigh_driver(XEN, 512, "native")
    assert command.argv == ("xl", "sched-credit", "-d", "Domain-0", "-w", "512")
    assert command.undo == ("xl", "sched-credit", "-d", "Domain-0", "-w", "256")
    assert list(whole.weigh_driver(XEN, 256, "native")) == []
    assert list(whole.weigh_driver(HOLES, 512, "native")) == []
    (none,) = whole.weigh_driver(replace(XEN, labels={"scheduler": "rtds"}), 512, "native")
    assert none.argv == ()


def test_a_tuning_is_the_same_over_the_wire() -> None:
    residents = (on("x", server("a")), on("x", server("b")), vm("c", 2.5, (8,), vcpus=4))
    answer = asked(*residents)
    read = plan_from_json(codec.answer_values(PlanAnswer.of(answer)), answer.request)
    assert [step.driver_cpus for step in read.steps] == [step.driver_cpus for step in answer.steps]
    assert [len(step.effects) for step in read.steps] == [len(step.effects) for step in answer.steps]
    assert [step.settings for step in read.steps] == [step.settings for step in answer.steps]
    assert headline(answer) == headline(read)
