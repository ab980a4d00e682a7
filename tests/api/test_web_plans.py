"""Plans on pages: made by a form, shown also when the cloud has become another one, taken away as files."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from advisor.domain import ClassSizing, Host, Instance, Inventory, IsolationSettings, Pinning, PlanRequest
from advisor.service import Advisor
from profiler.demand import Demand, Resource
from tests.api.api_client import Client

FORM = {"Accept": "text/html", "Sec-Fetch-Site": "same-origin"}


def text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_form_makes_a_plan_and_leads_to_its_page(
    client: Client, advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    nudged: list[int] = []
    monkeypatch.setattr(advisor.plans, "_stored", lambda: nudged.append(1))
    made = client.ask("POST", "/plans", data={"kind": "admit", "count_1": "2", "seed": "7"}, headers=FORM)
    assert made.status_code == 303
    (entry,) = advisor.plans.page().items
    assert made.headers["location"] == f"/plans/{entry.id}"
    plan = advisor.plans.get(entry.id)
    assert len(nudged) == 1, "where only plans are made, old ones go all the same"
    assert (plan.request.seed, [one.id for one in plan.request.instances]) == (7, ["new-1", "new-2"])
    assert "All 2 instances can be placed." in text(client.page(f"/plans/{entry.id}").text)
    assert "the cloud of now" in text(client.page("/plans").text)


def test_what_the_cloud_refuses_stands_beside_its_field_and_nothing_is_kept(client: Client, advisor: Advisor) -> None:
    refused = client.ask("POST", "/plans", data={"kind": "evacuate", "empty": "h9"}, headers=FORM)
    assert refused.status_code == 422
    assert re.search('name="empty"[^>]* aria-describedby="[^"]*wrong-empty', refused.text)
    assert "h9" in text(refused.text)
    assert '<a href="#empty">Hosts to empty</a>' in refused.text
    unknown = client.ask("POST", "/plans", data={"kind": "what_if", "model": "m9"}, headers=FORM)
    assert (unknown.status_code, 'id="wrong-model"' in unknown.text) == (422, True)
    assert "there is no model m9" in text(unknown.text)
    assert advisor.plans.page().items == ()


@pytest.mark.parametrize(
    ("typed", "field"),
    [({"kind": "admit", "count_1": "21"}, "count_1"), ({"kind": "what_if", "like": "h1", "add": "21"}, "like")],
)
def test_a_form_asks_for_no_more_than_the_settings_allow(
    client: Client, advisor: Advisor, typed: dict[str, str], field: str
) -> None:
    refused = client.ask("POST", "/plans", data=typed, headers=FORM)
    assert (refused.status_code, f'id="wrong-{field}"' in refused.text) == (422, True)
    assert "at most 20 are taken" in text(refused.text)
    assert advisor.plans.page().items == ()


def test_a_question_imagines_no_more_hosts_than_the_settings_allow(client: Client) -> None:
    hosts = [{"id": f"n{number}", "kind": "kvm", "pcpus": 1, "memory_mb": 1} for number in range(21)]
    refused = client.ask("POST", "/v1/plans", json={"kind": "what_if", "what_if": {"hosts": hosts}})
    assert (refused.status_code, refused.json()["field"]) == (422, "what_if.hosts")
    assert "at most 20 are taken" in refused.json()["detail"]


def test_a_plan_for_a_cloud_that_is_gone_is_shown_stale_and_can_be_taken_away(client: Client, advisor: Advisor) -> None:
    plan = advisor.plans.make(PlanRequest("evacuate", empty=("h3",), time_limit_s=2, commands=True))
    advisor.inventory.put(Inventory(), mode="replace", generation=None)
    assert "Stale." in text(client.page(f"/plans/{plan.id}").text)
    assert "an earlier cloud" in text(client.page("/plans").text)
    report = client.page(f"/plans/{plan.id}/report.html")
    assert (report.status_code, report.headers["content-disposition"][:10]) == (200, "attachment")
    assert "changed since this plan was made" in report.text
    data = client.page(f"/plans/{plan.id}/data.json")
    reported = json.loads(data.text)
    assert reported["id"] == plan.id
    assert {"distribution", "uncertainty"} <= reported["report"]["tables"].keys()
    assert reported["report"]["facts"]["Model"].startswith(f"{plan.model_version}:")


def test_a_plan_of_sizes_shows_what_they_save_beside_what_they_risk(
    client: Client, advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = advisor.plans.make(PlanRequest("right_size", time_limit_s=2))
    sized = replace(made, sizing=(ClassSizing("db", 2, 8, 3, 0.012, 0.0004, "db-2", 0.62),))
    monkeypatch.setattr(advisor.plans, "get", lambda _: sized)
    page = text(client.page(f"/plans/{made.id}").text)
    assert "Savings beside risk" in page
    assert "db 2 8 3 5 62 % &lt; 0.1 % 1.2 % db-2" in page


def test_the_page_of_a_tuning_shows_who_sits_where_before_and_after(client: Client, advisor: Advisor) -> None:
    hosts = (Host("k1", "kvm", 4, 8192),)
    wants: dict[Resource, Demand] = {"cpu": Demand(mean=0.6, spread=0.1)}
    pinned = IsolationSettings(pinning=Pinning(((0,),)))
    there = tuple(Instance(name, 1, 512, host="k1", demand=wants, settings=pinned) for name in ("va", "vb"))
    advisor.inventory.put(Inventory(hosts, there), mode="merge", generation=None)
    host_page = client.page("/hosts/k1").text
    assert 'href="/plans/new?kind=tune&amp;hosts=k1"' in host_page
    assert "CPU 0: va, vb" in text(host_page)
    assert 'value="k1"' in client.page("/plans/new?kind=tune&hosts=k1").text
    made = client.ask("POST", "/plans", data={"kind": "tune", "hosts": "k1", "commands": "yes"}, headers=FORM)
    page = client.page(made.headers["location"]).text
    assert "k1, before" in page
    assert "k1, after" in page
    assert "Any CPU: va" in text(page)
    assert "virsh vcpupin --domain va" in page


def test_changes_that_come_one_by_one_stand_in_one_table(client: Client, advisor: Advisor) -> None:
    wants: dict[Resource, Demand] = {"cpu": Demand(mean=0.9, spread=0.1)}
    pinned = IsolationSettings(pinning=Pinning(((0,),)))
    there = tuple(Instance(f"v{at}", 1, 512, host="k1", demand=wants, settings=pinned) for at in range(7))
    advisor.inventory.put(Inventory((Host("k1", "kvm", 8, 8192),), there), mode="merge", generation=None)
    made = client.ask("POST", "/plans", data={"kind": "tune", "hosts": "k1", "commands": "yes"}, headers=FORM)
    page = client.page(made.headers["location"]).text
    plan = advisor.plans.get(made.headers["location"].rpartition("/")[2])
    assert len(plan.steps) > 3
    forward = page[page.index(">Steps<") : page.index(">The way back<")]
    assert forward.count('<table class="stack steps">') == 1
    assert forward.count('data-label="Stage"') == len(plan.steps)
    assert all(f"virsh vcpupin --domain {step.instance} " in forward for step in plan.steps)
