"""The service as a process: what it listens on without and with a token, and that it discloses no secret."""

from __future__ import annotations

import base64
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from advisor.service import Advisor
from advisor.settings import Settings
from api.cli import main
from tests.servers.forked import Forked
from tests.servers.postgres import Postgres, postgres
from tests.servers.running import NotInstalled
from tests.servers.service import COTENANT

UNREACHABLE = "postgresql://cotenant:hunter2-hunter2@127.0.0.1:1/none"


@contextmanager
def service(folder: Path, listen: str, **environment: str) -> Iterator[tuple[str, Path]]:
    """The line that says where it listens, and the file that its log goes to."""
    log = folder / "log"
    log.touch()
    argv = (COTENANT, "serve", "--listen", listen)
    process = Forked(*argv, folder=folder, environment={**os.environ, **environment}, log=log)
    try:
        while process.poll() is None:
            found = re.search(r"^Cotenant listens on .*\n", log.read_text(encoding="utf-8"), re.MULTILINE)
            if found:
                break
            time.sleep(0.02)
        else:
            raise AssertionError(log.read_text(encoding="utf-8"))
        yield found[0], log
    finally:
        process.terminate()
        process.wait(60)


def test_it_listens_elsewhere_once_there_is_a_token_and_says_what_that_means(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    with Advisor(Settings(database=f"sqlite:///{tmp_path}/var/cotenant.sqlite3")) as advisor:
        token, text = advisor.access.tokens.create("all", "read", lasts=None)
        advisor.access.tokens.revoke(token.id)
        _, text = advisor.access.tokens.create("all", "read", lasts=None)
    with service(tmp_path, "0.0.0.0:0") as (line, _):
        assert "Tokens are asked for." in line
        assert "They travel in clear text" in line
        port = re.search(r":(\d+) ", line)
        assert port
        elsewhere = _own_address()
        url = f"http://{elsewhere}:{port[1]}/v1/hosts"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": f"Bearer {text}"}).status_code == 200


def _own_address() -> str:
    """An address of this machine that is not a loopback one, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: it only asks which address would be used
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def test_no_secret_is_in_logs_answers_metrics_or_the_audit_log(tmp_path: Path) -> None:
    try:
        with postgres() as server:
            _whole_run(server, tmp_path)
    except NotInstalled as error:
        pytest.skip(str(error))


def _whole_run(server: Postgres, folder: Path) -> None:
    """Every kind of answer, good and bad, at the loudest log level; then the database goes away."""
    database = server.url(server.new_database())
    environment = {"COTENANT_DATABASE": database, "COTENANT_LOG_LEVEL": "debug", "COTENANT_RATE_LIMIT": "0"}
    with Advisor(Settings(database=database)) as advisor:
        token, right = advisor.access.tokens.create("all", "admin", lasts=None)
    wrong = f"cot_{token.id}_{'w' * 43}"
    basic = base64.b64encode(f"me:{right}".encode()).decode()
    reported: list[str] = []
    with service(folder, "127.0.0.1:0", **environment) as (line, log):
        found = re.search(r"http://\S+", line)
        assert found
        with httpx.Client(base_url=found[0], timeout=60) as client:

            def ask(method: str, path: str, authorization: str = f"Bearer {right}", **options: Any) -> int:
                answer = client.request(method, path, headers={"Authorization": authorization}, **options)
                reported.append(f"{answer.headers}\n{answer.text}")
                return answer.status_code

            assert ask("PUT", "/v1/hosts/h1", json={"kind": "kvm", "pcpus": 4, "memory_mb": 1024}) == 201
            assert ask("POST", "/v1/placements", json={"instance": {"id": "n", "vcpus": 1}}) == 200
            assert ask("GET", "/v1/hosts/nope") == 404
            assert ask("PUT", "/v1/hosts/h2", json={"kind": right}) == 422
            assert ask("GET", "/v1/hosts", f"Bearer {wrong}") == 401
            assert ask("GET", "/", f"Basic {basic}") == 200
            assert ask("GET", "/v1/audit") == 200
            assert ask("GET", "/metrics") == 200
            assert ask("GET", "/openapi.json") == 200
            server.running.stop()
            assert ask("GET", "/v1/hosts") == 503
            assert ask("GET", "/readyz") == 503
    lines = log.read_text(encoding="utf-8")
    server.running.start()
    with Advisor(Settings(database=database)) as advisor:
        audited = str(advisor.access.audit().items)
    assert '"route": "/v1/placements"' in lines
    assert f"token:{token.id}" in lines, "the log says who asked"
    assert "host.put" in audited
    for where, text in (("log", lines), ("answers", "\n".join(reported)), ("audit log", audited)):
        for secret in (right.rpartition(token.id)[2], wrong.rpartition(token.id)[2], basic, server.password):
            assert secret not in text, where


def test_a_database_that_cannot_be_reached_is_reported_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["cotenant", "serve", "--listen", "127.0.0.1:0", "--database", UNREACHABLE])
    with pytest.raises(SystemExit, match="1"):
        main()
    reported = capfd.readouterr()
    assert "postgresql://cotenant:***@127.0.0.1:1/none" in reported.err
    assert "hunter2" not in reported.out + reported.err
