"""Every expression of the board and of the alerts, asked of a real Prometheus and a real VictoriaMetrics that read a
real service and the pages of an agent: what the board draws is there, and no alert fires on a cloud that fares well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from profiler.agent.exporter import page
from profiler.agent.loop import REASONS
from profiler.agent.push import PushStatus
from profiler.agent.spool import SpoolStatus
from tests.packaging.test_prometheus_files import ALERTS, BOARD, PANELS, SHIPPED, agent_view
from tests.servers.prometheus import UNPACKED, prometheus
from tests.servers.running import NotInstalled, found, hand_over, own_folder
from tests.servers.service import Service
from tests.servers.victoria_metrics import victoria_metrics

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
EVERY = "5s"  # a page is read; one that takes longer counts as not answered
WAIT_S = 240.0  # until all that is looked for was scraped; a quiet machine takes ten
ABOVE = re.compile(r"\s*(?:==|>|<)\s*[0-9.]+\s*\Z")  # the end of an alert's expression
# Nothing to compare on a cloud that fares well: no answer has such a status, and no agent has never delivered.
SILENT_ALERTS = {"CotenantErrors", "CotenantManyRefused", "CotenantAgentCannotPush"}


class Agent(ThreadingHTTPServer):
    """Shows the page that an agent exports; each time that it is read more was missed, and a push failed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.read = 0


class _Page(BaseHTTPRequestHandler):
    server: Agent

    def do_GET(self) -> None:
        self.server.read += 1
        missed = dict.fromkeys(REASONS, self.server.read)
        view = replace(agent_view(), dropped=missed, readings=1000 * self.server.read)
        pushed = PushStatus(0, 0, {"unknown": 0}, 0, {"timeout": self.server.read}, time.time())
        body = page(view, SpoolStatus(*[0] * 8), pushed, "1")
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Store:
    """A store that answers PromQL."""

    url: str

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series of an instant query; an error where the store refuses it."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{urlencode({'query': query})}", timeout=60) as answer:
            series: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return series


@dataclass(frozen=True)
class Watched:
    """Both stores, which read the same service and agent by the configuration that is shipped."""

    stores: dict[str, Store]
    rules: str  # of Prometheus: what its API says of them

    def empty(self, queries: dict[str, str]) -> list[tuple[str, str]]:
        """Which store gave no series for which query."""
        asked = [
            (name, title, store.ask(query)) for name, store in self.stores.items() for title, query in queries.items()
        ]
        return [(name, title) for name, title, series in asked if not series]


class Traffic(threading.Thread):
    """Asks the service for all that the board draws, again and again."""

    def __init__(self, service: Service) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.over = threading.Event()

    def run(self) -> None:
        ask, turn = self.service.ask, 0
        while not self.over.wait(0.3):
            turn += 1
            new = {"id": f"n{turn}", "vcpus": 1, "memory_mb": 256}
            answer = ask("POST", "/v1/placements", {"instance": new, "dry_run": turn % 8 > 0}).body
            host = {"id": "h", "kind": "kvm", "pcpus": 2, "memory_mb": 4096}
            ask("POST", "/v1/predictions", {"host": host, "instances": [new, {"id": "o", "vcpus": 2}]})
            ask("GET", "/v1/hosts/nope")
            ask("PUT", "/v1/hosts/h3", {"kind": "kvm", "pcpus": 4, "memory_mb": 4096 + turn})
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            sample = {"host": "h1", "instance": "a", "scope": "instance", "metric": "cpu", "value": turn, "time": now}
            ask("POST", "/v1/samples", {"samples": [sample]})
            first = answer["candidates"][0]
            kept = {one["instance"]: one["throughput_ratio"]["expected"] for one in first["neighbours"]}
            outcome = {"host": first["host"], "throughput_ratios": {new["id"]: 0.9, **kept}}
            ask("POST", f"/v1/placements/{answer['id']}/outcome", outcome)


