"""The real program in a real process: help, exit codes, pipes, and the service from start to stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from advisor import offline
from api.cli import main
from tests.api import cli_runs
from tests.servers.forked import Forked
from tests.servers.service import Service as ForkedService

CLOUD = Path(__file__).parent / "cloud.yaml"
PROGRAM = (sys.executable, "-W", "error", "-c", "from api.cli import main; main()")
COMMANDS = ("serve", "where", "predict", "plan", "train", "evaluate", "sync", "models", "db")


def run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (*PROGRAM, *arguments),
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_version_is_printed(tmp_path: Path) -> None:
    done = run("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert re.fullmatch(r"cotenant \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    ("words", "completed"),
    [("cotenant wor", {"worth"}), ("cotenant models sha", {"shadow"}), ("cotenant where --js", {"--json"})],
)
def test_a_shell_can_complete_commands_and_options(words: str, completed: set[str], tmp_path: Path) -> None:
    asked = {"_COTENANT_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = Path(sys.executable).with_name("cotenant")
    printed = Forked(program, folder=tmp_path, environment=os.environ | asked).communicate(timeout=120)
    assert set(printed.split()) == completed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    shown = cli_runs.run(command, "--help").stdout
    assert "Usage: " in shown
    for option in re.findall(r"^  (?:-\w, )?--[a-z-]+.*?(?=^  \S|\Z)", shown, re.MULTILINE | re.DOTALL):
        assert len(option.split()) > 2, f"no help for {option}"


def test_a_reader_that_goes_away_is_no_crash(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        (*PROGRAM, "--help"), cwd=tmp_path, check=False, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(writer)
    assert done.stderr == ""


NOISY = """
import ctypes, os, scipy.optimize
def noisy(*given, milp=scipy.optimize.milp, **options):
    ctypes.CDLL(None).puts(b"buffered by C")
    os.write(1, b"written at once\\n")
    return milp(*given, **options)
scipy.optimize.milp = noisy
from api.cli import main
main()
"""


@pytest.mark.parametrize("closed", ["", "os.close(2)"])
def test_what_a_solver_in_c_prints_is_no_part_of_the_json(closed: str, tmp_path: Path) -> None:
    program = (sys.executable, "-c", f"import os; {closed}\n{NOISY}")
    done = subprocess.run(
        (*program, "plan", CLOUD, "--kind", "consolidate", "--json"),
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert json.loads(done.stdout)["kind"] == "consolidate"
    lines = done.stderr.splitlines()
    assert (lines.count("buffered by C") > 0, lines.count("written at once") > 0) == (not closed, not closed)


def test_each_program_keeps_its_standard_output(tmp_path: Path) -> None:
    for name in ("api", "research"):
        replaced = "api.cli.version = lambda _: os.write(1, b'C') and '1.2.3'"
        program = f"import api.cli, os, {name}.cli; {replaced}; {name}.cli.main()"
        argv = (sys.executable, "-c", program, "--version")
        done = subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60)
        assert re.fullmatch(r"cotenant(-research)? 1\.2\.3\n", done.stdout)
        assert done.stderr == "C"


def test_an_unforeseen_error_is_one_sentence_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(offline, "load_inventory", broken)
    monkeypatch.setattr(sys, "argv", ["cotenant", "where", "x.yaml", "--instance", "y"])
    monkeypatch.delenv("COTENANT_LOG_LEVEL", raising=False)
    with pytest.raises(SystemExit, match="1"):
        main()
    said = capsys.readouterr().err
    assert said.startswith("cotenant: internal error, ZeroDivisionError: division by zero")
    assert len(said.splitlines()) == 1
    monkeypatch.setenv("COTENANT_LOG_LEVEL", "debug")
    with pytest.raises(SystemExit, match="1"):
        main()
    assert "Traceback" in capsys.readouterr().err


class Service:
    """`cotenant serve` on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            (*PROGRAM, "serve", "--listen", "127.0.0.1:0"), cwd=folder, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.match(r"Cotenant listens on (http://127\.0\.0\.1:(\d+)) ", line):
                self.url, self.port = found[1], int(found[2])
                return
        raise AssertionError("".join(self.lines))

    def stop(self) -> list[str]:
        """Ask it to stop; what it had to say."""
        self.process.terminate()
        assert self.process.stderr
        rest = self.process.stderr.readlines()
        self.process.wait(timeout=120)
        self.process.stderr.close()
        return rest


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    started = Service(tmp_path)
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.communicate()


def test_the_service_answers_logs_and_stops_gracefully(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No token is configured: this machine only." in service.lines[-1]
    monkeypatch.chdir(tmp_path)
    assert cli_runs.run("sync", str(CLOUD)).exit_code == 0
    question = {"instance": {"id": "n", "vcpus": 2, "workload": "web-1k"}}
    with httpx.Client(base_url=service.url) as client:
        assert client.get("/readyz").json()["hosts"] == 6
        answer = client.post("/v1/placements", json=question, headers={"Authorization": "Bearer secret"})
        assert answer.json()["candidates"][0]["rank"] == 1
        assert "server" not in answer.headers
        assert client.get("/").status_code == 200
        taken = cli_runs.run("serve", "--listen", f"127.0.0.1:{service.port}")
    assert taken.exit_code == 1
    assert taken.stderr == (
        f"cotenant: cannot listen on 127.0.0.1:{service.port}: Address already in use; choose another\n"
    )
    lines = service.stop()
    assert service.process.returncode == 0
    reported = [json.loads(line) for line in lines]
    assert [line["route"] for line in reported if line["logger"] == "cotenant.access"] == ["/v1/placements", "/"]
    assert "secret" not in "".join(lines)


def test_ctrl_c_is_a_good_end_too_and_a_request_under_way_is_finished_before_it(tmp_path: Path) -> None:
    service = ForkedService(f"sqlite:///{tmp_path}/cotenant.sqlite3", tmp_path, forked=True).start()
    process = service.running.process
    assert process is not None
    body = b'{"samples": []}'
    head = (
        f"POST /v1/samples HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=120) as connection:
        connection.sendall(head.encode() + b"\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100"), "it is asked for its body: it is under way"
        connection.sendall(body[:5])
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        connection.sendall(body[5:])
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 422")
    assert process.wait(timeout=120) == 0


def test_a_database_of_another_program_is_reported_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "other.sqlite3")) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    done = cli_runs.run("serve", "--listen", "127.0.0.1:0", "--database", "sqlite:///other.sqlite3")
    assert done.exit_code == 1
    assert "holds tables of another program" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("0.0.0.0:0", "refusing to listen on 0.0.0.0: no token is configured"),
        ("example.org:80", "refusing to listen on example.org"),
        ("nonsense", "'nonsense' is not ADDRESS:PORT"),
    ],
)
def test_an_address_to_listen_on_must_be_valid(
    listen: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli_runs.run("serve", "--listen", listen)
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_unknown_log_level_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTENANT_LOG_LEVEL", "loud")
    result = cli_runs.run("serve", "--listen", "127.0.0.1:0")
    assert result.exit_code == 2
    assert "COTENANT_LOG_LEVEL 'loud'" in result.stderr
