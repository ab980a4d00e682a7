"""Rendered cgset commands on real control groups with busy processes: limits and CPUs measured, undo compared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain import Command
from advisor.render import commands, plan
from profiler.observed import IsolationSettings, Pinning
from tests.advisor.render.render_groups import HOST, Group, busy_group, cpu_percents
from tests.advisor.render.render_machine import do, run, undo

pytestmark = pytest.mark.lab

CPUS = tuple(sorted(os.sched_getaffinity(0)))
LAST = Pinning(((CPUS[-1],),))
# Every other process has 256: all groups of a test together have less than one of those. It is 18 as cpu.weight, and
# twice and four times as much are exactly 36 and 72.
WEIGHT = 46
WRITER = """
import mmap, os, sys, time
path, megabytes = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()
file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
page = mmap.mmap(-1, 1 << 18)
since = time.monotonic()
for _ in range(4 * megabytes):
    os.write(file, page)
print(time.monotonic() - since)
"""

STALLED = """
import sys, time
sys.stdin.readline()
gaps, last = [], time.monotonic_ns()
end = last + 3 * 10**9
while last < end:
    now = time.monotonic_ns()
    if now - last > 10**6:
        gaps.append((now - last) / 1e6)
    last = now
print(sorted(gaps)[len(gaps) // 2])
"""


@pytest.fixture(params=[1, 2], ids=["cgroup-v1", "cgroup-v2"])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    with busy_group(request.param) as made:
        behind_other_work(made)
        yield made


def rendered(
    group: Group, wanted: IsolationSettings, now: IsolationSettings | None = None, service: str = "throughput"
) -> tuple[Command, ...]:
    instance = group.instance(service=service)
    host = replace(HOST, labels={**HOST.labels, "cgroup_version": str(group.version)})
    return commands(host, instance, now or IsolationSettings(), wanted)


def behind_other_work(group: Group) -> tuple[Command, ...]:
    """So that busy loops take only what the rest of the machine leaves, which on a quiet one is more than any limit."""
    made = rendered(group, IsolationSettings(weight=WEIGHT))
    do(made)
    return made


@pytest.mark.measured
@pytest.mark.parametrize("service", ["throughput", "latency"])
@pytest.mark.parametrize("cap_percent", [4, 20, 60])
def test_a_cap_holds_within_5_percent_and_undo_restores_the_group(
    group: Group, cap_percent: float, service: str
) -> None:
    before, made = group.dump(), rendered(group, IsolationSettings(cap_percent=cap_percent), service=service)
    do(made)
    assert cpu_percents(group) == [pytest.approx(cap_percent, rel=0.05)]
    undo(made)
    assert group.dump() == before


@pytest.mark.measured
@pytest.mark.parametrize("version", [1, 2])
def test_a_capped_latency_instance_is_stalled_for_as_long_as_its_short_period_says(version: int) -> None:
    """Half of a CPU is P - Q = 5 ms of waiting in periods of 10 ms, and 50 ms in periods of 100 ms."""
    with busy_group(version, "stalled", processes=0) as empty:
        behind_other_work(empty)
        for service, stall_ms in (("latency", 5), ("throughput", 50)):
            made = rendered(empty, IsolationSettings(cap_percent=50), service=service)
            do(made)
            assert float(_reported(empty, STALLED)) == pytest.approx(stall_ms, rel=0.3)
            undo(made)


@pytest.mark.parametrize(("now", "then"), [(50, 20), (20, 50)])
def test_a_cap_that_may_save_quota_is_changed_and_taken_back_without_a_refusal(
    group: Group, now: float, then: float
) -> None:
    former = IsolationSettings(cap_percent=now)
    do(rendered(group, former, service="latency"))
    before = group.dump()
    made = rendered(group, IsolationSettings(cap_percent=then), now=former, service="latency")
    assert any("burst" in part for part in made[0].argv)
    do(made)
    assert group.dump() != before
    undo(made)
    assert group.dump() == before


def test_pinned_tasks_may_run_on_those_cpus_only_until_undo(group: Group) -> None:
    before, made = group.dump(), rendered(group, IsolationSettings(pinning=LAST))
    do(made)
    assert group.allowed() == [(CPUS[-1],)] * len(group.pids)
    for pid in group.pids:
        assert f"{CPUS[-1]}\n" in run("taskset", "-c", "-p", str(pid))
    undo(made)
    assert group.dump() == before
    assert all(len(cpus) == HOST.pcpus for cpus in group.allowed())


@pytest.mark.measured
@pytest.mark.parametrize("times", [2, 4])
def test_two_groups_on_one_cpu_share_it_by_their_weights_and_undo_makes_them_equal(group: Group, times: int) -> None:
    with busy_group(group.version, "other") as other:
        fresh, lowered = other.dump(), behind_other_work(other)
        for each in (group, other):
            do(rendered(each, IsolationSettings(pinning=LAST)))
        before = group.dump()
        made = rendered(group, IsolationSettings(weight=times * WEIGHT), now=IsolationSettings(weight=WEIGHT))
        do(made)
        mine, theirs = cpu_percents(group, other, seconds=3)
        assert mine / theirs == pytest.approx(times, rel=0.10)
        undo(made)
        assert group.dump() == before
        mine, theirs = cpu_percents(group, other, seconds=3)
        assert mine / theirs == pytest.approx(1, rel=0.10)
        undo(rendered(other, IsolationSettings(pinning=LAST)))
        undo(lowered)
        assert other.dump() == fresh


@pytest.mark.measured
def test_a_disk_limit_holds_within_10_percent_for_what_is_written_past_the_page_cache(
    group: Group, tmp_path: Path
) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if not Path(f"/sys/dev/block/{number}").exists():
        pytest.skip(f"{tmp_path} is on no block device ({number})")
    limit_mb_s, megabytes = 4.0, 12
    instance = replace(group.instance(), labels={"cgroup": group.name, "disk": number})
    before = group.dump()
    made = commands(
        HOST, instance, IsolationSettings(), IsolationSettings(disk_limit_mb_s=limit_mb_s), cgroup=group.version
    )
    do(made)
    limited = _written(group, tmp_path / "limited", megabytes)
    assert limited == pytest.approx(limit_mb_s, rel=0.10)
    undo(made)
    assert group.dump() == before
    assert _written(group, tmp_path / "free", megabytes) > 2 * limit_mb_s


def _written(group: Group, path: Path, megabytes: int) -> float:
    """MB/s that a process in the group writes."""
    seconds = float(_reported(group, WRITER, str(path), str(megabytes)))
    path.unlink()
    return megabytes * (1 << 20) / 1e6 / seconds


def _reported(group: Group, program: str, *arguments: str) -> str:
    """What a program prints that runs in the group from its first line of input on."""
    argv = [sys.executable, "-I", "-S", "-c", program, *arguments]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            group.enter(process.pid)
            return process.communicate("\n", timeout=60)[0]
        finally:
            process.kill()


@pytest.mark.measured
def test_a_whole_plan_gives_the_new_vm_what_residents_give_up_and_undo_restores_both(group: Group) -> None:
    """The batch moves to the new VM's CPU capped, as the plan says: first the cap, then the move."""
    with busy_group(group.version, "batch") as batch:
        behind_other_work(batch)
        now = IsolationSettings(pinning=Pinning(((CPUS[0],),)))
        do(rendered(batch, now))
        resident, new_vm = batch.instance(now), group.instance(service="latency")
        before = (group.dump(), batch.dump())
        made = plan(
            HOST,
            new_vm,
            IsolationSettings(pinning=LAST, cap_percent=40),
            (resident,),
            {resident.id: IsolationSettings(pinning=LAST, cap_percent=20)},
            cgroup=group.version,
        )
        for command in made:
            do([command])
            if len(CPUS) > 1 and batch.allowed()[0] == (CPUS[-1],):
                assert _capped(batch), "it came to the other CPU without its cap"
        assert group.allowed() == batch.allowed() == [(CPUS[-1],)] * 2
        assert cpu_percents(group, batch, seconds=3) == pytest.approx([40, 20], rel=0.05)
        undo(made)
        assert (group.dump(), batch.dump()) == before


def _capped(group: Group) -> bool:
    text = group.dump()["cpu/cpu.cfs_quota_us" if group.version == 1 else "cpu/cpu.max"]
    return not text.startswith(("-1", "max"))
