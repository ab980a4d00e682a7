"""A probe's result reaches the service whole, or the command says why it did not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiler.agent.http_client import HttpAnswer, HttpError, ProbePushError, push_result
from profiler.cli import main
from profiler.observed import PROBE_NAMES, ProbeResult, Quantity
from profiler.probes import PROBES
from tests.profiler.api_double import Double, Reply, serving

CIRCUMSTANCES = {"kernel": "k", "taken_at": "2026-01-31T12:00:00+00:00"}
RESULT = ProbeResult("rtt", {"median": Quantity(0.3, "ms")}, "median", CIRCUMSTANCES, ("steal",))
TAKEN = b'{"accepted": 1, "older": 0, "dropped": 0, "reasons": []}'


class Wire:
    """Answers as the test says, and remembers what it was sent."""

    def __init__(self, status: int, body: bytes) -> None:
        self.answer = HttpAnswer(status, body, None)
        self.sent: list[tuple[str, bytes]] = []

    def post(self, body: bytes, to: str = "") -> HttpAnswer:
        self.sent.append((to, body))
        if not self.answer.status:
            raise HttpError("refused", "nothing listens there")
        return self.answer

    def interrupt(self) -> None: ...
    def close(self) -> None: ...


def test_results_of_every_probe_are_taken() -> None:
    assert tuple(PROBES) == PROBE_NAMES, "profiler/observed.py names in PROBE_NAMES all probes, in their order"


def test_the_whole_result_goes_with_its_place_and_time() -> None:
    wire = Wire(200, TAKEN)
    push_result(wire, RESULT, "h1", "web-1", "h2")
    (to, body) = wire.sent[0]
    (sent,) = json.loads(body)["probes"]
    assert to == "/v1/probes"
    assert (sent["host"], sent["instance"], sent["peer"], sent["probe"]) == ("h1", "web-1", "h2", "rtt")
    assert sent["values"] == {"median": {"value": 0.3, "unit": "ms"}}
    assert (sent["time"], sent["marks"]) == ("2026-01-31T12:00:00+00:00", ["steal"])


@pytest.mark.parametrize(
    ("status", "body", "reported"),
    [
        (0, b"", "the result was not sent: nothing listens there"),
        (403, b'{"detail": "for another host"}', "refused the result: 403, for another host"),
        (200, b'{"accepted": 0, "older": 0, "dropped": 1, "reasons": [{"reason": "unknown host"}]}', "unknown host"),
        (200, b'{"accepted": 0, "older": 1, "dropped": 0, "reasons": []}', "has a newer result"),
        (404, b"<html>", "not that of a Cotenant server of this version (status 404)"),
        (200, b"[]", "not that of a Cotenant server of this version (status 200)"),
    ],
)
def test_what_is_not_taken_is_reported(status: int, body: bytes, reported: str) -> None:
    with pytest.raises(ProbePushError) as caught:
        push_result(Wire(status, body), RESULT, "h1")
    assert reported in str(caught.value)


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as double:
        double.welcome = Reply(body=TAKEN)
        yield double


def test_a_probe_of_this_machine_is_pushed(double: Double, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["probe", "cpu-share", "--count", "20000", "--json", "--push", double.url, "--host", "h1"])
    shown = json.loads(capsys.readouterr().out)
    assert (code, double.paths) == (0, ["/v1/probes"])
    (sent,) = double.announced[0]["probes"]
    assert (sent["host"], sent["instance"], sent["main"]) == ("h1", None, "share")
    assert sent["values"] == shown["values"]


def test_who_ran_beside_the_instance_is_sent_with_a_probe_that_has_no_far_end(double: Double) -> None:
    where = ["--push", double.url, "--host", "h1", "--inside", "web-9", "--peer", "db-3"]
    assert main(["probe", "cpu-share", "--count", "20000", "--json", *where]) == 0
    (sent,) = double.announced[0]["probes"]
    assert (sent["instance"], sent["peer"]) == ("web-9", "db-3")


def test_options_that_need_a_server_are_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["probe", "cpu-share", "--host", "h1"]) == 2
    assert "--host goes with --push" in capsys.readouterr().err
    (tmp_path / "token").write_text("")
    (tmp_path / "token").chmod(0o600)
    url = "http://127.0.0.1:9"
    assert main(["probe", "cpu-share", "--push", url, "--token-file", str(tmp_path / "token")]) == 2
    assert "token" in capsys.readouterr().err
    assert main(["probe", "cpu-work", "--push", url, "--host", "h1", "--peer", "db-3"]) == 2
    assert "--peer goes with --inside" in capsys.readouterr().err
