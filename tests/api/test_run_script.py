"""`make run` on a machine where something fails: what was trained is kept and used, and the user reads no traceback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from models.learning import artifact
from tests.servers.local_http import QuietHandler, on_loopback

ROOT = Path(__file__).resolve().parents[2]
# Notes what it is asked, trains a model that cannot be registered, and serves nothing.
COTENANT = """#!/bin/sh
echo "$*" >> "$COTENANT_STATE_DIR/asked"
case "$1 $2" in
  "models list")
    [ -z "$NO_LIST" ] || { echo "the database is locked" >&2; exit 1; }
    echo "$MODELS" ;;
  "train "*)
    made="$COTENANT_STATE_DIR/models/m-1"
    [ -n "$NO_MODEL" ] || { mkdir -p "$made" && echo "$CARD" > "$made/card.json"; }
    echo "its first prediction failed" >&2
    exit 1 ;;
  "serve "*) exit 3 ;;
esac
"""


class Script:
    """The script with a stand-in for the command."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "cotenant").write_text(COTENANT, encoding="utf-8")
        (folder / "bin" / "cotenant").chmod(0o755)
        (folder / "bin" / "python").symlink_to(sys.executable)

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = {"BIN": str(self._folder / "bin"), "COTENANT_STATE_DIR": str(self._folder)}
        own |= {"CARD": json.dumps({"schema": artifact.SCHEMA}), "MODELS": '[{"version": "analytic"}]'}
        environment = {**os.environ, **own, "COTENANT_LISTEN": f"127.0.0.1:{port}", **more}
        command = ["bash", str(ROOT / "examples" / "run.sh")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def asked(self) -> list[str]:
        return (self._folder / "asked").read_text(encoding="utf-8").splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_a_model_that_could_not_be_registered_is_tried_again_and_not_trained_again(script: Script) -> None:
    first, second = script.run(), script.run()
    assert [line.split()[0] for line in script.asked()].count("train") == 1
    assert script.asked().count("models activate m-1") == 2
    assert "its first prediction failed" in first.stderr
    assert "Traceback" not in first.stderr + second.stderr


def test_a_model_of_an_older_version_is_none_and_another_is_trained(script: Script, tmp_path: Path) -> None:
    (tmp_path / "models" / "m-old").mkdir(parents=True)
    card = {"schema": artifact.SCHEMA - 1}
    (tmp_path / "models" / "m-old" / "card.json").write_text(json.dumps(card), encoding="utf-8")
    script.run(MODELS=json.dumps([{"version": "m-old", "card": card}]))
    assert [line for line in script.asked() if line.startswith("models activate")] == ["models activate m-1"]


def test_where_another_program_listens_it_says_so_before_it_does_anything(script: Script, tmp_path: Path) -> None:
    class Other(QuietHandler):
        def do_GET(self) -> None:
            self.send_error(404)

    with on_loopback(Other) as server:
        there = f"127.0.0.1:{server.server_port}"
        found = script.run(COTENANT_LISTEN=there)
    assert found.returncode == 1
    said = f"Another program listens on {there}: name another port, COTENANT_LISTEN=127.0.0.1:8090 make run\n"
    assert found.stderr == said
    assert not (tmp_path / "asked").exists()


def test_without_any_model_it_ends_and_says_so(script: Script) -> None:
    found = script.run(NO_MODEL="1")
    assert found.returncode == 1
    assert "There is no model to answer with" in found.stderr
    assert "Traceback" not in found.stderr


def test_where_the_models_cannot_be_listed_it_ends_and_trains_none(script: Script) -> None:
    found = script.run(NO_LIST="1")
    assert found.returncode != 0
    assert "the database is locked" in found.stderr
    assert "Traceback" not in found.stderr
    assert not [line for line in script.asked() if line.startswith("train")]


def test_it_ends_with_a_service_that_ends(script: Script) -> None:
    assert script.run().returncode != 0
    assert script.asked()[-1].startswith("serve")
