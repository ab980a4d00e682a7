"""How sure ratios are: intervals by their errors, who shares CPUs, and pairs that two runs measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from research.pair_precision import read_ratios, repeats, sentences, widths_without_speed

HEADER = "run,instance,workload,pinning,outcome,solo,colocated,repeat,ratio_se"


def test_pairs_of_two_runs_are_held_against_each_other_and_against_their_errors(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("run,repeat,instance,clients\n")
    path = tmp_path / "colocations.csv"
    rows = [HEADER]
    for run, first in (("same:a:b:c/1+2", 50), ("different:a:c:b/1+3", 52)):
        rows += [
            f"{run},a.1,a,0:0,throughput,100,{first},1,0.003",
            f"{run},a.1,a,0:0,latency_mean_ms,1,2,1,0.1",
            f"{run},b.2,b,0:0,throughput,100,90,1,0.05",
        ]
    rows += ["same:a:b:c,a.1,a,0:0-1,throughput,100,50,1,0.01", "same:a:b:c,b.2,b,0:0-1,throughput,100,50,1,0.01"]
    path.write_text("\n".join(rows) + "\n")
    ratios = read_ratios(tmp_path)
    assert [one.place for one in ratios] == ["same"] * 4 + ["shared"] * 2
    found = repeats(ratios)
    assert [difference for difference, _ in found] == pytest.approx([0.02, 0.0])
    assert found[0][1] == pytest.approx(0.8 * 0.003 * 2**0.5, rel=0.01)
    told = sentences(ratios)
    assert any(line.startswith("| 2 | same | 2 | 4 | 50 % |") for line in told)
    assert told[-1].startswith("2 ratios were measured in two runs: they differ by 0.0100")


def test_without_windows_nothing_is_said_of_the_speed(tmp_path: Path) -> None:
    assert widths_without_speed(tmp_path) == []
