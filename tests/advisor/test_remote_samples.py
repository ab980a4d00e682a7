"""A store of samples that answers badly: one sentence each, within bounds; nothing of it is taken for stored."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory
from advisor.errors import InvalidInput, SeriesUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import hosts
from advisor.telemetry import remote_samples
from advisor.telemetry.remote_samples import RemoteSamples
from profiler.observed import MetricSample
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.local_http import QuietHandler, on_loopback

SAMPLES = [MetricSample("h1", "i1", "instance", "cpu", 1.0, 60.0 * at) for at in (2, 1)]


@contextmanager
def store(status: int, said: bytes = b"", *, endless: bool = False) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Its URL and the headers of what it got."""
    got: list[dict[str, str]] = []

    class Store(QuietHandler):
        def do_POST(self) -> None:
            self.request_body()
            got.append(dict(self.headers))
            if not endless:
                self.reply(status, said)
                return
            self.send_response(status)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                self.close_connection = True

    with on_loopback(Store) as server:
        yield url_of(server), got


def url_of(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


@pytest.mark.parametrize(
    ("status", "said", "sentence"),
    [
        (503, b"try later", "refuses samples with 503: try later"),
        (401, b"secret", "refuses samples with 401: see COTENANT_SAMPLES_AUTHORIZATION_FILE"),
        (302, b"", "refuses samples with 302"),
    ],
)
def test_what_may_be_taken_later_is_an_error(status: int, said: bytes, sentence: str) -> None:
    with store(status, said) as (url, _), pytest.raises(SeriesUnavailable, match=sentence):
        RemoteSamples(Settings(samples_url=url)).send(SAMPLES)


def test_what_is_refused_for_ever_is_sent_again_by_time_and_named() -> None:
    with store(400, b"out of bounds") as (url, got):
        refused = RemoteSamples(Settings(samples_url=url)).send(SAMPLES)
    assert refused == dict.fromkeys((0, 1), "the store of samples refuses it: out of bounds")
    assert len(got) == 3
    assert {one["Content-Encoding"] for one in got} == {"snappy"}


def test_an_endless_answer_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_samples, "WRITE_S", 5.0)
    with store(500, endless=True) as (url, _), pytest.raises(SeriesUnavailable, match="with 500"):
        RemoteSamples(Settings(samples_url=url)).send(SAMPLES)


def test_the_secret_goes_along_and_other_stores_may_take_the_writes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret = f"Basic {base64.b64encode(b'a:b').decode()}"
    file.write_text(secret, encoding="utf-8")
    file.chmod(0o600)
    with store(204) as (url, got):
        settings = Settings(
            samples_url="http://127.0.0.1:1", samples_write_url=f"{url}/api/v1/push", samples_authorization_file=file
        )
        assert RemoteSamples(settings).send(SAMPLES) == {}
    assert [one["Authorization"] for one in got] == [secret]


def test_with_an_empty_url_of_writes_nothing_is_written() -> None:
    assert RemoteSamples(Settings(samples_url="http://127.0.0.1:1", samples_write_url="")).send(SAMPLES) == {}


@pytest.mark.parametrize("url", ["ftp://store", "http://user:word@store", "http://store?a=b"])
def test_an_url_that_is_none_is_refused_at_the_start(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        RemoteSamples(Settings(samples_url=url))
    assert refused.value.field == "samples_url"


def minutes(begin: int, end: int, begin_s: float) -> list[MetricSample]:
    """Two instances on one host and what its CPUs did, each minute at 7 s."""
    values = [("i1", "cpu", 1.0), ("i1", "waiting", 0.2), ("i2", "cpu", 0.5), ("i2", "net_mbit", 0.1)]
    sent: list[MetricSample] = []
    for at in range(begin, end):
        time_s, level = begin_s + 60.0 * at + 7.0, 50.0 + 10.0 * (at % 9)
        sent += [MetricSample("h1", name, "instance", metric, part * level, time_s) for name, metric, part in values]
        sent.append(MetricSample("h1", None, "host", "busy", 2 * level + 100.0, time_s))
        sent.append(MetricSample("h1", None, "driver_domain", "cpu", 10.0, time_s))
    return sent


def test_what_is_learned_is_the_same_without_samples_in_the_database(tmp_path: Path) -> None:
    """With a batch sent twice, one that was late, and two hours without any."""
    clock, learned = Clock(), []
    begin_s = clock().timestamp() // 300 * 300 - 6 * 3600
    batches = [minutes(0, 40, begin_s), minutes(0, 40, begin_s), minutes(50, 100, begin_s), minutes(38, 50, begin_s)]
    batches += [minutes(220, 350, begin_s)]
    with store(204) as (url, _):
        for name, samples_url in (("here", None), ("elsewhere", url)):
            folder = tmp_path / name
            folder.mkdir()
            settings = Settings(
                database=sqlite_with_tables(folder / "c.sqlite3"), state_dir=folder, samples_url=samples_url
            )
            with Advisor(settings, clock=clock) as advisor:
                there = tuple(Instance(one, vcpus=2, host="h1") for one in ("i1", "i2"))
                advisor.inventory.put(Inventory((Host("h1", "kvm", 8, 4096),), there), mode="replace", generation=None)
                answers = [advisor.telemetry.ingest(batch) for batch in batches]
                with advisor._transactions.read() as connection:
                    loads = [(row.id, row.cpus) for row in hosts.own_loads(connection)]
                demand = {one.id: dict(one.demand) for one in advisor.cloud.inventory().instances}
                learned.append((demand, loads, answers[1]["duplicate"]))
    (demand, loads, again), elsewhere = learned
    assert elsewhere[0] == demand
    assert elsewhere[1] == [(host, pytest.approx(cpus)) for host, cpus in loads]
    assert elsewhere[2] == again == len(batches[1])
    assert demand["i1"]["cpu"].windows > 10
