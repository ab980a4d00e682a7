"""Memory beyond its size: parsers on recorded outputs, and what backends make of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from profiler.backends import Counters, HostCounters, LxcBackend
from profiler.backends.sources import RecordedReading, RecordedSource
from profiler.backends.stalls import GroupMemory, HostMemory
from profiler.collectors import collect
from profiler.collectors.counter_deltas import difference
from profiler.collectors.samples import of_host
from profiler.observed import Instance
from profiler.parse.cgroup import (
    Balloon,
    parse_balloon,
    parse_flat,
    parse_major_faults,
    parse_meminfo,
    parse_vm_swap,
    parse_xen_balloon,
)
from profiler.parse.text import ParseError

RECORDED = Path(__file__).parents[1] / "recordings" / "memory"


def recorded(name: str) -> str:
    return (RECORDED / name).read_text(encoding="utf-8")


def test_recorded_sizes_of_a_host_add_up() -> None:
    found = parse_meminfo(recorded("meminfo.txt"))
    assert (found.total, found.available, found.swapped) == (24_684_084, 23_048_348, 0)
    assert (found.huge, found.huge_free) == (0, 0)


def test_huge_pages_that_are_promised_are_not_free_and_swap_is_what_is_out() -> None:
    text = recorded("meminfo.txt")
    for name, value in (("SwapTotal", "2048 kB"), ("SwapFree", "548 kB")):
        text = replaced(text, name, value)
    for name, value in (("HugePages_Total", "100"), ("HugePages_Free", "40"), ("HugePages_Rsvd", "15")):
        text = replaced(text, name, value)
    found = parse_meminfo(text)
    assert (found.swapped, found.huge, found.huge_free) == (1500, 204_800, 25 * 2048)


def replaced(text: str, name: str, value: str) -> str:
    lines = [f"{name}:       {value}" if line.startswith(f"{name}:") else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("name", ["MemTotal", "MemAvailable", "SwapTotal", "SwapFree"])
def test_meminfo_without_a_line_that_is_needed_is_refused(name: str) -> None:
    lines = [line for line in recorded("meminfo.txt").splitlines() if not line.startswith(f"{name}:")]
    with pytest.raises(ParseError, match=f"no line {name}"):
        parse_meminfo("\n".join(lines))


def test_a_process_shows_what_of_it_is_swapped_out_and_its_faults() -> None:
    assert parse_vm_swap(recorded("status.txt")) == 0
    assert parse_vm_swap(recorded("status.txt").replace("VmSwap:\t       0 kB", "VmSwap:\t   12345 kB")) == 12_345
    assert parse_major_faults(recorded("stat.txt")) == 0
    fields = recorded("stat.txt").split(" ")
    fields[11] = "77"
    assert parse_major_faults(" ".join(fields)) == 77
    with pytest.raises(ParseError):
        parse_vm_swap("Name:\tkthreadd\n")
    with pytest.raises(ParseError):
        parse_major_faults("2 (kthreadd) S 0 0")


def test_a_recorded_group_of_version_1_counts_faults_with_groups_below_it() -> None:
    stat = parse_flat(recorded("memory-stat-v1.txt"))
    own = {name.removeprefix("total_"): value for name, value in stat.items() if name.startswith("total_")}
    assert (own["pgmajfault"], own["swap"]) == (4118, 0)
    counters: dict[str, int] = {}
    gauges: dict[str, float] = {}
    memory = GroupMemory()
    memory.add(own, own["swap"], counters, gauges)
    memory.add({**own, "pgmajfault": 4128}, 3 << 20, counters, gauges)
    assert (counters, gauges) == ({"major_faults": 10}, {"swap_mb": 3.0})


def test_a_balloon_takes_what_a_guest_may_have_and_has_not() -> None:
    stats = {"balloon.current": 1_048_576, "balloon.maximum": 2_097_152, "balloon.swap_in": 512, "balloon.rss": 9}
    assert parse_balloon(stats) == Balloon(2_097_152, 1_048_576, 512)
    assert parse_balloon(stats).taken == 1_048_576
    without = {name: value for name, value in stats.items() if name != "balloon.swap_in"}
    assert parse_balloon(without).swapped_in is None
    for wrong in ({}, {**stats, "balloon.current": -1}, {**stats, "balloon.maximum": "much"}):
        with pytest.raises(ParseError):
            parse_balloon(wrong)


def test_recorded_guests_of_xen_have_all_their_memory_and_a_lower_target_is_ballooned() -> None:
    nodes = {"/local/domain/1/memory/static-max": "131072", "/local/domain/1/memory/target": "131072"}
    assert parse_xen_balloon(nodes, 1) == 0
    assert parse_xen_balloon({**nodes, "/local/domain/1/memory/target": "98304"}, 1) == 32_768
    with pytest.raises(ParseError, match="no node /local/domain/2/memory/static-max"):
        parse_xen_balloon(nodes, 2)


def reading(pressure_us: int, swapped_pages: int, clock_s: float) -> RecordedReading:
    pressure = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={pressure_us}\n"
    vmstat = recorded("vmstat.txt").replace("\npswpin 0\n", f"\npswpin {swapped_pages}\n")
    files: dict[str, str | int] = {
        "/proc/pressure/memory": pressure,
        "/proc/vmstat": vmstat,
        "/proc/meminfo": recorded("meminfo.txt"),
        "/sys/kernel/mm/ksm/pages_sharing": "512\n",
    }
    return RecordedReading(files=files, clock=(1000.0 + clock_s, clock_s))


def test_a_host_shows_stalls_and_swap_as_rates_over_ten_seconds() -> None:
    source = RecordedSource([reading(1_000, 0, 0.0), reading(5_001_000, 25_600, 10.0)])
    memory = HostMemory(source)
    whole = HostCounters(0, 0, 0, 2)
    first = memory.beside(whole, 0.0)
    source.advance()
    second = memory.beside(whole, 10.0)
    change = difference(Counters("h", 1000.0, 0.0, {}, None, first), Counters("h", 1010.0, 10.0, {}, None, second))
    assert change.whole is not None
    values = of_host(change.whole)
    assert values["psi_memory"] == pytest.approx(50.0)
    assert values["swap_in_mb_s"] == pytest.approx(25_600 * 4096 / 1e6 / 10)
    assert values["swap_out_mb_s"] == 0
    assert values["ksm_mb"] == pytest.approx(2.0)
    assert values["available_mb"] == pytest.approx(23_048_348 / 1024)
    assert "huge_mb" not in values


def test_a_kernel_without_pressure_leaves_it_out_and_says_why() -> None:
    bare = reading(0, 0, 0.0)
    del bare.files["/proc/pressure/memory"]
    found = HostMemory(RecordedSource([bare])).beside(HostCounters(0, 0, 0, 2), 0.0)
    assert found is not None
    assert "psi_memory_us" not in found.further
    assert found.absent["psi_memory_us"] == "this kernel or its set-up has no such file"


def total(text: str) -> int:
    return int(text.split("total=")[1].split(maxsplit=1)[0])


def line(text: str, name: str) -> int:
    return next(int(row.split()[1]) for row in text.splitlines() if row.split()[0].rstrip(":") == name)


def test_a_recorded_container_that_swaps_is_seen_to_stall_and_so_is_its_host() -> None:
    """Oracle: the raw files of both readings, ten seconds apart."""
    document = json.loads(recorded("swapping-container-v1.json"))
    first, second = (RecordedReading(**one) for one in document["readings"])
    source = RecordedSource([first, second])
    backend = LxcBackend(source, host="h1", known={"swapping": Instance("thrash", vcpus=1, memory_mb=48)})
    before = backend.read_counters()
    source.advance()
    rows = collect(before, backend.read_counters()).rows
    values = {(row.instance, row.scope): row.values for row in rows}
    seconds = second.clock[1] - first.clock[1]
    files = [{path: str(text) for path, text in one.files.items()} for one in (first, second)]

    def grown(path: str, read: Callable[[str], int]) -> float:
        return (read(files[1][path]) - read(files[0][path])) / seconds

    group = "/sys/fs/cgroup/memory/swapping/memory.stat"
    vm = values["thrash", "instance"]
    assert vm["psi_memory"] == pytest.approx(grown("/sys/fs/cgroup/unified/swapping/memory.pressure", total) / 1e4)
    assert vm["major_faults"] == pytest.approx(grown(group, lambda text: line(text, "total_pgmajfault")))
    assert vm["swap_mb"] == pytest.approx(line(files[1][group], "total_swap") / (1 << 20))
    assert 5 < vm["psi_memory"] < 30
    assert vm["swap_mb"] > 48
    whole = values[None, "host"]
    assert whole["psi_memory"] == pytest.approx(grown("/proc/pressure/memory", total) / 1e4)
    pages = grown("/proc/vmstat", lambda text: line(text, "pswpin"))
    assert whole["swap_in_mb_s"] == pytest.approx(pages * 4096 / 1e6)
    meminfo = files[1]["/proc/meminfo"]
    assert whole["swap_mb"] == pytest.approx((line(meminfo, "SwapTotal") - line(meminfo, "SwapFree")) / 1024)
    assert whole["swap_in_mb_s"] > 1
