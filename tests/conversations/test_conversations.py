"""Plays the conversations of the YAML files in this folder; `playing` says how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.app import ROUTES
from api.problems import KINDS
from tests.conversations.playing import play, silent

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
# Kinds of problems that need a broken service, not a wrong question, or that only a command can meet: tests/api.
ELSEWHERE = {
    "auth.unavailable",
    "limit.rate",
    "process.lost",
    "internal",
    "storage.unavailable",
    "storage.full",
    "storage.damaged",
    "storage.schema",
    "idempotency.in_use",
    "service.busy",
    "service.stopping",
    "request.slow",
    "request.head_too_large",
    "series.unavailable",
    "cells.unavailable",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_conversation(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(file, tmp_path, monkeypatch)


def test_every_route_is_spoken_to() -> None:
    assert silent([route for route in ROUTES if route.is_own], FILES) == []


def test_every_kind_of_problem_is_provoked() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in FILES)
    assert {kind.code for kind in KINDS if f"code: {kind.code}" not in text} == ELSEWHERE
