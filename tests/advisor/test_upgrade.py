"""A database that a service of the first released tables wrote keeps every row and value, and its answers are read."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import SchemaMismatch
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import backup, migrate, packs
from advisor.store.engine import Database
from models.profiling.tallies import Tallies
from tests.advisor.test_backup import New, new, postgres_server

__all__ = ["new", "postgres_server"]

RECORDING = Path(__file__).resolve().parents[1] / "recordings" / "database-0023.jsonl"
PLAN, PLACEMENT = "01a2279c0217-27e8edf64e", "01a2279bed96-395ece8f75"
Row = dict[str, Any]


def recorded() -> Mapping[str, list[Row]]:
    """The rows of the recording by table, each by column."""
    tables: dict[str, list[Row]] = {}
    for line in RECORDING.read_text(encoding="utf-8").splitlines()[1:]:
        entry = json.loads(line)
        if isinstance(entry, dict):
            rows, columns = tables.setdefault(entry["table"], []), entry["columns"]
        else:
            rows.append(dict(zip(columns, entry, strict=True)))
    return tables


def restore(database: Database, folder: Path) -> None:
    """What an operator does on another machine: the recording is a backup without its last line, uncompressed."""
    lines = RECORDING.read_bytes()
    rows = {name: len(found) for name, found in recorded().items()}
    end = {"end": rows, "sha256": hashlib.sha256(lines).hexdigest()}
    file = folder / "old.backup"
    file.write_bytes(gzip.compress(lines + json.dumps(end).encode() + b"\n"))
    assert backup.restore(database, file).rows == rows


def renamed(value: Any) -> Any:
    """With the present name of the analytic model, in what migrations rename and in what is kept as it was said."""
    if isinstance(value, dict):
        return {"analytic" if key == "prior" else key: renamed(part) for key, part in value.items()}
    if isinstance(value, list):
        return [renamed(part) for part in value]
    return "analytic" if value == "prior" else value


def as_text(row: Row, columns: Collection[str]) -> str:
    return json.dumps({column: renamed(row[column]) for column in sorted(columns)}, sort_keys=True)


def stored(database: Database) -> Iterator[tuple[str, list[Row]]]:
    with database.read() as connection:
        for name, table in backup.tables_of(connection).items():
            names = [column.name for column in table.columns]
            yield name, [dict(zip(names, row, strict=True)) for row in backup.read(connection, table)]


def measured(rows: list[Row], *columns: str) -> list[Row]:
    """Packs as rows of one series and time each, as tables had them before revision 0048."""
    found = []
    for row in rows:
        ids, values = packs.unpack(base64.b64decode(row["data"]))
        for number, *of_series in zip(ids.tolist(), *(column.tolist() for column in values), strict=True):
            found.append({"series": number, "time_s": row["time_s"], **dict(zip(columns, of_series, strict=True))})
    return found


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_row_and_no_value_is_lost(new: New, tmp_path: Path, kind: str) -> None:
    database = new(kind)
    restore(database, tmp_path)
    now = dict(stored(database))
    now["samples"] = measured(now["sample_packs"], "value")
    now["rollups"] = [
        row | {"number": int(row["number"])} for row in measured(now["mean_packs"], "mean", "most", "number")
    ]
    learned_before = {(row["instance"], row["resource"]): row["tally"] for row in recorded()["demands"]}
    for row in now["demands"]:
        known, tally = (
            Tallies.of([row["resource"]], [base64.b64decode(row["state"])]).tally(0),
            learned_before.pop((row["instance"], row["resource"])),
        )
        assert (known.n, known.mean, known.last, known.lagged) == (
            tally["n"],
            tally["mean"],
            tally["last"],
            tally["lagged"],
        )
        assert not known.n or (known.sums, known.counts) == (tally["sums"], tally["counts"])
        assert sorted(known.bins.items()) == [tuple(each) for each in tally["bins"]]
    assert learned_before == {}
    for name, rows in recorded().items():
        if name in {"counters", "changes", "watches"}:  # which the restore itself moves on, or are of minutes
            continue
        assert len(now[name]) == len(rows), name
        shared = rows[0].keys() & now[name][0].keys() if rows else set()
        assert not rows or len(rows[0].keys() - shared) <= 1, name
        kept, before = ([as_text(row, shared) for row in some] for some in (now[name], rows))
        assert sorted(kept) == sorted(before), name


def test_what_was_answered_and_planned_before_is_read(tmp_path: Path) -> None:
    settings = Settings(database=f"sqlite:///{tmp_path}/cotenant.sqlite3", state_dir=tmp_path)
    with closing(Database(settings.database)) as database:
        restore(database, tmp_path)
    with closing(Advisor(settings)) as advisor:
        hosts = {host.id: host for host in advisor.inventory.hosts().items}
        placement, plan = advisor.placements.get(PLACEMENT), advisor.plans.get(PLAN)
    tables = recorded()
    assert {name: (host.pcpus, host.memory_mb) for name, host in hosts.items()} == {
        row["id"]: (row["pcpus"], row["memory_mb"]) for row in tables["hosts"]
    }
    (asked,) = [row["answer"] for row in tables["recommendations"] if row["id"] == PLACEMENT]
    before = json.loads(zlib.decompress(base64.b64decode(asked["packed"])))["candidates"]
    assert [one.host for one in placement.candidates] == [one["host"] for one in before]
    assert [one.new_vm.throughput_ratio.expected for one in placement.candidates] == [
        one["newcomer"]["throughput_ratio"]["expected"] for one in before
    ]
    (answer,) = [row["answer"] for row in tables["plans"]]
    assert len(plan.steps) == len(answer["steps"]) == 2
    for step, answered in zip(plan.steps, answer["steps"], strict=True):
        chosen = answered["candidate"]
        assert (step.instance, step.host, step.score) == (answered["instance"], answered["host"], chosen["score"])
        assert step.new_vm is not None and step.settings is not None
        assert step.new_vm.throughput_ratio.expected == chosen["newcomer"]["throughput_ratio"]["expected"]


def test_a_program_of_the_tables_before_refuses_what_the_present_one_wrote(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new("sqlite")
    restore(database, tmp_path)
    written = tmp_path / "new.backup"
    backup.make(database, written)
    monkeypatch.setattr(migrate, "revisions", lambda: frozenset({"0023"}))
    before = dict(stored(database))
    with pytest.raises(SchemaMismatch, match="was written by a newer Cotenant: install that version"):
        migrate.upgrade(database)
    assert dict(stored(database)) == before
