"""A report opens with the answer and one picture, and does not show one by one who is not slowed."""

from __future__ import annotations

from dataclasses import replace

from markupsafe import Markup

from advisor.explanation.interference_attribution import AttributedLoss
from advisor.reports import host_sections
from advisor.reports.cloud import cloud_report
from advisor.reports.page import page
from advisor.reports.parts import Picture, ReportDocument, Section
from advisor.reports.plan_background import Background
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
    assert section.sentences[0].startswith("Nobody is below its limit")


def test_a_matrix_holds_only_those_who_take_or_lose_a_point() -> None:
    def loss(host: str, victim: str, neighbour: str, taken: float) -> AttributedLoss:
        return AttributedLoss(host, victim, neighbour, 0.9, 0.9 + taken)

    losses = [loss("h1", "a", "b", 0.05), loss("h1", "b", "a", 0.0), loss("h1", "c", "a", 0.001)]
    losses += [loss("h2", "d", "e", 0.0), loss("h2", "e", "d", 0.0)]
    section = host_sections.interference(losses)
    assert [(one.title, list(one.across)) for one in section.matrices] == [("h1", ["a", "b"])]
    assert len(section.tables[0].rows) == len(losses)
    assert not host_sections.interference(losses[3:]).matrices
