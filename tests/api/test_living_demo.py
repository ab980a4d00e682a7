"""`cotenant demo --replay`: a recorded day reaches a real service, by the service's own clock, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from api.cli import living_demo
from api.cli.asking import ServiceFailed
from api.cli.living_demo import DayOfLines, FastClock, Feeder, NewestSamples, recorded
from api.html import Demonstration
from cotenant_client import InvalidInput, Unavailable
from tests.servers.forked import Forked
from tests.servers.running import free_port
from tests.servers.service import COTENANT, ask


@contextmanager
def shown(folder: Path) -> Iterator[tuple[Forked, str]]:
    """The demo, with `folder` for temporary files, and its URL."""
    port = free_port()
    argv = (COTENANT, "demo", "--replay", "--listen", f"127.0.0.1:{port}")
    process = Forked(*argv, environment={**os.environ, "TMPDIR": str(folder)})
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def until(process: Forked, word: str) -> str:
    """What it says up to the line with this word, and that line."""
    said = ""
    for line in process.stdout:
        said += line
        if word in line:
            return said
    raise AssertionError(said)


def test_a_recorded_day_is_served_and_nothing_of_it_is_left(tmp_path: Path) -> None:
    with shown(tmp_path) as (process, url):
        said = until(process, "should go to h")
        assert "The recording: 19 containers on 6 hosts" in said
        assert "A second is 2 minutes" in said
        assert len(ask(f"{url}/v1/hosts").body["items"]) == 6
        db = ask(f"{url}/v1/instances/db-3").body
        assert db["host"] == "h6"
        answer = ask(
            f"{url}/v1/placements", "POST", {"instance": {"id": "n-1", "vcpus": 1, "memory_mb": 512}, "dry_run": True}
        ).body
        assert answer["candidates"][0]["evidence"]["measured"] > 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=90)
    assert process.returncode == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_while_it_starts_it_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("ignored here, as a shell does for what it runs in the background, and so by the demonstration")
    with shown(tmp_path) as (process, _):
        until(process, "The recording")
        process.send_signal(number)
        process.communicate(timeout=90)
    assert process.returncode != -number  # it was not cut off
    assert list(tmp_path.iterdir()) == []


def test_a_signal_whose_exception_is_dropped_still_ends_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what is raised in a finalizer: the service begins, and has to end at once."""
    before = {number: signal.getsignal(number) for number in living_demo.ENDINGS}
    ended: list[int] = []

    def run_service(_settings: object, *, shown: Demonstration) -> None:
        with suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))  # as uvicorn's, which ends the service
        shown.listens("http://127.0.0.1:1")

    monkeypatch.setattr("api.cli.serve.run_service", run_service)
    try:
        living_demo.serve("127.0.0.1:0", live=False)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended == [signal.SIGTERM]


def test_it_says_why_there_are_no_containers_and_replays(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with ExitStack() as stack:
        day, clock = living_demo._chosen(stack, live=True)
    assert "No containers can run here (they need " in capsys.readouterr().out
    assert day.again
    assert clock().hour == 8  # so much of the recorded day is sent at once


def test_agents_that_warn_a_lot_do_not_hold_the_day_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    header = {"faster": 120.0, "begin_h": 7.0, "begin_s": 0.0, "made": "much said"}
    chatty = tmp_path / "python"
    chatty.write_text(f"#!/bin/sh\nhead -c 1000000 /dev/zero >&2\necho '{json.dumps(header)}'\n")
    chatty.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sys, "executable", str(chatty))
    with living_demo._containers() as day:
        assert isinstance(day, DayOfLines) and day.made == "much said"


def test_the_recorded_day_is_whole_and_all_of_its_agents_tell() -> None:
    day = recorded()
    hosts: dict[int, set[str]] = {}
    last_s = 0.0
    for line in day.lines():
        samples = line["body"].get("samples", ())
        hosts.setdefault(int(line["at"] // 60), set()).update(one["host"] for one in samples)
        assert line["at"] > last_s - 1
        last_s = max(last_s, line["at"])
    assert last_s == pytest.approx(86_400 / day.faster, abs=3)
    assert all(len(there) == 6 for there in hosts.values() if there)
    assert len(hosts) >= 12


def made_day(*seconds: float) -> DayOfLines:
    """Two announcements' worth of nothing but times: one sample at each second."""
    begin = datetime.fromisoformat("2026-01-05T00:00:00+00:00")

    def lines() -> Iterator[dict[str, Any]]:
        for at in seconds:
            time = (begin + timedelta(seconds=at)).isoformat()
            sample = {"host": "h1", "instance": "a-1", "metric": "cpu", "value": at, "time": time}
            yield {"at": at, "to": "/v1/samples", "body": {"samples": [sample]}}

    return DayOfLines(86_400.0, 0.0, begin.timestamp(), "made", lines, again=True)


def test_times_of_agents_become_times_of_the_day_that_passes_and_days_follow_each_other() -> None:
    day = made_day(0.25, 0.5)
    clock = FastClock(day, at_s=3.6)
    times = []
    for to, body, _ in Feeder(day, clock)._posts():
        assert to == "samples"
        times += [datetime.fromisoformat(one["time"]) for one in body["samples"]]
        if len(times) >= 6:
            break
    assert [one.hour for one in times[:6]] == [6, 12] * 3
    assert times[2] - times[0] == timedelta(days=1)
    assert clock() > times[5]


def test_what_is_late_is_posted_together() -> None:
    day = made_day(*(number / 1000 for number in range(100)))
    feeder = Feeder(day, FastClock(day, at_s=0.5))
    _, body, _ = next(feeder._posts())
    assert len(body["samples"]) == 100


def test_the_worst_off_gets_the_smallest_part_of_what_it_wants() -> None:
    seen = NewestSamples()
    seen.take("announcements", {"host": {"id": "h1", "pcpus": 2}})
    assert seen.worst() == "no instance is busy"
    values = {"a-1": (80.0, 20.0), "b-1": (30.0, 70.0), "idle": (0.01, 0.9)}
    samples = [
        {"host": "h1", "instance": name, "metric": metric, "value": value}
        for name, both in values.items()
        for metric, value in zip(("cpu", "waiting"), both, strict=True)
    ]
    seen.take("samples", json.loads(json.dumps({"samples": samples})))
    assert seen.hosts() == "h1 55 %"
    assert seen.worst().startswith("most affected: b-1 on h1, CPU delivered 30 %")


def test_a_slow_service_is_sent_the_same_again_and_one_that_refuses_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    late = [Unavailable("x", kind="timeout"), Unavailable("x", status=503, problem={"code": "service.busy"})]
    answers: list[Exception | None] = [*late, None, InvalidInput("no such host")]

    class Slow:
        def post(self, *_: str, body: object) -> object:
            del body
            cause = answers.pop(0)
            if cause is not None:
                raise ServiceFailed("late") from cause
            return {}

    monkeypatch.setattr(living_demo, "_AGAIN_S", 0.0)
    feeder = Feeder.__new__(Feeder)
    feeder._service, feeder._stopping = cast(Any, Slow()), threading.Event()
    assert feeder._post("samples", {}) == {}
    with pytest.raises(ServiceFailed):
        feeder._post("samples", {})
