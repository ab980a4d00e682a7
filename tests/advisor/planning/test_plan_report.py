"""The plan's report: its words, its tables, its pictures, and how it is written."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from advisor.domain import (
    Band,
    Capacity,
    Command,
    Growth,
    Instance,
    Inventory,
    IsolationSettings,
    Pinning,
    Plan,
    PlanRequest,
    PlanStep,
    PlanSums,
    Rejection,
    RunwayPoint,
    Search,
    Variant,
)
from advisor.errors import InvalidInput, OutOfSpace
from advisor.explanation.comparison import AttributedLoss, attribute_interference
from advisor.placement.changed_hosts import NEEDS_SETTINGS
from advisor.reports import files as report_files
from advisor.reports import plan_as_html, write_plan_report
from advisor.reports.parts import Column, ReportDocument, Section, Table, cell
from advisor.reports.plan import plan_report
from advisor.reports.plan_sentences import headline, searched
from advisor.reports.plan_view import Background, of_plan
from advisor.reports.shared_sentences import REFUSED, card_section
from advisor.scheduling import filters
from advisor.snapshot import ClusterSnapshot
from models.physics.prior import PriorPredictor
from tests.advisor.planning.planning_cases import NOW, cloud, effect, plan_by_hand, vm
from tests.advisor.planning.planning_cases import host as planning_host
from tests.api.page_reader import Page

LOADING = {"script", "link", "iframe", "img", "object", "embed", "base", "form", "image"}
HOSTILE = (
    '<script>alert("1")</script>',
    "<img src=x onerror=alert(1)>",
    "$x^2$",
    "a&b",
    "{{ 7*7 }}",
    '"; font-family: "',
    "#0a0001",
)


class Report(Page):
    """With the rows of its tables."""

    def __init__(self, text: str) -> None:
        self.rows: list[list[str]] = []
        super().__init__(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    def cells(self, name: str, skip: int = 0) -> list[str]:
        """The first row in which a name stands first or second; with `skip` a later one."""
        rows = ([" ".join(cell.split()) for cell in row] for row in self.rows)
        return [row for row in rows if row and name in row[:2]][skip]


def plan_as_files(inventory: Inventory, plan: Plan, background: Background | None = None) -> dict[str, bytes]:
    return report_files.files(plan_report(inventory, plan, background or of_plan(inventory, plan, None)))


def page(inventory: Inventory, plan: Plan) -> Report:
    return Report(plan_as_html(inventory, plan))


@pytest.fixture(scope="module")
def by_hand() -> str:
    """The page of the plan made by hand."""
    return plan_as_html(*plan_by_hand())


def test_the_summary_says_in_words_who_goes_where_who_pays_and_who_finds_no_place(by_hand: str) -> None:
    said = Report(by_hand).text
    for sentence in (
        "1 of 2 instances can be placed.",
        "shop-7 goes to h1.",
        "huge-1 finds no host: too little memory free on 2 hosts and no fresh data on 1 host.",
        "Now and after the plan the most affected instance is bulk-1 on h2, predicted to run at 60 % of its",
        "1 of the 2 instances that stay where they are loses 1 percentage point or more, db-1 on h1 the most, "
        "from 95 % to 70 %.",
        "Predicted below their limit after the plan: db-1 and bulk-1.",
        "1 of 3 predictions after the plan lie outside the training data",
        "v7: trained on measurements.",
        "2026-03-01 12:00 UTC",
    ):
        assert sentence in said


@pytest.mark.usefixtures("undrawn")
def test_where_the_prior_answers_nothing_lies_outside_of_a_training() -> None:
    inventory, made = plan_by_hand()
    assert "outside the training data, so" not in page(inventory, replace(made, model_origin="analytic")).text


def test_a_step_says_host_prediction_neighbours_settings_and_reasons(by_hand: str) -> None:
    assert Report(by_hand).cells("shop-7") == [
        "1",
        "shop-7",
        "place",
        "h1",
        "90 % 80–100 %",
        "db-1 95 % → 70 %",
        "pin 0:1 cap 100 % of a CPU weight 512 (2 × default) network shared 200 up to 1000 Mbit/s",
        "Both want pCPU 1.",
    ]


def test_every_instance_stands_in_the_table_with_before_and_after(by_hand: str) -> None:
    found = Report(by_hand)
    assert "1 host is empty." in found.text
    assert found.cells("db-1")[2:6] == ["95 % 85–105 %", "below its limit", "70 % 60–80 %", "−25"]
    assert found.cells("shop-7", 1)[1:6] == ["h1", "–", "comes", "90 % 80–100 %", "–"]
    assert "The limit of each instance is 80 %" in found.text


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("upper", "words"), [(10.0, "10.00 ×"), (114.24, "not known")])
def test_the_page_says_where_the_upper_edge_of_latency_is_not_known_and_the_data_has_it(
    upper: float, words: str
) -> None:
    inventory, plan = plan_by_hand()
    unsure = replace(effect("bulk-1", 0.6, 0.6), latency_ratio=Band(1.3, 0.5, upper))
    report = plan_as_files(inventory, replace(plan, after={**plan.after, "h2": (unsure,)}))
    assert words in Report(report["index.html"].decode()).cells("bulk-1")
    rows = json.loads(report["report.json"])["tables"]["instances"]
    (row,) = (row for row in rows if row["instance"] == "bulk-1")
    assert row["latency_upper"] == upper


@pytest.mark.usefixtures("undrawn")
def test_refusals_of_one_kind_stand_together_with_the_hosts_they_hold_for() -> None:
    inventory, plan = plan_by_hand()
    many = tuple(Rejection(f"h{n:02}", "capacity.memory", f"needs 9 MB, {n} MB free") for n in range(40))
    alone = PlanRequest(instances=(vm("huge-1"),))
    found = page(inventory, replace(plan, request=alone, steps=(PlanStep("huge-1", None, many),)))
    assert "Too little memory free: h00, h01, h02 and 37 more hosts. needs 9 MB, 0 MB free" in found.text
    assert "The instance cannot be placed." in found.text


SUMS = PlanSums(hosts=4, hosts_used=3, instances=9, below=2, worst=0.5, mean=0.9, total=8.1)
FINE = replace(SUMS, hosts_used=2, below=0, worst=0.9)
MOVE = PlanStep("db-1", "h2", action="move", source="h1", stage=1, why="h1 is crowded.")


ADMIT, REBALANCE, CONSOLIDATE = {"instances": (vm("db-1"),)}, {"kind": "rebalance"}, {"kind": "consolidate"}
EMPTY_H1 = {"kind": "evacuate", "empty": ("h1",)}
ALREADY_FINE = Search("moves", 0, 0, 0, "already fine")  # of an imagined cloud it says nothing
FULL = Capacity(12, 7, 40, "CPU.", 5.0, (RunwayPoint(0, 0, 1.0, SUMS, fits=True),))
OTHERS = (Variant("now", FINE), Variant("without h1", replace(FINE, worst=0.7)))


@pytest.mark.parametrize(
    ("asked", "reported", "words"),
    [
        (ADMIT, {"steps": (MOVE,)}, "The instance can be placed."),
        (REBALANCE, {"steps": (MOVE,)}, "1 step brings the instances below their limit from 2 to 0."),
        (REBALANCE, {"steps": (), "search": ALREADY_FINE}, "Already fine"),
        (
            EMPTY_H1, {"steps": (MOVE,), "after": {"h1": (), "h2": (effect("db-1", 0.7),)}},
            "h1 can be emptied: 1 step in 1 stage.",
        ),
        (
            EMPTY_H1, {"steps": (MOVE,), "after": {"h1": (effect("db-1", 0.7),), "h2": ()}},
            "h1 cannot be emptied: 1 instance stays there.",
        ),
        (CONSOLIDATE, {"steps": (MOVE,)}, "2 hosts will do instead of 3, by 1 step."),
        (
            CONSOLIDATE, {"sums_after": SUMS, "search": Search("hosts in use", 3, 2, 0.5, "time")},
            "No plan with fewer hosts was found in time.",
        ),
        (
            CONSOLIDATE, {"sums_after": SUMS, "search": Search("hosts in use", 3, 3, 0, "search")},
            "Fewer hosts are not enough.",
        ),
        (
            REBALANCE, {"steps": (), "search": Search("below", 2, 0, 1, "time")},
            "No move that pays was found in time.",
        ),
        (
            {"kind": "capacity"}, {"capacity": FULL},
            "12 more of this mix fit with every instance within its limit; the cloud is full in 5 months.",
        ),
        (
            {"kind": "what_if"}, {"variants": OTHERS, "search": ALREADY_FINE},
            "The most affected instance would run at 70 % instead of 90 % of its uncontended speed.",
        ),
        (
            {"kind": "right_size"}, {"steps": (replace(MOVE, action="resize", vcpus=1),)},
            "1 instance should get another",
        ),
    ],
)  # fmt: skip
def test_each_kind_of_question_has_its_answer_as_the_headline(asked: Any, reported: Any, words: str) -> None:
    _, plan = plan_by_hand()
    plan = replace(plan, request=PlanRequest(**asked), **({"sums_before": SUMS, "sums_after": FINE} | reported))
    assert words in headline(plan).replace("\u00a0", " ")


def test_a_plan_with_everything_has_every_section() -> None:
    inventory, plan = plan_by_hand()
    runway = tuple(RunwayPoint(month, 3 * month, 1.0, SUMS, fits=month < 5) for month in range(7))
    whole = replace(
        plan, request=PlanRequest(kind="capacity", growth=Growth(3.0)), sums_before=SUMS, sums_after=FINE,
        capacity=Capacity(12, 7, 40, "CPU.", 5.0, runway), variants=(Variant("now", FINE), Variant("fewer", SUMS)),
        undo=(MOVE,), search=Search("instances of the mix", 12, 15, 0.2, "time"), degraded=True,
    )  # fmt: skip
    text = plan_as_html(inventory, whole)
    found = Report(text)
    assert len(_check_pictures(text)) == 5  # run-way, variants, distribution, pressure, throughput of one host
    assert found.cells("fewer")[1:5] == ["4", "3", "9", "2"]
    assert ["6", "18"] in [row[:2] for row in found.rows]
    assert "The time limit ended the search" in found.text
    assert {"capacity", "variants", "pressure", "instances", "how"} <= {
        one.get("id") for tag, one in found.tags if tag == "section"
    }


def test_the_file_asks_no_other_host_for_anything_and_runs_nothing(by_hand: str) -> None:
    tags = Report(by_hand).tags
    assert not {tag for tag, _ in tags} & LOADING
    for _, attributes in tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "srcset", "data")]
        assert all((attributes.get(name) or "#").startswith("#") for name in ("href", "xlink:href"))
    assert not re.search(r"https?:|@import|url\((?!#)", by_hand)


def test_hostile_names_stay_text(by_hand: str) -> None:
    inventory, plan = plan_by_hand()
    steps = tuple(replace(step, instance=name) for name in HOSTILE for step in plan.steps)
    others = {name: (effect(name, 0.5),) for name in HOSTILE}
    after = {**plan.after, **others, "h1": (*plan.after["h1"], *(effect(name, 0.8) for name in HOSTILE))}
    reported = " ".join(HOSTILE)
    hostile = replace(
        plan, steps=steps, after=after, model_version=reported, model_origin=reported, id=reported, notes=HOSTILE
    )
    text = plan_as_html(inventory, hostile)
    found = Report(text)
    assert {tag for tag, _ in found.tags} == {tag for tag, _ in Report(by_hand).tags}
    assert all(" ".join(name.split()) in found.text for name in HOSTILE)
    _check_pictures(text)


def test_pictures_are_well_formed_in_the_page_s_colours_and_their_ids_are_unique(by_hand: str) -> None:
    pictures = _check_pictures(by_hand)
    throughput = next(picture for picture in pictures if "instances on h1" in picture)
    assert not any("instances on h2" in picture for picture in pictures)  # h1 is the only host that changes
    assert all(mark in throughput for mark in ("shop-7", "--new", "--bad"))  # the last one is the limit of db-1
    assert all('role="img" aria-label=' in picture for picture in pictures)


def _check_pictures(text: str) -> list[str]:
    pictures = re.findall(r"<svg .*?</svg>", text, flags=re.DOTALL)
    for whole in pictures:
        picture = re.sub(r' aria-label="[^"]*"', "", whole, count=1)
        ET.fromstring(picture.replace("xlink:href", "href"))
        assert "#0a00" not in picture
        assert not re.search(r"(?:fill|stroke): #(?!000000)", picture)
    ids = Counter(re.findall(r' id="([^"]*)"', text))
    assert all(count == 1 for count in ids.values())
    return pictures


def test_the_same_plan_gives_the_same_file_and_leaves_matplotlib_s_settings_alone(by_hand: str) -> None:
    before = dict(mpl.rcParams)
    assert plan_as_html(*plan_by_hand()) == by_hand
    assert dict(mpl.rcParams) == before


@pytest.mark.usefixtures("undrawn")
def test_an_empty_plan_on_an_empty_cloud_is_a_report_too() -> None:
    _, plan = plan_by_hand()
    found = page(Inventory(), replace(plan, request=PlanRequest(), steps=(), before={}, after={}))
    assert "There was no instance to place." in found.text


@pytest.mark.usefixtures("undrawn")
def test_an_instance_that_moves_stands_once_with_its_former_host() -> None:
    _, plan = plan_by_hand()
    steps = (replace(plan.steps[0], instance="db-1", host="h2"),)
    after = {"h1": (), "h2": (effect("bulk-1", 0.6, 0.6), effect("db-1", 0.99, 0.95)), "h3": ()}
    found = page(cloud(vm("db-1", on="h1"), vm("bulk-1", on="h2")), replace(plan, steps=steps, after=after))
    assert found.cells("db-1")[3:5] == ["h1", "h2"]
    assert found.cells("db-1", 1)[1:7] == ["h2", "h1", "95 % 85–105 %", "moves", "99 % 89–109 %", "+4"]
    assert len([row for row in found.rows if row and row[0].strip() == "db-1"]) == 1


@pytest.mark.usefixtures("undrawn")
def test_commands_stand_with_their_undo_as_words_and_not_as_markup() -> None:
    inventory, plan = plan_by_hand()
    words = ("xl vcpu-pin <shop-7> 0 1", "xl vcpu-pin <shop-7> 0 all")
    argv, undo = (tuple(line.split()) for line in words)
    commands = (Command("xl", argv, undo),)
    found = page(inventory, replace(plan, steps=(replace(plan.steps[0], commands=commands),)))
    assert all(line in found.text for line in words)


@pytest.fixture(scope="module")
def many_hosts() -> tuple[Inventory, Plan]:
    inventory, plan = plan_by_hand()
    names = [f"h{n:04}" for n in range(400)]
    before = {host: tuple(effect(f"vm-{host}-{n}", 0.9) for n in range(8)) for host in names}
    after = {host: (*there, effect(f"new-{host}", 0.8)) for host, there in before.items()}
    steps = tuple(replace(plan.steps[0], instance=f"new-{host}", host=host) for host in names)
    there = tuple(vm(one.instance, on=host) for host, found in before.items() for one in found)
    whole = replace(plan, steps=steps, before=before, after=after)
    return Inventory(tuple(planning_host(name) for name in names), there, inventory.workloads), whole


def test_many_hosts_stay_readable_and_what_is_left_out_is_said(many_hosts: tuple[Inventory, Plan]) -> None:
    held = plan_as_files(*many_hosts)
    text = held["index.html"].decode()
    assert len(held["index.html"]) < 3_000_000
    assert 5 <= text.count("<svg ") <= 20
    said = Report(text).text
    assert "They go to 400 hosts" in said
    assert "388 more hosts with instances are in the last table." in said
    assert "3,200 more rows stand in instances.csv beside this page." in said
    assert "100 more rows stand in steps.csv" in said
    assert "360 more rows stand in pressure.csv" in said
    assert len(list(csv.DictReader(io.StringIO(held["instances.csv"].decode())))) == 3600


@pytest.mark.usefixtures("undrawn")
def test_every_figure_of_the_data_stands_on_the_page_or_is_said_to_be_left_out() -> None:
    inventory, plan = plan_by_hand()
    searched = Search("worst T/B", 0.9201, 0.95, 0.03, "search")
    plan = replace(plan, sums_before=SUMS, sums_after=FINE, search=searched)
    background = of_plan(inventory, replace(plan, model_version="analytic"), PriorPredictor())
    background = replace(background, card={"libraries": {"lightgbm": "4.7.0"}})
    report = plan_report(inventory, plan, background)
    held = plan_as_files(inventory, plan, background)
    reported = json.loads(held["report.json"])
    found = Report(held["index.html"].decode())
    shown = {tuple(" ".join(cell.split()) for cell in row) for row in found.rows}
    assert "It reaches 0.9201" in reported["sections"]["how"]["facts"]["Search"]
    assert reported["sections"]["model"]["facts"]["Libraries"] == "lightgbm 4.7.0"
    assert set(reported["tables"]) == {table.name for table in report.tables}
    assert {name.removesuffix(".csv") for name in held if name.endswith(".csv")} == set(reported["tables"])
    for table in report.tables:
        assert len(reported["tables"][table.name]) == len(table.rows)
        for row in table.rows[: table.most]:
            cells = [cell(row[at], column.kind) for at, column in table.on_page]
            words = tuple(" ".join(f"{one.text} {one.small} {' '.join(one.lines)}".split()) for one in cells)
            assert words in shown, table.name
        assert bool(table.left_out) == (f"{table.name}.csv" in found.text)


@pytest.mark.usefixtures("undrawn")
def test_of_a_card_is_shown_what_has_the_shape_of_one() -> None:
    card = {
        "datasets": [{"name": "lab", "origin": 7, "colocations": "many"}, "other"],
        "figures": {"throughput": {"unseen_pair": {"rows": 12, "mae": "low", "coverage": [0.9]}, "random_row": None}},
        "libraries": ["numpy"], "created_at": 5, "interval": "split-conformal",
    }  # fmt: skip
    section = card_section("v7", "measured", card)
    assert section.facts["Intervals"] == "split-conformal"
    assert [list(table.rows) for table in section.tables] == [
        [("lab", None, None, None)],
        [("throughput, unseen pair", 12, None, None, None, None)],
    ]
    assert not any(table.rows for table in card_section("v7", "measured", {"datasets": 3, "figures": 4}).tables)
    inventory, plan = plan_by_hand()
    shown = plan_as_html(inventory, plan, replace(of_plan(inventory, plan, None), card=card))
    assert "throughput, unseen pair" in shown


def test_interference_is_the_prediction_with_and_without_the_neighbour() -> None:
    there = tuple(vm(name, on="h1") for name in "abc")  # three that want a CPU each, on two
    taken = {(one.victim, one.neighbour): one for one in _harm(there)}
    assert len(taken) == 6
    alone = {(one.victim, one.neighbour): one for one in _harm(there[:2])}
    assert taken["a", "c"].without == pytest.approx(alone["a", "b"].ratio)
    assert taken["b", "c"].without == pytest.approx(alone["b", "a"].ratio)
    assert taken["a", "c"].taken > 0.2
    assert alone["a", "b"].taken == pytest.approx(0, abs=0.01)


def _moved() -> tuple[Inventory, Plan]:
    """Three VMs on h1 that ask for one of its two CPUs each; the plan moves `c` to h2."""
    inventory, (_, plan) = cloud(*(vm(name, on="h1") for name in "abc")), plan_by_hand()
    crowded, free = 2 / 3, 1.0
    return inventory, replace(
        plan,
        model_version="analytic",
        request=PlanRequest(kind="rebalance"),
        steps=(PlanStep("c", "h2", action="move", source="h1"),),
        before={"h1": tuple(effect(name, crowded) for name in "abc"), "h2": ()},
        after={"h1": (effect("a", free), effect("b", free)), "h2": (effect("c", free, crowded),)},
    )


def test_antagonists_are_shown_as_they_are_now_and_after_the_plan_in_sections_that_say_which() -> None:
    inventory, plan = _moved()
    background = of_plan(inventory, plan, PriorPredictor())
    sections = {section.id: section for section in plan_report(inventory, plan, background).sections}
    now, then = sections["harm"], sections["harm_after"]
    assert now.title.endswith(" now")
    assert then.title.endswith(" after the plan")
    assert list(sections).index("harm") < list(sections).index("harm_after")
    assert {tuple(row[:3]) for row in now.tables[0].rows} == {
        ("h1", victim, other) for victim in "abc" for other in "abc" if victim != other
    }
    assert all(row[5] == pytest.approx(1 / 3, abs=0.1) for row in now.tables[0].rows)
    assert {tuple(row[:3]) for row in then.tables[0].rows} == {("h1", "a", "b"), ("h1", "b", "a")}
    assert all(row[5] == pytest.approx(0, abs=0.01) for row in then.tables[0].rows)
    assert not then.sentences


def test_a_host_that_the_plan_relieves_is_drawn_and_every_section_says_when_its_figures_hold() -> None:
    inventory, plan = _moved()
    report = plan_report(inventory, plan, of_plan(inventory, plan, PriorPredictor()))
    sections = {section.id: section for section in report.sections}
    assert {picture.caption for picture in sections["throughput"].pictures} == {"h1"}
    assert all("after the plan" in sections[name].title for name in ("pressure", "throughput", "harm_after"))
    (table,) = sections["instances"].tables
    after = {"happens", "after", "latency", "latency_upper", "jitter", "short"}
    assert {column.over for column in table.columns if column.key in after} == {"After the plan"}


def test_a_plan_that_changes_nothing_has_one_section_of_antagonists() -> None:
    inventory, plan = _moved()
    as_it_is = replace(plan, steps=(), after=plan.before)
    report = plan_report(inventory, as_it_is, of_plan(inventory, as_it_is, PriorPredictor()))
    titles = [section.title for section in report.sections if section.id.startswith("harm")]
    assert titles == ["Antagonists and victims now"]


def _harm(there: tuple[Instance, ...]) -> tuple[AttributedLoss, ...]:
    inventory = cloud(*there)
    snapshot = ClusterSnapshot.build(inventory, seen={}, pending=(), taken_at=NOW)
    return attribute_interference(snapshot, PriorPredictor(), ["nowhere", "h2", "h1"])


def test_an_antagonist_is_shown_that_is_less_affected_than_all_who_are_examined() -> None:
    """Twenty VMs wait for one CPU; the one with the largest demand may run on the other, too."""
    pinned = IsolationSettings(pinning=Pinning(((0,),)))
    crowd = [vm(f"small{number:02}", "cpu", on="h1", memory_mb=64, load=0.4, settings=pinned) for number in range(20)]
    hog = vm("hog", "cpu", on="h1", memory_mb=64)
    found = _harm((*crowd, hog))
    victims = {pair.victim for pair in found}
    assert len(victims) == 12
    assert "hog" not in victims
    assert "hog" in {pair.neighbour for pair in found}


def test_pressure_after_a_plan_counts_who_comes_and_what_is_set() -> None:
    inventory, plan = plan_by_hand()
    new_vm = vm("shop-7", "cpu")
    half = replace(plan.steps[0], settings=IsolationSettings(cap_percent=50))
    plan = replace(plan, request=PlanRequest(instances=(new_vm,)), steps=(half, *plan.steps[1:]))
    found = of_plan(inventory, plan, None)
    assert found.before["h1"]["cpu"] == pytest.approx(0.5)  # one of two CPUs
    assert found.after["h1"]["cpu"] == pytest.approx(0.75)  # and half of one more, by its cap
    assert found.before["h2"] == found.after["h2"]
    assert "Antagonists are left out" in " ".join(found.notes)


# how any report is written, by one without pictures

ROWS = Table("instances", "Instances", (Column("instance", "Instance", "name"),), (("db-1",),))
SMALL = ReportDocument("plan", "A plan", "Nothing to do.", (), {}, (Section("all", "All", tables=(ROWS,)),))


@pytest.fixture
def former(tmp_path: Path) -> Path:
    path = tmp_path / "plan.html"
    path.write_text("former")
    return path


@pytest.mark.usefixtures("undrawn")
def test_a_former_report_is_replaced_and_nothing_else_is_left_in_the_folder(former: Path) -> None:
    write_plan_report(*plan_by_hand(), former)
    assert former.read_text().endswith("</html>")
    assert list(former.parent.iterdir()) == [former]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("missing/plan.html", "does not exist"),
        ("", "something else is there"),
        ("file/plan.html", "does not exist"),
        ("plan.pdf", "write plan.html and print that to PDF"),
        ("/dev/null", "something else is there"),
    ],
)
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, place: str, words: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=words):
        report_files.write(SMALL, tmp_path / place)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert Path("/dev/null").is_char_device()


@pytest.mark.usefixtures("undrawn")
def test_a_folder_has_the_page_and_its_data_and_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    report_files.write(SMALL, path)
    (path / "left.csv").write_text("from a former report")
    write_plan_report(*plan_by_hand(), path)
    names = {one.name for one in path.iterdir()}
    assert {"index.html", "report.json", "steps.csv", "instances.csv", "pressure.csv"} <= names
    assert "left.csv" not in names
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_with_something_else_in_it_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "home"
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match="something else is there"):
        report_files.write(SMALL, path)
    for name, content in report_files.files(SMALL).items():  # nor beside a report
        (path / name).write_bytes(content)
    with pytest.raises(InvalidInput, match="something else is there"):
        report_files.write(SMALL, path)
    assert (path / "letter.txt").read_text() == "dear"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("undrawn")
def test_a_name_that_a_spreadsheet_would_run_is_kept_from_it() -> None:
    inventory, plan = plan_by_hand()
    names = {"-1", "=1+1", "+1", "@SUM(A1)", " =1", "\t=1", "\uff1d1", "\uff0b1", "\uff0d1", "\uff20a"}
    hostile = replace(plan, after={**plan.after, "h3": tuple(effect(name, 0.9) for name in sorted(names))})
    report = plan_as_files(inventory, hostile)
    rows = list(csv.DictReader(io.StringIO(report["instances.csv"].decode(), newline="")))
    assert {f"'{name}" for name in names} <= {row["instance"] for row in rows}
    assert all(float(row["change"]) < 0 for row in rows if row["instance"] == "db-1")  # a number stays one
    assert names <= {row["instance"] for row in json.loads(report["report.json"])["tables"]["instances"]}


@pytest.mark.usefixtures("undrawn")
def test_half_of_the_instances_are_at_or_below_the_median() -> None:
    inventory, plan = plan_by_hand()
    there = tuple(effect(f"vm{number}", number / 10) for number in range(1, 11))
    held = plan_as_files(inventory, replace(plan, before={}, after={"h1": there}))
    row = next(csv.DictReader(io.StringIO(held["distribution.csv"].decode())))
    assert [row[name] for name in ("least", "q5", "q25", "q50", "q75", "most")] == [
        "0.1", "0.1", "0.3", "0.5", "0.8", "1.0",
    ]  # fmt: skip


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_cannot_be_finished_leaves_the_former_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan"
    report_files.write(SMALL, path)
    former = {one.name: one.read_bytes() for one in path.iterdir()}
    write = Path.write_bytes
    monkeypatch.setattr(
        Path, "write_bytes", lambda to, content: (no_space if to.name == "instances.csv" else write)(to, content)
    )
    with pytest.raises(OutOfSpace, match="free some"):
        report_files.write(replace(SMALL, title="Another"), path)
    assert {one.name: one.read_bytes() for one in path.iterdir()} == former
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_said_and_the_former_report_stays(former: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "write_bytes", no_space)
    with pytest.raises(OutOfSpace, match="free some"):
        report_files.write(SMALL, former)
    assert [(one, one.read_text()) for one in former.parent.iterdir()] == [(former, "former")]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", str(tmp_path)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.lab
def test_a_really_full_disk_leaves_nothing_half_written(small_disk: Path) -> None:
    path = small_disk / "plan.html"
    path.write_text("former")
    with pytest.raises(OutOfSpace):
        write_plan_report(*plan_by_hand(), path)
    assert [(one, one.read_text()) for one in small_disk.iterdir()] == [(path, "former")]


def test_each_reason_why_a_host_takes_an_instance_not_has_words_and_no_code() -> None:
    assert filters.CODES
    assert [code for code in (*filters.CODES, NEEDS_SETTINGS) if code not in REFUSED] == []


def test_a_rebalance_that_reached_its_aim_does_not_say_that_it_failed() -> None:
    """Hosts that promise too much are left to a repair, and instances below a limit are not."""
    reached, short = (Search("instances below a limit", value, 0.0, value, "in the way") for value in (0.0, 2.0))
    _, plan = plan_by_hand()
    plans = [replace(plan, request=PlanRequest("rebalance"), search=search) for search in (reached, short)]
    ends = [searched(plan)[0] for plan in plans]
    assert ends[0] != ends[1]