def configuration(folder: Path, service: Service, agent: Agent) -> dict[str, Any]:
    """What is shipped, with targets of the test and frequent readings."""
    text = (SHIPPED / "prometheus.yml").read_text(encoding="utf-8")
    shipped: dict[str, Any] = yaml.load(text, Loader=yaml.CSafeLoader)
    shipped["global"] = {"scrape_interval": EVERY, "evaluation_interval": EVERY}
    targets = {"cotenant": service.port, "cotenant-agents": agent.server_port}
    for job in shipped["scrape_configs"]:
        file = folder / f"{job['job_name']}.json"
        file.write_text(json.dumps([{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]), encoding="utf-8")
        job["file_sd_configs"] = [{"files": [str(file)]}]
        job["scrape_interval"] = EVERY
    shutil.copy(SHIPPED / "cotenant.rules.yml", folder)
    shipped["rule_files"] = [str(folder / "cotenant.rules.yml")]
    for path in folder.iterdir():
        hand_over(path)
    return shipped


@contextmanager
def targets(folder: Path) -> Iterator[tuple[Service, Agent]]:
    """A service that is asked for things, and an agent."""
    service = Service(f"sqlite:///{folder}/db.sqlite3", folder).start()
    traffic = Traffic(service)
    try:
        hosts = [{"id": f"h{at}", "kind": "kvm", "pcpus": 4, "memory_mb": 65_536} for at in range(1, 4)]
        instances = [{"id": name, "host": "h1", "vcpus": 2, "memory_mb": 512} for name in ("a", "b")]
        service.ask("PUT", "/v1/inventory", {"mode": "replace", "hosts": hosts, "instances": instances})
        with Agent() as agent:
            threading.Thread(target=agent.serve_forever, daemon=True).start()
            traffic.start()
            try:
                yield service, agent
            finally:
                agent.shutdown()
    finally:
        traffic.over.set()
        if traffic.is_alive():
            traffic.join(60)
        service.running.stop()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with ExitStack() as opened:
        service, agent = opened.enter_context(targets(tmp_path_factory.mktemp("service")))
        folder = own_folder("targets")
        opened.callback(shutil.rmtree, folder)
        shipped = configuration(folder, service, agent)
        try:
            real = opened.enter_context(prometheus(shipped))
            other = {name: part for name, part in shipped.items() if name != "rule_files"}
            other["global"] = {"scrape_interval": EVERY}
            victoria = opened.enter_context(victoria_metrics(other))
        except NotInstalled as missing:
            pytest.skip(str(missing))
        stores = {"Prometheus": Store(real.url), "VictoriaMetrics": Store(victoria.url)}
        yield Watched(stores, f"{real.url}/api/v1/rules")


def until_none(watched: Watched, queries: dict[str, str]) -> list[tuple[str, str]]:
    """What stays empty, however long one waits."""
    until = time.monotonic() + WAIT_S
    while (empty := watched.empty(queries)) and time.monotonic() < until:
        time.sleep(1.0)
    return empty


def test_both_stores_have_series_for_every_expression_of_the_board(watched: Watched) -> None:
    fill = {"$__rate_interval": "1m", "$job": ".+", "$host": "h1"}
    queries = {}
    for panel in PANELS.values():
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in fill.items():
                query = query.replace(name, value)
            queries[f"{panel['title']} {target['refId']}"] = query
    assert until_none(watched, queries) == []


def test_the_lists_of_the_board_have_values(watched: Watched) -> None:
    """`label_values(metric, label)` of Grafana is the values that a label has in the metric's series."""
    asked = re.compile(r"label_values\((\w+), (\w+)\)\Z")
    lists = [asked.match(one["definition"]) for one in BOARD["templating"]["list"] if one["type"] == "query"]
    queries = {one[0]: f"count by ({one[2]}) ({one[1]})" for one in lists if one}
    assert len(queries) == len(lists) == 2
    assert until_none(watched, queries) == []
    for store in watched.stores.values():
        jobs = {series["metric"]["job"] for series in store.ask("last_over_time(cotenant_build_info[5m])")}
        assert jobs == {"cotenant"}


def test_what_each_alert_compares_is_there_and_none_fires(watched: Watched) -> None:
    compared = {name: ABOVE.sub("", rule["expr"]) for name, rule in ALERTS.items() if name not in SILENT_ALERTS}
    assert all(text != ALERTS[name]["expr"] for name, text in compared.items())
    assert until_none(watched, compared) == []
    for store in watched.stores.values():
        for rule in ALERTS.values():
            store.ask(rule["expr"])  # is understood; on a busy machine it may say that answers are slow
    with urllib.request.urlopen(watched.rules, timeout=60) as answer:
        groups = json.load(answer)["data"]["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert {name: rule["health"] for name, rule in rules.items()} == dict.fromkeys(ALERTS, "ok")
    assert [name for name, rule in rules.items() if rule["state"] == "firing"] == []


def test_vmalert_reads_the_rules() -> None:
    try:
        tool = found("vmalert", UNPACKED)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    file = SHIPPED / "cotenant.rules.yml"
    done = subprocess.run([tool, "-dryRun", f"-rule={file}"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
