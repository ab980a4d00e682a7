"""`cotenant snapshot`: a live cloud as one file that answers as the cloud does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.inventories.static import load_inventory
from tests.api.cli_runs import run
from tests.servers.fixtures import sqlite_with_cloud
from tests.servers.service import Service

pytestmark = pytest.mark.usefixtures("_empty_folder")
CLOUD = Path(__file__).parent / "cloud.yaml"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    started = Service(sqlite_with_cloud(folder / "c.sqlite3", CLOUD), folder, forked=True).start()
    yield started
    started.running.stop()


def ranked(file: str) -> list[tuple[str, float]]:
    asked = run("where", file, "--instance", "shop.yaml", "--json")
    return [(one["host"], one["score"]) for one in json.loads(asked.stdout)["candidates"]]


def test_the_file_of_a_database_and_of_a_service_answer_as_the_cloud_does(running: Service) -> None:
    Path("shop.yaml").write_text("{id: shop-7, vcpus: 2, memory_mb: 4096, workload: web-1k}", encoding="utf-8")
    assert run("sync", CLOUD).exit_code == 0
    written = json.loads(run("snapshot", "mine.yaml", "--json").stdout)
    cloud = load_inventory(CLOUD)
    assert (written["hosts"], written["instances"]) == (len(cloud.hosts), len(cloud.instances))
    assert run("snapshot", "theirs.yaml", "--server", running.url).exit_code == 0
    mine, theirs = load_inventory(Path("mine.yaml")), load_inventory(Path("theirs.yaml"))
    assert (mine.hosts, mine.instances) == (theirs.hosts, theirs.instances)
    assert {one.id: one for one in mine.instances} == {one.id: one for one in cloud.instances}
    assert ranked("mine.yaml") == ranked(str(CLOUD))


def test_with_made_up_names_no_host_or_vm_of_the_cloud_is_named() -> None:
    run("sync", CLOUD)
    shown = run("snapshot", "-", "--rename").stdout
    cloud = load_inventory(CLOUD)
    Path("renamed.yaml").write_text(shown, encoding="utf-8")
    other = load_inventory(Path("renamed.yaml"))
    assert len(other.instances) == len(cloud.instances)
    assert not {one.id for one in cloud.hosts} & {one.id for one in other.hosts}
    assert not {one.id for one in cloud.instances} & {one.id for one in other.instances}


def test_plans_of_the_file_and_of_the_renamed_file_are_those_of_the_cloud() -> None:
    run("sync", CLOUD)
    for name, more in (("mine.yaml", ()), ("renamed.yaml", ("--rename",))):
        assert run("snapshot", name, *more).exit_code == 0
    plans = [
        json.loads(run("plan", str(file), "--kind", "consolidate", "--json").stdout)
        for file in (CLOUD, "mine.yaml", "renamed.yaml")
    ]
    seen = [(plan["search"]["value"], plan["search"]["ended"], len(plan["steps"])) for plan in plans]
    assert seen[0] == seen[1] == seen[2]


def test_an_empty_cloud_and_a_place_that_cannot_be_written_are_refused() -> None:
    assert run("snapshot", "empty.yaml").exit_code == 2
    assert not Path("empty.yaml").exists()
    run("sync", CLOUD)
    assert run("snapshot", "nowhere/cloud.yaml").exit_code == 2
    assert run("snapshot", "-", "--json").exit_code == 2
