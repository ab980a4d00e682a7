"""Several instances in one question: each answer counts in for those after it, and all of them are held or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from advisor.service import Advisor
from tests.api.api_client import Client

TWO = [{"id": f"n-{number}", "vcpus": 1, "memory_mb": 256, "workload": "web-1k"} for number in (1, 2)]


@pytest.fixture
def empty(client: Client) -> Client:
    """Two hosts that are alike, and empty."""
    hosts = [{"id": name, "kind": "lxc", "pcpus": 2, "memory_mb": 1024} for name in ("e1", "e2")]
    assert client.ask("PUT", "/v1/inventory", json={"mode": "merge", "hosts": hosts}).status_code == 200
    return client


def batch(client: Client, **more: Any) -> list[dict[str, Any]]:
    body = {"instances": TWO, "hosts": ["e1", "e2"], "constraints": {"allow_stale": True}, **more}
    answer = client.ask("POST", "/v1/placements:batch", json=body)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["answers"]
    return found


def test_a_burst_spreads_as_if_each_were_placed_before_the_next(empty: Client) -> None:
    answers = batch(empty, dry_run=True)
    assert sorted(one["candidates"][0]["host"] for one in answers) == ["e1", "e2"]
    alone = [batch(empty, instances=[one], dry_run=True)[0]["candidates"][0]["host"] for one in TWO]
    assert len(set(alone)) == 1


def test_what_is_held_counts_in_for_the_next_question_and_can_be_read(empty: Client) -> None:
    first = batch(empty, instances=TWO[:1])[0]
    (second,) = batch(empty, instances=TWO[1:], dry_run=True)
    assert second["candidates"][0]["host"] != first["candidates"][0]["host"]
    assert empty.ask("GET", f"/v1/placements/{first['id']}").json()["id"] == first["id"]
    assert empty.ask("GET", f"/v1/placements/{second['id']}").status_code == 404


SMALL_THEN_LARGE = [{"id": "small", "vcpus": 1, "memory_mb": 900}, {"id": "large", "vcpus": 1, "memory_mb": 1500}]


@pytest.fixture
def uneven(client: Client) -> Client:
    """A large host, which is the better one for anybody, and a small one."""
    hosts = [
        {"id": "e1", "kind": "lxc", "pcpus": 4, "memory_mb": 2000},
        {"id": "e2", "kind": "lxc", "pcpus": 1, "memory_mb": 1000},
    ]
    assert client.ask("PUT", "/v1/inventory", json={"mode": "merge", "hosts": hosts}).status_code == 200
    return client


def test_a_joint_answer_leaves_room_for_who_comes_later(uneven: Client) -> None:
    asked = {"instances": SMALL_THEN_LARGE, "dry_run": True}
    assert [[it["host"] for it in one["candidates"]] for one in batch(uneven, **asked)] == [["e1"], []]
    asked |= {"hosts": ["e1", "e2"], "constraints": {"allow_stale": True}, "order": "joint", "time_limit_s": 30}
    reported = uneven.ask("POST", "/v1/placements:batch", json=asked).json()
    assert [one["candidates"][0]["host"] for one in reported["answers"]] == ["e2", "e1"]
    joint = reported["joint"]
    assert joint["chosen"] in {"largest_first", "planned_worst"}
    assert joint["ended"] == "search"
    assert (joint["found"]["placed"], joint["given"]["placed"]) == (2, 1)


def test_only_the_chosen_answers_are_held(uneven: Client, advisor: Advisor) -> None:
    answers = batch(uneven, instances=SMALL_THEN_LARGE, order="joint", time_limit_s=30)
    stored = {one.recommendation.id for one in advisor.outcomes.page().items}
    assert stored == {one["id"] for one in answers}
    held = batch(uneven, instances=[{"id": "next", "vcpus": 1, "memory_mb": 900}], dry_run=True)
    rejected = {one["host"]: one["code"] for one in held[0]["rejected"]}
    assert rejected == dict.fromkeys(("e1", "e2"), "capacity.memory")


def test_a_token_that_only_reads_may_ask_dryly(client: Client, advisor: Advisor) -> None:
    _, text = advisor.access.tokens.create("reader", "read", lasts=None)
    headers = {"Authorization": f"Bearer {text}"}
    statuses = [
        client.ask("POST", "/v1/placements:batch", json={"instances": TWO, "dry_run": dry}, headers=headers).status_code
        for dry in (True, False)
    ]
    assert statuses == [200, 403]


def _figures(reported: Any, within: str = "") -> Iterator[tuple[str, float]]:
    items = reported.items() if isinstance(reported, dict) else [(within, one) for one in reported]
    for name, one in items:
        if isinstance(one, float):
            yield name, one
        elif isinstance(one, dict | list):
            yield from _figures(one, name)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/placements", {"instance": {"id": "n", "vcpus": 3, "memory_mb": 256, "workload": "web-1k"}}),
        ("/v1/placements:batch", {"instances": [*TWO, {"id": "n", "vcpus": 3, "memory_mb": 256}]}),
        ("/v1/plans", {"instances": [*TWO, {"id": "n", "vcpus": 3, "memory_mb": 256}]}),
    ],
)
def test_answers_have_the_digits_that_are_known(empty: Client, path: str, body: dict[str, Any]) -> None:
    dry = {} if path == "/v1/plans" else {"dry_run": True, "constraints": {"allow_stale": True}}
    answer = empty.ask("POST", path, json={**body, **dry})
    assert answer.status_code == 200, answer.text
    reported = answer.json()
    reported.pop("question", None)  # input, as it was understood
    sums = {"score", "combined_score", "total", "worst", "mean", "value", "bound", "reserved", "snapshot_age_s"}
    figures = list(_figures(reported))
    assert len(figures) > 10
    assert [one for one in figures if one[1] != (round(one[1], 4) if one[0] in sums else float(f"{one[1]:.4g}"))] == []
