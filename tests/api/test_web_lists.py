"""Lists of the cloud: sorted, filtered and paged by the address alone; alarms, the audit log, links between pages."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from advisor.domain import (
    STOPPED_AT,
    Anomaly,
    CloudNow,
    Host,
    HostNow,
    Instance,
    Inventory,
    IsolationSettings,
    ResidentNow,
)
from advisor.service import Advisor
from advisor.settings import Settings
from api.rows import joined
from api.web import sorting
from api.web.cloud import worst_off
from api.web.instances import AT_ONCE
from api.web.sorting import Order, SortColumn
from profiler.demand import Demand
from tests.api.api_client import Client, bent_client
from tests.api.page_reader import Page
from tests.api.sample_answer import HOSTILE

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTS = (Host("kvm1", "kvm", 64, 65536), Host("kvm2", "kvm", 8, 16384), Host("kvm3", "kvm", 8, 32768))
VMS = (
    Instance("web-2", 4, 4096, host="kvm1", demand={"cpu": Demand(1.5)}, labels={"tier": "web"}),
    Instance("db-10", 8, 32768, host="kvm1", workload="oltp", labels={"name": "База"}),
    Instance("ci-3", 2, 8192, host="kvm2", demand={"cpu": Demand(0.5)}),
    Instance("spare", 1, 512),
)


@pytest.fixture
def cloud(advisor: Advisor) -> Advisor:
    advisor.inventory.put(Inventory(HOSTS, VMS), mode="replace", generation=None)
    return advisor


def names(page: Page, kind: str = "instances") -> list[str]:
    """Whose pages the rows link to, in order."""
    links = [link["href"] or "" for link in page.all("a")]
    rows = [link.removeprefix(f"/{kind}/") for link in links if link.startswith(f"/{kind}/")]
    return list(dict.fromkeys(rows))


def shown(client: Client, path: str) -> Page:
    answer = client.page(path)
    assert answer.status_code == 200
    return Page(answer.text)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("name", ["ci-3", "db-10", "spare", "web-2"]),
        ("-name", ["web-2", "spare", "db-10", "ci-3"]),
        ("memory", ["spare", "web-2", "ci-3", "db-10"]),
        ("-vcpus", ["db-10", "web-2", "ci-3", "spare"]),
        ("host", ["db-10", "web-2", "ci-3", "spare"]),
        ("-demand", ["web-2", "ci-3", "db-10", "spare"]),
        ("demand", ["ci-3", "web-2", "db-10", "spare"]),
    ],
)
def test_instances_are_sorted_by_the_address_and_what_is_not_known_comes_last(
    cloud: Advisor, client: Client, order: str, expected: list[str]
) -> None:
    page = shown(client, f"/instances?sort={order}")
    assert names(page) == expected
    (heading,) = (head for head in page.all("th") if head.get("aria-sort"))
    assert heading["aria-sort"] == ("descending" if order.startswith("-") else "ascending")


def test_a_row_shows_host_size_demand_and_predictions(cloud: Advisor, client: Client) -> None:
    now = cloud.cloud.now()
    resident = next(it for host in now.hosts for it in host.residents if it.instance.id == "web-2")
    text = shown(client, "/instances?name=web").text
    assert f"web-2 kvm1 4 4 GB 1.5 {100 * (resident.delivered or 0):.0f} %" in text
    assert f"{resident.expected:.2f}" in text
    assert "spare on no host 1 512 MB" in shown(client, "/instances?only=unplaced").text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("name=DB", {"db-10"}),
        ("name=%D0%B1%D0%B0%D0%B7", {"db-10"}),  # a part of its label `name`, in small letters
        ("host=kvm1", {"db-10", "web-2"}),
        ("host=KVM", {"db-10", "web-2", "ci-3"}),
        ("workload=olt", {"db-10"}),
        ("label=tier%3Dweb", {"web-2"}),
        ("only=unplaced", {"spare"}),
        ("name=nothing", set()),
    ],
)
def test_instances_are_filtered(cloud: Advisor, client: Client, query: str, expected: set[str]) -> None:
    assert set(names(shown(client, f"/instances?{query}"))) == expected


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/instances?sort=colour", "is none of name, host, vcpus"),
        ("/instances?sort=--name", "is none of name, host, vcpus"),
        ("/cloud?sort=%3Cb%3E", "is none of host, affected"),
        ("/alarms?sort=name", "is none of instance, host"),
        ("/instances?only=mine", "is none of affected, unplaced"),
        ("/instances?label=web", "is not a label and its value"),
        ("/instances?limit=9", "there is no query parameter 'limit'"),
    ],
)
def test_an_order_or_a_filter_that_does_not_exist_is_refused(
    cloud: Advisor, client: Client, path: str, words: str
) -> None:
    answer = client.page(path)
    assert answer.status_code == 422
    assert words in Page(answer.text).text


def test_links_of_a_sorted_page_keep_filter_and_order(advisor: Advisor, client: Client) -> None:
    many = tuple(Instance(f"vm{number:03}", 1, 512 + number, host="kvm1") for number in range(2 * AT_ONCE + 1))
    advisor.inventory.put(Inventory((replace(HOSTS[0], memory_mb=1e6),), many), mode="replace", generation=None)
    page = shown(client, "/instances?name=vm&sort=-memory&page=2")
    assert names(page) == [f"vm{number:03}" for number in reversed(range(1, AT_ONCE + 1))]
    links = {link["href"] for link in page.all("a")}
    assert "/instances?name=vm&sort=-memory&page=3" in links
    assert "/instances?name=vm&sort=memory" in links  # the other direction, from its first page on
    assert "/instances?name=vm&sort=-vcpus" in links
    assert names(shown(client, "/instances?sort=-memory&page=99999999")) == ["vm000"]


def test_hosts_are_sorted_and_show_how_much_memory_instances_have(cloud: Advisor, client: Client) -> None:
    page = shown(client, "/cloud?sort=-memory_mb")
    assert names(page, "hosts") == ["kvm1", "kvm2", "kvm3"]
    assert "56 %" in page.text  # 36 of 64 GB
    assert names(shown(client, "/cloud?sort=memory_mb"), "hosts")[0] == "kvm3"
    assert names(shown(client, "/cloud?sort=-host"), "hosts") == ["kvm3", "kvm2", "kvm1"]
    assert names(shown(client, "/cloud?sort=instances&name=kvm"), "hosts") == ["kvm3", "kvm2", "kvm1"]


def test_unknown_values_are_last_in_both_directions_and_equal_ones_by_name() -> None:
    rows = [("b", 1.0), ("c", None), ("a", 1.0), ("d", 2.0), ("e", 1.0)]
    for direction, expected in (("x", "abedc"), ("-x", "dabec")):
        order = Order.read({"sort": direction}, {"x": SortColumn("X")}, "x")
        for most in range(7):
            first = order.first(most, rows, lambda row: row[1], lambda row: row[0])
            assert "".join(name for name, _ in first) == expected[:most]


def _resident(name: str, expected: float, *, falls_behind: bool = False, **limits: float) -> ResidentNow:
    return ResidentNow(Instance(name, host="h", **limits), expected, False, 0.2, 0.9, falls_behind)  # type: ignore[arg-type]


def test_an_instance_that_falls_behind_is_among_the_most_affected_however_many_are_slower() -> None:
    slow = [_resident(f"slow{number:02}", 0.5) for number in range(12)]
    behind = _resident("behind", 0.91, falls_behind=True)
    late = _resident("late", 0.97, max_time_short=0.1)
    fine = _resident("fine", 0.97)
    host = HostNow(Host("h", "kvm", 8, 1024.0), (*slow, behind, fine, late), {}, NOW)
    listed = [line.name for line in worst_off([host])]
    assert listed[:2] == ["behind", "late"]
    assert "fine" not in listed
    assert [sorting.affected_level(it) for it in (slow[0], behind, late, fine)] == ["bad", "bad", "bad", "good"]
    assert worst_off([host])[0].behind == "falls behind"


def test_alarms_have_a_page_that_names_the_likely_cause(advisor: Advisor, settings: Settings) -> None:
    def alarm(name: str, hours: int, antagonist: str | None) -> Anomaly:
        cause = "neighbour" if antagonist else "host"
        since = NOW - timedelta(hours=hours)
        return Anomaly(name, "kvm1", since, since, 6, 0.9, 0.8, 0.4, cause, antagonist, 0.5, 3.5)  # type: ignore[arg-type]

    alarms = (alarm("old", 5, "ci-3"), alarm("new", 1, None))
    client = bent_client(advisor, settings, cloud={"alarms": lambda: alarms})
    page = shown(client, "/alarms")
    assert names(page) == ["new", "old", "ci-3"]
    assert "its demand rose from 0.50 to 3.50 CPUs" in page.text
    assert "40 % 6 windows 90 % at least 80 %" in page.text
    assert names(shown(client, "/alarms?sort=since"))[0] == "old"
    assert (
        "There is no alarm now." in shown(bent_client(advisor, settings, cloud={"alarms": lambda: ()}), "/alarms").text
    )


def test_the_audit_log_has_a_page_with_filters(cloud: Advisor, client: Client) -> None:
    cloud.inventory.put_instance(replace(VMS[0], memory_mb=8192))
    assert "instance.put local web-2" in shown(client, "/audit?object=web-2").text
    assert "inventory.put" not in shown(client, "/audit?object=web-2").text
    assert "inventory.put" in shown(client, "/audit?actor=local").text
    assert "no such entry" in shown(client, "/audit?object=nothing").text


def test_every_page_leads_to_all_others(cloud: Advisor, client: Client) -> None:
    for path in ("/", "/cloud", "/instances", "/alarms", "/worth", "/audit"):
        page = shown(client, path)
        links = {link["href"] for link in page.all("a")}
        assert {"/cloud", "/instances", "/alarms", "/placements", "/worth", "/plans", "/models", "/audit"} <= links
        assert [link["href"] for link in page.all("a") if link.get("aria-current") == "page"] == [path]


def test_what_comes_from_outside_stays_text_in_lists(advisor: Advisor, settings: Settings) -> None:
    hostile = Instance("vm", 1, 512, host="h", workload=HOSTILE, labels={"name": HOSTILE})
    host = HostNow(Host("h", "kvm", 2, 512.0), (ResidentNow(hostile, 0.5, False),), {}, None)
    now = CloudNow((host,), 1, "analytic", "analytic", False, 60.0)
    client = bent_client(advisor, settings, cloud={"now": lambda: now, "inventory": lambda: Inventory((), ())})
    for path in ("/instances?name=%22%3E%3Cscript%3E&only=", "/instances"):
        page = Page(client.page(path).text)
        assert [script["src"] for script in page.all("script")] == ["/static/cotenant.js"]
        assert page.all("b") == []
    assert HOSTILE in "".join(page.words)


def test_a_large_cloud_is_a_small_page(advisor: Advisor, settings: Settings) -> None:
    residents = tuple(ResidentNow(Instance(f"vm{number}", 1, 512), 0.9, False, 0.1, 0.9) for number in range(1000))
    host = Host("h", "kvm", 64, 1e6)
    hosts = tuple(HostNow(replace(host, id=f"h{at}"), residents, {}, NOW) for at in range(20))
    now = CloudNow(hosts, 1, "analytic", "analytic", False, math.inf)
    client = bent_client(advisor, settings, cloud={"now": lambda: now, "inventory": lambda: Inventory((), ())})
    answer = client.page("/instances?sort=-memory")
    assert len(answer.content) < 60_000
    assert "Page 1 of 400" in Page(answer.text).text


def test_rows_alike_are_joined_and_two_stay_two() -> None:
    rows = [("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 2)]
    groups = joined(rows, lambda row: row[1])
    assert [(group.row[0], [other[0] for other in group.others]) for group in groups] == [
        ("a", ["c", "d"]),
        ("b", []),
        ("e", []),
    ]


def test_instances_alike_are_one_row_on_the_page_of_their_host(advisor: Advisor, client: Client) -> None:
    alike = [Instance(f"web-{number:03}", 1, 512, host="kvm1") for number in range(150)]
    other = Instance("db", 4, 4096, host="kvm1", settings=IsolationSettings(weight=512))
    advisor.inventory.put(Inventory((HOSTS[0],), (*alike, other)), mode="replace", generation=None)
    page = shown(client, "/hosts/kvm1")
    rows = [row for row in page.all("td") if row.get("data-label") == "Throughput"]
    assert len(rows) == 2
    assert "and 149 alike" in page.text
    assert set(names(page)) == {"db", *(it.id for it in alike)}


def test_an_instance_that_no_source_reports_any_more_slows_no_other(advisor: Advisor, client: Client) -> None:
    hog = Instance("hog", 4, 512, host="kvm3", demand={"cpu": Demand(4.0)})
    tight = replace(HOSTS[2], pcpus=4)
    victim = replace(hog, id="victim")
    advisor.inventory.put(Inventory((tight,), (hog, victim)), mode="replace", generation=None)
    pairs = {(it.victim, it.neighbour) for it in advisor.cloud.host("kvm3").slowing if it.loss > 0.1}
    assert pairs == {("victim", "hog"), ("hog", "victim")}
    gone = replace(hog, labels={STOPPED_AT: NOW.isoformat()})
    advisor.inventory.put(Inventory((tight,), (gone, victim)), mode="replace", generation=None)
    assert advisor.cloud.host("kvm3").slowing == ()
    assert "stopped" in shown(client, "/hosts/kvm3").text


def test_what_is_better_off_with_a_neighbour_is_not_shown_as_slowed_by_it() -> None:
    from api.web.host import _cell

    assert [_cell(loss).figure for loss in (-0.06, 0.004, 0.06)] == ["", "", "0.06"]
