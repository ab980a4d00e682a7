"""The campaign's journal: one JSON line per finished run, synced to disk before the next run begins."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.campaign import Campaign
from lab.errors import LabError
from lab.records import Record
from profiler.files import replace_whole, sync

NAME = "journal.jsonl"
_VERSION = 2
_ADVICE = (
    "name another directory with --dataset, or start anew with --fresh (the old journal is kept under another name)"
)


@dataclass(frozen=True, slots=True)
class JournalContent:
    """What a journal holds; `notes` are (kind, fact)."""

    header: Mapping[str, Any]
    records: list[Record]
    notes: list[tuple[str, Any]]


def read_journal(path: Path, campaign: Campaign) -> JournalContent | None:
    """A journal as it is on disk; None where there is none, or an empty one.

    A last line without its end belongs to a run that did not finish. LabError for a journal of another campaign or
    format, and for a damaged one.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        entries = [json.loads(line) for line in lines]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LabError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise LabError(f"{path} is damaged: {_ADVICE}") from None
    if not entries:
        return None
    _check(path, entries, campaign)
    records: list[Record] = []
    notes: list[tuple[str, Any]] = []
    for number, entry in enumerate(entries[1:], start=2):
        try:
            if "note" in entry:
                notes.append((entry["note"], entry["fact"]))
            else:
                records.append(Record.load(entry))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise LabError(f"{path}, line {number} is no finished run: {_ADVICE}") from None
    return JournalContent(entries[0], records, notes)


def _check(path: Path, entries: list[Any], campaign: Campaign) -> None:
    header = entries[0] if isinstance(entries[0], dict) else {}
    runs = sum(isinstance(entry, dict) and "run" in entry for entry in entries)
    if header.get("journal") != _VERSION:
        raise LabError(f"{path} holds {runs} runs in another format than {_VERSION}, which this lab writes: {_ADVICE}")
    if header.get("fingerprint") != campaign.fingerprint:
        raise LabError(f"{path} holds {runs} runs of another or a changed campaign: {_ADVICE}")


def without_disturbed(records: Iterable[Record]) -> list[Record]:
    """The records that stay when disturbed runs are to be measured again.

    Calibrations stay: the other runs have their part loads from them, and would not compare with runs of new ones.
    """
    return [record for record in records if not record.disturbed or record.kind == "calibration"]


class Journal:
    """Opens, or starts, the journal of a campaign in a directory. Appends are whole lines and synced.

    Lines are a header, finished runs, and notes: facts beside the runs, by kind, such as the circumstances before and
    after, or the text of a qdisc dump. `again` forgets the runs that something disturbed, whatever their results, so
    that they are measured once more; `measured_again` counts them over the journal's life. LabError as `read_journal`.
    """

    def __init__(self, directory: Path, campaign: Campaign, *, fresh: bool = False, again: bool = False) -> None:
        self.path = directory / NAME
        if fresh and self.path.exists():
            self.path.rename(self.path.with_suffix(f".{int(time.time())}.old"))
        self._drop_torn_line()
        content = read_journal(self.path, campaign)
        if content is None:
            content = JournalContent(
                {"journal": _VERSION, "fingerprint": campaign.fingerprint, "campaign": campaign.name}, [], []
            )
            self._append(content.header)
            sync(directory)  # its name, too
        self._header = content.header
        self.records = content.records
        self.notes = content.notes
        self.measured_again = int(content.header.get("measured_again", 0))
        if again:
            self._forget_disturbed()

    def done(self) -> set[tuple[str, int]]:
        """Run and round of everything finished."""
        return {(record.run, record.round) for record in self.records}

    def append(self, record: Record) -> None:
        """Write a finished run; when this returns it is on disk."""
        self._append(record.entry())
        self.records.append(record)

    def note(self, kind: str, fact: Any) -> None:
        """Write a fact, which JSON can hold, unless it is there already."""
        if (kind, fact) not in self.notes:
            self._append({"note": kind, "fact": fact})
            self.notes.append((kind, fact))

    def facts(self, kind: str) -> list[Any]:
        """All facts of a kind, oldest first."""
        return [fact for known, fact in self.notes if known == kind]

    def _forget_disturbed(self) -> None:
        remaining = without_disturbed(self.records)
        self.measured_again += len(self.records) - len(remaining)
        self._header = {**self._header, "measured_again": self.measured_again}
        notes = [{"note": kind, "fact": fact} for kind, fact in self.notes]
        draft = self.path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.writelines(_line(entry) for entry in (self._header, *notes, *(record.entry() for record in remaining)))
        replace_whole(draft, self.path)
        self.records = remaining

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = _line(entry)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            try:
                rest = line
                while rest:  # a nearly full disk takes a part of the line before it refuses the rest
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)  # no torn line: the journal ends with the last finished run
                raise
        finally:
            os.close(descriptor)

    def _drop_torn_line(self) -> None:
        """After kill -9 or a power cut the last line may be incomplete: its run did not finish."""
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self.path, len(whole))


def _line(entry: Mapping[str, Any]) -> bytes:
    return (json.dumps(entry, separators=(",", ":")) + "\n").encode()
