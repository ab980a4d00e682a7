"""Workloads: recorded outputs of their tools into outcomes, and the commands that they start."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.errors import CampaignError, RunError
from lab.fields import Fields
from lab.preflight import PACKAGES
from lab.workloads import (
    KINDS,
    BulkWorkload,
    CpuWorkload,
    DiskMixWorkload,
    DiskWorkload,
    GameMapWorkload,
    GameWorkload,
    KeyValueWorkload,
    MemoryWorkload,
    ProbeWorkload,
    Site,
    StreamWorkload,
    WebWorkload,
    Workload,
)
from tests.examples import examples
from tests.profiler.recorded import RECORDINGS

CASES: list[tuple[Workload, str, float | None]] = [
    (WebWorkload(), "tools/wrk-1k.txt", None),
    (WebWorkload(10), "workloads/load-web.json", 500.0),
    (CpuWorkload(), "tools/sysbench-cpu.txt", None),
    (MemoryWorkload(), "tools/sysbench-memory.txt", None),
    (DiskWorkload(), "tools/fio-randread.txt", None),
    (DiskMixWorkload(2, 2), "workloads/fio-mix.json", None),
    (BulkWorkload(), "workloads/iperf3-tcp.json", None),
    (BulkWorkload("udp", 2), "workloads/iperf3-udp.json", 50.0),
    (KeyValueWorkload(), "workloads/redis-benchmark.csv", None),
    (KeyValueWorkload("set"), "workloads/load-redis.json", 1000.0),
    (GameWorkload(), "workloads/query.json", None),
    (GameMapWorkload(3), "workloads/change-maps.json", None),
    (StreamWorkload(), "workloads/watch.json", None),
    (ProbeWorkload("cpu-share"), "workloads/probe-cpu-share.json", None),
    (ProbeWorkload("rtt"), "workloads/probe-rtt.json", None),
]


def _output(name: str) -> str:
    return (RECORDINGS / name).read_text(encoding="utf-8")


def _site(path: Path, vcpus: int = 1) -> Site:
    return Site(0, path, path, "10.0.0.2", vcpus)


READ: dict[str, tuple[Workload, str, dict[str, float], dict[str, tuple[float, str]]]] = {
    "wrk counts requests over its own duration": (
        WebWorkload(), "tools/wrk-1k.txt",
        {"throughput": 68047.5, "latency_mean_ms": 0.206531, "latency_p95_ms": 0.283}, {},
    ),
    "sysbench's mebibytes become megabytes": (
        MemoryWorkload(), "tools/sysbench-memory.txt",
        {"throughput": 19299.26 * 1.048576, "latency_mean_ms": 3.29782, "latency_p95_ms": 6.55}, {},
    ),
    "sysbench's mean latency comes from its parts": (
        CpuWorkload(), "tools/sysbench-cpu.txt",
        {"throughput": 2694.84, "latency_mean_ms": 0.368609, "latency_p95_ms": 0.23}, {},
    ),
    "iperf3 counts what the receiver got by TCP": (
        BulkWorkload(), "workloads/iperf3-tcp.json", {"throughput": 20658.6}, {"retransmits": (0.0, "1")},
    ),
    "iperf3 counts what the receiver got by UDP": (
        BulkWorkload("udp", 2), "workloads/iperf3-udp.json",
        {"throughput": 50.3205, "jitter_ms": 0.0111214}, {"lost": (0.0, "%")},
    ),
    "a game has jitter and the pings of qstat": (
        GameWorkload(), "workloads/query.json",
        {"throughput": 11 / 3, "latency_mean_ms": 7.65717, "latency_p95_ms": 59.0885, "jitter_ms": 18.1973,
         "timeouts_percent": 0.0},
        {"qstat_latency_mean": (50.0, "ms")},
    ),
    "a game that never answers timed out wholly and has no latency": (
        GameWorkload(), "workloads/query-silent.json", {"throughput": 0.0, "timeouts_percent": 100.0}, {},
    ),
    "a change of the map is the time over the changes": (
        GameMapWorkload(3), "workloads/change-maps.json", {"runtime_s": 1.65945 / 3, "throughput": 3 / 1.65945}, {},
    ),
    "a stream has quality and stalls": (
        StreamWorkload(), "workloads/watch.json", {"throughput": 4.1943, "jitter_ms": 2.87238},
        {"quality": (100.0, "%"), "stalls": (0.0, "1"), "stalled": (0.0, "s")},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("workload", "name", "outcomes", "further"), READ.values(), ids=READ)
def test_outcomes_are_read_from_what_the_tool_printed(
    workload: Workload, name: str, outcomes: dict[str, float], further: dict[str, tuple[float, str]]
) -> None:
    reached = workload.read(_output(name), None)
    assert reached.outcomes() == pytest.approx(outcomes, rel=1e-4)
    assert reached.further == further


def test_a_web_server_at_a_rate_has_a_percentile_and_timeouts() -> None:
    output = _output("workloads/load-web.json")
    report, reached = json.loads(output), WebWorkload(10).read(output, 500.0)
    assert reached.throughput == report["replies"] / report["seconds"]
    assert reached.throughput <= 500.0
    assert (reached.latency_mean_ms, reached.latency_p95_ms) == (report["mean_ms"], report["p95_ms"])
    assert reached.timeouts_percent == 0.0
    assert reached.further["generator_lag_p95"] == (report["lag_p95_ms"], "ms")


def test_a_reply_that_came_too_late_counts_as_timed_out() -> None:
    report = json.loads(_output("workloads/load-web.json"))
    late = WebWorkload(10).read(json.dumps({**report, "late": report["due"] // 4, "lag_p95_ms": None}), 500.0)
    assert late.timeouts_percent == pytest.approx(25.0, abs=1)
    assert "generator_lag_p95" not in late.further


def test_fio_reads_the_side_that_it_worked_on() -> None:
    output = _output("tools/fio-randread.txt")
    assert DiskWorkload(access="randread").read(output, None).throughput > 1
    with pytest.raises(RunError, match="no write request"):
        DiskWorkload(access="write").read(output, None)


def test_a_disk_mix_tells_readers_and_writers_apart() -> None:
    reached = DiskMixWorkload(2, 2).read(_output("workloads/fio-mix.json"), None)
    sides = [reached.further[name][0] for name in ("read_throughput", "write_throughput")]
    assert reached.throughput == pytest.approx(sum(sides))
    assert all(side > 0 for side in sides)
    assert reached.latency_mean_ms == reached.further["read_latency_mean"][0]
    assert reached.further["write_latency_mean"][0] != reached.latency_mean_ms


def test_a_mix_is_not_read_from_the_report_of_one_stream() -> None:
    with pytest.raises(RunError, match="1 jobs and not 2"):
        DiskMixWorkload().read(_output("tools/fio-randread.txt"), None)


def test_iperf3_without_a_server_fails_although_it_ends_well() -> None:
    with pytest.raises(RunError, match="unable to connect to server"):
        BulkWorkload().read(_output("workloads/iperf3-refused.json"), None)


def test_redis_batches_count_by_the_time_they_took() -> None:
    output = _output("workloads/redis-benchmark.csv")
    reached = KeyValueWorkload().read(output, None)
    rates = [float(line.split('"')[3]) for line in output.splitlines()[1:]]
    assert reached.throughput == pytest.approx(len(rates) / sum(1 / rate for rate in rates))
    assert reached.latency_p95_ms is not None


def test_a_batch_that_was_cut_off_does_not_count() -> None:
    output = _output("workloads/redis-benchmark.csv")
    whole = KeyValueWorkload().read(output, None)
    last = output.splitlines()[-1]
    assert KeyValueWorkload().read(output + last[: len(last) // 2], None) == whole
    header = output.splitlines(keepends=True)[0]
    with pytest.raises(RunError, match="finished no"):
        KeyValueWorkload().read(header + last[: len(last) // 2], None)


def test_more_is_better_in_every_probe() -> None:
    names = ("cpu-share", "rtt", "cpu-work", "loss", "tcp")
    share, rtt, work, loss, tcp = (
        ProbeWorkload(name).read(_output(f"workloads/probe-{name}.json"), None) for name in names
    )
    assert share.throughput == share.further["share"][0]
    assert rtt.throughput == pytest.approx(1e3 / 0.13761)
    assert rtt.latency_mean_ms == pytest.approx(0.15299, rel=1e-3)
    assert work.runtime_s == pytest.approx(1 / work.throughput)
    assert loss.throughput == 100.0 - loss.further["frequency"][0]
    assert tcp.throughput == tcp.further["throughput"][0]


@pytest.mark.parametrize("name", ["wrk-404.txt", "wrk-refused.txt"])
def test_a_server_that_does_not_serve_fails_the_run(name: str) -> None:
    with pytest.raises(RunError, match="wrk"):
        WebWorkload().read(_output(f"tools/{name}"), None)


@settings(max_examples=examples(120))
@given(st.sampled_from(CASES), st.integers(0, 13_000), st.text(max_size=10))
def test_a_broken_report_fails_the_run_and_nothing_else(
    case: tuple[Workload, str, float | None], cut: int, put: str
) -> None:
    workload, name, rate = case
    output = _output(name)
    with contextlib.suppress(RunError):
        workload.read(output[:cut] + put, rate)


@settings(max_examples=examples(120))
@given(
    st.sampled_from(CASES),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["jobs", "end", "values", "main", "latencies_ms", "seconds", "due"]), inner
            )
        ),
        max_leaves=8,
    ),
)
def test_a_report_of_another_shape_fails_the_run_and_nothing_else(
    case: tuple[Workload, str, float | None], report: object
) -> None:
    workload, _, rate = case
    with contextlib.suppress(RunError):
        workload.read(json.dumps({"end": report, "jobs": report, "values": report}), rate)
    with contextlib.suppress(RunError):
        workload.read(json.dumps(report), rate)


@pytest.mark.parametrize(("workload", "name", "rate"), CASES)
def test_commands_are_argument_lists_with_whole_seconds(
    workload: Workload, name: str, rate: float | None, tmp_path: Path
) -> None:
    for wanted in (rate, 100.0, None):
        command = workload.work(_site(tmp_path), 1.0, wanted)
        assert all(isinstance(part, str) and part for part in command)


def test_every_kind_is_read_from_a_campaign_and_refuses_what_it_does_not_know() -> None:
    for kind, workload in KINDS.items():
        named = {"probe": "rtt"} if kind == "probe" else {}
        fields = Fields("c.yaml", f"workloads.{kind}", named)
        made = workload.of(fields)
        fields.done()
        assert made.kind == kind
        stranger = Fields("c.yaml", f"workloads.{kind}", {**named, "colour": "red"})
        workload.of(stranger)
        with pytest.raises(CampaignError, match="colour"):
            stranger.done()


@pytest.mark.parametrize(
    ("kind", "values", "place"),
    [
        ("disk-mix", {"pairs": 0}, "pairs"),
        ("bulk", {"transport": "sctp"}, "transport"),
        ("bulk", {"streams": 129}, "streams"),
        ("key-value", {"command": "flushall"}, "command"),
        ("key-value", {"keys": 1_000_000, "value_bytes": 100_000}, "keys"),
        ("game", {"bots": 9}, "bots"),
        ("stream", {"mbit": 0}, "mbit"),
        ("probe", {"probe": "tea"}, "probe"),
        ("probe", {}, "probe"),
        ("probe", {"probe": "rtt", "options": ["--to=10.0.0.1"]}, "options"),
        ("probe", {"probe": "rtt", "options": ["--nosuch"]}, "options"),
        ("probe", {"probe": "rtt", "options": ["--per-second", "many"]}, "options"),
        ("probe", {"probe": "rtt", "options": ["--sec=9"]}, "options"),
        ("probe", {"probe": "rtt", "options": ["--raw", "rtt.csv"]}, "options"),
        ("probe", {"probe": "cpu-share", "options": ["--count", "5"]}, "options"),
        ("probe", {"probe": "udp", "samples": 5}, "samples"),
    ],
)
def test_a_wrong_parameter_is_named(kind: str, values: dict[str, object], place: str) -> None:
    with pytest.raises(CampaignError, match=rf"workloads\.x\.{place} "):
        KINDS[kind].of(Fields("c.yaml", "workloads.x", values))


def test_every_tool_has_a_package() -> None:
    workloads = [case[0] for case in CASES]
    assert {tool for workload in workloads for tool in workload.tools} <= set(PACKAGES)


def test_what_serves_says_what_it_waits_on_and_what_does_not_serve_has_no_generator(tmp_path: Path) -> None:
    for workload in (case[0] for case in CASES):
        server = workload.server(_site(tmp_path))
        assert (server is None) == (workload.listens is None) == (not workload.has_generator)


def test_who_measures_what_is_there_does_nothing_before_and_after(tmp_path: Path) -> None:
    silent = {case[0].kind for case in CASES if case[0].fill(_site(tmp_path), None) is None}
    assert silent == {"game", "game-map", "probe"}
    fixed = (ProbeWorkload("rtt", samples=5), GameMapWorkload())
    assert all(workload.fixed for workload in fixed)
    assert not any(workload.fixed for workload in (ProbeWorkload("rtt"), WebWorkload()))


def test_the_filler_of_a_bulk_sender_takes_another_server_than_the_measuring_program(tmp_path: Path) -> None:
    bulk, site = BulkWorkload(), _site(tmp_path)
    ports = [command[command.index("--port") + 1] for command in (bulk.work(site, 1, None), bulk.fill(site, None))]
    assert len(set(ports)) == 2
    assert all(port in bulk.server(site) for port in ports)


def test_a_rate_is_shared_by_all_that_work(tmp_path: Path) -> None:
    assert "--rate=25000000" in DiskMixWorkload(pairs=2).work(_site(tmp_path), 1, 100.0)
    bulk = BulkWorkload("udp", 4).work(_site(tmp_path), 1, 100.0)
    assert bulk[bulk.index("--bitrate") + 1] == "25000000"
    watch = StreamWorkload(clients=8).work(_site(tmp_path), 1, 4.2)
    assert watch[watch.index("/film.bin") + 1] == "4"


def test_disk_files_hold_data_and_are_made_once(tmp_path: Path) -> None:
    disk = DiskWorkload(file_mb=8)
    disk.prepare(_site(tmp_path))
    (path,) = tmp_path.iterdir()
    before = path.stat()
    assert before.st_blocks * 512 >= 8 << 20  # not sparse: a hole is read without a disk
    disk.prepare(_site(tmp_path))
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("workload", [DiskMixWorkload(pairs=1, files=1), WebWorkload(3)], ids=["disk-mix", "web"])
def test_a_file_of_the_wrong_size_is_made_anew(tmp_path: Path, workload: Workload) -> None:
    workload.prepare(_site(tmp_path))
    sizes = {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()}
    for path in sizes:
        path.write_bytes(b"half")
    workload.prepare(_site(tmp_path))
    assert {path: path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()} == sizes
    assert sum(sizes.values()) <= workload.disk_mb() * (1 << 20)
