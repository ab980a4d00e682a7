"""`db`: upgrade, backup, restore and prune, as an administrator sees them; and where a database is made."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import Result

from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import samples
from profiler.observed import MetricSample
from tests.api import cli_runs

pytestmark = pytest.mark.usefixtures("_empty_folder")

CLOUD = str(Path(__file__).parent / "cloud.yaml")


def run(*arguments: str) -> Result:
    return cli_runs.run("db", *arguments)


def load() -> None:
    assert cli_runs.run("sync", CLOUD).exit_code == 0


def test_a_backup_is_brought_back_elsewhere() -> None:
    load()
    made = run("backup", "all.backup", "--json")
    counts = json.loads(made.stdout)
    assert counts["rows"]["hosts"] == 6
    restored = run("restore", "all.backup", "--database", "sqlite:///elsewhere.sqlite3")
    assert (
        restored.stdout == f"The database is as it was at {counts['made_at']}: {sum(counts['rows'].values())} rows.\n"
    )
    with Advisor(Settings(database="sqlite:///elsewhere.sqlite3")) as advisor:
        assert len(advisor.inventory.hosts().items) == 6


def test_what_is_there_is_replaced_only_when_asked() -> None:
    load()
    assert run("backup", "all.backup").exit_code == 0
    refused = run("restore", "all.backup")
    assert refused.exit_code == 1
    assert "is not empty" in refused.stderr
    assert run("restore", "all.backup", "--replace").exit_code == 0


def test_samples_may_be_left_out_of_a_backup() -> None:
    load()
    counts = json.loads(run("backup", "small.backup", "--no-samples", "--json").stdout)["rows"]
    assert {"hosts", "sample_packs"} & set(counts) == {"hosts"}


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["restore", "absent"], 2, "absent cannot be restored: No such file or directory; nothing was changed"),
        (["backup", "nowhere/all.backup"], 2, "the backup cannot be written: folder"),
        (["backup", "all.backup", "--database", "postgresql://u:secret@127.0.0.1:1/x"], 1, "does not answer"),
        (["restore", "absent", "--database", "postgres:u:secret@"], 2, "the database URL is not understood"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_without_a_password(arguments: list[str], code: int, text: str) -> None:
    load()
    result = run(*arguments)
    assert result.exit_code == code
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "secret" not in result.stderr


def test_prune_rolls_up_what_is_old_enough() -> None:
    load()
    begin = (datetime.now(UTC) - timedelta(days=8)).timestamp() // 300 * 300
    with Advisor(Settings()) as advisor, advisor._database.write() as connection:
        old = [MetricSample("h1", None, "host", "event", 1.0, begin + step) for step in range(10)]
        samples.add(connection, old)
    assert json.loads(run("prune", "--json").stdout) == {
        "samples": 10,
        "rollups": 0,
        "series": 0,
        "recommendations": 0,
        "plans": 0,
    }
    assert run("prune").stdout.endswith("0 roll-ups expired, 0 series ended; 0 recommendations and 0 plans expired.\n")


def test_sync_of_a_broken_file_writes_nothing() -> None:
    Path("broken.yaml").write_text("hosts: [{id: h7, kind: kvm, pcpus: 2}]", encoding="utf-8")
    result = cli_runs.run("sync", "broken.yaml")
    assert result.exit_code == 2
    assert result.stderr == "cotenant: broken.yaml, line 1, field hosts[0]: field memory_mb is missing\n"
    assert not Path("var").exists()


def test_the_database_can_be_named() -> None:
    assert cli_runs.run("sync", CLOUD, "--database", "sqlite:///elsewhere.sqlite3").exit_code == 0
    assert Path("elsewhere.sqlite3").exists()
    assert not Path("var").exists()
