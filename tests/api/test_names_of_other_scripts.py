"""Names that no id can be: pages, the line, commands and commands to a service find by them, and show them harmless."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from profiler.names import visible
from tests.api.api_client import Client
from tests.api.cli_runs import run
from tests.api.page_reader import Page
from tests.servers.fixtures import sqlite_with_cloud
from tests.servers.service import Service

MAIL, TWIN = "Почта №7 (архив)", "宏观"
CLOUD = f"""
hosts:
  - {{id: h_te-1, kind: kvm, pcpus: 8, memory_mb: 65536, labels: {{name: "hôte-β"}}}}
  - {{id: h2, kind: kvm, pcpus: 8, memory_mb: 65536}}
instances:
  - {{id: mail-1, host: h2, vcpus: 4, memory_mb: 4096, labels: {{name: "{MAIL}"}}}}
  - {{id: twin-a, host: h2, vcpus: 1, memory_mb: 512, labels: {{name: "{TWIN}"}}}}
  - {{id: twin-b, host: h2, vcpus: 1, memory_mb: 512, labels: {{name: "{TWIN}"}}}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cloud.yaml"
    path.write_text(CLOUD, encoding="utf-8")
    return path


@pytest.fixture
def client(advisor: Advisor, settings: Settings) -> Client:
    hosts = (Host("h_te-1", "kvm", 8, 65536, labels={"name": "hôte-β"}), Host("h2", "kvm", 8, 65536))
    names = {"mail-1": MAIL, "twin-a": TWIN, "twin-b": TWIN, "sly": "x\u202ecod.exe\u2066\x9b2J"}
    there = tuple(
        Instance(name, vcpus=2, memory_mb=512, host="h2", labels={"name": label}) for name, label in names.items()
    )
    advisor.inventory.put(Inventory(hosts, there), mode="replace", generation=None)
    return Client(create_app(advisor, settings))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    (folder / "cloud.yaml").write_text(CLOUD, encoding="utf-8")
    started = Service(sqlite_with_cloud(folder / "c.sqlite3", folder / "cloud.yaml"), folder, forked=True).start()
    yield started
    started.running.stop()


@pytest.mark.parametrize(("page", "leads_to"), [(f"/instances/{MAIL}", "mail-1"), ("/hosts/hôte-β", "h_te-1")])
def test_a_page_by_a_name_leads_to_the_page_of_the_id(client: Client, page: str, leads_to: str) -> None:
    answer = client.get(page, params={"since": "1h"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/{page.split('/')[1]}/{leads_to}?since=1h")
    assert page.split("/")[2] in Page(client.page(answer.headers["location"]).text).text


@pytest.mark.parametrize(
    ("path", "status"), [(f"/instances/{TWIN}", 422), ("/instances/никто", 404), ("/hosts/x", 404)]
)
def test_a_page_by_the_name_of_two_or_none_says_so(client: Client, path: str, status: int) -> None:
    answer = client.page(path)
    assert answer.status_code == status
    assert ("twin-a, twin-b" in answer.text) == (status == 422)


def test_the_line_finds_by_name(client: Client) -> None:
    assert "mail-1" in client.page(f"/?ask={MAIL}").text
    like = client.page(f"/?ask=like {MAIL}, 1 vCPU")
    assert like.status_code == 200
    assert "known instance" in like.text or "mail-1" in like.text
    twins = client.page(f"/?ask=like {TWIN}, 1 vCPU")
    assert (twins.status_code, "twin-a, twin-b" in twins.text) == (422, True)


def test_hosts_are_filtered_by_a_part_of_their_name(client: Client) -> None:
    text = client.page("/cloud?name=Hôte").text
    assert ("/hosts/h_te-1" in text, "/hosts/h2" in text) == (True, False)


def test_a_page_shows_nothing_that_changes_the_order_of_text(client: Client) -> None:
    for path in ("/instances/sly", "/hosts/h2", "/cloud", "/?instance=sly"):
        page = client.page(path)
        assert page.status_code == 200
        assert page.text == "".join(char for char in page.text if visible(char) == char)
    assert "x\ufffdcod.exe\ufffd\ufffd2J" in client.page("/instances/sly").text


def _same(*arguments: object) -> list[str]:
    """The hosts that a command answers, which it answers by ids, too."""
    ids = {MAIL: "mail-1", "hôte-β": "h_te-1"}
    by_name, by_id = (
        json.loads(run(*words, "--json").stdout)["candidates"]
        for words in (arguments, [ids.get(str(word), word) for word in arguments])
    )
    assert by_name == by_id
    return [candidate["host"] for candidate in by_name]


def test_commands_on_a_file_find_by_name(file: Path) -> None:
    assert _same("where", file, "--instance", MAIL, "--hosts", "hôte-β") == ["h_te-1"]
    assert run("where", file, "--like", MAIL, "--json").exit_code == 0
    moved = json.loads(run("plan", file, "--empty", "hôte-β", "--movable", MAIL, "--json").stdout)
    assert moved["steps"] == []
    refused = run("where", file, "--instance", TWIN)
    assert (refused.exit_code != 0, "twin-a, twin-b" in refused.stderr) == (True, True)


def test_commands_to_a_service_find_by_name(running: Service) -> None:
    arguments = ("--server", running.url)
    assert _same("where", "--instance", MAIL, "--hosts", "hôte-β", *arguments) == ["h_te-1"]
    assert run("where", "--like", MAIL, *arguments).exit_code == 0
    refused = run("where", "--instance", TWIN, *arguments)
    assert (refused.exit_code != 0, "twin-a, twin-b" in refused.stderr) == (True, True)


def test_commands_on_the_database_find_by_name(file: Path, tmp_path: Path) -> None:
    database = sqlite_with_cloud(tmp_path / "c.sqlite3", file)
    for arguments in (("obtained", MAIL), ("slowing", "hôte-β")):
        assert run(*arguments, "--database", database, "--json").exit_code == 0
    assert "twin-a, twin-b" in run("obtained", TWIN, "--database", database).stderr
