"""Writes a report atomically: one self-contained HTML page or a folder with its data; dated folders with retention."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from advisor import plug_ins
from advisor.domain import Inventory, Plan, PlanKind
from advisor.errors import AdvisorError, InvalidInput, OutOfSpace
from advisor.experiments import probe_planning
from advisor.reports import parts
from advisor.reports.parts import Column, ReportDocument, Table, keys, plain
from advisor.reports.plan_view import Background
from advisor.validation import check_writable, write_whole
from profiler import look
from profiler.files import replace_whole

# A report as one self-contained HTML page: no script, no network, and everything from outside escaped.


def _runs(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Shared headings of adjacent columns, with the number of columns below each."""
    return [(over, len(list(group))) for over, group in groupby(columns, key=lambda column: column.over)]


_TEMPLATES = look.environment(Path(__file__).parent.parent / "templates")
_TEMPLATES.filters |= {
    "cell": parts.cell,
    "when": parts.when,
    "runs": _runs,
    "numeric": lambda kind: kind in parts.NUMERIC,
}


def page(report: ReportDocument, *, beside: bool) -> str:
    """The page's text; `beside` = its data are in files next to it. The same report gives the same text.

    It opens with the headline, two sentences and the first picture that stands alone in its section.
    """
    undrawn = ""
    if libraries := plug_ins.missing("plots"):
        undrawn = (
            f"Pictures are left out: {', '.join(libraries)} is not installed ({plug_ins.how_to_install('plots')})."
        )
    where = " beside this page" if beside else ", which is written when the report is asked for as a folder"
    lead = next((section for section in report.sections if len(section.pictures) == 1), None)
    sections = [replace(section, pictures=()) if section is lead else section for section in report.sections]
    return _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        lead=lead and lead.pictures[0],
        sections=[section for section in sections if section],
        beside=where,
        undrawn=undrawn,
    )


PAGE, DATA = "index.html", "report.json"
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def write(report: ReportDocument, path: Path) -> None:
    """Write `path`.html as one page; without that suffix a folder with index.html, report.json and a CSV per table.

    An existing report is replaced when the new one is complete. OutOfSpace when the disk is full, InvalidInput when
    `path` cannot be written or holds something else.
    """
    if is_page(path):
        write_whole(path, page(report, beside=False).encode(), "report")
    else:
        _write_folder(path, files(report))


def is_page(path: Path) -> bool:
    """Whether a report at this path is one file; else it is a folder."""
    return path.suffix.lower() in (".html", ".htm")


def files(report: ReportDocument) -> dict[str, bytes]:
    """The files of a report's folder by name."""
    content = {PAGE: page(report, beside=True).encode(), DATA: _json(report)}
    return content | {f"{table.name}.csv": _csv(table) for table in report.tables}


def _json(report: ReportDocument) -> bytes:
    return (json.dumps(as_json(report), separators=(",", ":"), allow_nan=False) + "\n").encode()


def as_json(report: ReportDocument) -> dict[str, Any]:
    """All text and numbers of a report: `sections` by id with their text, `tables` by name with all rows."""
    return {
        "report": report.what,
        "title": report.title,
        "made_at": report.made_at.isoformat() if report.made_at else None,
        "headline": report.headline,
        "sentences": list(report.sentences),
        "facts": dict(report.facts),
        "sections": {
            section.id: {
                "title": section.title,
                "note": section.note,
                "sentences": list(section.sentences),
                "facts": dict(section.facts),
            }
            for section in report.sections
            if section
        },
        "tables": {table.name: _records(table) for table in report.tables},
    }


def _records(table: Table) -> list[Mapping[str, Any]]:
    return [
        {
            key: value
            for column, value in zip(table.columns, row, strict=True)
            for key, value in plain(column, value).items()
        }
        for row in table.rows
    ]


