"""Agreement of real runs of contention with themselves, on made-up lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from research.contention.container_noise import agreement, best_runs, main, pairs_by_kind, read_runs, shares


def run(name: str, *got: tuple[float, float], disturbed: bool = False, idle: float = 0.0) -> dict[str, Any]:
    """A run of containers that ran and waited for so many seconds."""
    containers = [
        {
            "spec": {"id": f"c{number}"},
            "outcome": {"run_s": ran, "wait_s": wait, "share": ran / (ran + wait) if ran + wait else None},
        }
        for number, (ran, wait) in enumerate(got)
    ]
    repeat = int(name[-1]) if name[-2] == "r" else 0
    reported = {"run": name, "family": "two_cpus", "repeat": repeat, "disturbed": disturbed}
    return reported | {"machine": {"others_idle_class": idle}} | {"hosts": [{"containers": containers}]}


def test_the_last_quiet_run_of_a_name_stands_for_it() -> None:
    runs = [run("w0", (1, 1)), run("w0", (1, 3), disturbed=True), run("w1", (1, 1), disturbed=True), run("w1", (1, 0))]
    best = best_runs(runs)
    assert shares(best["w0"]) == {"c0": 0.5}
    assert shares(best["w1"]) == {"c0": 1.0}


def test_who_asked_for_nothing_has_no_share() -> None:
    assert shares(run("w0", (0, 0), (1, 1))) == {"c1": 0.5}


def test_agreement_is_per_container_and_per_host() -> None:
    found = agreement([(run("w0", (1, 1), (3, 1)), run("w0r1", (3, 1), (1, 1)))])
    assert found is not None
    assert (found.pairs, found.containers) == (1, 2)
    assert found.mae == pytest.approx(0.25)
    assert found.bias == pytest.approx(0.0)
    assert found.hosts_mae == pytest.approx(0.0)


def test_pairs_are_of_the_same_containers_and_the_calmer_run_is_the_first() -> None:
    runs = [
        run("w0", (1, 1), idle=0.4),
        run("w0r1", (1, 1), idle=0.01),
        run("w1", (1, 1), disturbed=True),
        run("w1", (1, 1)),
        run("w2", (1, 1), idle=0.01),
        run("w2r2", (1, 1), idle=0.02),
        run("g0-random_a", (1, 1)),
        run("g0-random_b", (1, 1)),
    ]
    names = [[(first["run"], second["run"]) for first, second in pairs] for _, pairs in pairs_by_kind(runs)]
    assert names == [[("w0r1", "w0"), ("w2", "w2r2")], [("w2", "w2r2")], [("w0r1", "w0")], [("w1", "w1")]]


def test_a_line_that_is_no_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps(run("w0", (1, 1))) + '\n{"run": "w1"}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_runs(path)


def test_the_command_tells_counts_and_agreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (run("w0", (1, 1)), run("w0r1", (1, 3)))))
    assert main([str(path)]) == 0
    reported = capsys.readouterr().out
    assert "2 runs of 2 mixes" in reported
    assert "both quiet: 1 pairs, 1 containers, MAE of share 0.2500, mean difference -0.2500" in reported
