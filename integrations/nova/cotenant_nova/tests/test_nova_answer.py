"""Answers of Cotenant as weights for Nova: who wins, who is neutral, and what is no answer at all."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from cotenant_nova.answer import HARD, LEAD, NEUTRAL, Answer
from hypothesis import given
from hypothesis import strategies as st

from advisor.scheduling import filters

HOSTS = ["h1", "h2", "h3", "h4", "h5", "h6"]


def answer(scores: list[tuple[str, float]], refused: dict[str, str] | None = None) -> Answer:
    candidates = [{"host": host, "score": score} for host, score in scores]
    rejected = [{"host": host, "code": code, "reason": "..."} for host, code in (refused or {}).items()]
    return Answer.of({"candidates": candidates, "rejected": rejected})


def weights(*arguments: Any) -> dict[str, float]:
    return dict(zip(HOSTS, answer(*arguments).weights(HOSTS), strict=True))


def test_scores_are_weights_and_those_not_shown_rank_behind() -> None:
    found = weights([("h2", 0.9), ("h1", 0.7)], {"h3": "capacity.memory"})
    assert (found["h2"], found["h1"], found["h3"]) == (0.9, 0.7, 0.0)
    assert found["h4"] == pytest.approx(0.7 - LEAD)


def test_the_first_wins_by_the_lead_over_hosts_of_the_same_score() -> None:
    found = weights([(host, 1.0) for host in HOSTS])
    assert found["h1"] == 1.0
    assert {found[host] for host in HOSTS[1:]} == {1.0 - LEAD}


def test_unknown_hosts_are_neither_best_nor_worst() -> None:
    found = weights([("h2", 0.9), ("h1", 0.3)], {"h3": "host.unknown", "h4": "host.no_data", "h5": "limit.settings"})
    assert found["h3"] == found["h4"] == NEUTRAL
    assert found["h1"] < NEUTRAL < found["h2"]
    assert found["h5"] == 0.0


def test_an_unknown_host_never_beats_the_first() -> None:
    found = weights([("h2", 0.3)], {"h3": "host.unknown"})
    assert found["h3"] <= found["h2"] - LEAD


def test_who_knows_none_of_the_hosts_leaves_the_choice_to_nova() -> None:
    assert set(weights([], dict.fromkeys(HOSTS, "host.unknown")).values()) == {0.0}
    assert set(answer([], {}).weights(HOSTS)) == {0.0}


def test_scores_beyond_the_scale_are_clamped() -> None:
    found = weights([("h1", 1.7), ("h2", 1.4), ("h3", -3.0)])
    assert (found["h1"], found["h2"], found["h3"]) == (1.0, 1.0 - LEAD, 0.0)


def test_the_filter_refuses_broken_limits_only() -> None:
    soft = ["capacity.vcpus", "host.disabled", "host.unknown", "host.no_data"]
    found = answer([], dict(zip(HOSTS, [*soft, *HARD], strict=True)))
    assert found.passes([*HOSTS, "elsewhere"]) == ["h1", "h2", "h3", "h4", "elsewhere"]


def test_every_code_of_the_filter_is_one_that_the_service_gives() -> None:
    from advisor.placement.changed_hosts import NEEDS_SETTINGS

    assert set(HARD) <= {*filters.CODES, NEEDS_SETTINGS}


@pytest.mark.parametrize(
    "document",
    [
        None, [], "text", 3, {}, {"candidates": []}, {"candidates": {}, "rejected": []},
        {"candidates": [1], "rejected": []}, {"candidates": [{"host": "h1"}], "rejected": []},
        {"candidates": [{"host": "h1", "score": None}], "rejected": []},
        {"candidates": [{"host": "h1", "score": "0.9"}], "rejected": []},
        {"candidates": [{"host": "h1", "score": True}], "rejected": []},
        {"candidates": [{"host": ["h1"], "score": 0.9}], "rejected": []},
        {"candidates": [{"host": "h1", "score": math.nan}], "rejected": []},
        {"candidates": [{"host": "h1", "score": 10**400}], "rejected": []},
        {"candidates": [{"host": "h1", "score": json.loads("1e999")}], "rejected": []},
        {"candidates": [], "rejected": [{"host": "h1"}]}, {"candidates": [], "rejected": [{"host": 1, "code": "x"}]},
        {"candidates": [], "rejected": [{"host": "h1", "code": {}}]},
        {"candidates": [], "rejected": [{"host": {}, "code": "x"}]},
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused_in_one_way(document: object) -> None:
    with pytest.raises(ValueError, match="the answer"):
        Answer.of(document)


NAMES = st.sampled_from([*HOSTS, "elsewhere"])
CODES = st.sampled_from(filters.CODES)


@given(
    st.lists(st.tuples(NAMES, st.floats(-10, 10)), max_size=6, unique_by=lambda pair: pair[0]),
    st.dictionaries(NAMES, CODES, max_size=6),
)
def test_weights_are_one_finite_number_from_0_to_1_for_each_host_and_the_first_is_heaviest(
    scores: list[tuple[str, float]], refused: dict[str, str]
) -> None:
    given_answer = answer(scores, refused)
    found = given_answer.weights(HOSTS)
    assert len(found) == len(HOSTS)
    assert all(0.0 <= value <= 1.0 for value in found)
    if given_answer.first in HOSTS:
        first = found[HOSTS.index(given_answer.first)]
        others = [value for host, value in zip(HOSTS, found, strict=True) if host != given_answer.first]
        assert first >= max(others) + LEAD * 0.999


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["candidates", "rejected", "host", "score", "code"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_document_is_an_answer_or_refused(document: object) -> None:
    try:
        found = Answer.of(document)
    except ValueError:
        return
    assert all(0.0 <= value <= 1.0 for value in found.weights(HOSTS))