def _csv(table: Table) -> bytes:
    text = io.StringIO()
    names = [key for column in table.columns for key in keys(column)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for record in _records(table):
        writer.writerow({key: _text(value) for key, value in record.items()})
    return text.getvalue().encode()


def _text(value: Any) -> Any:
    """A CSV value that no spreadsheet reads as a formula, also with full-width characters."""
    if isinstance(value, list):
        value = "\n".join(str(item) for item in value)
    return f"'{value}" if isinstance(value, str) and value.lstrip().startswith(FORMULA) else value


def is_report(path: Path) -> bool:
    """Whether a folder holds only a report, so that it may be replaced."""
    if not path.is_dir() or path.is_symlink() or not os.access(path, os.R_OK | os.X_OK):
        return False
    others = [entry for entry in path.iterdir() if entry.name not in {PAGE, DATA}]
    tables = all(entry.is_file() and entry.suffix == ".csv" for entry in others)
    return tables and (path / PAGE).is_file() and (path / DATA).is_file()


def check_target(path: Path) -> None:
    """Reject a path that cannot take a report, before the work is done; InvalidInput says why."""
    if is_page(path):
        check_writable(path, "report")
        return
    if path.suffix.lower() == ".pdf":
        message = f"a report is a page or a folder; write {path.with_suffix('.html').name} and print that to PDF"
        raise InvalidInput(message, field="report")
    parent = path.resolve().parent
    if not parent.is_dir():
        raise InvalidInput(f"the report cannot be written: folder {parent} does not exist", field="report")
    if path.exists() and not is_report(path) and not (path.is_dir() and not any(path.iterdir())):
        message = f"the report cannot be written to {path}: something else is there; name another, or a file in .html"
        raise InvalidInput(message, field="report")
    if not os.access(parent, os.W_OK):
        message = f"the report cannot be written to {path}: folder {parent} is not writable"
        raise InvalidInput(message, field="report")


def _write_folder(path: Path, content: Mapping[str, bytes]) -> None:
    check_target(path)
    target = path.resolve()
    partial, former = (
        target.with_name(f".{target.name[:80]}.{secrets.token_hex(4)}.{what}") for what in ("partial", "old")
    )
    try:
        try:
            partial.mkdir()
            for name, text in content.items():
                (partial / name).write_bytes(text)
            if target.exists():
                target.rename(former)
            try:
                replace_whole(partial, target)
            except OSError:
                if former.exists():
                    former.rename(target)
                raise
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(former, ignore_errors=True)
    except OSError as error:
        raise _failed(path, error) from error


def _failed(path: Path, error: OSError) -> AdvisorError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return OutOfSpace(f"no space left for the report {path}: free some and try again", field="report")
    return InvalidInput(f"the report cannot be written to {path}: {error.strerror or error}", field="report")


# Cloud reports as dated folders in one: naming and retention; and work that is repeated regularly.

REPORT_KINDS: tuple[PlanKind, ...] = ("rebalance", "consolidate", "capacity", "right_size")
log = logging.getLogger(__name__)
_NAME = "%Y-%m-%dT%H%M%SZ"
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{6}Z(-\d+)?")


@dataclass(frozen=True, slots=True)
class Reported:
    """A written report: its path, its headline, and the older ones that were removed."""

    path: Path
    headline: str
    removed: tuple[str, ...]


def write_dated(
    inventory: Inventory, plan: Plan, background: Background, ages: Mapping[str, float], folder: Path, *, keep: int
) -> Reported:
    """Write a cloud report to a new dated folder in `folder`, atomically, and keep the newest `keep`.

    Where `folder` ends in .html, it is one page and nothing else is deleted.

    `ages` as in `reports.cloud`. OutOfSpace when the disk is full, InvalidInput when it cannot be written there.
    """
    from advisor import reports  # with its drawing library

    check_folder(folder)
    if is_page(folder):
        return Reported(folder, reports.write_cloud_report(inventory, plan, background, ages, folder), ())
    path = dated(folder, plan.created_at)
    headline = reports.write_cloud_report(inventory, plan, background, ages, path)
    return Reported(path, headline, tuple(prune_folders(folder, keep, written=path)))


def every_s(text: str) -> float:
    """Seconds of a time such as 30s, 24h or 7d, at least 1; InvalidInput otherwise."""
    try:
        seconds = probe_planning.duration_s(text)
    except InvalidInput:
        seconds = 0.0
    if seconds < 1:
        raise InvalidInput(f"--every {text[:40]!r} is no time from 1s to 30d; write 30s, 24h or 7d", field="every")
    return seconds


def check_folder(folder: Path) -> None:
    """Make the folder that reports go to, where it is not there; InvalidInput when it cannot be. A page needs none."""

    if is_page(folder):
        check_target(folder)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"--out {folder} cannot be made: {error.strerror or error}", field="out") from error


def dated(folder: Path, now: datetime) -> Path:
    """Where the report of this moment goes: its time in UTC, with a number behind where that is taken."""
    name = now.astimezone(UTC).strftime(_NAME)
    names = (name, *(f"{name}-{number}" for number in range(2, 10_000)))
    return next(folder / name for name in names if not (folder / name).exists())


def prune_folders(folder: Path, keep: int, written: Path | None = None) -> list[str]:
    """Delete the oldest dated reports beyond the newest `keep`, and nothing that is no report.

    `written` counts as the newest whatever its date, for a clock may have been put back. Returns the names of those
    that went; one that cannot be deleted is a line in the log, and tried again next time.
    """

    reports = [entry for entry in folder.iterdir() if _DATED.fullmatch(entry.name) and is_report(entry)]
    reports.sort(key=lambda entry: (entry == written, _order(entry)))
    gone = reports[: max(len(reports) - keep, 0)]
    removed = []
    for entry in gone:
        try:
            shutil.rmtree(entry)
            removed.append(entry.name)
        except OSError as error:
            log.warning("report %s cannot be deleted: %s", entry, error.strerror or error)
    return removed


def _order(path: Path) -> tuple[str, int]:
    moment, _, number = path.name.partition("Z")
    return moment, int(number[1:] or 1)


def repeat(work: Callable[[], None], every_s: float, stop: threading.Event, what: str) -> None:
    """Run `work` now and every `every_s` seconds by the monotonic clock until `stop` is set.

    An error is logged and the schedule continues; a run longer than `every_s` skips the runs that it overlaps.
    """
    begun = time.monotonic()
    while not stop.is_set():
        try:
            work()
        except AdvisorError as error:
            log.error("no %s this time: %s", what, error.message)  # noqa: TRY400 - the sentence says it all
        except Exception:  # the next turn may do better
            log.exception("no %s this time", what)
        passed = time.monotonic() - begun
        stop.wait(every_s - passed % every_s)
