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


def test_wrk_throughput_is_requests_over_its_own_duration() -> None:
    reached = WebWorkload().read(_output("tools/wrk-1k.txt"), None)
    assert reached.throughput == pytest.approx(68047, rel=1e-3)
    assert reached.latency_mean_ms == pytest.approx(0.2065, rel=1e-2)
    assert reached.latency_p95_ms == pytest.approx(0.283)


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


def test_sysbench_memory_is_told_in_megabytes() -> None:
    assert MemoryWorkload().read(_output("tools/sysbench-memory.txt"), None).throughput == pytest.approx(
        19299.26 * 1.048576
    )


def test_sysbench_cpu_has_all_three_outcomes() -> None:
    assert len(CpuWorkload().read(_output("tools/sysbench-cpu.txt"), None).outcomes()) == 3


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
    with pytest.raises(RunError, match="no 2 jobs"):
        DiskMixWorkload().read(_output("tools/fio-randread.txt"), None)


def test_iperf3_counts_what_the_receiver_got() -> None:
    tcp = BulkWorkload().read(_output("workloads/iperf3-tcp.json"), None)
    assert tcp.throughput == pytest.approx(20658.6, rel=1e-4)
    assert tcp.further == {"retransmits": (0.0, "1")}
    udp = BulkWorkload("udp", 2).read(_output("workloads/iperf3-udp.json"), 50.0)
    assert udp.throughput == pytest.approx(50.3, rel=1e-2)
    assert udp.jitter_ms == pytest.approx(0.01112, rel=1e-3)


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


def test_a_game_has_jitter_and_the_pings_of_qstat() -> None:
    reached = GameWorkload().read(_output("workloads/query.json"), None)
    assert reached.throughput == pytest.approx(11 / 3)
    assert reached.timeouts_percent == 0.0
    assert reached.latency_mean_ms == pytest.approx(7.657, rel=1e-3)
    assert reached.jitter_ms == pytest.approx(18.197, rel=1e-3)
    assert reached.further["qstat_latency_mean"] == (50.0, "ms")


def test_a_game_that_never_answers_timed_out_wholly_and_has_no_latency() -> None:
    outcomes = GameWorkload().read(_output("workloads/query-silent.json"), None).outcomes()
    assert outcomes == {"throughput": 0.0, "timeouts_percent": 100.0}


def test_a_change_of_the_map_is_the_time_over_the_changes() -> None:
    reached = GameMapWorkload(3).read(_output("workloads/change-maps.json"), None)
    assert reached.runtime_s == pytest.approx(1.65945 / 3, rel=1e-4)
    assert reached.throughput == pytest.approx(3 / 1.65945, rel=1e-4)


def test_a_stream_tells_quality_and_stalls() -> None:
    reached = StreamWorkload().read(_output("workloads/watch.json"), None)
    assert reached.throughput == pytest.approx(4.194, rel=1e-3)
    assert reached.further["quality"] == (100.0, "%")
    assert reached.jitter_ms == pytest.approx(2.872, rel=1e-3)


def test_more_is_better_in_every_probe() -> None:
    share = ProbeWorkload("cpu-share").read(_output("workloads/probe-cpu-share.json"), None)
    assert share.throughput == share.further["share"][0]
    rtt = ProbeWorkload("rtt").read(_output("workloads/probe-rtt.json"), None)
    assert rtt.throughput == pytest.approx(1e3 / 0.13761)
    assert rtt.latency_mean_ms == pytest.approx(0.15299, rel=1e-3)
    work = ProbeWorkload("cpu-work").read(_output("workloads/probe-cpu-work.json"), None)
    assert work.runtime_s == pytest.approx(1 / work.throughput)
    loss = ProbeWorkload("loss").read(_output("workloads/probe-loss.json"), None)
    assert loss.throughput == 100.0 - loss.further["frequency"][0]
    tcp = ProbeWorkload("tcp").read(_output("workloads/probe-tcp.json"), None)
    assert tcp.throughput == tcp.further["throughput"][0]


@pytest.mark.parametrize("name", ["wrk-404.txt", "wrk-refused.txt"])
def test_a_server_that_does_not_serve_fails_the_run(name: str) -> None:
    with pytest.raises(RunError, match="wrk"):
        WebWorkload().read(_output(f"tools/{name}"), None)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 13_000), st.text(max_size=10))
def test_a_broken_report_fails_the_run_and_nothing_else(
    case: tuple[Workload, str, float | None], cut: int, put: str
) -> None:
    workload, name, rate = case
    output = _output(name)
    with contextlib.suppress(RunError):
        workload.read(output[:cut] + put, rate)


@settings(max_examples=120, deadline=None)
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
    assert {tool for workload in workloads for tool in workload.tools(0.5)} <= set(PACKAGES)


def test_what_serves_says_what_it_waits_on_and_what_does_not_serve_has_no_generator(tmp_path: Path) -> None:
    for workload in (case[0] for case in CASES):
        server = workload.server(_site(tmp_path))
        assert (server is None) == (workload.listens is None) == (not workload.has_generator)


def test_who_measures_what_is_there_does_nothing_before_and_after(tmp_path: Path) -> None:
    silent = {case[0].kind for case in CASES if case[0].fill(_site(tmp_path), None) is None}
    assert silent == {"game", "game-map", "probe"}
    assert [
        ProbeWorkload("rtt").fixed,
        ProbeWorkload("rtt", samples=5).fixed,
        GameMapWorkload().fixed,
        WebWorkload().fixed,
    ] == [
        False,
        True,
        True,
        False,
    ]


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


def test_a_file_of_the_wrong_size_is_made_anew(tmp_path: Path) -> None:
    mix = DiskMixWorkload(pairs=1, files=1)
    mix.prepare(_site(tmp_path))
    paths = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert [path.name for path in paths] == ["reader.0.0", "writer.0.0"]
    paths[0].write_bytes(b"half")
    mix.prepare(_site(tmp_path))
    assert sum(path.stat().st_size for path in paths) == mix.disk_mb() * (1 << 20)


def test_a_file_that_was_cut_short_is_made_again(tmp_path: Path) -> None:
    web = WebWorkload(3)
    web.prepare(_site(tmp_path))
    (file,) = (tmp_path / "www").iterdir()
    file.write_bytes(b"a part")
    web.prepare(_site(tmp_path))
    assert file.stat().st_size == 3 * 1024
