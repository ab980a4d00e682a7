"""Writes a report atomically: one HTML page, or a folder with the page and the data of its tables."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError, InvalidInput, OutOfSpace
from advisor.files import write_whole
from advisor.reports.number_format import keys, plain
from advisor.reports.page import page
from advisor.reports.parts import ReportDocument, Table
from advisor.validation import check_writable
from profiler.files import replace_whole

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
