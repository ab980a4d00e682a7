"""A service asks cells, services of parts of the cloud, at once: answers are merged, and a dead cell is only named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from advisor.domain import Host, Inventory
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.serving import cells
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.local_http import QuietHandler, on_loopback
from tests.servers.running import free_port

PATH = "/v1/cells/placements"
NEW = {"instance": {"id": "new", "vcpus": 2, "memory_mb": 1000}}
Script = Callable[[Mapping[str, Any]], tuple[int, bytes]]  # the question → status and body


@dataclass(frozen=True)
class _Cell:
    url: str
    asked: list[tuple[Mapping[str, str], Any]]  # headers and body of each question


class _Around:
    """Makes cells and fronts for one test."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self.opened = folder, opened

    def _advisor(self, name: str, **more: Any) -> tuple[Advisor, Settings]:
        database = sqlite_with_tables(self.folder / f"{name}.sqlite3")
        settings = Settings(database=database, state_dir=self.folder, **more)
        return self.opened.enter_context(Advisor(settings)), settings

    def scripted(self, script: Script, headers: Mapping[str, str] | None = None) -> _Cell:
        """A cell that answers as a function says."""
        asked: list[tuple[Mapping[str, str], Any]] = []

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                question = json.loads(self.request_body())
                asked.append((dict(self.headers), question))
                self.reply(*script(question), headers)

        server = self.opened.enter_context(on_loopback(Handler))
        return _Cell(f"http://127.0.0.1:{server.server_port}", asked)

    def real(self, name: str, *hosts: Host) -> _Cell:
        """A real service with these hosts."""
        advisor, settings = self._advisor(name)
        advisor.inventory.put(Inventory(hosts, ()), mode="merge", generation=None)
        app, one_at_a_time = create_app(advisor, settings), threading.Lock()

        def answer(question: Mapping[str, Any]) -> tuple[int, bytes]:
            with one_at_a_time:
                said = Client(app).ask("POST", "/v1/placements?summary=true", json=question)
            return said.status_code, said.content

        return self.scripted(answer)

    def front(self, named: Mapping[str, _Cell | str], **more: Any) -> Client:
        """A service that asks these."""
        text = ",".join(f"{name}={cell if isinstance(cell, str) else cell.url}" for name, cell in named.items())
        more = {"cells_wait_s": 60.0, **more}  # however busy the machine is
        advisor, settings = self._advisor(f"front-{len(list(self.folder.iterdir()))}", cells=text, **more)
        return Client(create_app(advisor, settings))


@pytest.fixture
def around(tmp_path: Path) -> Iterator[_Around]:
    with ExitStack() as opened:
        yield _Around(tmp_path, opened)


def host(name: str, memory_mb: float = 8192.0) -> Host:
    return Host(name, "kvm", 8, memory_mb)


def short(score: float, name: str = "h") -> dict[str, Any]:
    """An answer in short with one candidate."""
    band = {"expected": 1.0, "lower": 0.9, "upper": 1.0}
    candidate = {"rank": 1, "host": name, "score": score, "throughput_ratio": band, "worst_neighbour": None}
    candidate |= {"tied_with": [], "pinning": None, "changes_neighbours": False, "headroom": None}
    return {
        "id": f"r-{name}",
        "created_at": "2026-11-29T12:00:00Z",
        "degraded": False,
        "dry_run": True,
        "notes": [],
        "candidates": [candidate],
        "rejected": [],
    }


def says(answer: Any, status: int = 200) -> Script:
    return lambda _question: (status, answer if isinstance(answer, bytes) else json.dumps(answer).encode())


def ask(front: Client, **more: Any) -> dict[str, Any]:
    answer = front.ask("POST", PATH, json={**NEW, "dry_run": True, **more})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def states(document: Mapping[str, Any]) -> dict[str, str]:
    return {cell["cell"]: cell["state"] for cell in document["cells"]}


def test_hosts_of_all_cells_are_ranked_together_and_each_names_its_cell(around: _Around) -> None:
    one, other = around.real("one", host("a1"), host("a2", 100)), around.real("other", host("b1"), host("b2"))
    front = around.front({"east": one, "west": other})
    document = ask(front, limit=3)
    assert [(found["rank"], found["candidate"]["rank"]) for found in document["candidates"]] == [(1, 1), (2, 1), (3, 2)]
    assert {(found["cell"], found["candidate"]["host"]) for found in document["candidates"]} == {
        ("east", "a1"),
        ("west", "b1"),
        ("west", "b2"),
    }
    scores = [found["candidate"]["score"] for found in document["candidates"]]
    assert scores == sorted(scores, reverse=True)
    counts = {cell["cell"]: (cell["candidates"], cell["rejected"]) for cell in document["cells"]}
    assert counts == {"east": (1, 1), "west": (2, 0)}
    assert not document["held"]
    (headers, question) = other.asked[0]
    assert question == {**NEW, "dry_run": True, "limit": 3}
    assert "Authorization" not in headers


