"""Parsers against recorded files, against formats of the kernel's documentation, and against mutations of both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.parse import cgroup, proc
from profiler.parse.text import ParseError
from tests.profiler.recorded import RECORDINGS, recorded_files

# Formats of version 2: kernel, Documentation/admin-guide/cgroup-v2.rst
CPU_STAT_V2 = "usage_usec 73808942\nuser_usec 48111789\nsystem_usec 25697152\nnr_periods 0\nthrottled_usec 0\n"
IO_STAT = (
    "8:16 rbytes=1459200 wbytes=314773504 rios=192 wios=353 dbytes=0 dios=0\n8:0 rbytes=90430464 wbytes=1 rios=8\n"
)
IO_MAX = "8:16 rbps=2097152 wbps=max riops=max wiops=120\n8:0 rbps=max wbps=max riops=max wiops=max\n"
SERVICE_BYTES = "8:0 Read 4096\n8:0 Write 1024\n8:0 Sync 5120\n8:0 Discard 7\n8:0 Total 5127\nTotal 5127\n"


def _recorded(ending: str) -> str:
    return next(text for path, text in recorded_files().items() if path.endswith(ending))


PARSERS: list[tuple[Callable[..., object], str]] = [
    (proc.parse_schedstat, _recorded("/schedstat")),
    (proc.parse_status, (RECORDINGS / "proc-status.txt").read_text(encoding="utf-8")),
    (proc.parse_statm, _recorded("/statm")),
    (proc.parse_stat, _recorded("/proc/stat")),
    (proc.parse_net_dev, _recorded("/net/dev")),
    (proc.parse_pressure, _recorded("/cpu.pressure")),
    (proc.parse_counter, _recorded("/cpuacct.usage")),
    (cgroup.parse_flat, _recorded("/cpu.stat")),
    (cgroup.parse_service_bytes, _recorded("io_service_bytes_recursive")),
    (proc.parse_mounts, _recorded("/proc/mounts")),
    (cgroup.parse_cpuset, "0-1,4\n"),
    (cgroup.parse_cpu_max, "50000 100000\n"),
    (cgroup.parse_io_stat, IO_STAT),
    (cgroup.parse_io_max, IO_MAX),
    (cgroup.parse_device_limits, "8:0 2097152\n"),
    (proc.parse_task_io, "rchar: 6976\nwchar: 0\nread_bytes: 10\nwrite_bytes: 5\ncancelled_write_bytes: 0\n"),
]


def test_schedstat_has_run_and_wait_nanoseconds_and_timeslices() -> None:
    assert proc.parse_schedstat("171123450 12937226 341\n") == proc.TaskTimes(171_123_450, 12_937_226, 341)


def test_status_gives_switches_process_and_resident_memory() -> None:
    text = "Name:\tnginx\nTgid:\t7\nVmRSS:\t    7188 kB\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n"
    assert proc.parse_status(text) == proc.TaskStatus(7, 4, 2, 7188)


def test_status_of_a_kernel_thread_has_no_resident_memory() -> None:
    text = "Tgid:\t14\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n"
    assert proc.parse_status(text).rss_kb is None


def test_stat_counts_no_time_of_guests_twice_and_steal_not_as_busy() -> None:
    stat = proc.parse_stat("cpu  10 1 5 100 7 2 3 4 8 1\ncpu0 10 1 5 100 7 2 3 4 8 1\nctxt 99\nsoftirq 6 1 1 1 1 1 1\n")
    assert stat.busy == 10 + 1 + 5 + 2 + 3
    assert (stat.switches, stat.cpus, stat.softirqs["NET_RX"]) == (99, 1, 1)


def test_net_dev_reads_names_with_colons() -> None:
    line = "eth0:1: 516177335 13526 0 0 0 0 0 0 837598 8110 0 0 0 0 0 0\n"
    assert proc.parse_net_dev(line) == {"eth0:1": proc.InterfaceBytes(516_177_335, 837_598)}


def test_recorded_interfaces_hold_the_loopback() -> None:
    assert "lo" in proc.parse_net_dev(_recorded("/proc/net/dev"))


def test_pressure_without_a_full_line_is_an_old_kernel_not_an_error() -> None:
    text = "some avg10=0.28 avg60=0.24 avg300=0.35 total=6823884\n"
    assert proc.parse_pressure(text) == proc.Pressure(6_823_884, None)


def test_cpu_max_without_limit_has_no_percent() -> None:
    assert cgroup.parse_cpu_max("max 100000\n").percent is None
    assert cgroup.parse_cpu_max("50000 100000\n").percent == 50.0


def test_version_1_quota_of_minus_one_is_no_limit() -> None:
    assert cgroup.parse_cfs_quota("-1\n", "100000\n").percent is None
    assert cgroup.parse_cfs_quota("150000\n", "100000\n").percent == 150.0


def test_empty_cpuset_is_no_cpus() -> None:
    assert cgroup.parse_cpuset("\n") == ()


def test_version_2_stat_is_read_by_key() -> None:
    assert cgroup.parse_flat(CPU_STAT_V2)["usage_usec"] == 73_808_942


def test_io_stat_adds_read_and_written_bytes_per_device() -> None:
    assert cgroup.parse_io_stat(IO_STAT) == {"8:16": 1_459_200 + 314_773_504, "8:0": 90_430_464 + 1}


def test_io_stat_takes_a_device_without_numbers() -> None:
    assert cgroup.parse_io_stat("254:0\n") == {"254:0": 0}


def test_io_max_keeps_the_lower_limit_of_limited_devices() -> None:
    assert cgroup.parse_io_max(IO_MAX) == {"8:16": 2_097_152}


def test_service_bytes_count_reads_and_writes_once() -> None:
    assert cgroup.parse_service_bytes(SERVICE_BYTES) == {"8:0": 5120}


def test_service_bytes_of_an_uncounting_kernel_are_empty_not_zero() -> None:
    assert cgroup.parse_service_bytes("Total 0\n") == {}


def test_mount_points_with_blanks_are_unescaped() -> None:
    (mount,) = proc.parse_mounts("cgroup /mnt/my\\040groups cgroup rw,cpu 0 0\n")
    assert mount.target == "/mnt/my groups"


@pytest.mark.parametrize(
    ("parser", "text"),
    [
        (proc.parse_schedstat, "1 2"),
        (proc.parse_schedstat, "1 2 -3"),
        (proc.parse_schedstat, "1 2 ٣"),
        (proc.parse_schedstat, "1 2 3_0"),
        (proc.parse_counter, ""),
        (proc.parse_counter, "nan"),
        (proc.parse_counter, "9" * 21),
        (cgroup.parse_cpu_max, "50000"),
        (cgroup.parse_cpu_max, "0 100000"),
        (cgroup.parse_cpuset, "3-1"),
        (cgroup.parse_cpuset, "0-99999"),
        (proc.parse_pressure, "some avg10=0,28 avg60=0.24 avg300=0.35 total=1"),
        (proc.parse_net_dev, "eth0: 1 2 3"),
        (proc.parse_net_dev, "eth0:"),
        (proc.parse_statm, "1 2 3"),
        (proc.parse_status, "Name: x"),
        (proc.parse_stat, "cpu 1 2 3\n"),
    ],
)
def test_malformed_text_raises_one_error_with_what_and_where(parser: Callable[..., object], text: str) -> None:
    with pytest.raises(ParseError) as caught:
        parser(text, "/sys/some/file")
    assert caught.value.what
    assert caught.value.where == "/sys/some/file"
    assert "/sys/some/file, line 1: " in str(caught.value)


def test_an_error_names_the_line() -> None:
    with pytest.raises(ParseError, match=r"x, line 3: "):
        cgroup.parse_flat("a 1\nb 2\nc\n", "x")


@st.composite
def _mutated(draw: st.DrawFn) -> tuple[Callable[..., object], str]:
    parser, text = draw(st.sampled_from(PARSERS))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + draw(st.text(max_size=8)) + text[end:]
    return parser, text


@settings(max_examples=600, deadline=None)
@given(_mutated())
def test_mutated_recordings_are_read_or_refused_and_nothing_else(case: tuple[Callable[..., object], str]) -> None:
    parser, text = case
    try:
        parser(text, "mutated")
    except ParseError as error:
        assert error.line >= 1


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from(PARSERS))
def test_any_text_is_read_or_refused(text: str, parser: tuple[Callable[..., object], str]) -> None:
    with contextlib.suppress(ParseError):
        parser[0](text)
