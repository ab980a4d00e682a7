"""What Prometheus gets: types, base units and labels that promtool accepts, and a server that no client can wedge."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.processes import wait_until
from profiler.agent import exporter
from profiler.agent.exporter import Exporter, ExporterError, page
from profiler.agent.further_counters import RunQueueStatus
from profiler.agent.loop import BUCKETS_S, REASONS, WINDOW_REASONS, AgentView
from profiler.agent.push import PushStatus
from profiler.agent.spool import SpoolStatus
from profiler.collectors import unit_of
from profiler.collectors.windows import Key, MetricWindow, Statistic
from profiler.metrics import ADDITIONAL_UNITS, EIGHT

SPOOL = SpoolStatus(5, 4, 3, 2, 1, 6, 7, 8)
PUSH = PushStatus(10, 2, {"unknown_host": 3}, 4, {"timeout": 5}, 1.5e9)


def view(series: dict[Key, float], totals: dict[Key, float] | None = None) -> AgentView:
    window = MetricWindow("h1", 1e9, 10.0, {key: Statistic(value, 2 * value, 10) for key, value in series.items()}, 1)
    durations = tuple(range(len(BUCKETS_S) + 1))
    return AgentView(
        "h1", "lxc", series if totals is None else totals, window, 78, dict.fromkeys(REASONS, 1), 3,
        dict.fromkeys(WINDOW_REASONS, 2), durations, 1.25,
    )  # fmt: skip


def everything() -> dict[Key, float]:
    """Every metric there is, in every scope it can have."""
    keys: list[Key] = [
        (None if scope == "host" else name, scope, metric.name)
        for metric in EIGHT
        for scope in metric.scopes
        for name in ("a", "b")
    ]
    keys += [("a", "instance", name) for name in ADDITIONAL_UNITS]
    keys += [(None, "host", name) for name in ("busy", "steal")]
    keys += [(None, "driver_domain", metric.name) for metric in EIGHT if "driver_domain" in metric.scopes]
    return dict.fromkeys(keys, 50.0)


def scraped(seen: AgentView) -> dict[tuple[str, str], float]:
    """Sample name and the labels other than host → value."""
    found = {}
    for family in text_string_to_metric_families(page(seen, SPOOL, PUSH, "1.2.3").decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "host")
            assert (sample.name, labels) not in found, "one series, one line"
            found[sample.name, labels] = sample.value
    return found


CPU: Key = ("a", "instance", "cpu")
DRIVER_CPU: Key = (None, "driver_domain", "cpu")


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (
            view({CPU: 50.0}, {CPU: 1234.0}),
            {
                ("cotenant_cpu_ratio", "instance=a,scope=instance,statistic=mean"): 0.5,
                ("cotenant_cpu_ratio", "instance=a,scope=instance,statistic=p95"): 1.0,
                ("cotenant_cpu_seconds_total", "instance=a,scope=instance"): pytest.approx(12.34),
            },
        ),
        (
            view({("a", "instance", name): 8.0 for name in ("net_mbit", "disk_mb_s", "rss_mb")}),
            {
                ("cotenant_network_bytes_total", "instance=a,scope=instance"): 1e6,
                ("cotenant_disk_bytes_total", "instance=a,scope=instance"): 8e6,
                ("cotenant_resident_memory_bytes", "instance=a,scope=instance,statistic=mean"): 8 * 2**20,
            },
        ),
        (
            view({DRIVER_CPU: 30.0, ("a", "driver_domain", "cpu"): 20.0}),
            {
                ("cotenant_cpu_seconds_total", "scope=driver_domain"): 0.3,
                ("cotenant_attributed_cpu_seconds_total", "instance=a,scope=driver_domain"): 0.2,
            },
        ),
    ],
    ids=["percents as ratios and seconds", "bits and megabytes as bytes", "an instance's share apart from the whole"],
)
def test_values_are_given_in_base_units(seen: AgentView, expected: dict[tuple[str, str], float]) -> None:
    found = scraped(seen)
    assert {name: found[name] for name in expected} == expected
    assert {name for name in found if name[0] == "cotenant_cpu_seconds_total"} <= expected.keys()


def test_waits_by_antagonist_are_counters_and_a_watch_that_failed_is_seen() -> None:
    status = RunQueueStatus({("a", 'b"'): 1.5, ("a", "(host)"): 2.0}, "the kernel refuses")
    text = page(view({}), None, None, "1.2.3", status).decode()
    samples = {
        (sample.name, sample.labels.get("victim"), sample.labels.get("antagonist")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["cotenant_waited_for_seconds_total", "a", 'b"'] == 1.5
    assert samples["cotenant_waited_for_seconds_total", "a", "(host)"] == 2.0
    assert samples["cotenant_profiler_run_queue_up", None, None] == 0


def test_waits_by_antagonist_are_no_gauge() -> None:
    found = scraped(view({("a", "instance", "waited_for:b"): 8.0, ("a", "instance", "waited_for_host"): 3.0}))
    assert found["cotenant_waited_for_host_ratio", "instance=a,scope=instance,statistic=mean"] == 0.03
    assert not any("waited_for:" in name for name, _ in found)


def test_who_is_gone_is_not_shown() -> None:
    assert not [name for name, labels in scraped(view({})) if "instance=" in labels]


def test_every_metric_has_a_line_and_every_percent_and_rate_a_counter() -> None:
    found = {name for name, _ in scraped(view(everything()))}
    for key in everything():
        assert any(key[2].split("_")[0] in name or unit_of(key[2]) in ("Mbit/s", "MB/s", "MB") for name in found), key
    counters = {name for name in found if name.startswith("cotenant_") and name.endswith("_total")}
    assert {f"cotenant_{name}_total" for name in (
        "cpu_seconds", "waiting_seconds", "block_seconds", "executions", "pages_exchanged", "events", "switches",
    )} <= counters  # fmt: skip


def test_the_agents_own_state_is_there() -> None:
    found = scraped(view({}))
    assert found["cotenant_profiler_build_info", "backend=lxc,version=1.2.3"] == 1
    assert found["cotenant_profiler_dropped_total", "reason=late"] == 1
    assert found["cotenant_profiler_windows_dropped_total", "reason=clock_jump"] == 2
    assert found["cotenant_profiler_window_end_timestamp_seconds", ""] == 1e9
    assert found["cotenant_profiler_reading_seconds_count", ""] == sum(range(12))
    assert found["cotenant_profiler_reading_seconds_bucket", "le=0.025"] == 3
    assert found["cotenant_profiler_spool_dropped_batches_total", ""] == 2
    assert found["cotenant_profiler_push_samples_total", "result=dropped"] == 3
    assert found["cotenant_profiler_push_failures_total", "kind=timeout"] == 5
    assert found["process_resident_memory_bytes", ""] > 1e6


def test_promtool_accepts_everything() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("needs promtool (apt-get install prometheus)")
    text = page(view(everything()), SPOOL, PUSH, "1.2.3")
    checked = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_a_name_cannot_break_the_format() -> None:
    name = 'a"} 1\nevil{x="\\'
    found = scraped(view({(name, "instance", "cpu"): 1.0}))
    assert ("cotenant_cpu_seconds_total", f"instance={name},scope=instance") in found


@pytest.mark.measured
def test_a_hundred_instances_are_rendered_in_no_time() -> None:
    names = [metric.name for metric in EIGHT if "instance" in metric.scopes] + list(ADDITIONAL_UNITS)
    seen = view({(f"vm-{number}", "instance", name): 1.5 for number in range(100) for name in names})
    page(seen, SPOOL, PUSH, "1")
    begun = time.process_time()
    page(seen, SPOOL, PUSH, "1")
    assert time.process_time() - begun < 0.05  # 6 ms on the machine this was written on


@contextlib.contextmanager
def serving(text: Callable[[], bytes], host: str = "127.0.0.1") -> Iterator[Exporter]:
    running = Exporter((host, 0), text)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def served() -> Iterator[Exporter]:
    with serving(lambda: b"up 1\n" * 1000) as running:
        yield running


def get(served: Exporter, path: str = "/metrics") -> tuple[int, bytes]:
    host, port = served.address
    name = f"[{host}]" if ":" in host else host
    with urllib.request.urlopen(f"http://{name}:{port}{path}", timeout=60) as answer:
        return answer.status, answer.read()


def test_it_serves_metrics_and_health_and_nothing_else(served: Exporter) -> None:
    assert get(served) == (200, b"up 1\n" * 1000)
    assert get(served, "/healthz") == (200, b"ok\n")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(served, "/etc/passwd")
    host, port = served.address
    for method in ("POST", "PUT", "DELETE"):
        request = urllib.request.Request(f"http://{host}:{port}/metrics", data=b"x", method=method)
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(request, timeout=60)


def test_many_scrapers_share_one_page() -> None:
    made: list[int] = []

    def slow() -> bytes:
        made.append(1)
        time.sleep(0.05)
        return b"up 1\n"

    with serving(slow) as running:
        begun = time.monotonic()
        for _ in range(20):
            assert get(running)[0] == 200
        assert len(made) <= 1 + (time.monotonic() - begun) / 1.0 + 1


def test_slow_clients_are_cut_off_and_the_others_served(served: Exporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter, "_DEADLINE_S", 1.0)
    clients = [socket.create_connection(served.address) for _ in range(30)]
    for client in clients:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")

    def is_served() -> bool:
        with contextlib.suppress(OSError):
            return get(served)[0] == 200
        return False

    assert wait_until(is_served, 60)
    for client in clients:
        client.settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert client.recv(10) == b""
        client.close()


def test_a_client_that_never_reads_delays_no_other(served: Exporter) -> None:
    with socket.create_connection(served.address) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert get(served)[0] == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"", b"\x00\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /metrics SPDY/9\r\n\r\n", b"A" * 100_000,
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n",
    ],
    ids=range(7),
)  # fmt: skip
def test_garbage_is_refused_and_the_next_scrape_works(served: Exporter, garbage: bytes) -> None:
    # An error of the client: the server has hung up already.
    with contextlib.suppress(OSError), socket.create_connection(served.address, timeout=60) as client:
        client.sendall(garbage)
        client.shutdown(socket.SHUT_WR)
        assert b" 200 " not in client.recv(200)
    assert get(served)[0] == 200


def test_a_port_that_is_taken_is_one_sentence(served: Exporter) -> None:
    with pytest.raises(ExporterError, match=r"cannot listen on 127.0.0.1:\d+ \(Address already in use\); .*--listen"):
        Exporter(served.address, lambda: b"")


def test_it_can_listen_on_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists() or "lo" not in Path("/proc/net/if_inet6").read_text():
        pytest.skip("this machine has no IPv6 loopback")
    with serving(lambda: b"up 1\n", "::1") as running:
        assert get(running) == (200, b"up 1\n")


def test_threads_of_clients_end(served: Exporter) -> None:
    before = threading.active_count()
    for _ in range(20):
        get(served)
    assert wait_until(lambda: threading.active_count() <= before, 60)
