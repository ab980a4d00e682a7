"""Compressed days of real containers: the plan, its work, turns, and that the service lives through a record."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.observed import MetricSample
from research.contention.compressed_days import TURN_S, ContainerStay, DayContainer, Kind, demand, jobs, plan, turns
from research.contention.container_runs import compile_program, start_work
from research.contention.learned_days import DaysReplay, RecordedDays

CYCLES = 60


def container(kind: Kind, mean: float = 0.3) -> DayContainer:
    return DayContainer("c", kind, 1, mean, 2.0, lognormal=False, period_s=0.8, late_h=0.0, weight=256, seed=5)


def test_a_plan_follows_from_its_seed_and_no_instance_is_in_two_places() -> None:
    days = plan(3, CYCLES)
    assert days == plan(3, CYCLES)
    assert days != plan(4, CYCLES)
    cycles: dict[str, set[int]] = defaultdict(set)
    for stay in days.stays:
        here = set(range(stay.first, stay.end))
        assert not cycles[stay.name] & here
        cycles[stay.name] |= here
    assert cycles.keys() == days.containers.keys()
    assert max(max(one, default=0) for one in cycles.values()) == CYCLES - 1
    assert len({stay.host for stay in days.stays}) == len([host for there in turns() for host in there])


@pytest.mark.parametrize("kind", ["web", "flat", "batch", "clients"])
def test_work_adds_up_to_the_demand_and_other_chances_are_other_work(kind: Kind) -> None:
    one, stay = container(kind), ContainerStay("c", 0, 0, CYCLES)
    work = jobs(one, stay, CYCLES)
    wanted = demand(one, CYCLES).mean() if kind in ("web", "flat") else one.mean
    if kind == "clients":
        assert work[:, 1].sum() / work.sum() == pytest.approx(wanted, rel=0.05)
    elif kind != "batch":  # of which each one is a period's demand
        assert work[:, 1].sum() / (CYCLES * TURN_S) == pytest.approx(wanted, rel=0.05)
    again = jobs(one, stay, CYCLES, 1)
    assert again.shape != work.shape or not np.array_equal(again, work)


@pytest.mark.measured
def test_between_turns_a_container_sleeps_whatever_it_has_left_to_do(tmp_path: Path) -> None:
    start = time.monotonic() + 0.2
    process = start_work(compile_program(tmp_path), "open,0.9,0.3", 1, (start, start + 3.0), np.array([[0.0, 0.5]]), ())

    def ran_s(at: float) -> float:
        time.sleep(max(0.0, start + at - time.monotonic()))
        return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9

    try:
        first, still, second = ran_s(0.4), ran_s(0.8), ran_s(1.4)
    finally:
        process.kill()
        process.communicate()
    assert 0.2 < first < 0.35
    assert still - first < 0.01
    assert 0.45 < second < 0.55


def record(path: Path) -> Path:
    """Two hosts of one CPU through ten cycles; `a` works in bursts of 5 ms and waits as long as it runs."""
    names = {"h0": ("a", "b"), "h1": ("c", "d")}
    stays = [
        {"name": name, "host": host, "first": 0, "end": 10}
        for host, there in enumerate(names.values())
        for name in there
    ]
    containers = [{"name": one["name"], "vcpus": 1, "weight": 256} for one in stays]
    part = [200_000_000, 200_000_000, 40, 30, 10]
    lines: list[dict[str, Any]] = [
        {"cycles_a_day": 20, "turn_s": 3.0, "cpus": [[0], [1]], "containers": containers, "stays": stays}
    ]
    for cycle in range(10):
        hosts = {host: dict.fromkeys(there, [part] * 3) for host, there in names.items()}
        lines.append({"cycle": cycle, "turn": 0, "hosts": hosts})
    path.write_text("\n".join(json.dumps(one) for one in lines) + "\n")
    return path


def test_recorded_turns_are_predicted_before_and_checked_afterwards(tmp_path: Path) -> None:
    days = RecordedDays.read(record(tmp_path / "days.jsonl"))
    assert MetricSample("h0", "a", "instance", "execution", 40.0, days.begin_s(0) + 50.0) in list(days.samples(0))
    replay = DaysReplay(days, tmp_path)
    with replay.advisor as advisor:
        reported = replay.run()
        found = advisor.inventory.instance("a").demand["cpu"]
    assert set(reported.window) == set(range(2, 10)), "what is not measured yet is not listed"
    assert reported.observed == pytest.approx(0.5)
    assert ((reported.lower <= reported.expected) & (reported.expected <= reported.upper)).all()
    assert np.isnan(reported.widening).all()
    assert found.burst_ms == pytest.approx(5.0)


def test_turns_together_are_one_window_where_the_company_stayed(tmp_path: Path) -> None:
    path = record(tmp_path / "days.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[4]["hosts"]["h1"]["d"]  # cycle 3, of the second window
    path.write_text("\n".join(json.dumps(one) for one in lines))
    days = RecordedDays.read(path, together=2)
    assert [sorted(one) for one in days.windows[:3]] == [["h0", "h1"], ["h0"], ["h0", "h1"]]
    assert (days.windows_a_day, days.window_s) == (10, 6.0)
    assert days.shares(0) == dict.fromkeys("abcd", 0.5)
    assert len(list(days.samples(0))) == 4 * 6 * 3
