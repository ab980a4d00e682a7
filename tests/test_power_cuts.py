"""Killed or without power at any moment while a file is written: the former is there, or the new one, and never a half.

Once its writer says that it is written, it is the new one. Databases: tests/advisor/store/test_power_cut.py.
"""

from __future__ import annotations

import gzip
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from io import StringIO
from pathlib import Path

import pytest

from advisor.lifecycle import training
from advisor.reports import files as reports
from advisor.reports.parts import ReportDocument
from advisor.store import backup, counters
from advisor.store.engine import Database
from advisor.validation import write_whole as write_for_user
from lab.campaign import read_campaign
from lab.dataset_writer import write_dataset
from lab.environment import circumstances, read_machine
from lab.journal import Journal
from models.data.dataset import load_dataset
from models.learning import artifact
from profiler.agent.loop import Log
from profiler.agent.spool import SampleBatch, Spool, SpoolLosses
from profiler.collectors.samples import SampleRow
from tests.advisor.service.test_window_training import window
from tests.lab.lab_records import one_round
from tests.models.made_models import fitted
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.power_cut import Left, put_back, watched

CAMPAIGN = read_campaign(Path(__file__).parent / "lab" / "tiny.yaml")
RUNS = one_round(CAMPAIGN, 1)
MACHINE, FOUND = read_machine(CAMPAIGN), circumstances()
PLENTY = 10**6
Parts = Mapping[str, object]  # each is written for itself


def spool(folder: Path, number: int) -> None:
    one = Spool(folder, PLENTY, Log(StringIO()))
    one.put(SampleBatch("h", "2026-01-31T12:00:00.000Z", (SampleRow("a", "instance", {"cpu": float(number)}),)))
    assert one.store()
    one.close()


def spooled(folder: Path) -> Parts:
    one = Spool(folder, PLENTY, Log(StringIO()))
    found = [one.read(entry) for entry in one.oldest(PLENTY)]
    broken = one.status().broken
    one.close()
    return {"": [batch and batch.rows[0].values["cpu"] for batch in found], "broken": broken}


def count_losses(folder: Path, number: int) -> None:
    SpoolLosses(dropped_batches=number).save(folder / "counts.json")


def losses(folder: Path) -> Parts:
    return {"": SpoolLosses.load(folder / "counts.json").dropped_batches}


def append(folder: Path, number: int) -> None:
    Journal(folder, CAMPAIGN).append(RUNS[number])


def measure_again(folder: Path, number: int) -> None:
    journal = Journal(folder, CAMPAIGN, again=number == 2)
    if number == 1:
        journal.append(RUNS[0])
        journal.append(replace(RUNS[1], disturbed=True))


def journalled(folder: Path) -> Parts:
    journal = Journal(folder, CAMPAIGN)
    return {"": [record.run for record in journal.records]}


def write_tables(folder: Path, number: int) -> None:
    write_dataset(folder, CAMPAIGN, one_round(CAMPAIGN, 1, noise=0.1, seed=number), MACHINE, FOUND)


def tables(folder: Path) -> Parts:
    found = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items()}


def write_windows(folder: Path, number: int) -> None:
    windows = [window(300.0 * at) for at in range(number)]
    training.write_dataset(windows, folder, datetime(2026, 1, 1, tzinfo=UTC))


def windows_there(folder: Path) -> Parts:
    found = folder / "windows"
    return {"": len(load_dataset(found).colocations)} if found.exists() else {}


def save_model(folder: Path, number: int) -> None:
    saved = replace(artifact.load(fitted()), version=f"m-{number}")
    artifact.save(folder, saved, {"created_at": f"2026-01-0{number}T00:00:00+00:00"})


def adopt_model(folder: Path, number: int) -> None:
    home = folder / f"m-{number}"
    if not home.exists():
        training._copy(fitted(), home)


def models_there(folder: Path) -> Parts:
    names = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    return {name: sorted(artifact.read_card(folder / name)["targets"]) for name in names}


def write_report(folder: Path, number: int) -> None:
    document = ReportDocument("plan", f"plan {number}", "Nothing to do.", (), {}, ())
    reports.write(document, folder / "report")


def report_there(folder: Path) -> Parts:
    found = folder / "report"
    return {"": {path.name: path.read_text() for path in found.iterdir()}} if found.exists() else {}


def back_up(folder: Path, number: int) -> None:
    database = Database(sqlite_with_tables(folder.with_suffix(".sqlite3")))
    with database.write() as connection:
        for _ in range(number):
            counters.bump(connection, "inventory")
    backup.make(database, folder / "all.backup")
    database.close()


def backed_up(folder: Path) -> Parts:
    file = folder / "all.backup"
    return {"": restored(file.read_bytes())} if file.exists() else {}


@cache
def restored(content: bytes) -> int:
    """How often the inventory had changed; one that is cut off is refused."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "all.backup"
        file.write_bytes(content)
        with closing(Database(f"sqlite:///{folder}/restored.sqlite3")) as database:
            backup.restore(database, file)
            with database.read() as connection:
                return counters.read(connection).inventory


def text(folder: Path) -> Parts:
    return {path.name: path.read_text() for path in folder.iterdir() if not path.name.startswith(".")}


WRITERS: Mapping[str, tuple[Callable[[Path, int], None], Callable[[Path], Parts]]] = {
    "spool": (spool, spooled),
    "losses": (count_losses, losses),
    "journal": (append, journalled),
    "journal, to measure again": (measure_again, journalled),
    "tables of a campaign": (write_tables, tables),
    "windows to learn from": (write_windows, windows_there),
    "model": (save_model, models_there),
    "model from elsewhere": (adopt_model, models_there),
    "report": (write_report, report_there),
    "file for a user": (lambda folder, number: write_for_user(folder / "a", b"x" * number, "file"), text),
    "backup": (back_up, backed_up),
}
SETS_OUT = "journal, to measure again", 1  # writes what the second one forgets a part of
FOLDERS = {"report", "windows to learn from"}  # one cannot take the place of another at once: neither may be there


def found_in(left: Left, read: Callable[[Path], Parts], place: Path) -> Parts:
    """What a program finds that is started on what was left; in a copy, for it may tidy up."""
    try:
        return read(put_back(left, place))
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize(
    ("what", "number"), [(what, number) for what in WRITERS for number in (1, 2) if (what, number) != SETS_OUT]
)
def test_the_former_or_the_new_is_there_whole_and_the_new_once_that_is_said(
    what: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "LEAST_SHARES", 2)  # one window
    write, read = WRITERS[what]
    folder, place = tmp_path / "folder", tmp_path / "after"
    folder.mkdir()
    if number == 2:
        write(folder, 1)
    with watched(folder, monkeypatch) as disk:
        former = found_in(disk.left()["killed"], read, place)
        write(folder, number)
        ends = disk.left()
    new = found_in(ends["killed"], read, place)
    assert new != former, "or nothing is tested"
    assert len(disk.cuts) > 2, "or nothing was watched"
    for left in disk.cuts:
        found = found_in(left, read, place)
        away = [] if what not in FOLDERS else [None]
        wrong = {part for part in {*former, *new} if found.get(part) not in [former.get(part), new.get(part), *away]}
        assert not wrong, sorted(left)
    for end, left in ends.items():
        assert found_in(left, read, place) == new, end
