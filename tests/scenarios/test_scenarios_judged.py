"""What is said of measured scenes: gains, who counts as mended, and whether an interval holds; nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.domain import Band, Candidate, Effect, IsolationSettings
from research.benchmarks.scenarios.advice import Advice
from research.benchmarks.scenarios.campaign import CaseOutcome, ScenarioResult
from research.benchmarks.scenarios.scenes import PRESSES, SCENES, SENDERS, SUFFERS

EFFECT = Effect(SUFFERS, Band(1.0, 0.9, 1.05), Band(1.5, 1.0, 2.0))
ADVICE = Advice(Candidate(1, "here", 1.0, 2.0, None, IsolationSettings(), EFFECT, ()), (), {})


def case(outcome: str, before: float, after: float, instance: str = SUFFERS) -> CaseOutcome:
    return CaseOutcome("scene", instance, outcome, 1, 1.0, before, after, Band(1.5, 1.0, 2.0), disturbed=False)


def reported(*cases: CaseOutcome) -> ScenarioResult:
    return ScenarioResult(SENDERS[0], ADVICE, cases, ())


@pytest.mark.parametrize(
    ("outcome", "before", "after", "mended"),
    [
        ("latency", (9.0, 8.0), (1.2, 1.1), True),
        ("latency", (9.0, 1.15), (1.2, 1.1), True),
        ("latency", (9.0, 1.05), (1.2, 1.1), False),
        ("latency", (1.0, 1.0), (1.0, 1.0), False),
        ("throughput", (0.5, 0.6), (0.7, 0.8), True),
        ("throughput", (0.5, 0.75), (0.7, 0.8), True),
        ("throughput", (0.5, 0.85), (0.7, 0.8), False),
    ],
)
def test_mended_is_who_was_better_off_with_the_advice_in_every_round(
    outcome: str, before: Sequence[float], after: Sequence[float], mended: bool
) -> None:
    rounds = zip(before, after, strict=True)
    assert reported(*(case(outcome, *one) for one in rounds)).mended is mended


def test_others_do_not_count_for_the_one_that_suffered() -> None:
    assert reported(case("latency", 4.0, 2.0), case("throughput", 1.0, 0.1, PRESSES)).gain == 2.0


def test_a_gain_is_a_shorter_wait_or_a_higher_throughput() -> None:
    assert case("latency", 6.0, 2.0).gain == case("throughput", 0.3, 0.9).gain == pytest.approx(3.0)


@pytest.mark.parametrize(("after", "covered"), [(1.0, True), (2.0, True), (0.99, False), (2.01, False)])
def test_an_interval_holds_up_to_its_bounds(after: float, covered: bool) -> None:
    assert case("latency", 9.0, after).covered is covered


def test_every_scene_has_one_party_that_suffers_and_says_what_it_accepts() -> None:
    for scene in SCENES:
        assert {party.name for party in scene.parties} == {SUFFERS, PRESSES}
        assert scene.sufferer.min_throughput_ratio or scene.sufferer.max_latency_ratio
    assert len({scene.name for scene in SCENES}) == len(SCENES)
