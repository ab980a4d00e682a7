"""Maintenance of a host by the command, on the database of a service; its libvirt cannot be reached from here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.cli_runs import run
from tests.servers.fixtures import sqlite_with_tables

CLOUD = """
hosts:
  - {id: kvm01, kind: kvm, pcpus: 4, memory_mb: 8192}
  - {id: kvm02, kind: kvm, pcpus: 4, memory_mb: 8192}
instances:
  - {id: shop, host: kvm01, memory_mb: 64, vcpus: 1}
"""


@pytest.fixture(autouse=True)
def cloud(_empty_folder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_APPLY_MODE", "ask")
    Path("cloud.yaml").write_text(CLOUD)
    Path("var").mkdir()
    sqlite_with_tables(Path("var/cotenant.sqlite3"))
    assert run("sync", "cloud.yaml").exit_code == 0


def test_an_empty_host_is_closed_reached_listed_and_opened() -> None:
    assert json.loads(run("maintenance", "--json").stdout) == []
    done = run("maintenance", "kvm02", "--start", "--yes", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["state"] == "reached"
    assert [one["host"] for one in json.loads(run("maintenance", "--json").stdout)] == ["kvm02"]
    assert "Maintenance of kvm02: reached." in run("maintenance", "kvm02").stdout
    ended = run("maintenance", "kvm02", "--end", "--yes")
    assert (ended.exit_code, "Maintenance of kvm02: ended." in ended.stdout) == (0, True), ended.output
    assert "of maintenance-end:kvm02: carried out." in ended.stdout
    assert "kvm02" not in run("maintenance").stdout


def test_who_cannot_be_moved_from_here_stays_and_the_exit_code_says_so() -> None:
    done = run("maintenance", "kvm01", "--start", "--yes", "--json")
    assert done.exit_code == 1
    answer = json.loads(done.stdout)
    assert (answer["state"], answer["stays"]) == ("not reached", ["shop"])
    assert "no libvirt connection of kvm01" in answer["notes"][0]
    back = run("maintenance", "kvm01", "--end", "--back", "--json")
    assert (back.exit_code, json.loads(back.stdout)["state"]) == (0, "none")


def test_without_yes_it_is_only_shown() -> None:
    shown = run("maintenance", "kvm02", "--start")
    assert shown.exit_code == 1
    assert "open" in shown.stdout
    assert json.loads(run("maintenance", "kvm02", "--json").stdout)["state"] == "planned"


def test_the_default_mode_closes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_APPLY_MODE", "advise")
    refused = run("maintenance", "kvm02", "--start", "--yes")
    assert refused.exit_code == 1
    assert "the mode is advise" in refused.stdout
    assert json.loads(run("maintenance", "kvm02", "--json").stdout)["state"] == "planned"


@pytest.mark.parametrize("options", [("--start",), ("kvm01", "--start", "--end"), ("kvm01", "--back")])
def test_options_that_do_not_go_together_are_refused(options: tuple[str, ...]) -> None:
    assert run("maintenance", *options).exit_code == 2


def test_nothing_comes_back_where_nothing_was_begun() -> None:
    refused = run("maintenance", "kvm01", "--end", "--back")
    assert refused.exit_code != 0
    assert "no maintenance of kvm01" in refused.output
