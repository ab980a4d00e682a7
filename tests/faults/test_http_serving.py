"""`cotenant serve` as processes: workers are replaced, count together, and finish what they have begun."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.advisor.store.at_once import at_once
from tests.servers.service import Service

QUESTION = {"instance": {"id": "n", "vcpus": 1}, "dry_run": True}


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    workers, drain_s = getattr(request, "param", (1, 0))
    database = f"sqlite:///{tmp_path}/db.sqlite3"
    started = Service(database, tmp_path, "--workers", str(workers), drain_s=str(drain_s)).start()
    yield started
    started.running.stop()


def metric(service: Service, name: str) -> float:
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=30) as answer:
        found = re.search(rf"^{name} (\S+)", answer.read().decode(), re.MULTILINE)
    assert found, name
    return float(found[1])


def children(service: Service) -> list[int]:
    """Processes of the service that listen, by their command line: multiprocessing has one of its own beside them."""
    pid = process(service).pid
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    commands = {int(one): Path(f"/proc/{one}/cmdline").read_bytes() for one in found}
    return [one for one, command in commands.items() if b"spawn_main" in command]


def process(service: Service) -> subprocess.Popen[bytes]:
    assert isinstance(service.running.process, subprocess.Popen)
    return service.running.process


def ended(service: Service) -> int:
    return process(service).wait(60)


@pytest.mark.parametrize("service", [(2, 0)], indirect=True)
def test_workers_count_together_are_replaced_and_end_together(service: Service) -> None:
    for _ in range(6):
        assert service.ask("POST", "/v1/placements", QUESTION).status == 200
    assert metric(service, "cotenant_workers") == 2
    assert metric(service, r'cotenant_placements_total\{degraded="false",outcome="no_host"\}') == 6
    first = children(service)
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    deadline = time.monotonic() + 120
    while first[0] in children(service) or len(children(service)) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert service.ask("GET", "/healthz").status == 200, "the other one answers meanwhile"
    workers = children(service)
    process(service).send_signal(signal.SIGTERM)
    assert ended(service) == 0
    assert not [one for one in workers if Path(f"/proc/{one}").exists()]


def test_a_worker_that_ends_before_it_listens_ends_the_service_which_says_how(tmp_path: Path) -> None:
    service = Service(f"sqlite:///{tmp_path}/db.sqlite3", tmp_path, "--workers", "2")

    def kill_the_first() -> None:
        while service.running.process is None or not (workers := children(service)):
            time.sleep(0.01)
        os.kill(workers[0], signal.SIGKILL)

    killing = threading.Thread(target=kill_the_first)
    killing.start()
    with pytest.raises(RuntimeError, match="ended with exit code -9 before it listened"):
        service.start()
    killing.join()


@pytest.mark.parametrize("service", [(2, 0)], indirect=True)
def test_workers_end_with_their_parent(service: Service) -> None:
    workers = children(service)
    process(service).kill()
    ended(service)
    deadline = time.monotonic() + 60
    while [one for one in workers if Path(f"/proc/{one}").exists()]:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("service", [(1, 3)], indirect=True)
def test_a_service_that_is_to_stop_says_so_first_and_answers_on(service: Service) -> None:
    assert service.ask("GET", "/readyz").status == 200
    process(service).send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 3
    while (answer := service.ask("GET", "/readyz")).status == 200:
        assert time.monotonic() < deadline
    assert (answer.status, answer.body["code"]) == (503, "service.stopping")
    assert service.ask("POST", "/v1/placements", QUESTION).status == 200
    assert ended(service) == 0


def test_no_answer_is_cut_off_when_the_service_stops_under_load(service: Service) -> None:
    """What was begun is answered whole. A connection that no process has accepted yet is reset by the system."""
    statuses: list[int] = []
    broken: list[str] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            try:
                statuses.append(service.ask("POST", "/v1/placements", QUESTION).status)
            except OSError as error:
                if "refused" not in str(error) and "reset by peer" not in str(error):
                    broken.append(repr(error))
                return

    crowd = [threading.Thread(target=ask) for _ in range(4)]
    for one in crowd:
        one.start()
    while len(statuses) < 8:
        time.sleep(0.01)
    process(service).send_signal(signal.SIGTERM)
    code = ended(service)
    over.set()
    for one in crowd:
        one.join()
    assert code == 0
    assert set(statuses) == {200}
    assert broken == []


@pytest.mark.parametrize("service", [(2, 0)], indirect=True)
def test_events_reach_listeners_of_every_worker_and_end_with_the_service(service: Service) -> None:
    streams = [urllib.request.urlopen(f"{service.url}/v1/events", timeout=30) for _ in range(8)]  # on both workers
    assert {one.readline() for one in streams} == {b"retry: 2000\n"}
    host = {"kind": "kvm", "pcpus": 2, "memory_mb": 1024}
    assert service.ask("PUT", "/v1/hosts/h1", host).status == 201
    for one in streams:
        while not (line := one.readline()).startswith(b"data: "):
            pass
        assert b'"objects":["h1"]' in line
    process(service).send_signal(signal.SIGTERM)
    assert [one.read() for one in streams] == [b"\n"] * 8, "each is ended, not cut off"
    assert ended(service) == 0


@pytest.mark.parametrize("service", [(2, 0)], indirect=True)
def test_of_a_crowd_with_one_key_all_get_the_same_answer(service: Service) -> None:
    def ask() -> tuple[int, bytes]:
        for _ in range(200):
            headers = {"Content-Type": "application/json", "Idempotency-Key": "k"}
            body = json.dumps(QUESTION).encode()
            request = urllib.request.Request(f"{service.url}/v1/placements", body, headers, method="POST")
            with suppress(urllib.error.HTTPError), urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
            time.sleep(0.05)
        raise AssertionError("it was never answered")

    assert len(set(at_once(*[ask] * 8))) == 1
    assert metric(service, r'cotenant_placements_total\{degraded="false",outcome="no_host"\}') == 1
