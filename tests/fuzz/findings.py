"""What schemathesis found, read from its NDJSON report: all checks that failed, not one of a kind."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that failed: `said` is the problem's detail where valid data was refused, else what the case was about;
    `asked` shows the request."""

    operation: str
    check: str
    status: int | None
    said: str
    asked: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.check} {self.status}: {self.said}\n    {self.asked}"


@dataclass(frozen=True, slots=True)
class Explained:
    """Findings that are no fault: patterns of their operation and of what was said, their check, and the reason."""

    operation: str
    check: str
    said: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return bool(
            self.check == finding.check
            and re.fullmatch(self.operation, finding.operation)
            and re.match(self.said, finding.said)
        )


def unexplained(findings: Iterable[Finding], explained: Sequence[Explained]) -> list[Finding]:
    """Findings that nothing explains, one of a kind, in the order of their operations."""
    left = [one for one in findings if not any(row.covers(one) for row in explained)]
    kinds = {(one.operation, one.check, one.status, re.sub(r"\W|\d", "", one.said)[:60]): one for one in reversed(left)}
    return sorted(kinds.values(), key=str)


def outdated(findings: Sequence[Finding], explained: Iterable[Explained]) -> list[Explained]:
    """Explanations of what was not found."""
    return [row for row in explained if not any(row.covers(one) for one in findings)]


def read(lines: Iterable[str]) -> list[Finding]:
    """The findings of a report. ValueError where schemathesis itself met an error or stopped early."""
    found, finished = [], False
    for line in lines:
        ((kind, event),) = json.loads(line).items()
        if kind in {"NonFatalError", "FatalError", "Interrupted"}:
            raise ValueError(f"{kind}: {str(event)[:2000]}")
        if kind == "ScenarioFinished":
            found += _of_scenario(event["recorder"])
        finished = finished or kind == "EngineFinished"
    if not finished:
        raise ValueError("the report has no end")
    return found


def _of_scenario(recorder: dict[str, Any]) -> list[Finding]:
    return [
        _finding(check["name"], recorder["cases"][number]["value"], recorder["interactions"].get(number) or {})
        for number, checks in recorder.get("checks", {}).items()
        for check in checks
        if check["status"] == "failure"
    ]


def _finding(check: str, case: dict[str, Any], interaction: dict[str, Any]) -> Finding:
    request, response = interaction.get("request") or {}, interaction.get("response") or {}
    about = ((case.get("meta") or {}).get("phase") or {}).get("data") or {}
    refused = check == "positive_data_acceptance"
    return Finding(
        operation=f"{case['method']} {case['path']}",
        check=check,
        status=response.get("status_code"),
        said=_detail(_text(response.get("content"))) if refused else str(about.get("description")),
        asked=f"{request.get('uri', '')[:300]} {request.get('headers')} {_text(request.get('body'))[:1000]}",
    )


def _detail(body: str) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body[:200]


def _text(content: dict[str, str] | None) -> str:
    return base64.b64decode((content or {}).get("$base64", "")).decode("utf-8", errors="replace")
