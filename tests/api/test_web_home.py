"""Home: the cloud at a glance, and a question in one line."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.domain import Headroom, Host, HostNow, Instance, Inventory, PlacementRequest, ResidentNow
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.web import chart, form
from api.web.form import DEFAULTS
from profiler.demand import Demand
from tests.api.api_client import Client
from tests.api.page_reader import Page

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NAMES = {"db-142": "db-142", "web 1": "web-1-id", "16 GB": "16-gb"}
known = NAMES.get


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("db-142", {"instance": "db-142"}),
        (" web 1 ", {"instance": "web-1-id"}),
        ("16 GB", {"instance": "16-gb"}),  # a name before anything else
        ("8 vCPUs, 16 GB, like db-142", {"vcpus": "8", "memory_mb": "16384", "like": "db-142"}),
        ("8vcpu 512MB", {"vcpus": "8", "memory_mb": "512"}),
        ("4 cores and 1.5 TiB", {"vcpus": "4", "memory_mb": "1572864"}),
        ("2 cpus, latency, short at most 1 %", {"vcpus": "2", "service": "latency", "max_time_short": "0.01"}),
        ("1 core; keep 0.9; alone; named shop-7",
         {"vcpus": "1", "min_throughput_ratio": "0.9", "exclusive": "yes", "id": "shop-7"}),
        ("LIKE db-142", {"like": "db-142"}),
        ("like web 1, 2 vCPUs", {"like": "web-1-id", "vcpus": "2"}),
        ('2 vCPUs like "web 1" latency', {"like": "web-1-id", "vcpus": "2", "service": "latency"}),
    ],
)  # fmt: skip
def test_a_line_is_read_as_people_say_it(text: str, fields: dict[str, str]) -> None:
    assert form.read_line(text, known) == fields
    assert fields.keys() <= DEFAULTS.keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("db-1", "there is no instance 'db-1': for a new one give its size"),
        ("fly to the moon", "cannot read 'fly to the moon'"),
        ("8 vCPUs, 3 parsecs", "cannot read '3 parsecs'"),
        ("8 vCPUs, like web 2", "there is no instance 'web' to be like"),
    ],
)
def test_what_is_not_understood_is_named(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        form.read_line(text, known)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = form.read_line(text, known)
    except ValueError as error:
        assert str(error)
    else:
        assert found.keys() <= DEFAULTS.keys()


def host_now(name: str, kept: float | None, peak: float, **known: Instance) -> HostNow:
    residents = [] if kept is None else [ResidentNow(Instance("a", host=name), kept, False, 0.0)]
    residents += [ResidentNow(one, 1.0, False, 0.0) for one in known.values()]
    return HostNow(Host(name, "kvm", 4, 1024.0), tuple(residents), {}, NOW, 0.0, peak)


def test_a_column_is_as_high_as_busy_times_and_as_red_as_the_worst_off() -> None:
    reported = Instance("b", demand={"cpu": Demand(0.1)})
    found = chart.strip_cells(
        [
            host_now("h2", 0.99, 0.5, b=reported),
            host_now("h1", 0.92, 1.2),
            host_now("h3", None, 0.0),
            host_now("h4", 0.5, 1.0),
        ]
    )
    assert [(one.name, one.level, one.height, one.over) for one in found] == [
        ("h1", "fair", chart.HEIGHT, True), ("h2", "good", chart.HEIGHT / 2, False), ("h3", "", 0.0, False),
        ("h4", "bad", chart.HEIGHT, False),
    ]  # fmt: skip
    assert [(one.known, one.badge) for one in found] == [
        ("0/1", "none"),
        ("1/2", "some"),
        ("0/0", "all"),
        ("0/1", "none"),
    ]
    assert found[1].words == (
        "h2: 50 % of the CPUs at busy times; most affected: a, at 99 % of its uncontended speed; "
        "more than the size is known for 1 of 2"
    )


def test_rooms_show_what_was_used_and_what_is_added() -> None:
    cpu, memory, nic = chart.rooms(Headroom(0.4, -0.2, 1.0, True, 0.5, 0.1, None))
    assert (cpu.before, cpu.added, cpu.figure) == (50.0, 10.0, "60 %")
    assert (memory.before, memory.added, memory.level) == (90.0, 10.0, "bad")
    assert memory.words == "Memory promised: 90 % before, 120 % with it"
    assert (nic.before, nic.added, nic.figure) == (0.0, 0.0, "–")
    assert nic.words == "Network at busy times: not known"
    assert chart.rooms(None) == ()


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    hosts = tuple(Host(f"h{number}", "kvm", pcpus=8, memory_mb=65536) for number in range(1, 4))
    residents = [
        Instance(f"app-{number}", vcpus=1, memory_mb=512, host="h1", demand={"cpu": Demand(0.2, windows=50)})
        for number in range(6)
    ]
    busy = Instance("db-1", vcpus=2, memory_mb=2048, host="h2", demand={"cpu": Demand(1.5, spread=0.2, windows=50)})
    advisor.inventory.put(Inventory(hosts, (*residents, busy)), mode="replace", generation=None)
    return Client(create_app(advisor, settings))


def ask(client: Client, line: str) -> tuple[int, Page]:
    answer = client.page(f"/?ask={quote_plus(line)}")
    return answer.status_code, Page(answer.text)


def test_home_shows_every_host_and_one_line_to_ask(client: Client) -> None:
    page = Page(client.page("/").text)
    labels = [one.get("aria-label") or "" for one in page.all("svg")]
    assert [label.split(":")[0] for label in labels if "busy times" in label] == ["h1", "h2", "h3"]
    assert next(one["name"] for one in page.all("input")) == "ask"


def test_a_new_vm_like_another_is_expected_to_want_as_much_for_its_size(client: Client) -> None:
    status, page = ask(client, "4 vCPUs, 4 GB, like db-1")
    assert status == 200
    assert "new-instance should go to h3." in page.text
    _, small = ask(client, "like db-1")
    assert "CPU at busy times: 0 % before, 35 % with it" in small.text
    assert "CPU at busy times: 0 % before, 69 % with it" in page.text
    fields = {one["name"]: one["value"] for one in page.all("input") if "name" in one}
    assert (fields["vcpus"], fields["memory_mb"], fields["like"]) == ("4", "4096", "db-1")


def test_in_the_form_the_size_that_is_said_counts(client: Client) -> None:
    page = Page(client.page("/?id=new&vcpus=4&memory_mb=1024&like=db-1").text)
    assert "CPU at busy times: 0 % before, 69 % with it" in page.text
    assert "there is no instance 'ghost'" in Page(client.page("/?id=new&vcpus=4&memory_mb=1024&like=ghost").text).text


def test_neighbours_that_do_not_change_are_folded(client: Client) -> None:
    _, page = ask(client, "1 vCPU, 1 GB, like app-1")
    assert "6 others unaffected" in page.text


def test_what_is_wrong_with_the_line_stands_below_it_and_nothing_is_asked(client: Client) -> None:
    status, page = ask(client, "8 vCPUs, like ghost")
    assert status == 422
    assert "there is no instance 'ghost' to be like" in page.text
    status, page = ask(client, "make it so")
    assert status == 422
    assert "cannot read 'make it so': write it as in '8 vCPUs, 16 GB, like db-142'" in page.text


def test_a_thousand_hosts_are_one_picture(advisor: Advisor, client: Client) -> None:
    hosts = tuple(Host(f"h{number:04}", "kvm", pcpus=8, memory_mb=65536) for number in range(1000))
    advisor.inventory.put(Inventory(hosts, ()), mode="replace", generation=None)
    reported = client.page("/")
    assert len(reported.content) < 150_000
    assert len(Page(reported.text).all("rect")) == 1000


def test_of_another_of_its_kind_less_is_known() -> None:
    hours = (1.0,) * 24
    known = Demand(1.0, spread=0.3, p50=0.9, p95=1.6, p99=2.0, windows=500, doubt=0.01, hours=hours, origin="measured")
    other = known.of_another(2.0)
    assert (other.mean, other.spread, other.p95, other.hours) == (2.0, 0.6, 3.2, hours)
    assert other.doubt > 2 * known.doubt
    assert (other.windows, other.origin) == (0.0, "class")


def test_a_crowded_host_shows_who_loses_most_and_no_score_below_0(advisor: Advisor, client: Client) -> None:
    busy = Demand(1.0, spread=0.3, windows=50)
    hosts = (*(Host(name, "kvm", pcpus=8, memory_mb=262144, cpu_overcommit=16.0) for name in ("crowded", "full")),)
    there = [
        Instance(f"{host.id}-{number}", vcpus=2, memory_mb=512, host=host.id, demand={"cpu": busy})
        for host, count in zip(hosts, (30, 40), strict=True)
        for number in range(count)
    ]
    advisor.inventory.put(Inventory(hosts, tuple(there)), mode="replace", generation=None)
    new_vm = Instance("new", vcpus=2, memory_mb=512, demand={"cpu": busy})
    found = advisor.placements.place(PlacementRequest(new_vm, limit=10, dry_run=True)).recommendation
    assert found.candidates[-1].score < 0
    _, page = ask(client, f"2 vCPUs, 1 GB, like {there[0].id}")
    assert "Score" not in page.text
    assert "Behind the best by" in page.text
    assert "11 others are affected less than those above" in page.text  # of 30 and the new VM, 20 are shown
    assert "These are the 20 most affected of them. All on full" in page.text
