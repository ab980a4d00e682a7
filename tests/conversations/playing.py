"""Plays HTTP conversations of YAML files against the real application on a temporary SQLite.

A file is a list of steps that share one service, in order. A step:

    - say: what this step shows
      PUT: /v1/hosts/h1                 # method and path; $name stands for a value that was kept
      json: {...}                       # the body, "$name" kept, "$now" the time; or raw: text, repeat: [text, times]
      form: key=$key&...                # or what a form of our own pages sends
      headers: {...}
      file: [models/x/card.json, text]  # written below the state folder first
      model: [m-1, 0.02]                # an artifact laid below models/ first, off by so much on held-out rows
      token: {reader: read}             # tokens made first, kept under these names; before them no caller needs one.
                                        # `agent of h1` is one for the agent of that host
      revoke: reader                    # a token revoked first
      status: 201
      has: {...}                        # a part of the answer: mappings may have more, lists must match item by item;
                                        # "~pattern" is searched as a regular expression, "*" is anything
      lacks: [text, ...]                # must not stand in the answer
      header: {...}                     # of the answer, matched like `has`
      keep: {name: path.in.answer}
      keep_header: {name: header of the answer}
      keep_match: {name: pattern}       # its first group, searched in the text of the answer
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.routing import Route
from tests.models import made_models
from tests.servers.fixtures import sqlite_with_cloud

CLOUD = Path(__file__).parents[1] / "api" / "cloud.yaml"
FORM = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}
METHODS = ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "BREW")


@cache
def steps_of(file: Path) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader)
    return steps


def question_of(step: dict[str, Any]) -> tuple[str, str]:
    return next((method, step[method]) for method in METHODS if method in step)


def play(file: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play a file against an application of its own, whose state is in the folder `state`."""
    monkeypatch.setattr("advisor.prediction.active.try_out", lambda path: None)  # tests/models tries models really
    settings = Settings(
        database=sqlite_with_cloud(state / "db.sqlite3", CLOUD),
        state_dir=state,
        max_body_mb=0.25,
        max_batch=20,
        reserve_s=0,
        extender_s=60,
    )
    with Advisor(settings) as advisor:
        asyncio.run(_play(create_app(advisor, settings), advisor, steps_of(file), state))


def silent(routes: Iterable[Route], files: Iterable[Path]) -> list[tuple[str, str]]:
    """Routes that no step of these files speaks to."""
    asked = [question_of(step) for file in files for step in steps_of(file)]
    return [
        (route.method, route.path)
        for route in routes
        if not any(_meets(route.method, route.path, *question) for question in asked)
    ]


def _meets(method: str, template: str, asked_method: str, asked_path: str) -> bool:
    pattern = re.sub(r"\{\w+\}", "[^/]+", template)
    return method == asked_method and re.fullmatch(pattern, asked_path.partition("?")[0]) is not None


async def _play(app: Any, advisor: Advisor, steps: list[dict[str, Any]], state: Path) -> None:
    kept = {"now": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        for step in steps:
            if "file" in step:
                path = state / step["file"][0]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step["file"][1], encoding="utf-8")
            if "model" in step:
                made_models.make(made_models.fitted(), state / "models", *step["model"])
            for name, scope in step.get("token", {}).items():
                host = scope.removeprefix("agent of ") if scope.startswith("agent of ") else ""
                allowed: Any = "write" if host else scope
                kept[name] = advisor.access.tokens.create(name, allowed, lasts=None, host=host)[1]
            if "revoke" in step:
                advisor.access.tokens.revoke(kept[step["revoke"]].split("_")[1])
            method, path_template = question_of(step)
            path_asked = re.sub(r"\$(\w+)", lambda found: kept[found[1]], path_template)
            given = {key: re.sub(r"\$(\w+)", lambda found: kept[found[1]], text) for key, text in _headers(step)}
            sent = _body(step, given, kept)
            if "form" in step:
                text = re.sub(r"\$(\w+)", lambda found: kept[found[1]], step["form"])
                sent = {"content": text, "headers": {**FORM, **given}}
            answer = await client.request(method, path_asked, **sent)
            _check(step, answer)
            for name, where in step.get("keep", {}).items():
                kept[name] = str(_reach(answer.json(), where))
            for name, where in step.get("keep_header", {}).items():
                kept[name] = answer.headers[where]
            for name, pattern in step.get("keep_match", {}).items():
                kept[name] = str(re.search(pattern, answer.text)[1])  # type: ignore[index]  # absent: the step fails


def _headers(step: dict[str, Any]) -> Any:
    return step.get("headers", {}).items()


def _body(step: dict[str, Any], headers: dict[str, str], kept: dict[str, str]) -> dict[str, Any]:
    if "raw" in step or "repeat" in step:
        text = step["raw"] if "raw" in step else step["repeat"][0] * step["repeat"][1]
        return {"content": text.encode(), "headers": {"Content-Type": "application/json", **headers}}
    if "json" not in step:
        return {"headers": headers}
    text = re.sub(r'"\$(\w+)"', lambda found: json.dumps(kept[found[1]]), json.dumps(step["json"]))
    return {"json": json.loads(text), "headers": headers}


def _check(step: dict[str, Any], answer: httpx.Response) -> None:
    shown = f"{step['say']}: {answer.status_code} {answer.text[:1000]}"
    assert answer.status_code == step["status"], shown
    if answer.status_code >= 400 and answer.content and "text/html" not in answer.headers["content-type"]:
        assert answer.headers["content-type"] == "application/problem+json", shown
        assert answer.json()["request_id"] == answer.headers["x-request-id"], shown
    if "has" in step:
        _match(step["has"], answer.text if isinstance(step["has"], str) else answer.json(), shown)
    for text in step.get("lacks", ()):
        assert text not in answer.text, shown
    for name, wanted in step.get("header", {}).items():
        _match(wanted, answer.headers.get(name), f"{name} of {shown}")


def _match(wanted: Any, found: Any, shown: str) -> None:
    if isinstance(wanted, dict):
        assert isinstance(found, dict), shown
        for name, value in wanted.items():
            assert name in found, f"{name} is missing in {shown}"
            _match(value, found[name], f"{name} of {shown}")
    elif isinstance(wanted, list):
        assert isinstance(found, list), shown
        assert len(found) == len(wanted), shown
        for value, one in zip(wanted, found, strict=True):
            _match(value, one, shown)
    elif isinstance(wanted, str) and wanted.startswith("~"):
        assert re.search(wanted[1:], str(found)), shown
    elif wanted != "*":
        assert found == wanted, shown


def _reach(value: Any, where: str) -> Any:
    for step in where.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value
