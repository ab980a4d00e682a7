"""Profiles by PromQL: what the agent's exporter shows comes back from a real Prometheus as it was measured."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from advisor.domain import Host, Instance
from advisor.errors import InvalidInput, NotFound, SeriesUnavailable
from advisor.offline import profile_series
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.telemetry import series_store
from advisor.telemetry.profiles import Seen
from advisor.telemetry.series_store import SeriesStore
from models.profiling.windows import align
from profiler.agent.exporter import page, series_text
from profiler.agent.loop import BUCKETS_S, AgentView
from profiler.collectors.windows import Key, MetricWindow, Statistic
from profiler.metrics import ADDITIONAL_UNITS, EIGHT
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.local_http import QuietHandler, on_loopback
from tests.servers.prometheus import Prometheus, prometheus
from tests.servers.running import NotInstalled

WINDOW_S, WINDOWS = 10.0, 60
NOTHING: dict[str, Any] = {"global": {"scrape_interval": "1h"}}


@cache
def begin_s() -> float:
    """When the first window began, for all tests here: by the first that asks, for they are collected long before."""
    return 10 * math.floor(datetime.now(UTC).timestamp() / 10) - WINDOWS * WINDOW_S - 60


def measured(number: int) -> dict[Key, float]:
    """Window `number` of a host with two instances; instance i1 works harder in the second half. Made up."""
    cpu = (40.0 if number < WINDOWS / 2 else 98.5) + (-0.3, 0.1, 0.4)[number % 3]
    found: dict[Key, float] = {
        ("i1", "instance", name): 0.1 * number for name in ADDITIONAL_UNITS if name not in ("busy", "steal")
    }
    found |= {
        ("i1", scope, metric.name): 3.0 + number for metric in EIGHT for scope in metric.scopes if scope != "host"
    }
    found |= {("i1", "instance", "cpu"): cpu, ("i1", "instance", "block"): 100 - cpu}
    found |= {(None, "host", metric.name): 900.0 + number for metric in EIGHT if "host" in metric.scopes}
    found |= {(None, "host", "busy"): cpu / 4, (None, "host", "steal"): 0.5}
    found |= {(None, "driver_domain", "cpu"): 30.0 + number}
    found |= {("i2", "instance", "cpu"): 1.0 + number / 100, ("i2", "instance", "waiting"): 7.0}
    return found


def view(host: str, series: dict[Key, float], *, end_s: float = 0.0, finished: int = 0) -> AgentView:
    window = MetricWindow(
        host, end_s, WINDOW_S, {key: Statistic(value, 2 * value, 10) for key, value in series.items()}, 0
    )
    return AgentView(host, "lxc", {}, window, 0, {}, finished, {}, tuple([0] * (len(BUCKETS_S) + 1)), 0.0)


def scrapes(every_s: float, *, host: str = "h1", target: str = "h1:9405", **labels: str) -> Iterator[tuple[float, Any]]:
    """What a Prometheus with honor_labels stores of the exporter: (time, samples), a scrape every so many seconds."""
    for step in range(int(WINDOWS * WINDOW_S / every_s)):
        time_s = begin_s() + step * every_s + 1.5
        page = series_text(view(host, measured(int(step * every_s / WINDOW_S))))
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                yield (
                    time_s,
                    (sample.name, {"instance": target, "job": "agents", **labels, **sample.labels}, sample.value),
                )


def idle(every_s: float, host: str, *, restarted: int = WINDOWS) -> Iterator[tuple[float, Any]]:
    """All that an exporter says of a host of this name where nothing changes; its agent starts anew at a window."""
    series: dict[Key, float] = {(f"i-{host}", "instance", "cpu"): 0.0, (None, "host", "busy"): 2.0}
    for step in range(int(WINDOWS * WINDOW_S / every_s)):
        time_s = begin_s() + step * every_s + 1.5
        number = int(step * every_s / WINDOW_S)
        finished = number + 1 if number < restarted else number + 1 - restarted
        shown = view(host, series, end_s=begin_s() + number * WINDOW_S + 0.25, finished=finished)
        for family in text_string_to_metric_families(page(shown, None, None, "1").decode()):
            for sample in family.samples:
                if sample.name.startswith("cotenant_"):
                    labels = {"instance": f"{host}:9405", "job": "agents", **sample.labels}
                    yield (time_s, (sample.name, labels, sample.value))


def history(*found: tuple[float, Any]) -> str:
    """Samples as OpenMetrics with their times, each series in one piece and in order, as promtool takes it."""
    lines = sorted(
        (name, ",".join(f'{key}="{text}"' for key, text in sorted(labels.items())), time_s, value)
        for time_s, (name, labels, value) in found
    )
    text, former = [], ""
    for name, labels, time_s, value in lines:
        if name != former:
            text.append(f"# TYPE {name} gauge\n")
            former = name
        text.append(f"{name}{{{labels}}} {value!r} {time_s:.3f}\n")
    return "".join([*text, "# EOF\n"])


@pytest.fixture(scope="module")
def store() -> Iterator[Prometheus]:
    """h1, scraped every 5 s, and by a second job every 20 s; h2, which had i1 before, every 15 s; three idle hosts."""
    before = [(time_s - WINDOWS * WINDOW_S, sample) for time_s, sample in scrapes(15, host="h2", target="h2:9405")]
    still = (*idle(5, "calm"), *idle(25, "seldom"), *idle(30, "anew", restarted=WINDOWS // 2))
    every = (*scrapes(5), *scrapes(20, job="twin"), *before, *still)
    try:
        with prometheus(NOTHING, history=history(*every)) as running:
            yield running
    except NotInstalled as missing:
        pytest.skip(str(missing))


def settings(url: str, **others: Any) -> Settings:
    return Settings(prometheus_url=url, **others)


def seen(url: str, instance: str, since: str = "1h") -> Seen:
    return series_store.read(settings(url), instance, since=since, now=datetime.now(UTC))


def read(url: str, since: str = "1h") -> Any:
    return seen(url, "i1", since).readings


def test_every_gauge_of_the_exporter_is_read_back_in_its_own_unit(store: Prometheus) -> None:
    found = read(store.url)
    expected = {key: value for key, value in measured(7).items() if key[0] != "i2"}
    expected["i2", "instance", "cpu"] = measured(7)["i2", "instance", "cpu"]
    at = begin_s() + 7 * WINDOW_S + 1.5
    seen = {key[1:]: values[list(times).index(at)] for key, (times, values) in found.items() if key[0] == "h1"}
    assert seen == pytest.approx(expected)


def test_a_window_that_was_scraped_twice_counts_once_and_two_jobs_are_not_mixed(store: Prometheus) -> None:
    windows = align(read(store.url), "i1")
    assert (windows.host, windows.period_s, len(windows)) == ("h1", WINDOW_S, WINDOWS)
    assert windows.own["cpu"] == pytest.approx([measured(number)["i1", "instance", "cpu"] for number in range(WINDOWS)])
    assert windows.others["i2"] == pytest.approx(1 + np.arange(WINDOWS) / 100)
    assert windows.elsewhere == {"h2": WINDOWS * 2 // 3}


def test_scrapes_further_apart_than_windows_see_some_of_them_each_as_it_was(store: Prometheus) -> None:
    windows = align(read(store.url), "i1", "h2")
    assert windows.period_s == 15
    assert set(windows.own["cpu"].round(6)) <= {round(measured(n)["i1", "instance", "cpu"], 6) for n in range(WINDOWS)}


def test_windows_with_the_same_numbers_are_distinguished_by_when_they_ended(store: Prometheus) -> None:
    found = seen(store.url, "i-calm")
    times, values = found.readings["calm", "i-calm", "instance", "cpu"]
    assert list(times) == [begin_s() + number * WINDOW_S + 0.25 for number in range(WINDOWS)]
    assert set(values) == {0.0}
    assert found.notes == ()


def test_windows_that_no_scrape_saw_are_reported(store: Prometheus) -> None:
    reported = "no scrape saw {} of {} windows on host {}; scrape its agent once per window"
    profile = profile_series(settings(store.url), "i-seldom", since="1h")
    assert profile.notes[-1] == reported.format(34, 58, "seldom")  # windows 0, 2, 5, 7 ... 57
    # 0, 3 ... 27, and after the agent started anew with window 30: 30, 33 ... 57; 28 and 29 are lost
    assert seen(store.url, "i-anew").notes == (reported.format(36, 56, "anew"),)


def test_the_service_and_the_command_find_the_phases_of_what_was_measured(store: Prometheus, tmp_path: Path) -> None:
    profile = profile_series(settings(store.url), "i1", since="1h")
    assert [phase.windows for phase in profile.phases] == [30, 30]
    assert profile.phases[0].metrics["cpu"].value == pytest.approx(40.07, abs=0.05)
    assert profile.phases[1].load.method == "saturated"
    own = settings(store.url, database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)
    with Advisor(own) as advisor:
        advisor.inventory.put_host(Host("h1", "kvm", 4, 8192, platform="p1"))
        advisor.inventory.put_instance(Instance("i1", host="h1"))
        served = advisor.telemetry.profile("i1", since="1h")
    assert len(served.windows) == WINDOWS
    assert [phase.metrics for phase in served.phases] == [phase.metrics for phase in profile.phases]


def test_the_command_reads_a_store_and_needs_no_database(
    store: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = cli_runs.run("profile", "i1", "--prometheus", store.url, "--since", "1h")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("i1 on h1: 60 windows of 10 s.")
    assert list(tmp_path.iterdir()) == []
    both = cli_runs.run("profile", "i1", "--prometheus", store.url, "--samples", __file__)
    assert (both.exit_code, len(both.stderr.splitlines())) == (2, 1)
    assert "--samples and --prometheus are two sources; give one" in both.stderr


def test_what_is_older_is_not_read(store: Prometheus) -> None:
    end_s = begin_s() + WINDOWS * WINDOW_S  # of what was written for the first test, which may be minutes ago
    since_s = datetime.now(UTC).timestamp() - end_s + WINDOW_S * WINDOWS / 3
    assert 0 < len(align(read(store.url, f"{since_s:.0f}s"), "i1")) < WINDOWS / 2


def test_an_instance_that_is_not_there_is_reported_with_what_to_look_at(store: Prometheus) -> None:
    with pytest.raises(NotFound, match=r"has no series of instance i9 in the last 1h; .* honor_labels: true\?"):
        series_store.read(settings(store.url), "i9", since="1h", now=datetime.now(UTC))


def test_a_store_understands_any_name_that_it_said_itself(store: Prometheus) -> None:
    for name in ("h\u00e4", "\U0001f600", 'a"b\\c\n\x7f'):
        assert (
            list(SeriesStore(store.url).select(f"up{{host={series_store.quoted(name)}}}", 60, datetime.now(UTC))) == []
        )


def test_a_name_cannot_become_part_of_the_query() -> None:
    with pytest.raises(InvalidInput, match="is not 1-255"):
        series_store.read(settings("http://127.0.0.1:1"), 'x"} or up{a="', since="1h", now=datetime.now(UTC))


def test_a_real_scrape_of_the_real_exporter_is_understood(tmp_path: Path) -> None:
    """Without a history: the server fetches pages itself, by the scrape configuration that is shipped."""
    import yaml

    from profiler.agent.exporter import Exporter

    page = series_text(view("h1", measured(0)))

    def shown() -> bytes:
        return page.encode()

    exporter = Exporter(("127.0.0.1", 0), shown)
    exporter.start()
    shipped = yaml.safe_load(
        (Path(__file__).parents[2] / "integrations" / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    )
    (agents,) = [job for job in shipped["scrape_configs"] if job["job_name"] == "cotenant-agents"]
    agents |= {"static_configs": [{"targets": [":".join(map(str, exporter.address))]}], "scrape_interval": "250ms"}
    agents.pop("file_sd_configs", None)
    try:
        with prometheus({"scrape_configs": [agents]}) as running:
            for number in (1, 2, 3):
                _until(lambda: len(_times(running.url)) >= number)  # noqa: B023 - it is called at once
                page = series_text(view("h1", measured(number)))
            _until(lambda: len(_times(running.url)) >= 4)
            found = read(running.url)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    finally:
        exporter.stop()
    cpu = found["h1", "i1", "instance", "cpu"][1]
    assert list(cpu)[:4] == pytest.approx([measured(number)["i1", "instance", "cpu"] for number in range(4)])
    assert found["h1", None, "host", "event"][1][0] == 900.0


def _times(url: str) -> Sequence[float]:
    try:
        return list(read(url)["h1", "i1", "instance", "cpu"][0])
    except NotFound:
        return ()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@contextmanager
def answering(
    status: int, body: bytes, *, byte_every_s: float = 0.0, **headers: str
) -> Iterator[tuple[str, list[str | None]]]:
    """Something on loopback that gives every POST this answer; its URL, and the secrets that it was sent."""
    secrets: list[str | None] = []

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            secrets.append(self.headers.get("Authorization"))
            self.request_body()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):
                if not byte_every_s:
                    self.wfile.write(body)
                for at in range(len(body) if byte_every_s else 0):
                    self.wfile.write(body[at : at + 1])
                    time.sleep(byte_every_s)

    with on_loopback(Handler) as server:
        yield f"http://127.0.0.1:{server.server_port}", secrets


EMPTY = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": []}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "answered 200 and nothing that Prometheus would say"),
        (200, b"[" * 100_000, "nothing that Prometheus would say"),
        (
            200,
            b'{"status": "success", "data": {"resultType": "vector", "result": []}}',
            "nothing that Prometheus would",
        ),
        (422, b'{"status": "error", "errorType": "execution", "error": "too many samples"}', "422: too many samples"),
        (200, EMPTY.replace(b"[]", b'[{"metric": {}, "values": [["a", "b"]]}]'), "something that is no series"),
        (200, EMPTY.replace(b"[]", b'[["a"]]'), "something that is no series"),
        (
            200,
            EMPTY.replace(b"[]", b'[{"metric": {"host": "\\ud83d"}, "values": [[1, "1"]]}]'),
            "something that is no series",
        ),
        (200, EMPTY.replace(b"[]", b'[{"metric": {}, "values": [[1%s, "1"]]}]' % (b"0" * 400)), "that is no series"),
        (200, EMPTY.replace(b"[]", b'[{"metric": {}, "values": [[1, 1%s]]}]' % (b"0" * 400)), "that is no series"),
        (401, b"", "refuses with 401; see COTENANT_PROMETHEUS_AUTHORIZATION_FILE"),
        (307, b"", "sends elsewhere with 307"),
    ],
    ids=range(11),
)
def test_what_is_no_good_answer_is_one_sentence(status: int, body: bytes, words: str) -> None:
    with (
        answering(status, body, Location="http://127.0.0.1:1/") as (url, _),
        pytest.raises(SeriesUnavailable, match=words) as reported,
    ):
        read(url)
    assert len(str(reported.value).splitlines()) == 1


def test_times_and_values_that_are_no_numbers_are_left_out() -> None:
    values = b'[[1, "2"], [1e999, "3"], [NaN, "4"], [5, "NaN"], [6, "1e999"]]'
    (series,) = series_store.series_in(
        "there", 200, EMPTY.replace(b"[]", b'[{"metric": {"host": "h1"}, "values": %s}]' % values)
    )
    assert (series.times, series.values) == ([1.0], [2.0])


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_store, "MOST_BYTES", 1000)
    with answering(200, b" " * 100_000) as (url, _), pytest.raises(SeriesUnavailable, match="ask for less time"):
        read(url)


def test_an_answer_byte_by_byte_is_not_waited_for_beyond_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_store, "DEADLINE_S", 0.6)
    with (
        answering(200, b" " * 200, byte_every_s=0.02) as (url, _),
        pytest.raises(SeriesUnavailable, match="did not answer within"),
    ):
        read(url)


def test_an_absent_server_is_reported_with_the_reason() -> None:
    with pytest.raises(SeriesUnavailable, match=r"http://127\.0\.0\.1:1 does not answer \(Connection refused\)"):
        read("http://127.0.0.1:1")


def test_what_is_no_number_is_no_sample() -> None:
    one = b'[{"metric": {"__name__": "up"}, "values": [[1, "NaN"], [2, "+Inf"], [3, "0.5"]]}]'
    with answering(200, EMPTY.replace(b"[]", one)) as (url, _):
        (found,) = SeriesStore(url).select("up", 60, datetime.now(UTC))
    assert (found.times, found.values) == ([3.0], [0.5])


def test_the_secret_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text("Bearer very-secret\n")
    with answering(403, b"") as (url, secrets), pytest.raises(SeriesUnavailable) as reported:
        series_store.read(settings(url, prometheus_authorization_file=file), "i1", since="1h", now=datetime.now(UTC))
    assert secrets == ["Bearer very-secret"]
    assert "very-secret" not in str(reported.value)


@pytest.mark.parametrize(
    ("url", "secret", "words"),
    [
        ("ftp://x", None, "is no URL such as"),
        ("http://", None, "is no URL such as"),
        ("http://x:y", None, "is no URL"),
        ("http://x/?a=b", None, "is no URL such as"),
        ("http://user:pass@x", None, "holds a user or password"),
        ("http://prometheus.example:9090", "Bearer x", "unencrypted; give an https URL"),
        ("https://prometheus.example", "two\nlines", "is to hold one line"),
        ("https://prometheus.example", "plain", "is to hold one line"),
        ("https://prometheus.example", "Bearer é", "is to hold one line"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, url: str, secret: str | None, words: str) -> None:
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(secret or "", encoding="utf-8")
    chosen = settings(url, prometheus_authorization_file=file if secret else None)
    with pytest.raises(InvalidInput, match=words) as reported:
        series_store.read(chosen, "i1", since="1h", now=datetime.now(UTC))
    assert "pass@" not in str(reported.value)


@pytest.mark.parametrize(
    ("mode", "words"),
    [(0o644, r"others may read it \(mode 644\); chmod 640 it"), (None, "secret cannot be read: No such file")],
    ids=["others may read it", "it is not there"],
)
def test_a_secret_file_that_cannot_be_used_is_named(tmp_path: Path, mode: int | None, words: str) -> None:
    file = tmp_path / "secret"
    if mode is not None:
        file.write_text("Bearer very-secret\n")
        file.chmod(mode)
    chosen = settings("http://127.0.0.1:1", prometheus_authorization_file=file)
    with pytest.raises(InvalidInput, match=words) as reported:
        series_store.read(chosen, "i1", since="1h", now=datetime.now(UTC))
    assert "very-secret" not in str(reported.value)
