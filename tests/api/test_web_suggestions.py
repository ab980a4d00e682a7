"""What may follow in the line on the first page: names, sizes, units and words, as text and never as anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.web import form
from api.web.where import MOST
from tests.api.api_client import Client
from tests.examples import examples

HOST = Host("h1", "kvm", pcpus=8, memory_mb=65536)
NAMES = ("db-1", "DB-2", "web-1", "web_db", "a-b:c.d")


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    flavors = {"db-1": {"flavor": "m1.large"}, "DB-2": {"flavor": "m1.large"}, "web-1": {"flavor_name": "c1.small"}}
    there = [Instance(name, vcpus=4, memory_mb=8192, host="h1", labels=flavors.get(name, {})) for name in NAMES]
    advisor.inventory.put(Inventory((HOST,), tuple(there)), mode="replace", generation=None)
    return Client(create_app(advisor, settings))


def suggested(client: Client, typed: str, of: str = "line") -> list[str]:
    """The whole line up to the cursor, as it would be after each suggestion."""
    answer = client.get("/suggestions", params={"ask": typed, "of": of})
    assert answer.status_code == 200
    return [answer.json()["before"] + one["text"] for one in answer.json()["items"]]


@pytest.mark.parametrize(
    ("typed", "lines"),
    [
        ("8", ["8 vCPUs", "8 GB", "8 MB", "8 TB"]),
        ("8 v", ["8 vCPUs"]),
        ("8 vCPUs, 16", ["8 vCPUs, 16 GB", "8 vCPUs, 16 MB", "8 vCPUs, 16 TB"]),
        ("8 vCPUs, 16 g", ["8 vCPUs, 16 GB"]),
        ("8 vCPUs, li", ["8 vCPUs, like "]),
        ("1 GB, like d", ["1 GB, like DB-2", "1 GB, like db-1", "1 GB, like web_db", "1 GB, like a-b:c.d"]),
        ("LIKE web_", ["LIKE web_db"]),  # which stands for itself, not for any letter
        ("sho", ["short at most 1 %"]),
        ("short at most 5", ["short at most 5 %"]),
        ("keep 0.9", []),
        ("1 core; lat", ["1 core; latency"]),
        ("latency, through", []),  # it is said already
        ("m1", ["4 vCPUs, 8 GB"]),  # the size of a flavor
        ("c1", ["4 vCPUs, 8 GB"]),  # of OpenStack, which has another label for it
        ("web", ["web-1", "web_db"]),
        ("2 vCPUs, web", []),  # the name of an instance stands alone
        ("3 parsecs, 8 v", ["3 parsecs, 8 vCPUs"]),
    ],
)  # fmt: skip
def test_a_line_goes_on_as_it_is_read(client: Client, typed: str, lines: list[str]) -> None:
    assert sorted(suggested(client, typed)) == sorted(lines)
    for line in lines:
        if "parsecs" not in line and not line.endswith(" "):
            assert form.read_line(line, {name: name for name in NAMES}.get)


def test_names_that_begin_so_come_first_and_what_they_are_stands_beside(client: Client) -> None:
    assert suggested(client, "db", of="instance")[-1] == "web_db"
    answer = client.get("/suggestions", params={"ask": "like web-"}).json()
    assert answer["items"] == [{"text": "like web-1", "about": "4 vCPUs, 8 GB, on h1"}]


@pytest.mark.hypothesis
def test_whatever_is_typed_is_answered(client: Client) -> None:
    @bounds(max_examples=examples(25), deadline=None, database=None)
    @given(st.text(max_size=40) | st.sampled_from(["\0", "like \0", "%", "like _", "<script>", "9" * 300, "and and"]))
    def ask(typed: str) -> None:
        for of in ("line", "instance"):
            assert len(suggested(client, typed, of)) <= MOST

    ask()


def test_suggestions_are_data_that_no_browser_takes_for_a_page(client: Client) -> None:
    answer = client.get("/suggestions", params={"ask": "</script><img src=x>, like db"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/suggestions").status_code == 422
    assert client.get("/suggestions?ask=a&of=host").status_code == 422


def test_only_callers_that_may_read_see_names(client: Client, advisor: Advisor) -> None:
    advisor.access.tokens.create("operator", "read", lasts=None)
    assert client.get("/suggestions?ask=like+d").status_code in {303, 401}
