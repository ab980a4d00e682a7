"""Questions about a new VM are answered by a model that never saw its workload, the same one for every host."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.data.dataset import Dataset
from profiler.observed import Colocation, Instance, Outcome
from research.benchmarks import unseen_newcomer
from research.benchmarks.unseen_newcomer import groups_of, without, workloads_of


def run(*workloads: str) -> Colocation:
    outcomes = [
        Outcome(Instance(f"{at}", workload=name), name_of_outcome, 1.0, 0.5, "x/s")
        for at, name in enumerate(workloads)
        for name_of_outcome in ("throughput", "latency_mean_ms")
    ]
    return Colocation("+".join(workloads), "lab", "1", tuple(outcomes))


def test_every_workload_is_left_out_once() -> None:
    for count, most in ((5, 16), (40, 16), (16, 16)):
        names = [f"w{at}" for at in range(count)]
        groups = groups_of(names, most)
        assert sorted(name for group in groups for name in group) == sorted(names)
        sizes = [len(group) for group in groups]
        assert len(groups) == min(count, most)
        assert max(sizes) - min(sizes) <= 1


def test_training_lacks_every_run_of_those_left_out_and_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run("a", "b"), run("b", "c"), run("a", "a"), run("b", "c", "d"), run("a", "c", "d")]
    dataset = Dataset("made-up", "simulated", Path("made-up"), {}, {}, (), tuple(runs), "0")
    trained: list[Dataset] = []
    monkeypatch.setattr(unseen_newcomer, "load_dataset", lambda _path: dataset)
    monkeypatch.setattr(unseen_newcomer, "fit_predictor", trained.extend)
    without([Path("made-up")], ("a",))
    (kept,) = trained
    assert [sorted(workloads_of(one)) for one in kept.colocations] == [["b", "c"], ["b", "c", "d"]]
    assert {outcome.outcome for one in kept.colocations for outcome in one.outcomes} == {"throughput"}
