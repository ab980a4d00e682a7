"""Cells: services of parts of a cloud that are asked at the same time, and whose ranked answers are merged."""

from __future__ import annotations

import heapq
import json
import math
import re
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, field, replace
from typing import Any

from advisor import deadline
from advisor.domain import CellCandidate, CellReport, CellsAnswer, CellState, RecommendationSummary, codec
from advisor.errors import CellsUnavailable, InvalidInput, NotFound
from advisor.settings import Settings
from profiler.agent.http_client import HttpClient, HttpError, ServerUrl, check_token, may_carry_token, parse_url
from profiler.files import read_secret

MOST_CELLS = 64
AT_ONCE = 8  # questions that one cell is asked at the same time: one that hangs takes no threads of others
RESTS_S = 5.0  # for which a cell that did not answer is not asked again
_QUESTION = "/v1/placements?summary=true"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_REASON = 300  # characters of what a cell says
_HEADERS = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class _Said:
    """What one cell said, and its answer where it gave one."""

    report: CellReport
    answer: RecommendationSummary | None = None
    status: int = 0


@dataclass(slots=True)
class _Cell:
    """One cell with its connections; thread-safe."""

    name: str
    server: ServerUrl
    token: Callable[[], str | None]
    wait_s: float
    threads: ThreadPoolExecutor
    idle: deque[HttpClient] = field(default_factory=deque)
    rests_until: float = 0.0  # of the monotonic clock

    def ask(self, body: bytes, limit: int) -> _Said:
        """Ask it and read the answer; never raises for what the other side does."""
        begun = time.monotonic()
        if begun < self.rests_until:
            return self.failed("unreachable", f"it did not answer lately; asked again in {RESTS_S:.0f} s", 0.0)
        try:
            client = self.idle.pop()
        except IndexError:
            client = HttpClient(self.server, self.token, "cotenant-cells", deadline_s=self.wait_s)
        try:
            answer = client.post(body, _QUESTION, _HEADERS | {"X-Request-Timeout": f"{self.wait_s:.3f}"})
        except HttpError as error:
            client.close()
            self.rest()
            state: CellState = "late" if error.kind == "timeout" else "unreachable"
            return self.failed(state, str(error), time.monotonic() - begun)
        self.idle.append(client)
        return self._read(answer.status, answer.body, limit, time.monotonic() - begun)

    def rest(self) -> None:
        """Ask it nothing for a moment: it is not there."""
        self.rests_until = time.monotonic() + RESTS_S

    def failed(self, state: CellState, reason: str, seconds: float, status: int = 0) -> _Said:
        """What is said of a cell that gave no answer."""
        return _Said(CellReport(self.name, state, reason[:_REASON], seconds), None, status)

    def _read(self, status: int, body: bytes, limit: int, seconds: float) -> _Said:
        try:
            document = codec.parsed(body)
            if status != 200:
                return self.failed("refused", f"{status}: {document['detail']}", seconds, status)
            answer = _checked(codec.decode(RecommendationSummary, document))
        except (codec.Unreadable, LookupError, TypeError):
            reason = f"its answer (status {status}) is not that of a service of this version"
            return self.failed("unreadable", reason, seconds)
        rejected = sum(len(group.hosts) for group in answer.rejected)
        report = CellReport(self.name, "answered", "", seconds, len(answer.candidates), rejected)
        return _Said(report, replace(answer, candidates=answer.candidates[:limit]))

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)
        while self.idle:
            self.idle.pop().close()