def test_the_best_score_comes_first_whichever_cell_has_it(around: _Around) -> None:
    named = {name: around.scripted(says(short(score, name))) for name, score in (("a", 0.4), ("b", 0.9), ("c", 0.7))}
    found = ask(around.front(named), limit=2)["candidates"]
    assert [(one["cell"], one["placement"]) for one in found] == [("b", "r-b"), ("c", "r-c")]


def test_a_dead_cell_is_named_and_left_alone_for_a_moment(around: _Around, monkeypatch: pytest.MonkeyPatch) -> None:
    front = around.front({"here": around.real("here", host("h1")), "gone": f"http://127.0.0.1:{free_port()}"})
    for reason in ("nothing listens", "asked again"):
        document = ask(front)
        assert states(document) == {"here": "answered", "gone": "unreachable"}
        assert reason in document["cells"][1]["reason"]
        assert [one["candidate"]["host"] for one in document["candidates"]] == ["h1"]
    monkeypatch.setattr(cells, "RESTS_S", 0.0)
    front = around.front({"here": around.real("again", host("h1")), "gone": f"http://127.0.0.1:{free_port()}"})
    assert ["nothing listens" in ask(front)["cells"][1]["reason"] for _ in range(2)] == [True, True]


def test_a_cell_that_hangs_is_late_and_does_not_keep_the_others(around: _Around) -> None:
    over = threading.Event()

    def hang(_question: Mapping[str, Any]) -> tuple[int, bytes]:
        over.wait(60)
        return 200, b"{}"

    front = around.front({"slow": around.scripted(hang), "b": around.scripted(says(short(0.5)))}, cells_wait_s=2.0)
    try:
        document = ask(front)
    finally:
        over.set()
    assert states(document) == {"slow": "late", "b": "answered"}
    assert [one["cell"] for one in document["candidates"]] == ["b"]


def test_a_caller_in_a_hurry_makes_no_cell_rest_and_once_its_time_is_over_none_holds_for_it(around: _Around) -> None:
    over = threading.Event()

    def slowly(_question: Mapping[str, Any]) -> tuple[int, bytes]:
        over.wait(60)
        return 200, json.dumps(short(0.5)).encode()

    found = {name: around.scripted(says(short(0.5))) for name in "ab"}
    front = around.front({**found, "slow": around.scripted(slowly)})
    hurry = {"X-Request-Timeout": "0.5"}
    answer = front.ask("POST", PATH, json={**NEW, "dry_run": False}, headers=hurry)
    over.set()
    assert (answer.status_code, answer.json()["code"]) == (504, "deadline.passed")
    assert all(question["dry_run"] for cell in found.values() for _, question in cell.asked)
    assert states(ask(front)) == {"a": "answered", "b": "answered", "slow": "answered"}


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (says(b"<html>"), "unreadable"),
        (says(b"\xff\xfe"), "unreadable"),
        (says([1]), "unreadable"),
        (says(short(float("nan"))), "unreadable"),
        (says(short(float("inf"))), "unreadable"),
        (says({**short(0.5), "candidates": [{"rank": 1}]}), "unreadable"),
        (says(b'"' + b"x" * (9 << 20) + b'"'), "unreadable"),
        (says({"detail": "no such token"}, 401), "refused"),
        (says({"detail": "busy"}, 503), "refused"),
        (says(b"Bad Gateway", 502), "unreadable"),
        (says(b"", 302), "unreadable"),
    ],
    ids=["html", "bytes", "list", "nan", "infinite", "half", "huge", "token", "busy", "gateway", "elsewhere"],
)
def test_what_is_no_answer_is_left_out(around: _Around, said: Script, state: str) -> None:
    elsewhere = around.scripted(says(short(1.0)))
    odd = around.scripted(said, {"Location": f"{elsewhere.url}/v1/placements"})
    document = ask(around.front({"odd": odd, "good": around.scripted(says(short(0.5)))}))
    assert states(document) == {"odd": state, "good": "answered"}
    assert [one["cell"] for one in document["candidates"]] == ["good"]
    assert elsewhere.asked == []


