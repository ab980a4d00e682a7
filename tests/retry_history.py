"""The history of measured tests: each run is one line of JSON, and a test that is often retried is found."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

LAST_RUNS = 10  # of a test; older ones say nothing of the code as it is
ENOUGH_RUNS = 6  # with fewer, two disturbed runs would already be a third


@dataclass(frozen=True)
class FailedTry:
    """Why a try failed, and what the machine was like meanwhile."""

    number: int
    circumstances: str
    text: str

    @property
    def why(self) -> str:
        """The first line that pytest marks with an E, where the error stands; else the very last line."""
        lines = self.text.strip().splitlines() or [""]
        return next((line for line in lines if line.startswith("E  ")), lines[-1]).removeprefix("E").strip()


@dataclass(frozen=True)
class RetryRate:
    """How many of a test's last runs needed more than one try."""

    test: str
    runs: int
    retried: int

    @property
    def too_high(self) -> bool:
        return self.runs >= ENOUGH_RUNS and 3 * self.retried > self.runs


def append_run(history: Path, test: str, tries: int, passed: bool, failed: Sequence[FailedTry]) -> None:
    """Add a run to the history; several processes may do so at once, for a line is one write."""
    run = {
        "test": test,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "tries": tries,
        "passed": passed,
        "failed": [{"try": one.number, "why": one.why, "circumstances": one.circumstances} for one in failed],
    }
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def retry_rates(history: Path, tests: Iterable[str]) -> list[RetryRate]:
    """The rates of these tests, in their order; a run that failed in the end is no retry but a fault."""
    retried: defaultdict[str, deque[bool]] = defaultdict(lambda: deque(maxlen=LAST_RUNS))
    for line in history.read_text(encoding="utf-8").splitlines() if history.exists() else []:
        try:
            run = json.loads(line)
            if run["passed"]:
                retried[run["test"]].append(run["tries"] > 1)
        except (ValueError, LookupError, TypeError):  # a line that was cut off when a run was killed
            continue
    return [RetryRate(test, len(retried[test]), sum(retried[test])) for test in tests]
