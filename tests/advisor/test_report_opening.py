"""A report opens with the answer and one picture, and does not show one by one who is not slowed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markupsafe import Markup

from advisor.domain import ClassSizing, PlanRequest, PlanStep
from advisor.explanation.comparison import AttributedLoss
from advisor.reports import host_sections
from advisor.reports.cloud import cloud_report
from advisor.reports.files import page
from advisor.reports.parts import Picture, ReportDocument, Section
from advisor.reports.plan import plan_report
from advisor.reports.plan_view import Background
from tests.advisor.planning.planning_cases import effect, plan_by_hand


def test_two_sentences_and_the_first_picture_that_stands_alone_follow_the_headline() -> None:
    several = Section("a", "A", pictures=[Picture("left", Markup("<i>1</i>")), Picture("right", Markup("<i>2</i>"))])
    alone = Section("b", "B", note="n", pictures=[Picture("alone", Markup("<i>3</i>"))])
    report = ReportDocument("x", "X", "Headline.", ["First.", "Second.", "Third."], {}, [several, alone])
    text = page(report, beside=False)
    places = [text.index(part) for part in ("Headline.", "First.", "Second.", "<i>3</i>", "Third.", "<i>1</i>")]
    assert places == sorted(places)
    assert text.count("<i>3</i>") == 1


def test_who_is_worst_off_are_those_who_are_slowed() -> None:
    inventory, plan = plan_by_hand()
    report = cloud_report(inventory, plan, Background(), {})
    worst = next(section for section in report.sections if section.id == "worst")
    assert [row[0] for row in worst.tables[0].rows] == ["bulk-1"]
    fine = replace(plan, before={"h1": (effect("db-1", 0.99),), "h2": (effect("bulk-1", 0.98),), "h3": ()})
    section = next(one for one in cloud_report(inventory, fine, Background(), {}).sections if one.id == "worst")
    assert not section.tables
    assert section.sentences[0].startswith("No instance is predicted below its limit")


def test_a_matrix_holds_only_those_who_take_or_lose_a_point() -> None:
    def loss(host: str, victim: str, neighbour: str, taken: float) -> AttributedLoss:
        return AttributedLoss(host, victim, neighbour, 0.9, 0.9 + taken)

    losses = (
        loss("h1", "a", "b", 0.05), loss("h1", "b", "a", 0.0), loss("h1", "c", "a", 0.001), loss("h2", "d", "e", 0.0),
        loss("h2", "e", "d", 0.0),
    )  # fmt: skip
    _, plan = plan_by_hand()
    now, then = host_sections.interference(Background(harm_before=losses, harm_after=losses[3:]), plan)
    assert [(one.title, list(one.across), one.rows) for one in now.matrices] == [
        ("h1", ["b"], [("a", [pytest.approx(0.05)])])
    ]
    assert len(now.tables[0].rows) == len(losses)
    assert not then.matrices


def test_a_right_sizing_opens_with_savings_beside_risk_and_gives_the_reasons_their_room() -> None:
    inventory, plan = plan_by_hand()
    resize = PlanStep("db-1", "h1", action="resize", source="h1", vcpus=1, why="asks for little.")
    sizing = (ClassSizing("db", 1, 2, 1, 0.0004, 0.0004, "db-1", 0.31),)
    plan = replace(plan, request=PlanRequest(kind="right_size"), steps=(resize,), sizing=sizing)
    report = plan_report(inventory, plan, Background())
    assert report.sections[0].id == "sizing"
    assert "At most risk is db-1, contended in <\xa00.1\xa0% of the time." in report.headline
    text = page(report, beside=False)
    assert text.index("vCPUs of those that get another size") < text.index('<section id="sizing">')
    steps = next(table for table in report.tables if table.name == "steps")
    shown = {column.key for _, column in steps.on_page}
    assert {"vcpus_now", "vcpus", "why"} <= shown
    assert not {"source", "settings", "loser", "gain"} & shown  # they would be the same in every row


def test_instances_that_are_all_fine_are_reported_in_a_sentence_and_folded_and_not_printed() -> None:
    inventory, plan = plan_by_hand()
    there = {"h1": (effect("db-1", 1.0),), "h2": (effect("bulk-1", 0.99),), "h3": ()}
    report = plan_report(inventory, replace(plan, before=there, after=there, steps=()), Background())
    section = next(one for one in report.sections if one.id == "instances")
    assert section.sentences[0].startswith("No instance is near a limit")
    assert section.tables[0].look == "folded"
    assert '<details class="screen"><summary>All instances' in page(report, beside=False)
    assert "before" not in {column.key for _, column in section.tables[0].on_page}


def test_the_page_names_a_resource_without_demand_and_only_the_data_have_the_zeros() -> None:
    _, plan = plan_by_hand()
    load = {"h1": {"cpu": 0.7, "nic": 0.001}, "h2": {"cpu": 0.2, "nic": 0.0}, "h3": {"cpu": 0.0, "nic": 0.0}}
    section = host_sections.pressure(Background(before=load, after=load), plan)
    hosts, bands = section.tables
    assert [column.key for _, column in hosts.on_page] == ["host", "cpu"]
    assert "nic" in {column.key for column in hosts.columns}
    assert section.note.endswith("There is almost no demand for network.")
    assert [row[:3] for row in bands.rows] == [("CPU", 1, 1), ("network", 2, 0)]  # of the two hosts in use
    assert len(section.pictures) == 1
    calm = {host: {"cpu": 0.1} for host in load}
    assert not host_sections.pressure(Background(before=calm, after=calm), plan).pictures
