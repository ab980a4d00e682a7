"""Reads CSV tables of a dataset line by line; errors name file, line and column."""

from __future__ import annotations

import contextlib
import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NoReturn

from lab.errors import LabError
from profiler import files
from profiler.observed import Pinning

MOST_BYTES = 4096 * files.MEGABYTE  # of a table's text
MOST_LINES = 5_000_000  # against a small .gz that unpacks without end; a day of 0.25 s windows has a tenth of it
_LONGEST_NAME = 1000  # a group of many members with long labels stays far below
_SHOWN = 40  # characters of a bad cell that an error repeats


@dataclass(frozen=True, slots=True)
class CsvLine:
    """One line of a table. Its methods read a cell; LabError names a cell that is wrong."""

    path: Path
    number: int
    cells: Mapping[str, str]

    def has(self, column: str) -> bool:
        return bool(self.cells.get(column))

    def text(self, column: str) -> str:
        """A cell that people read, empty where it is missing; control characters are refused: they reach a terminal."""
        cell = self.cells.get(column, "")
        if len(cell) > _LONGEST_NAME or not cell.isprintable():
            self.wrong(column, f"is not printable text of at most {_LONGEST_NAME} characters")
        return cell

    def name(self, column: str) -> str:
        return self.text(column) or self.wrong(column, "must not be empty")

    def number_of(self, column: str, *, signed: bool = False) -> float | None:
        """A finite number, of at least 0 unless it is signed; None for an empty cell, which means unknown."""
        value, cell = math.nan, self.cells.get(column, "")
        if not cell:
            return None
        with contextlib.suppress(ValueError):
            value = float(cell)
        if not math.isfinite(value) or (value < 0 and not signed):
            self.wrong(column, "is not a number" if signed else "is not a number of at least 0")
        return value

    def whole(self, column: str) -> int:
        cell = self.cells.get(column, "")
        if not (cell.isascii() and cell.isdecimal() and len(cell) <= 9):
            self.wrong(column, "is not a whole number")
        return int(cell)

    def mark(self, column: str) -> bool | None:
        """1 or 0; None for an empty cell."""
        cell = self.cells.get(column, "")
        if cell not in ("", "0", "1"):
            self.wrong(column, "is neither 0 nor 1")
        return None if not cell else cell == "1"

    def moment(self, column: str) -> datetime | None:
        """A time in ISO 8601; UTC without an offset."""
        cell = self.cells.get(column, "")
        if not cell:
            return None
        try:
            moment = datetime.fromisoformat(cell)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError):
            self.wrong(column, "is not a time such as 2026-01-31T12:00:00+00:00")

    def cpus(self, column: str) -> frozenset[int]:
        """All CPUs of a pinning such as `0:2|1:3`; empty for an empty cell."""
        try:
            pinning = Pinning.parse(self.cells.get(column, ""))
        except ValueError:
            self.wrong(column, "is not a pinning such as 0:2|1:3")
        return pinning.union if pinning else frozenset()

    def wrong(self, column: str, reason: str) -> NoReturn:
        cell = self.cells.get(column, "")[:_SHOWN]
        raise LabError(f"{self.path}, line {self.number}, column {column}: {cell!r} {reason}")


def lines(path: Path, needed: Sequence[str], *, optional: bool = False) -> Iterator[CsvLine]:
    """The lines of a table, plain or gzip by its suffix; LabError where it has not all the needed columns.

    An `optional` table may be missing, and then has no lines.
    """
    if optional and not path.exists():
        return
    try:
        with files.open_limited(path, MOST_BYTES, packed=path.suffix == ".gz") as file:
            reader = csv.DictReader(_text(file))
            missing = [column for column in needed if column not in (reader.fieldnames or ())]
            if missing:
                raise LabError(f"{path}, line 1: column {missing[0]} is missing")
            for entry in reader:
                if reader.line_num > MOST_LINES:
                    raise LabError(f"{path} has more than {MOST_LINES} lines: that is more than any campaign writes")
                yield CsvLine(
                    path, reader.line_num, {key: cell or "" for key, cell in entry.items() if key is not None}
                )
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise LabError(f"{path} is not a whole gzip file ({error})") from None
    except files.TooLargeError as error:
        raise LabError(f"{path} is too large: {error}") from None
    except OSError as error:
        raise LabError(f"{path} cannot be read ({error.strerror}): name a directory that lab run wrote") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise LabError(f"{path} is not a CSV table ({error})") from None


def _text(file: BinaryIO) -> Iterator[str]:
    """The lines of a file; spreadsheets write a byte order mark before the first."""
    for number, line in enumerate(files.lines(file, files.MEGABYTE)):
        yield line.decode("utf-8" if number else "utf-8-sig")
