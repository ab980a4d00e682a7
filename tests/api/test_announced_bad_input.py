"""Announcements that no agent should send: what is refused leaves the inventory as it was."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.api.api_client import Client
from tests.examples import examples

_HOST = {"id": "announced", "kind": "kvm", "pcpus": 64, "memory_mb": 262_144}
_ANY_NAME = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        ["..", "a/b", "a b", "%2e%2e", "x" * 256, "é", "\0", "'; DROP TABLE hosts; --", "<b>", "A:b.c_d-e"]
    ),
)


def _announce(client: Client, names: list[str], host: str = "announced") -> Any:
    there = [{"id": name} for name in names]
    body = {"host": _HOST | {"id": host}, "instances": there, "machine": "m", "time": "2026-01-31T12:00:00Z"}
    return client.ask("POST", "/v1/announcements", json=body)


def test_a_million_instances_are_refused_and_nothing_of_them_is_stored(client: Client) -> None:
    answer = _announce(client, ["i"] * 5_001)
    assert answer.status_code == 422, answer.text[:200]
    assert answer.json()["field"] == "instances"
    there = b",".join(b'{"id":"i%d"}' % number for number in range(1_000_000))
    body = b'{"host":%s,"time":"2026-01-31T12:00:00Z","instances":[%s]}' % (json.dumps(_HOST).encode(), there)
    answer = client.ask("POST", "/v1/announcements", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert client.get("/v1/hosts/announced").status_code == 404


@settings(max_examples=examples(150), deadline=None)
@given(_ANY_NAME)
def test_whatever_an_instance_is_called_it_is_left_out_by_its_place_or_found_by_its_name(
    client: Client, name: str
) -> None:
    answer = _announce(client, ["always", name])
    assert answer.status_code == 200
    if not any("instances.1.id" in note for note in answer.json()["notes"]):
        found = client.get(f"/v1/instances/{quote(name, safe='')}")
        assert (found.status_code, found.json()["id"], found.json()["host"]) == (200, name, "announced")
    else:
        there = client.get("/v1/instances?host=announced").json()["items"]
        assert "always" in {one["id"] for one in there}
        assert name not in {one["id"] for one in there}


_WRONG = st.dictionaries(
    st.sampled_from(["vcpus", "memory_mb", "pinning", "isolation", "labels", "odd"]),
    st.sampled_from([-1, 1e300, "x", [], [[]], {"": -1}, {"0": [-1]}, {"1": [2]}, True, {"cap_percent": -5}]),
    min_size=1,
    max_size=3,
)


@settings(max_examples=examples(100), deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), _WRONG, max_size=3), st.booleans())
def test_a_malformed_instance_keeps_none_from_the_inventory_and_its_own_stored_state(
    client: Client, wrong: dict[str, dict[str, Any]], nameless: bool
) -> None:
    good = [{"id": name, "vcpus": 2, "memory_mb": 64, "labels": {}} for name in "abcd"]
    body = {"host": _HOST, "instances": good, "machine": "m", "time": "2026-01-31T12:00:00Z"}
    assert client.ask("POST", "/v1/announcements", json=body).status_code == 200
    stored = {name: client.get(f"/v1/instances/{name}").json() for name in "abcd"}
    mixed: list[Any] = [one | {"vcpus": 5} | wrong.get(str(one["id"]), {}) for one in good]
    answer = client.ask("POST", "/v1/announcements", json=body | {"instances": [*mixed, *([{"vcpus": 1}] * nameless)]})
    assert answer.status_code == 200, answer.text
    reported = answer.json()
    assert (reported["stopped"], reported["gone"], reported["new"]) == ([], [], [])
    left_out = [name for name in "abcd" if any(f"instance {name} is left out, " in note for note in reported["notes"])]
    assert set(left_out) <= wrong.keys()
    for name in "abcd":
        now = client.get(f"/v1/instances/{name}").json()
        assert now["host"] == "announced"
        assert (now == stored[name]) if name in left_out else now != stored[name]


@settings(max_examples=examples(50), deadline=None)
@given(_ANY_NAME)
def test_whatever_a_host_is_called_it_is_refused_or_found_by_its_name(client: Client, name: str) -> None:
    answer = _announce(client, [], host=name)
    if answer.status_code == 200:
        assert client.get(f"/v1/hosts/{quote(name, safe='')}").json()["id"] == name
    else:
        assert (answer.status_code, answer.json()["field"]) == (422, "host.id")
