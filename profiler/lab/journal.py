"""The campaign's memory on disk: one JSON line per finished run, synced before the next begins."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profiler.lab.campaign import Campaign
from profiler.lab.errors import LabError
from profiler.lab.measure import Measured
from profiler.lab.schedule import Placed, Run
from profiler.observed import IsolationSettings

NAME = "journal.jsonl"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One instance of a finished run; `rate` is the requested load in the workload's unit, None = saturation."""

    instance: str
    workload: str
    label: str
    load: float
    vcpus: int
    pinning: str
    clients: str | None
    settings: Mapping[str, Any]
    solo_key: str
    unit: str
    rate: float | None
    outcomes: Mapping[str, float]
    generator_percent: float | None


@dataclass(frozen=True, slots=True)
class Record:
    """One finished run of one round."""

    kind: str
    run: str
    round: int
    pinning: str
    started: str
    seconds: float
    members: tuple[MemberRecord, ...]
    values: tuple[tuple[str | None, str, str, float, str], ...]
    steal_percent: float | None
    foreign_percent: float | None
    disturbed: bool
    took_s: float
    dropped: tuple[str, ...] = field(default=())

    @classmethod
    def of(
        cls, run: Run, number: int, measured: Measured, rates: Mapping[str, float | None], units: Mapping[str, str],
        took_s: float,
    ) -> Record:  # fmt: skip
        """Everything that is known about a run that just finished."""
        members = tuple(_member(entry, measured, rates, units) for entry in run.placed)
        values = tuple((v.instance, v.scope, v.metric, v.value, v.unit) for v in measured.values)
        return cls(
            run.kind, run.run, number, run.pinning, measured.started, measured.seconds, members, values,
            measured.steal_percent, measured.foreign_percent, measured.disturbed, took_s, measured.dropped,
        )  # fmt: skip

    @classmethod
    def load(cls, entry: Mapping[str, Any]) -> Record:
        """Inverse of `asdict`; KeyError or TypeError when it is not a record."""
        members = tuple(MemberRecord(**member) for member in entry["members"])
        values = tuple((v[0], v[1], v[2], float(v[3]), v[4]) for v in entry["values"])
        rest = {key: value for key, value in entry.items() if key not in ("members", "values", "dropped")}
        return cls(members=members, values=values, dropped=tuple(entry["dropped"]), **rest)


def _member(
    entry: Placed, measured: Measured, rates: Mapping[str, float | None], units: Mapping[str, str]
) -> MemberRecord:
    member = entry.member
    return MemberRecord(
        entry.instance, member.workload, member.label, member.load, member.vcpus, str(entry.pinning),
        None if entry.clients is None else ",".join(map(str, entry.clients)), _settings(member.settings),
        entry.solo_key, units[member.workload], rates.get(entry.instance), measured.reached[entry.instance].outcomes(),
        measured.generator_percent.get(entry.instance),
    )  # fmt: skip


def _settings(settings: IsolationSettings) -> dict[str, Any]:
    net = settings.network
    return {
        "cap_percent": settings.cap_percent,
        "weight": settings.weight,
        "net_mode": net.mode if net else None,
        "net_rate_mbit": net.rate_mbit if net else None,
        "disk_limit_mb_s": settings.disk_limit_mb_s,
    }


class Journal:
    """Opens, or starts, the journal of a campaign in a directory. Appends are whole lines and synced.

    `again` forgets the runs that something disturbed, whatever they came to, so that they are measured once more;
    `measured_again` counts them over the journal's life.
    """

    def __init__(self, directory: Path, campaign: Campaign, *, fresh: bool = False, again: bool = False) -> None:
        self.path = directory / NAME
        self.records: list[Record] = []
        self.measured_again = 0
        if fresh and self.path.exists():
            self.path.rename(self.path.with_suffix(f".{int(time.time())}.old"))
        if not self.path.exists():
            self._append({"journal": _VERSION, "fingerprint": campaign.fingerprint, "campaign": campaign.name})
            return
        self._drop_torn_line()
        entries = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        if not entries:
            self._append({"journal": _VERSION, "fingerprint": campaign.fingerprint, "campaign": campaign.name})
            return
        if entries[0].get("journal") != _VERSION or entries[0].get("fingerprint") != campaign.fingerprint:
            raise LabError(
                f"{self.path} holds {len(entries) - 1} runs of another or a changed campaign: name another directory"
                " with --out, or start anew with --fresh (the old journal is kept under another name)"
            )
        self.measured_again = int(entries[0].get("measured_again", 0))
        self.records = [Record.load(entry) for entry in entries[1:]]
        if again:
            self._forget_disturbed(entries)

    def _forget_disturbed(self, entries: list[dict[str, Any]]) -> None:
        kept = [record for record in self.records if not record.disturbed]
        self.measured_again += len(self.records) - len(kept)
        header = {**entries[0], "measured_again": self.measured_again}
        lines = [header, *(entry for entry in entries[1:] if not entry["disturbed"])]
        draft = self.path.with_suffix(".draft")
        with draft.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        self.records = kept

    def done(self) -> set[tuple[str, int]]:
        """Run and round of everything finished."""
        return {(record.run, record.round) for record in self.records}

    def append(self, record: Record) -> None:
        """Write a finished run; when this returns it is on disk."""
        self._append(asdict(record))
        self.records.append(record)

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = (json.dumps(entry, separators=(",", ":")) + "\n").encode()
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
        """After kill -9 or a power cut the last line may be a part of one: it is of a run that did not finish."""
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self.path, len(whole))
