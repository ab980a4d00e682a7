"""The table by mechanism: which mechanism a row belongs to, and figures of known predictions."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.data.dataset import Dataset, load_dataset
from models.features.examples import measured
from models.physics.prior import PriorPredictor
from profiler.observed import Colocation, Instance, IsolationSettings, NetworkSettings, Outcome, Pinning
from research import prediction_by_mechanism as by_mechanism
from research.prediction_by_mechanism import JudgedRow, figures, judged, mechanism_of, rows_of

ROOT = Path(__file__).resolve().parents[2]
LARGE = ROOT.parent / "shared/data/large-hosts"


@pytest.fixture(scope="module")
def pairs() -> Dataset:
    return load_dataset(ROOT / "datasets" / "lab-pair-settings-xeon-2cpu")


def co_location(*pins: str, names: tuple[str, ...] = (), generators: int = 0, **settings: Any) -> Colocation:
    """Instances with these pinnings; the last one has the further settings."""
    rows = []
    for at, pin in enumerate(pins):
        of = IsolationSettings(pinning=Pinning.parse(pin), **(settings if at == len(pins) - 1 else {}))
        instance = Instance(f"i{at}", workload=names[at] if names else f"w{at}", settings=of)
        rows.append(Outcome(instance, "throughput", 1.0, 0.5, "x"))
    return Colocation("r", "p", "1", tuple(rows), generators=tuple(Instance(f"g{at}") for at in range(generators)))


@pytest.mark.parametrize(
    ("run", "mechanism"),
    [
        (co_location("0:0", "0:0"), "same CPU, without sync writers"),
        (co_location("0:0", "0:0", names=("log", "spin")), "same CPU, with sync writers"),
        (co_location("0:0", "0:1", names=("spin", "log")), "different CPUs"),
        (co_location("0:0", "0:1", "0:1", names=("spin", "log", "log")), "different CPUs"),
        (co_location("0:0-1", "0:0-1"), "unpinned pairs, without load generators"),
        (co_location("0:0-1", "0:0-1", generators=1), "unpinned pairs, with load generators"),
        (co_location(*["0:0-1"] * 6), "unpinned mixes of 6"),
        (co_location("0:0-1", "0:0-1", cap_percent=40.0), "capped"),
        (co_location("0:0", "0:0", weight=64), "weighted"),
        (co_location("0:0", "0:0", network=NetworkSettings("dedicated", 10.0)), "line, network"),
        (replace(co_location("0:0", "0:0"), driver_cpus=(1,)), "packet work on a CPU of its own"),
    ],
)
def test_the_mechanism_of_the_first_instance(pairs: Dataset, run: Colocation, mechanism: str) -> None:
    assert mechanism_of(pairs, run, run.outcomes[0].instance) == mechanism


@pytest.mark.parametrize(
    ("around", "mechanism"),
    [
        ({"volume_mb_s": 60.0}, "disk"),
        ({"line_mbit": 100}, "line, network"),
        ({"host_cap_percent": 120}, "capped together"),
        ({"instances": "qemu"}, "emulated guests"),
    ],
)
def test_what_a_whole_campaign_was_limited_by_is_its_mechanism(
    pairs: Dataset, around: dict[str, Any], mechanism: str
) -> None:
    run = co_location("0:0", "0:0")
    assert mechanism_of(replace(pairs, meta={"circumstances": around}), run, run.outcomes[0].instance) == mechanism


def test_rows_are_medians_over_repeats_each_with_a_range_around_its_prediction(pairs: Dataset) -> None:
    rows = {row.key: row for row in rows_of(pairs, PriorPredictor())}
    several: dict[str, list[float]] = {}
    for one in pairs.colocations:
        for name, ratio in measured(one, "throughput").items():
            several.setdefault(f"{pairs.name}/{one.platform}/{one.run}/{name}", []).append(ratio)
    assert {key: row.measured for key, row in rows.items()} == {key: np.median(each) for key, each in several.items()}
    assert all(row.lower <= row.expected <= row.upper for row in rows.values())
    assert min(row.expected for row in rows.values()) < 0.6


def test_ratios_of_disturbed_runs_and_base_cases_can_be_left_out() -> None:
    path = ROOT / "datasets" / "lab-pairs-shared-xeon-2cpu"
    data = load_dataset(path)
    with (path / "runs.csv").open(encoding="utf-8", newline="") as file:
        bad = [one for one in csv.DictReader(file) if one["disturbed"] == "1"]
    groups = {(one["run"], one["repeat"]) for one in bad if one["kind"] == "group"}
    alone = {(one["repeat"], one["instance"].partition(".")[0]) for one in bad if one["kind"] == "solo"}
    kept: dict[str, list[float]] = {}
    for one in data.colocations:
        for outcome in one.outcomes:
            clean = (one.run, one.repeat) not in groups and (one.repeat, outcome.instance.workload) not in alone
            if outcome.outcome == "throughput" and outcome.solo and outcome.colocated is not None and clean:
                key = f"{data.name}/{one.platform}/{one.run}/{outcome.instance.id}"
                kept.setdefault(key, []).append(outcome.colocated / outcome.solo)
    rows = {one.key: one.measured for one in rows_of(data, PriorPredictor(), undisturbed=True)}
    assert rows == pytest.approx({key: np.median(values) for key, values in kept.items()})
    assert sum(map(len, kept.values())) < 216  # some were disturbed


def row(key: str, pair: str, measured_: float, expected: float, half: float) -> JudgedRow:
    return JudgedRow(key, "d", "m", pair, measured_, expected, expected - half, expected + half)


def test_figures_of_known_errors() -> None:
    rows = [row("a", "p", 0.5, 0.6, 0.2), row("b", "p", 0.5, 0.4, 0.05), row("c", "q", 1.0, 0.7, 0.3)]
    found = figures(rows)
    assert (found.rows, found.pairs) == (3, 2)
    assert found.error == pytest.approx(0.5 / 3)
    assert found.bias == pytest.approx(-0.1)
    assert found.held == pytest.approx(2 / 3)
    assert found.error_range is not None
    np.testing.assert_allclose(found.error_range, [0.1, 0.3])  # the two pairs alone
    with pytest.raises(ValueError, match="no rows"):
        figures([])


def test_figures_of_before_are_of_rows_that_both_have_and_of_what_is_measured_now(tmp_path: Path) -> None:
    file = tmp_path / "before.jsonl"
    by_mechanism.write(file, [row("a", "p", 9.0, 0.9, 0.1), row("gone", "p", 0.5, 0.5, 0.1)])
    text = by_mechanism.table([row("a", "p", 0.5, 0.6, 0.2), row("new", "q", 0.5, 0.5, 0.1)], by_mechanism.read(file))
    (line,) = [line for line in text.splitlines() if line.startswith("| m |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["m", "d", "2", "2"]
    assert cells[7:] == ["0.400", "+0.400", "0%", "-0.300"]


def test_hidden_datasets_are_judged_only_when_they_are_asked_for() -> None:
    usual, every = ({path.name for path in judged(ROOT / "datasets", hidden=hidden)} for hidden in (False, True))
    assert every - usual == {"lab-mixes-xeon-2cpu", "lab-pairs-unpinned-xeon-2cpu"}
    assert {"lab-pairs-xeon-2cpu", "lab-pairs-cap-xeon-2cpu-cap120"} <= usual
    assert not {"lab-neighbours", "lab-colocations", "lab-findings"} & usual


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_mechanism.main([str(tmp_path)]) == 1
    assert re.fullmatch(r".* has no dataset\.yaml\n", capsys.readouterr().err)


@pytest.mark.skipif(not LARGE.exists(), reason="measurements of a machine of 104 CPUs are not here")
def test_large_hosts_are_relative_to_one_thread_beside_one() -> None:
    rows = {one.key: one for one in by_mechanism.large_hosts(LARGE)}
    assert rows["smt/32"].measured == pytest.approx(10347.7 / 32 / 490.8)
    assert len(rows) == 16
