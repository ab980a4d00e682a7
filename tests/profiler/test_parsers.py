"""Parsers against recorded files, against formats of the kernel's documentation, and against mutations of both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.parse import cgroup, proc
from profiler.parse.text import ParseError
from tests.examples import examples
from tests.profiler.mutation import mutated
from tests.profiler.recorded import RECORDINGS, recorded_files
from tests.profiler.test_xen_parsers import PARSERS as XEN_PARSERS

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


# Case → parser, text, and what must come out.
VALUES: dict[str, tuple[Callable[[str], object], str, object]] = {
    "run and wait nanoseconds and timeslices": (
        proc.parse_schedstat,
        "171123450 12937226 341\n",
        proc.TaskTimes(171_123_450, 12_937_226, 341),
    ),
    "voluntary and involuntary switches": (
        proc.parse_status,
        "Name:\tnginx\nTgid:\t7\nvoluntary_ctxt_switches:\t4\nnonvoluntary_ctxt_switches:\t2\n",
        proc.TaskStatus(4, 2),
    ),
    "an interface whose name has a colon": (
        proc.parse_net_dev,
        "eth0:1: 516177335 13526 0 0 0 0 0 0 837598 8110 0 0 0 0 0 0\n",
        {"eth0:1": proc.InterfaceBytes(516_177_335, 837_598)},
    ),
    "pressure without a full line, of an old kernel": (
        proc.parse_pressure,
        "some avg10=0.28 avg60=0.24 avg300=0.35 total=6823884\n",
        6_823_884,
    ),
    "no CPU limit": (lambda text: cgroup.parse_cpu_max(text).percent, "max 100000\n", None),
    "a CPU limit": (lambda text: cgroup.parse_cpu_max(text).percent, "50000 100000\n", 50.0),
    "no CPU limit, version 1": (lambda quota: cgroup.parse_cfs_quota(quota, "100000\n").percent, "-1\n", None),
    "a CPU limit, version 1": (lambda quota: cgroup.parse_cfs_quota(quota, "100000\n").percent, "150000\n", 150.0),
    "a CPU limit beyond every machine": (
        lambda text: cgroup.parse_cpu_max(text).percent,
        "17592186044415 100000\n",
        None,
    ),
    "a CPU limit beyond every machine, version 1": (
        lambda quota: cgroup.parse_cfs_quota(quota, "100000\n").percent,
        "9223372036854775807\n",
        None,
    ),
    "a disk limit beyond every disk": (cgroup.parse_io_max, "8:0 rbps=18446744073709551615 wbps=max\n", {}),
    "a disk limit beyond every disk beside one that holds": (
        cgroup.parse_io_max,
        "8:0 rbps=18446744073709551615 wbps=7000000\n",
        {},
    ),
    "a disk limit beyond every disk, version 1": (cgroup.parse_device_limits, "8:0 18446744073709551615\n", {}),
    "an empty cpuset": (cgroup.parse_cpuset, "\n", ()),
    "cpu.stat of version 2 by key": (lambda text: cgroup.parse_flat(text)["usage_usec"], CPU_STAT_V2, 73_808_942),
    "read and written bytes of each device": (
        cgroup.parse_io_stat,
        IO_STAT,
        {"8:16": 1_459_200 + 314_773_504, "8:0": 90_430_464 + 1},
    ),
    "a device without numbers": (cgroup.parse_io_stat, "254:0\n", {"254:0": 0}),
    "a limit of reads alone is none of the device": (cgroup.parse_io_max, IO_MAX, {}),
    "what neither reads nor writes exceed": (cgroup.parse_io_max, "8:0 rbps=7 wbps=9 riops=max\n", {"8:0": 9}),
    "devices that went away add up": (
        cgroup.parse_io_stat,
        "(unknown) rbytes=30 wbytes=1 rios=1 wios=1\n(unknown) rbytes=500 wbytes=0 rios=1 wios=0\n",
        {"(unknown)": 531},
    ),
    "unused devices without a line break before the used one": (
        cgroup.parse_io_stat,
        "7:3 7:2 8:0 rbytes=40 wbytes=2 rios=1 wios=1\n",
        {"7:3": 0, "7:2": 0, "8:0": 42},
    ),
    "reads and writes counted once": (cgroup.parse_service_bytes, SERVICE_BYTES, {"8:0": 5120}),
    "a kernel that does not count is not zero": (cgroup.parse_service_bytes, "Total 0\n", {}),
    "a mount point with a blank": (
        lambda text: [mount.target for mount in proc.parse_mounts(text)],
        "cgroup /mnt/my\\040groups cgroup rw,cpu 0 0\n",
        ["/mnt/my groups"],
    ),
}


@pytest.mark.parametrize("case", VALUES)
def test_what_the_kernel_documents_is_read(case: str) -> None:
    parser, text, expected = VALUES[case]
    assert parser(text) == expected


def test_stat_counts_no_time_of_guests_twice_and_steal_not_as_busy() -> None:
    stat = proc.parse_stat("cpu  10 1 5 100 7 2 3 4 8 1\ncpu0 10 1 5 100 7 2 3 4 8 1\nctxt 99\nsoftirq 6 1 1 1 1 1 1\n")
    assert stat.busy == 10 + 1 + 5 + 2 + 3
    assert (stat.cpus, stat.softirqs["NET_RX"]) == (1, 1)


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


@pytest.mark.parametrize(
    ("parser", "text"), [*PARSERS, *XEN_PARSERS], ids=lambda value: getattr(value, "__name__", "of a text of it")
)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_mutated_and_any_other_text_is_read_or_refused_and_nothing_else(
    parser: Callable[..., object], text: str, data: st.DataObject
) -> None:
    damaged = data.draw(mutated(text) | st.text(max_size=200))
    try:
        parser(damaged)
    except ParseError as error:
        assert error.line >= 1
        assert error.what
