"""The pages of the cloud, of a host and of an instance: what stands on them, in which order, and how much of it."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from advisor.domain import (
    CloudNow,
    Histories,
    History,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    ProbeReport,
    ResidentNow,
    WorkloadProfile,
    time_part,
)
from advisor.offline import load_inventory
from advisor.service import Advisor
from advisor.serving import overview
from advisor.settings import Settings
from advisor.telemetry import antagonists
from api.app import create_app
from api.web import chart
from api.web.cloud import AT_ONCE
from profiler.demand import Demand
from profiler.metrics import EIGHT
from profiler.observed import MetricSample, ProbeResult, Quantity
from tests.api.api_client import Client, bent_client
from tests.api.page_reader import Page
from tests.api.sample_answer import HOSTILE
from tests.servers.fixtures import sqlite_with_tables

CLOUD = Path(__file__).parent / "cloud.yaml"
WINDOWS = 100  # of ten seconds, with a gap of five minutes


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Advisor]:
    """The small cloud with samples of who is on h1, and of h1 itself; tests only read it."""
    folder = tmp_path_factory.mktemp("measured")
    settings = Settings(database=sqlite_with_tables(folder / "db.sqlite3"), state_dir=folder, max_batch=100_000)
    now = datetime.now(UTC).timestamp()
    times = [now - 10 * number for number in range(WINDOWS) if not 20 <= number < 50]
    samples = [
        MetricSample("h1", owner, metric.default_scope, metric.name, 50 + 10 * math.sin(time_s), time_s)
        for time_s in times
        for metric in EIGHT
        for owner in ((None,) if metric.default_scope == "host" else ("shop-3", "shop-4"))
    ]
    with Advisor(settings) as opened:
        opened.inventory.put(load_inventory(CLOUD), mode="replace", generation=None)
        assert opened.telemetry.ingest(samples)["accepted"] == len(samples)
        yield opened


@pytest.fixture(scope="module")
def pages(measured: Advisor, tmp_path_factory: pytest.TempPathFactory) -> Client:
    return Client(create_app(measured, Settings(state_dir=tmp_path_factory.mktemp("state"))))


def page_of(advisor: Advisor, settings: Settings, cloud: CloudNow, path: str = "/cloud") -> Page:
    """A page about this cloud."""
    return Page(bent_client(advisor, settings, cloud={"now": lambda: cloud}).page(path).text)


def hosts_of(page: Page) -> list[str]:
    links = [one["href"] or "" for one in page.all("a")]
    return list(dict.fromkeys(link.removeprefix("/hosts/") for link in links if link.startswith("/hosts/")))


def test_the_host_with_the_worst_off_instance_comes_first(pages: Client, measured: Advisor) -> None:
    shown = pages.page("/cloud")
    page = Page(shown.text)
    worst = {one.host.id: one.worst.expected if one.worst else math.inf for one in measured.cloud.now().hosts}
    assert [worst[name] for name in hosts_of(page)] == sorted(worst.values())
    assert hosts_of(page)[0] == "h1"
    assert len(worst) == 6
    worst_off = measured.cloud.now().hosts[0].worst
    assert worst_off
    assert worst_off.expected < 0.9
    figures = f"{worst_off.expected:.2f} too little {time_part(worst_off.short or 0)} – web-100k"
    assert f"{worst_off.instance.id} h1 {figures}" in page.text
    assert f"/?instance={worst_off.instance.id}" in [one["href"] for one in page.all("a")]


def test_who_is_below_a_strict_limit_is_listed_however_many_lose_more(measured: Advisor, settings: Settings) -> None:
    reported = measured.cloud.now()
    patient = [ResidentNow(Instance(f"i{number}"), 0.92, False) for number in range(12)]
    strict = ResidentNow(Instance("strict", min_throughput_ratio=0.99), 0.95, False)
    crowded = replace(reported.hosts[0], residents=(*patient, strict))
    page = page_of(measured, settings, replace(reported, hosts=(crowded,)))
    assert f"strict {crowded.host.id} 0.95 too little – 0.99" in page.text
    assert "i0 " not in page.text[: page.text.index("Name contains")]


def test_hosts_without_fresh_data_are_counted_and_marked(measured: Advisor, settings: Settings) -> None:
    reported = measured.cloud.now()
    reported = replace(reported, hosts=tuple(replace(host, patience_s=None) for host in reported.hosts))
    unseen = (replace(reported.hosts[0], seen_at=None), *reported.hosts[1:])
    lasting = replace(reported, fresh_s=0.0, hosts=tuple(replace(host, patience_s=math.inf) for host in reported.hosts))
    for cloud, marked in ((replace(reported, fresh_s=0.0), 6), (lasting, 0), (replace(reported, hosts=unseen), 1)):
        page = page_of(measured, settings, cloud)
        assert f"Hosts without fresh data {marked}" in page.text
    assert "never seen" in page.text


def test_hosts_are_filtered_by_name_label_and_kind(pages: Client) -> None:
    wanted = {"name=H1": ["h1"], "label=zone%3Db": ["h3", "h4", "h5"], "kind=xen": ["h1", "h2"], "name=x": []}
    for query, names in wanted.items():
        shown = pages.page(f"/cloud?{query}")
        assert (shown.status_code, sorted(hosts_of(Page(shown.text)))) == (200, names)


def test_a_filter_that_makes_no_sense_is_reported_beside_its_field(pages: Client) -> None:
    shown = pages.page("/cloud?label=zone&kind=zen")
    assert shown.status_code == 422
    assert "is not a label and its value, such as zone=a" in Page(shown.text).text
    assert "is none of xen, kvm, lxc" in Page(shown.text).text
    assert len(hosts_of(Page(shown.text))) == 6


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/cloud?page=-1", "page: Input should be greater than or equal to 1"),
        ("/cloud?cursor=zzz", "there is no query parameter 'cursor'; there are page, name, label, kind"),
        ("/hosts/h1?since=99y", "since: Input should be '1h', '6h' or '24h'"),
        ("/hosts/h1?sinc=1h", "there is no query parameter 'sinc'; there are since"),
        ("/hosts/h1?since=1h&since=6h", "since is given 2 times, once is taken"),
        ("/cloud?name=a&name=b", "name is given 2 times, once is taken"),
        ("/cloud?what=%3Cb%3E", "there is no query parameter 'what'"),
        ("/instances/shop-3?since=", "since: Input should be '1h', '24h', '7d' or '30d'"),
        ("/placements?which=mine", "which: Input should be 'all', 'real' or 'reported'"),
        ("/models/analytic/confirm?change=burn", "change: Input should be 'activate', 'shadow' or 'rollback'"),
        ("/plans?kind=evict", "kind: Input should be 'admit'"),
        ("/plans/new?kind=evict", "kind 'evict' is none of admit"),
        ("/?id=a&objective=best", "objective 'best' is none of worst, total, limits, pack"),
        ("/?nam=a", "there is no query parameter 'nam'; there are "),
    ],
)
def test_an_address_that_is_not_understood_is_refused_with_the_reason(pages: Client, path: str, words: str) -> None:
    shown = pages.page(path)
    assert shown.status_code == 422
    assert words in Page(shown.text).text


def test_a_host_shows_bands_limits_pressure_and_antagonists(pages: Client, measured: Advisor) -> None:
    page = Page(pages.page("/hosts/h1").text)
    found = measured.cloud.host("h1")
    for effect in found.effects:
        band = effect.throughput_ratio
        assert f"{band.expected:.2f}" in page.text
        assert f"{band.lower:.2f}–{band.upper:.2f}" in page.text
    worst = found.slowing[0]
    assert worst.loss > 0.05
    assert f"{worst.loss:.2f}" in page.text
    asked = chart.bars(found.now.pressure, found.now.cpu_peak)
    assert {one.name for one in asked if one.figure} == {"CPU", "Driver domain", "NIC"}
    assert "Not known of this host: Disk, Memory bandwidth." in page.text
    assert "Driver domain 109 %" in page.text
    assert "limit 90 %" in str(page.tags)


def test_what_was_measured_is_drawn_with_its_gaps_and_reported_in_figures(pages: Client) -> None:
    page = Page(pages.page("/hosts/h1?since=1h").text)
    assert [
        page.text.count(f"{metric.name.replace('_', ' ').capitalize()} {metric.unit}") > 0 for metric in EIGHT
    ].count(False) == 1, "all but CPU, which is written so"
    every = [one for one in page.all("path") if (one.get("class") or "").startswith("line s")]
    assert sum("predicted" in (one["class"] or "") and one["d"] != "M0 4H20" for one in every) == 2
    lines = [one["d"] or "" for one in every if "predicted" not in (one["class"] or "")]
    drawn = [line for line in lines if line != "M0 4H20"]  # the others are keys
    assert len(drawn) == 2 + 7 * 2, "the host's two, the metrics of two instances, and what they got of the CPU"
    assert {line.count("M") for line in drawn} == {2}, "the gap stays open"
    points = [tuple(map(float, pair)) for line in drawn for pair in re.findall(r"[ML]([\d.]+) ([\d.]+)", line)]
    assert all(0 <= x <= 320 and 0 <= y <= 104 for x, y in points)
    titles = " ".join(page.words)
    assert "execution in 1/s of shop-3, shop-4" in titles.lower()


def test_without_samples_a_page_says_how_to_get_some(pages: Client) -> None:
    assert "cotenant-profiler run --push URL --host h2" in Page(pages.page("/hosts/h2").text).text
    assert "cotenant-profiler run --push URL --host h2" in Page(pages.page("/instances/batch-1").text).text
    assert "There is no instance on this host." in Page(pages.page("/hosts/h5").text).text


def test_an_instance_of_which_only_the_demand_is_known_shows_that(advisor: Advisor, client: Client) -> None:
    mystery = replace(load_inventory(CLOUD).instances[0], id="mystery", workload=None, demand={"cpu": Demand(0.45)})
    advisor.inventory.put(Inventory(load_inventory(CLOUD).hosts, (mystery,)), mode="replace", generation=None)
    shown = Page(client.page("/instances/mystery").text).text
    assert "Its demand of 0.45 CPUs on average is known" in shown
    assert "10 % of its vCPUs" not in shown


def test_an_instance_shows_where_it_is_what_it_loses_and_where_else(pages: Client, measured: Advisor) -> None:
    page = Page(pages.page("/instances/shop-3?since=1h").text)
    mine = next(one for one in measured.cloud.host("h1").effects if one.instance == "shop-3").throughput_ratio
    assert f"Relative throughput {mine.expected:.2f} on h1 ." in page.text
    assert "Antagonist Predicted Measured By" in page.text
    assert {"/?instance=shop-3", "/hosts/h1", "/instances/shop-4"} <= {one["href"] for one in page.all("a")}
    assert "web-1k alone" in page.text
    assert page.text.count("In figures") == 9
    pinned = Page(pages.page("/instances/batch-1").text).text
    assert "Pin 0:2|1:3" in pinned
    assert "it counts as using 10 % of its vCPUs" in Page(pages.page("/instances/mystery").text).text


def test_antagonists_are_reported_as_predicted_beside_measured(pages: Client, measured: Advisor) -> None:
    reported = (("waited_for_host", 0.0), ("waited_for:shop-4", 3.0), ("cpu", 20.0), ("waiting", 10.0))

    def watched(since_s: int, until_s: int) -> None:
        times = [measured.cloud.clock().timestamp() - 10 * number for number in range(since_s, until_s)]
        samples = [
            MetricSample("h1", "shop-3", "instance", name, value, at) for at in times for name, value in reported
        ]
        measured.telemetry.ingest(samples)

    watched(1, antagonists.LEAST_SAMPLES)
    pairs = pages.get("/v1/hosts/h1/slowing?since=2h").json()["pairs"]
    assert not [pair for pair in pairs if pair["source"] == "run queue"]  # too few samples say nothing
    watched(antagonists.LEAST_SAMPLES, 2 * antagonists.LEAST_SAMPLES)
    pairs = pages.get("/v1/hosts/h1/slowing?since=3h").json()["pairs"]
    mine = next(one for one in pairs if (one["victim"], one["neighbour"]) == ("shop-3", "shop-4"))
    assert mine["source"] == "run queue"
    assert mine["predicted"] > 0.01
    assert mine["measured"] > 0.01
    assert pages.get("/v1/hosts/h9/slowing").status_code == 404


def test_what_an_instance_obtained_is_reported_on_its_page_and_as_json(pages: Client, measured: Advisor) -> None:
    at = measured.cloud.clock().timestamp() - 1
    reported = (("psi_io", 41.5), ("net_drops", 7.0))
    measured.telemetry.ingest([MetricSample("h1", "shop-3", "instance", name, value, at) for name, value in reported])
    page = Page(pages.page("/instances/shop-3?since=1h").text).text
    assert "CPU delivered: run / (run + wait), without waiting for its own cap" in page
    assert "Time in which some task stalled for I/O % 41.5 41.5 41.5" in page
    outcomes = pages.get("/v1/instances/shop-3/obtained?since=1h").json()["outcomes"]
    assert [one["metric"] for one in outcomes] == ["cpu_share", "psi_io", "net_drops"]
    assert (outcomes[2]["unit"], outcomes[2]["worst"]) == ("1/s", 7.0)


def test_a_store_of_samples_that_is_down_keeps_no_page_from_being_shown(advisor: Advisor, settings: Settings) -> None:
    gone = settings.model_copy(update={"prometheus_url": "http://127.0.0.1:1"})
    with Advisor(gone) as opened:
        reported = opened.telemetry.histories(instance="shop-3")
        assert (reported.found, reported.missing) == ((), "http://127.0.0.1:1 does not answer (Connection refused)")
        shown = Client(create_app(opened, gone)).page("/instances/shop-3")
    assert shown.status_code == 200
    assert "Antagonists" in Page(shown.text).text


def test_an_instance_on_no_host_and_one_that_an_answer_holds(advisor: Advisor, client: Client) -> None:
    advisor.inventory.put_instance(Instance("nowhere", vcpus=1, memory_mb=512, workload="batch"))
    page = Page(client.page("/instances/nowhere").text)
    assert "It is on no host." in page.text
    assert "Where should it go?" in page.text
    held = advisor.placements.place(
        PlacementRequest(Instance("coming", vcpus=1, memory_mb=512, workload="batch"))
    ).recommendation
    host = held.candidates[0].host
    assert "An answer holds this host for it" in Page(client.page("/instances/coming").text).text
    assert "coming pending" in Page(client.page(f"/hosts/{host}").text).text
    assert client.page("/instances/nothing").status_code == 404
    assert client.page("/hosts/nothing").status_code == 404


def test_what_comes_from_outside_stays_text(advisor: Advisor, settings: Settings) -> None:
    host = Host("h1", "kvm", pcpus=2, memory_mb=512, labels={HOSTILE: HOSTILE})
    reported = advisor.cloud.now()
    hostile = replace(reported, hosts=(replace(reported.hosts[0], host=host),))
    for path in ("/cloud?name=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&label=%3Cb%3E", "/cloud"):
        page = page_of(advisor, settings, hostile, path)
        assert [one["src"] for one in page.all("script")] == ["/static/cotenant.js"]
        assert page.all("b") == []
    assert HOSTILE in "".join(page.words)


def test_a_thousand_hosts_are_one_small_page(advisor: Advisor, client: Client) -> None:
    names = [f"h{number:04}" for number in range(1000)]
    hosts = tuple(Host(name, "xen", pcpus=8, memory_mb=65536, labels={"zone": name[-1]}) for name in names)
    there = tuple(
        Instance(f"{name}-{number}", vcpus=1 + at % 3, memory_mb=512, host=name, workload="web")
        for at, name in enumerate(names)
        for number in range(5)
    )
    workload = WorkloadProfile("web", {"cpu": 70, "driver_domain.cpu": 40, "pages_exchanged": 5000})
    advisor.inventory.put(Inventory(hosts, there, (workload,)), mode="replace", generation=None)
    first, last = client.page("/cloud"), client.page("/cloud?page=20")
    assert len(first.content) < 150_000
    assert len(hosts_of(Page(first.text))) == 50
    assert "Page 20 of 20" in Page(last.text).text
    assert "page=21" not in last.text
    assert client.page("/cloud?page=999999999999").status_code == 200


def test_a_last_page_of_one_host_is_called_so(measured: Advisor, settings: Settings) -> None:
    reported = measured.cloud.now()
    hosts = [Host(f"h{at}", "kvm", pcpus=2, memory_mb=512) for at in range(AT_ONCE + 1)]
    many = replace(reported, hosts=tuple(replace(reported.hosts[0], host=host) for host in hosts))
    first, last = (page_of(measured, settings, many, f"/cloud?page={at}").text for at in (1, 2))
    assert "Page 1 of 2 Last host" in first
    assert f"Previous {AT_ONCE} hosts Page 2 of 2" in last


def test_hosts_alike_are_predicted_once_and_after_a_change_only_what_is_new(
    advisor: Advisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    from models.physics.prior import PriorPredictor

    asked: list[int] = []
    predict = PriorPredictor.predict

    def counted(self: PriorPredictor, scenes: object, *rest: object) -> object:
        asked.append(len(scenes))  # type: ignore[arg-type]
        return predict(self, scenes, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(PriorPredictor, "predict", counted)
    hosts = tuple(Host(f"a{number}", "kvm", pcpus=4, memory_mb=4096) for number in range(6))
    there = tuple(Instance(f"i{number}", vcpus=2, memory_mb=512, host=f"a{number}") for number in range(5))
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
    before = advisor.cloud.now()
    assert advisor.cloud.now() is before
    advisor.inventory.put_instance(Instance("more", vcpus=1, memory_mb=512, host="a5"))
    advisor.cloud.now()
    assert asked == [1, 1]


def _reported(share: float) -> Histories:
    """Ten steps in which `a` ran for 40 % and waited so that it got this share."""
    times = [60.0 * at for at in range(1, 11)]
    waiting = 40.0 / share - 40.0
    found = (
        History("h1", "a", "cpu", "%", times, [40.0] * 10),
        History("h1", "a", "waiting", "%", times, [waiting] * 10),
        History("h1", "idle", "cpu", "%", times, [0.0] * 10),
        History("h1", "idle", "waiting", "%", times, [0.0] * 10),
    )
    return Histories(0.0, 600.0, 60.0, found)


def test_what_was_got_is_drawn_beside_what_is_predicted() -> None:
    drawn = chart.shares(_reported(0.5), {"a": 0, "idle": 1}, {"a": 0.75, "ghost": 0.1})
    assert drawn is not None
    assert [(line.name, line.predicted) for line in drawn.lines] == [("a", False), ("a, predicted", True)]
    assert drawn.figures[0].mean == "0.5"
    assert drawn.lines[1].path == "M44 27H316"  # three quarters of the way up
    assert chart.shares(replace(_reported(0.5), found=()), {}, {}) is None


def test_an_instance_that_gets_much_less_than_is_predicted_has_an_alarm(measured: Advisor, settings: Settings) -> None:
    there = next(host for host in measured.cloud.now().hosts if host.residents)
    name, host = there.residents[0].instance.id, there.host.id

    def text(share: float) -> str:
        reported = _reported(share)
        histories = replace(reported, found=tuple(replace(one, host=host, instance=name) for one in reported.found[:2]))
        client = bent_client(measured, settings, telemetry={"histories": lambda **_: histories})
        return Page(client.page(f"/instances/{name}").text).text

    assert "CPU delivered was 10 % of demand in this time" in text(0.1)
    assert "of demand in this time" not in text(1.0)


def test_samples_that_come_seldom_are_joined_and_one_between_two_gaps_is_a_dot() -> None:
    seldom = History("h1", "a", "cpu", "%", (120.0, 240.0, 360.0, 1800.0, 3000.0, 3120.0), (1.0,) * 6)
    (drawn,) = chart.charts(Histories(0.0, 3600.0, 30.0, (seldom,)), {"a": 0})
    parts = drawn.lines[0].path.split("M")[1:]
    assert [part.count("L") for part in parts] == [2, 0, 1]
    assert all(part.endswith("h.1") for part in parts)


def test_a_page_shows_what_probes_found_last_and_whether_answers_count_with_it(
    client: Client, advisor: Advisor
) -> None:
    advisor.inventory.put(load_inventory(CLOUD), mode="replace", generation=None)
    kernel = {"kernel": HOSTILE, "load": "0.10 0.20 0.30", "cpus": "0-3", "taken_at": "2026-01-31T12:00:00+00:00"}
    share = ProbeResult("cpu-share", {"share": Quantity(60.25, "%"), "gaps": Quantity(3, "1")}, "share", kernel)
    rtt = ProbeResult("rtt", {"median": Quantity(0.3125, "ms")}, "median", {}, ("stopped before its end",))
    when = datetime.now(UTC) - timedelta(hours=3)
    reports = [ProbeReport("h1", share, when), ProbeReport("h1", rtt, when, peer="h2")]
    advisor.telemetry.take_probes([*reports, ProbeReport("h1", share, when, "shop-3")])
    shown = client.page("/hosts/h1").text
    text = Page(shown).text
    for said in ("60.25 %", "0.3125 ms", "to h2", "3 h ago", "load 0.10 0.20 0.30", "Mark: stopped before its end"):
        assert said in text
    assert "No: it is marked" in text
    assert "No: the model that answers was trained without it" in text
    assert "taken at" not in text
    assert HOSTILE not in shown
    assert "No: it measures one instance" in Page(client.page("/instances/shop-3").text).text
    for path in ("/hosts/h2", "/instances/shop-4"):
        assert 'id="probes"' not in client.page(path).text


@pytest.mark.parametrize(
    ("path", "fine"),
    [
        ("/cloud", "No instance is predicted below"),
        ("/", "No instance is predicted below"),
        ("/hosts/h1", "No instance here would gain"),
        ("/instances/v0", "No single neighbour takes"),
    ],
)
@pytest.mark.parametrize("known", [0, 1, 3])
def test_that_all_is_well_says_whose_demand_is_known(path: str, fine: str, known: int, client: Client) -> None:
    host = {"id": "h1", "kind": "kvm", "pcpus": 32, "memory_mb": 65536}
    there = [
        {"id": f"v{number}", "host": "h1", "vcpus": 2, "memory_mb": 512}
        | ({"demand": {"cpu": 0.2}} if number < known else {})
        for number in range(3)
    ]
    client.ask("PUT", "/v1/inventory", json={"mode": "replace", "hosts": [host], "instances": there})
    text = Page(client.page(path).text).text
    assert fine in text
    assert (f"Demand is known for {known} of 3 instances" in text) == (known < 3)


def test_the_first_page_of_a_large_cloud_does_not_wait_for_its_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)
    held, predicted = threading.Event(), overview.Overview._predicted

    def when_let(self: overview.Overview, *asked: object) -> object:
        self._left = 1
        assert held.wait(60)
        return predicted(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(overview, "AT_ONCE", 0)
    monkeypatch.setattr(overview.Overview, "_predicted", when_let)
    with Advisor(settings) as opened:
        opened.inventory.put(load_inventory(CLOUD), mode="replace", generation=None)
        client = Client(create_app(opened, settings))
        hosts = len(opened.inventory.hosts().items)
        until = time.monotonic() + 60
        while opened.cloud.glance().part != 1 - 1 / hosts and time.monotonic() < until:
            time.sleep(0.01)
        waiting = client.page("/").text
        assert f"are being predicted: {1 - 1 / hosts:.0%} of the hosts are done" in waiting
        assert "data-refresh" in waiting
        held.set()
        until = time.monotonic() + 60
        while opened.cloud.glance().now is None and time.monotonic() < until:
            time.sleep(0.01)
        assert opened.cloud.glance().now == opened.cloud.now()
        shown = client.page("/").text
        assert "being predicted" not in shown
        assert "data-refresh" not in shown
        held.clear()
        former = opened.cloud.now()
        opened.inventory.put(Inventory((Host("later", "kvm", 4, 8192.0),), (), ()), mode="merge", generation=None)
        later = client.page("/").text
        assert "it is being predicted anew" in later
        assert f"<dd>{former.generation}</dd>" in later
        held.set()
