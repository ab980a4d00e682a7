"""Scheduler counts of tasks: what schedstat's third number is worth, and the reader that skips who did not run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.processes import wait_until
from profiler.backends import TaskCounters
from profiler.backends.linux import TaskReader
from profiler.backends.sources import LiveSource
from profiler.parse.proc import (
    _NET_DEV_HEADER,
    net_dev_by_line,
    parse_net_dev,
    parse_pressure,
    parse_schedstat,
    parse_status,
    parse_task_io,
    pressure_by_line,
    schedstat_counts,
    task_io_by_line,
)
from profiler.parse.text import count
from tests.profiler.fake_host import FakeHost
from tests.profiler.recorded import recorded_files

Parser = Callable[..., object]
IO = "rchar: 9\nwchar: 8\nsyscr: 7\nsyscw: 6\nread_bytes: 4096\nwrite_bytes: 1\ncancelled_write_bytes: 0\n"
PRESSURE = "some avg10=0.28 avg60=0.24 avg300=0.35 total=6823884\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"


def _timeslices(tid: int) -> int:
    return parse_schedstat(Path(f"/proc/self/task/{tid}/schedstat").read_text()).timeslices


def _switches(tid: int) -> int:
    status = parse_status(Path(f"/proc/self/task/{tid}/status").read_text())
    return status.voluntary + status.involuntary


@pytest.mark.parametrize("kind", ["sleeps", "spins"])
def test_timeslices_are_the_switches_of_a_task_within_one(kind: str) -> None:
    """On this kernel, for a task that gives its CPU up and for one that is taken off it by others that spin, too."""
    stop = threading.Event()
    tids: list[int] = []

    def work() -> None:
        tids.append(threading.get_native_id())
        while not stop.is_set():
            if kind == "sleeps":
                time.sleep(0.0005)

    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    threads = [threading.Thread(target=work) for _ in range(3)]
    try:
        for thread in threads:
            thread.start()
        assert wait_until(lambda: len(tids) == 3 and all(_timeslices(tid) > 20 for tid in tids), 60)
        counts = [(_timeslices(tid), _switches(tid), _timeslices(tid)) for tid in tids]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        os.sched_setaffinity(0, allowed)
    for before, switches, after in counts:
        # It may run and be switched away between two files, often where this thread waits for the CPU; each time adds
        # one to both.
        near = 2 + 0.02 * before
        assert before - near <= switches <= after + near


def test_a_sleeping_task_has_as_many_switches_as_timeslices_exactly() -> None:
    program = "import time\nfor _ in range(50): time.sleep(0.001)\nprint(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":  # sleeping, proc(5)
                time.sleep(0.01)
            schedstat = parse_schedstat(Path(f"/proc/{child.pid}/schedstat").read_text())
            status = parse_status(Path(f"/proc/{child.pid}/status").read_text())
        finally:
            child.kill()
    assert schedstat.timeslices >= 50
    assert schedstat.timeslices == status.voluntary + status.involuntary


@given(st.lists(st.dictionaries(st.integers(1, 5), st.integers(0, 3), max_size=5), max_size=6), st.booleans())
def test_skipping_who_did_not_run_gives_what_reading_all_gives(rounds: list[dict[int, int]], with_io: bool) -> None:
    """Each round says which tasks there are and how long each ran since it was born."""
    host = FakeHost()
    remembering = TaskReader(host)
    for tasks in rounds:
        host.files = {}
        for tid, ran in tasks.items():
            host.task(tid, ran, ran, ran)
            host.files[f"/proc/{tid}/task/{tid}/io"] = IO.replace("4096", str(ran))
        absent: dict[str, str] = {}
        found = remembering.read(tasks, absent, with_io=with_io)
        assert found == TaskReader(host).read(tasks, absent, with_io=with_io)
        assert found == {
            str(tid): TaskCounters(ran, ran, ran, ran + 1 if with_io else None) for tid, ran in tasks.items()
        }
        assert absent == {}


def test_bytes_are_read_of_a_task_that_sleeps_since_they_were_not_needed() -> None:
    host = FakeHost()
    host.task(1, 5)
    host.files["/proc/1/task/1/io"] = IO
    reader = TaskReader(host)
    assert reader.read([1], {})["1"].io_bytes is None
    assert reader.read([1], {}, with_io=True)["1"].io_bytes == 4097


def test_a_real_task_is_read_through_kept_files() -> None:
    live = LiveSource()
    reader = TaskReader(live)
    readings = []
    try:
        for _ in range(3):
            readings.append(reader.read([os.getpid()], {}, with_io=True)[str(os.getpid())])
            live.sweep()
            time.sleep(0.02)  # counts of a running task are as old as the last tick or switch
    finally:
        live.close()
    assert readings[0].run_ns < readings[1].run_ns < readings[2].run_ns


@st.composite
def _mutated(draw: st.DrawFn, text: str) -> str:
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 60)))
    return (
        text[:start] + draw(st.sampled_from(["", "9", "-", "\n", " ", "٣", ".", "full ", "x", "0" * 21])) + text[end:]
    )


def _answer(parser: Parser, text: str) -> object:
    try:
        return parser(text, "w")
    except ValueError as error:
        return str(error)


@given(_mutated("171123450 12937226 341\n"))
def test_three_numbers_at_once_are_three_counts(text: str) -> None:
    fields = text.split()
    one_by_one = _answer(lambda _text, where: tuple(count(field, "schedstat", where) for field in fields), text)
    if len(fields) == 3:
        assert _answer(schedstat_counts, text) == one_by_one
    else:
        assert "3 numbers expected" in str(_answer(schedstat_counts, text))


_NET_DEV = recorded_files()["/proc/net/dev"]
# What is read at once, line by line, a text of it, and the kernel's files.
AT_ONCE: dict[str, tuple[Parser, Parser, str, Sequence[str]]] = {
    "block I/O": (parse_task_io, task_io_by_line, IO, ["/proc/self/io"]),
    "pressure": (parse_pressure, pressure_by_line, PRESSURE, ["/proc/pressure/cpu", "/proc/pressure/io"]),
    "interfaces": (parse_net_dev, net_dev_by_line, _NET_DEV, ["/proc/net/dev"]),
}


@pytest.mark.parametrize("name", AT_ONCE)
@given(data=st.data())
def test_what_is_read_at_once_is_what_is_read_line_by_line(name: str, data: st.DataObject) -> None:
    at_once, by_line, text, _ = AT_ONCE[name]
    mutated = data.draw(_mutated(text))
    assert _answer(at_once, mutated) == _answer(by_line, mutated)


@pytest.mark.parametrize("name", AT_ONCE)
def test_fast_paths_read_what_kernels_print(name: str) -> None:
    at_once, by_line, recorded, paths = AT_ONCE[name]
    for text in (recorded, *(Path(path).read_text() for path in paths if Path(path).exists())):
        assert at_once(text) == by_line(text) != {}
        assert name != "interfaces" or _NET_DEV_HEADER in text  # else this compares the plain reader with itself
