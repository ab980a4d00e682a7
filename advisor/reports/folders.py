"""Cloud reports as dated folders in one: naming and retention; and work that is repeated regularly."""

from __future__ import annotations

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from advisor.domain import Inventory, Plan, PlanKind
from advisor.errors import AdvisorError, InvalidInput
from advisor.experiments import probe_planning
from advisor.reports.plan_background import Background

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


def write(
    inventory: Inventory, plan: Plan, background: Background, ages: Mapping[str, float], folder: Path, *, keep: int
) -> Reported:
    """Write a cloud report to a new dated folder in `folder`, atomically, and keep the newest `keep`.

    Where `folder` ends in .html, it is one page and nothing else is deleted.

    `ages` as in `reports.cloud`. OutOfSpace when the disk is full, InvalidInput when it cannot be written there.
    """
    from advisor import reports  # with its drawing library
    from advisor.reports import files

    check_folder(folder)
    if files.is_page(folder):
        return Reported(folder, reports.write_cloud_report(inventory, plan, background, ages, folder), ())
    path = dated(folder, plan.created_at)
    headline = reports.write_cloud_report(inventory, plan, background, ages, path)
    return Reported(path, headline, tuple(prune(folder, keep, written=path)))


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
    from advisor.reports import files

    if files.is_page(folder):
        files.check_target(folder)
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


def prune(folder: Path, keep: int, written: Path | None = None) -> list[str]:
    """Delete the oldest dated reports beyond the newest `keep`, and nothing that is no report.

    `written` counts as the newest whatever its date, for a clock may have been put back. Returns the names of those
    that went; one that cannot be deleted is a line in the log, and tried again next time.
    """
    from advisor.reports.files import is_report

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