class CellService:
    """The cells of the settings, asked at once; thread-safe. InvalidInput where a setting cannot be used."""

    def __init__(self, settings: Settings) -> None:
        self._wait_s = settings.cells_wait_s
        self._token_file = settings.cells_token_file
        try:
            token = self._token()
        except ValueError as error:
            raise InvalidInput(f"the token of the cells cannot be used: {error}", field="cells_token_file") from error
        self._cells = {
            name: _Cell(name, server, self._token, self._wait_s, ThreadPoolExecutor(AT_ONCE, f"cell-{name}"))
            for name, server in _named(settings.cells).items()
        }
        for cell in self._cells.values():
            if token and not may_carry_token(cell.server):
                message = f"cell {cell.name} would get the token unencrypted; give an https URL"
                raise InvalidInput(message, field="cells")

    def place(self, question: Mapping[str, Any], *, limit: int, hold: bool) -> CellsAnswer:
        """Ask all cells where an instance should go, and merge what they answer; `question` is the body of
        `POST /v1/placements`, `limit` its most candidates.

        With `hold` the cell of the best candidate is asked again, and holds the host that is its best by then; where it
        has none left, the next cell. NotFound where no cells are configured, InvalidInput where cells refuse the
        question and none answers, CellsUnavailable where none does.
        """
        if not self._cells:
            raise NotFound("no cells are configured: name them by COTENANT_CELLS")
        said = self._ask(list(self._cells.values()), {**question, "dry_run": True}, limit)
        merged = _merged(said, limit)
        held: CellCandidate | None = None
        for name in dict.fromkeys(candidate.cell for candidate in merged) if hold else ():
            (again,) = self._ask([self._cells[name]], {**question, "dry_run": False}, limit)
            said = [again if one.report.cell == name else one for one in said]
            if again.answer is not None and again.answer.candidates:
                held = _merged([again], 1)[0]
                break
        if not any(one.answer is not None for one in said):
            raise _none_answered(said)
        if hold:
            others = [one for one in _merged(said, limit) if held is None or one.cell != held.cell]
            merged = [*([held] if held else []), *others][:limit]
        ranked = tuple(replace(one, rank=rank) for rank, one in enumerate(merged, 1))
        return CellsAnswer(held is not None, ranked, tuple(one.report for one in said))

    def close(self) -> None:
        """Let go of connections once questions under way have ended, at their deadlines at the latest."""
        for cell in self._cells.values():
            cell.close()

    def _ask(self, cells: Sequence[_Cell], question: Mapping[str, Any], limit: int) -> list[_Said]:
        deadline.check()  # who waits no more holds nothing
        body, begun = json.dumps(question).encode(), time.monotonic()
        wait_s = min(self._wait_s, deadline.left_s())
        asked = [(cell, cell.threads.submit(cell.ask, body, limit)) for cell in cells]
        return [_within(cell, future, begun, wait_s) for cell, future in asked]

    def _token(self) -> str | None:
        """Read anew for every question, so that it can be renewed; ValueError where it cannot be used."""
        return None if self._token_file is None else check_token(read_secret(self._token_file))


def _checked(answer: RecommendationSummary) -> RecommendationSummary:
    if not all(math.isfinite(candidate.score) for candidate in answer.candidates):
        raise codec.Unreadable("a score is no number")
    return answer


def _within(cell: _Cell, future: Future[_Said], begun: float, wait_s: float) -> _Said:
    try:
        return future.result(max(begun + wait_s - time.monotonic(), 0.0))
    except Late:
        future.cancel()
        if wait_s >= cell.wait_s:  # a caller in a hurry does not say that it is not there
            cell.rest()
        return cell.failed("late", "it did not answer in time", wait_s)


def _merged(said: Sequence[_Said], limit: int) -> list[CellCandidate]:
    """The candidates of all, best score first, of equal ones that with more left of its scarcest resource; those of
    one cell stay in the order of the cell, which knows what ties them."""
    ranked = [
        [CellCandidate(one.rank, said_by.report.cell, said_by.answer.id, one) for one in said_by.answer.candidates]
        for said_by in said
        if said_by.answer is not None
    ]
    return list(heapq.merge(*ranked, key=_order))[:limit]


def _order(one: CellCandidate) -> tuple[float, float, str]:
    headroom = one.candidate.headroom
    return -one.candidate.score, -headroom.scarcest[1] if headroom is not None else 0.0, one.cell


def _none_answered(said: Sequence[_Said]) -> InvalidInput | CellsUnavailable:
    reasons = "; ".join(f"{one.report.cell}: {one.report.reason}" for one in said)[: 10 * _REASON]
    if any(one.status == 422 for one in said):
        return InvalidInput(f"no cell answers ({reasons})")
    return CellsUnavailable(f"no cell answers ({reasons})")


def _named(text: str) -> dict[str, ServerUrl]:
    """The cells of the setting: `a=https://cell-a.example:8443,b=...`."""
    cells: dict[str, ServerUrl] = {}
    for part in text.split(",") if text.strip() else ():
        name, _, url = part.strip().partition("=")
        if not _NAME.match(name) or name in cells:
            raise InvalidInput(f"cells: {name[:60]!r} is no name of its own; write NAME=URL,NAME=URL", field="cells")
        try:
            cells[name] = parse_url(url)
        except ValueError as error:
            raise InvalidInput(f"cells: {error}; write NAME=URL,NAME=URL", field="cells") from error
    if len(cells) > MOST_CELLS:
        raise InvalidInput(f"cells: {len(cells)} are named, at most {MOST_CELLS} are asked", field="cells")
    return cells