def test_more_candidates_than_were_asked_for_are_left_out(around: _Around) -> None:
    many = {**short(0.5), "candidates": short(0.5)["candidates"] * 50}
    assert len(ask(around.front({"a": around.scripted(says(many))}), limit=2)["candidates"]) == 2


def test_one_cell_holds_the_host_and_the_others_hold_none(around: _Around) -> None:
    one, other = around.real("one", host("a1", 1500)), around.real("other", host("b1", 1500))
    front = around.front({"one": one, "other": other})
    seen = []
    for name in ("first", "second"):
        document = ask(front, instance={**NEW["instance"], "id": name}, dry_run=False)
        assert document["held"]
        seen.append(document["candidates"][0]["candidate"]["host"])
    assert sorted(seen) == ["a1", "b1"]
    last = ask(front, instance={**NEW["instance"], "id": "third"}, dry_run=False)
    assert (last["held"], last["candidates"]) == (False, [])
    assert [cell["rejected"] for cell in last["cells"]] == [1, 1]
    assert sum(not question["dry_run"] for cell in (one, other) for _, question in cell.asked) == 2


def test_where_the_best_cell_has_lost_its_place_the_next_one_holds(around: _Around) -> None:
    def overtaken(question: Mapping[str, Any]) -> tuple[int, bytes]:
        answer = short(0.9, "best")
        return 200, json.dumps(answer if question["dry_run"] else {**answer, "candidates": []}).encode()

    front = around.front({"a": around.scripted(overtaken), "b": around.scripted(says(short(0.5, "next")))})
    document = ask(front, dry_run=False)
    assert document["held"]
    assert [one["candidate"]["host"] for one in document["candidates"]] == ["next"]


def test_the_token_of_the_file_goes_to_every_cell_and_is_read_anew(around: _Around) -> None:
    file = around.folder / "token"
    file.touch(mode=0o600)
    file.write_text("first\n")
    cell = around.scripted(says(short(0.5)))
    front = around.front({"a": cell}, cells_token_file=file)
    ask(front)
    file.write_text("second\n")
    ask(front)
    assert [headers["Authorization"] for headers, _ in cell.asked] == ["Bearer first", "Bearer second"]
    file.write_text("")
    document = front.ask("POST", PATH, json={**NEW, "dry_run": True})
    assert (document.status_code, document.json()["code"]) == (503, "cells.unavailable")
    assert len(cell.asked) == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "is not a URL"),
        ("=http://127.0.0.1:1", "no name"),
        ("a b=http://127.0.0.1:1", "no name"),
        ("a=http://127.0.0.1:1,a=http://127.0.0.1:2", "no name of its own"),
        ("a=ftp://127.0.0.1", "is not a URL"),
        ("a=http://user:secret@127.0.0.1", "user or password"),
        (",".join(f"c{number}=http://127.0.0.1:1" for number in range(65)), "at most 64"),
    ],
)
def test_cells_that_make_no_sense_are_refused_before_anything_is_served(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Advisor(Settings(database=f"sqlite:///{tmp_path / 'db'}", state_dir=tmp_path, cells=text))
    assert refused.value.field == "cells"
    assert reason in refused.value.message
    assert "secret" not in refused.value.message


@pytest.mark.parametrize(("mode", "field"), [(0o644, "cells_token_file"), (0o600, "cells")])
def test_a_token_is_neither_read_by_all_nor_sent_unencrypted(tmp_path: Path, mode: int, field: str) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(mode)
    settings = Settings(
        database=f"sqlite:///{tmp_path / 'db'}", state_dir=tmp_path, cells="a=http://192.0.2.1", cells_token_file=file
    )
    with pytest.raises(InvalidInput) as refused:
        Advisor(settings)
    assert refused.value.field == field


def test_where_no_cell_answers_the_question_fails(around: _Around) -> None:
    gone = {name: f"http://127.0.0.1:{free_port()}" for name in "ab"}
    answer = around.front(gone).ask("POST", PATH, json={**NEW, "dry_run": True})
    assert (answer.status_code, answer.json()["code"]) == (503, "cells.unavailable")
    assert answer.headers["retry-after"]


def test_a_question_that_every_cell_refuses_is_refused(around: _Around) -> None:
    front = around.front({"one": around.real("one", host("a1"))})
    answer = front.ask("POST", PATH, json={"instance": {"id": "unknown"}, "dry_run": True})
    assert (answer.status_code, answer.json()["code"]) == (422, "input.invalid")
    assert "one: 422" in answer.json()["detail"]
