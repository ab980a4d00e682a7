"""What a plan says of each instance: one that stays keeps its room, and sentences name it."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from advisor import offline
from advisor.domain import (
    Growth,
    Host,
    Instance,
    IsolationSettings,
    Pinning,
    Plan,
    PlanAge,
    PlanRequest,
    PlanStep,
    Rejection,
    RunwayPoint,
    codec,
)
from advisor.planning import steps
from advisor.planning.cloud_evaluation import CloudEvaluation
from advisor.planning.migration_order import schedule
from advisor.planning.migration_time import MigrationLimits
from advisor.render import migrations
from advisor.reports import plan_as_html
from api.cli.plan import show_steps
from api.html import picture
from api.html.render import page
from api.web import plans
from api.web.plan_form import KINDS, PlanForm
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_asked import HOSTS, plan
from tests.advisor.planning.planning_cases import cloud, host, snapshot, vm
from tests.advisor.planning.test_assign import assigned
from tests.advisor.planning.test_migration_order import SWAP, THREE, A, B

PRIOR = PriorPredictor()
SMALL = host("h1", 4096)


def test_no_instance_gets_the_room_of_a_resident_that_finds_no_host() -> None:
    asked = (vm("a", memory_mb=99_999), vm("n", memory_mb=3000))
    answer = plan(cloud(vm("a", on="h1", memory_mb=3000), hosts=(SMALL,)), PlanRequest(instances=asked))
    assert [(one.instance, one.source, one.host) for one in answer.steps] == [("a", "h1", None), ("n", None, None)]
    assert [one.instance for one in answer.after["h1"]] == ["a"]
    assert answer.search
    assert (answer.search.value, answer.search.bound, answer.search.ended) == (0.0, 1.0, "in the way")
    assert "a stays as it is on h1: no host takes it with the requested size and settings." in answer.notes


def test_who_asks_for_what_it_has_is_placed_where_it_is_whoever_comes_before() -> None:
    one = vm("a", on="h1", memory_mb=3000)
    answer = plan(cloud(one, hosts=(SMALL,)), PlanRequest(instances=(vm("n", memory_mb=3000), one)))
    assert [(step.instance, step.host) for step in answer.steps] == [("a", "h1"), ("n", None)]
    assert answer.steps[0].why == "it is on h1 already, and no other host is better"
    assert answer.search and (answer.search.value, answer.search.ended) == (1.0, "in the way")


def test_the_way_back_has_no_stage_for_who_stayed() -> None:
    there = vm("a", on="h1")
    answer = plan(cloud(there, hosts=HOSTS[:1]), PlanRequest(instances=(vm("n"), there)))
    assert [(one.instance, one.stage) for one in answer.steps] == [("n", 0), ("a", 1)]
    assert [(one.instance, one.action, one.stage) for one in answer.undo] == [("n", "remove", 0)]


def test_a_move_is_not_said_to_help_the_worst_off_where_it_brings_others_within_their_limit() -> None:
    crowd = cloud(*(vm(f"p{at:02}", on="h1", memory_mb=100) for at in range(24)), hosts=HOSTS[:2])
    answer = plan(crowd, PlanRequest(kind="rebalance"))
    worst = [sums.worst for sums in (answer.sums_before, answer.sums_after) if sums]
    for step in answer.steps:
        assert step.gain and step.gain.expected > worst[1] - worst[0]
        assert step.why.startswith(f"reduces the loss of the instances on both hosts by {step.gain.expected:.2f} and ")
    assert answer.steps


@pytest.mark.parametrize("kind", ["consolidate", "evacuate"])
def test_a_detour_starts_where_the_instance_was(kind: str) -> None:
    start = snapshot(THREE, A, B)
    scheduled = schedule(start, SWAP, PRIOR, keep_ratio=0.8, limits=MigrationLimits(2)).scheduled
    ratios = CloudEvaluation.of(start, PRIOR).ratios()
    context = steps.StepContext(
        start=start,
        kind=kind,  # type: ignore[arg-type]
        before=ratios,
        after=ratios,
        emptied=frozenset({"h2"} if kind == "evacuate" else ()),
        candidates={},
        commands=False,
    )
    last = steps.steps_forward(context, scheduled)[-1]
    assert (last.instance, last.source) == ("b", "h3")
    first = "h2 is to be emptied" if kind == "evacuate" else "leaves h2, so that fewer hosts are needed"
    assert last.why == f"{first} and b runs at 100 % of its uncontended speed on h1 (on h2: 100 %)"


def test_a_neighbour_whose_limit_would_break_is_named_as_the_one_that_is_there() -> None:
    there = [vm(f"r{at}", on=f"h{at}", min_throughput_ratio=1.0, labels={"name": f"shop {at}"}) for at in (1, 2)]
    coming = Instance("n", 1, 512, workload="cpu", load=0.1)
    hosts = (host("h1", pcpus=1), host("h2", pcpus=1))
    answer = plan(cloud(*there, hosts=hosts), PlanRequest(instances=(coming,), keep_ratio=0.1))
    assert [(one.host, one.reason.split()[0]) for one in answer.steps[0].rejected] == [("h1", "r1"), ("h2", "r2")]


def test_each_of_several_equal_hosts_has_an_answer_of_its_own() -> None:
    answer = plan(cloud(hosts=(host("h1", pcpus=1),)), PlanRequest(instances=(vm("n1"), vm("n2"), vm("n3"))))
    reasons = [step.rejected[0].reason for step in answer.steps if step.host is None]
    assert len(reasons) == 2
    assert all(one.startswith("it would run at 50 % of its uncontended speed") for one in reasons)


def test_no_host_is_said_to_refuse_that_was_not_looked_at() -> None:
    both = snapshot((host("h1"), host("h2")))
    late = assigned(both, "admit", vm("n1"), vm("n2"), time_limit_s=1e-9)
    assert late.notes == ("No host was found for n1 and 1 more; the time limit was reached.",)
    assert assigned(both, "admit", vm("n1"), targets=frozenset()).notes == ("No host takes n1; none may be used.",)


def test_who_was_not_moved_in_time_is_not_said_to_be_unmovable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["advisor.planning.assignment.assign"], "SEARCH_SHARE", 0.0)
    answer = plan(cloud(vm("a", on="h1"), hosts=HOSTS), PlanRequest(kind="evacuate", empty=("h1",)))
    assert [step.host for step in answer.steps] == [None]
    assert answer.search and answer.search.ended == "time"


def test_an_instance_that_no_size_or_cap_helps_is_reported_only_when_all_hosts_were_examined(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crowd = cloud(*(vm(f"p{at}", on="h1") for at in range(12)), hosts=HOSTS)
    said = "12 instances stay below a limit: no size or cap helps; a rebalance may."
    assert said in plan(crowd, PlanRequest(kind="right_size")).notes
    monkeypatch.setattr("advisor.planning.plan_context.PlanContext.left_s", -1.0)
    late = plan(crowd, PlanRequest(kind="right_size"))
    assert late.notes == ("Time limit reached before 3 of 3 hosts were looked at.",)


def test_one_is_worded_as_one() -> None:
    full = cloud(vm("a", on="h1", memory_mb=3000), hosts=(SMALL, host("h2", 1024)))
    answer = plan(full, PlanRequest(kind="evacuate", empty=("h1",)))
    assert offline.plan_document(answer).facts == {"Steps": "0 in 0 stages; 1 instance finds no host"}
    smaller = PlanStep("a", "h1", action="resize", source="h1", vcpus=1)
    other = plan(cloud(vm("a", on="h1"), hosts=HOSTS), PlanRequest(kind="right_size"))
    assert plans.plan_differences(replace(other, steps=(smaller,)), other) == [("a", "1 vCPU", "stays")]
    refused = PlanStep("b", None, rejected=(Rejection("h1", "capacity.memory", "needs 9 MB, 8 MB free"),))
    text = _page(replace(other, steps=(smaller, refused)))
    assert "resize to 1 vCPU</td>" in text and "1 host rejected" in text


def test_a_step_tells_the_settings_that_come_with_another_size(capsys: pytest.CaptureFixture[str]) -> None:
    given = IsolationSettings(pinning=Pinning(((0,),)), cap_percent=100)
    show_steps([PlanStep("a", "h1", action="resize", source="h1", vcpus=1, settings=given, why="is enough")], {}, "T/B")
    assert "to 1 vCPU; pin 0:0, cap 100 % of a CPU; is enough" in capsys.readouterr().out


GROWING = PlanRequest(kind="capacity", instances=(vm("n", memory_mb=1),), growth=Growth(1.0, 0.0, 24))


@pytest.mark.parametrize(
    ("months", "said"),
    [
        (0, "No month was examined."),
        (1, "1 month was examined; no shortage in it."),
        (2, "2 months were examined; no shortage in those."),
        (24, "24 months were examined; no shortage in those."),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_no_month_is_claimed_that_was_not_examined(months: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = cloud(hosts=HOSTS)
    sums = plan(now, PlanRequest(kind="capacity", instances=GROWING.instances)).sums_before
    assert sums
    runway = tuple(RunwayPoint(float(month), month, 1.0, sums, fits=True) for month in range(months + 1))
    monkeypatch.setattr("advisor.planning.capacity.look_ahead", lambda *_: (None, runway))
    answer = plan(now, GROWING)
    assert answer.capacity
    report = plan_as_html(now, answer)
    reported = {
        "json": codec.answer_values(answer.capacity)["outlook"],
        "command": _said(answer),
        "page": _page(answer),
        "report": report,
    }
    assert [where for where, text in reported.items() if said not in text] == []
    everything = " ".join([*reported.values(), *answer.notes])
    for claim in ("does not run out", "lasts for", "not within what", "1 months", "the line is where"):
        assert claim not in everything
    assert codec.answer_values(answer.capacity)["months_examined"] == months
    late = f"Time limit reached before month {months + 1} was examined."
    assert (late in answer.notes) == (late in report) == (months < 24)


@pytest.mark.usefixtures("undrawn")
def test_a_cloud_that_is_full_in_a_month_is_said_to_be_so_everywhere() -> None:
    now = cloud(hosts=HOSTS)
    answer = plan(now, replace(GROWING, instances=(vm("n", memory_mb=5000),)))
    assert answer.capacity and (answer.capacity.runs_out_month, answer.capacity.months_examined) == (4, 4)
    said = "With this growth the cloud is full in month 4."
    for text in (answer.capacity.outlook, _said(answer), _page(answer)):
        assert said in text
    report = plan_as_html(now, answer)
    assert "the cloud is full in 4" in report.replace("\u00a0", " ")
    assert "examined;" not in report


def _said(answer: Plan) -> str:
    document = offline.plan_document(answer)
    return " ".join((document.headline, *document.sentences))


def test_without_growth_nothing_is_said_of_months() -> None:
    answer = plan(cloud(hosts=HOSTS), replace(GROWING, growth=None))
    assert answer.capacity and (answer.capacity.outlook, answer.capacity.months_examined) == ("", None)
    assert "month" not in _said(answer)


def test_what_no_tool_moves_names_the_tool_that_does_not() -> None:
    there, cloudy = Host("h1", "kvm", 4, 4096), Host("h2", "kvm", 4, 4096, labels={"render": "openstack"})
    for source, target, tool in ((there, cloudy, "virsh"), (cloudy, there, "openstack")):
        (said,) = migrations.move(vm("a", on=source.id), vm("a", on=target.id), source, target, (), ())
        assert (said.tool, said.argv) == (tool, ())


def test_a_row_of_a_form_without_a_number_is_left_out() -> None:
    typed = {"count_1": "", "count_2": "2"}
    request = PlanForm.read(typed, sent=True).request(host)
    assert request is not None
    assert [one.id for one in request.instances] == ["new-2-1", "new-2-2"]


def _page(found: Plan) -> str:
    """The page of a plan, as a visitor who is not signed in sees it."""
    request = SimpleNamespace(state=SimpleNamespace(), app=SimpleNamespace(state=SimpleNamespace()))
    document = offline.plan_document(found)
    answer = page(
        request,  # type: ignore[arg-type]
        "plan.html",
        plan=found,
        document=document,
        tables=offline.text_tables(*document.sections),
        kind=KINDS[found.request.kind],
        age=PlanAge(False, 1),
        stages=plans.plan_stages(found.steps),
        refused=plans.plan_refusals(found),
        undo=[],
        sums=[],
        maps=(),
        hosts=[],
        others=0,
        beside=[],
        kinds=KINDS,
        picture=picture,
    )
    return bytes(answer.body).decode()
