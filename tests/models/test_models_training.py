"""From dataset directories to an artifact that says what it was made of."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from models.data.dataset import DatasetError, load_dataset
from models.evaluation.gate import gate
from models.learning import artifact
from models.learning.fitting import _best
from models.learning.held_out import held_out_of
from models.training import LIBRARIES, train
from tests.models.synthetic import COLOCATION_COLUMNS, World, write_csv


@pytest.fixture
def small(tmp_path: Path, few_trees: None) -> Path:
    return World(workloads=3).write(tmp_path / "small")


def test_training_writes_an_artifact_that_loads_and_knows_its_workloads(small: Path, tmp_path: Path) -> None:
    path = train([small], tmp_path / "models")
    predictor = artifact.load(path)
    assert path == tmp_path / "models" / predictor.version
    victims = {name.split("|")[2] for name in predictor.throughput.memory.count if name.startswith("victim|")}
    assert victims == {"w0", "w1", "w2"}
    assert predictor.latency is None
    assert predictor.jitter is None
    assert predictor.platforms == {}
    assert set(predictor.reference) == {"w0", "w1", "w2"}


def test_the_same_data_make_the_same_version_and_other_data_another(small: Path, tmp_path: Path) -> None:
    first, again = train([small], tmp_path / "one"), train([small], tmp_path / "two")
    assert first.name == again.name
    assert {path.name for path in first.iterdir()} == {path.name for path in again.iterdir()}
    for path in first.iterdir():
        if path.name not in {"card.json", "SHA256SUMS"}:  # the time of training is in these
            assert path.read_bytes() == (again / path.name).read_bytes()
    other = World(workloads=3, seed=5).write(tmp_path / "other")
    assert train([other], tmp_path / "one").name != first.name


def test_the_card_says_where_the_numbers_come_from(small: Path, tmp_path: Path) -> None:
    other = World(workloads=3, seed=5, latency=True).write(tmp_path / "other")
    description = (other / "dataset.yaml").read_text(encoding="utf-8").replace("simulated", "measured")
    (other / "dataset.yaml").write_text(description, encoding="utf-8")
    path = train([small, other], tmp_path / "models")
    card = artifact.read_card(path)
    assert card["origin"] == "measured+simulated"
    assert [one["name"] for one in card["datasets"]] == ["small", "other"]
    assert [one["origin"] for one in card["datasets"]] == ["simulated", "measured"]
    assert [one["sha256"] for one in card["datasets"]] == [load_dataset(one).fingerprint for one in (small, other)]
    assert [one["colocations"] for one in card["datasets"]] == [12, 12]
    assert card["datasets"][0]["machine"] == "a made-up one"
    assert [one["artefacts"]["rows"] for one in card["datasets"]] == [0, 0]  # none has a standard error
    assert card["libraries"] == {name: importlib.metadata.version(name) for name in LIBRARIES}
    assert set(card["figures"]) == {"throughput", "latency"}
    assert set(card["figures"]["throughput"]) == {"unseen_campaign", "unseen_workload", "unseen_pair"}
    assert card["figures"]["throughput"]["unseen_pair"]["rows"] == 48
    for protocol in card["figures"]["throughput"].values():
        assert set(protocol) == {"rows", "mae", "mae_prior", "p90_abs_error", "coverage"}
        assert protocol["mae"] <= protocol["mae_prior"]
    assert card["origin_mix"] == {"measured": 0.5, "simulated": 0.5}
    assert all(0 <= one["elsewhere"] <= 1 for one in card["believed"].values())
    assert card["refusals"] == list(gate(held_out_of(path), None).refusals)
    assert card["created_at"].endswith("+00:00")


def test_every_target_with_enough_rows_is_learned(tmp_path: Path, few_trees: None) -> None:
    full = World(workloads=3, latency=True, jitter=True, tlb_mb=(8.0,)).write(tmp_path / "full")
    path = train([full], tmp_path / "models")
    predictor = artifact.load(path)
    assert list(predictor.targets) == ["throughput", "latency", "jitter"]
    assert predictor.platforms == {"p1": {"tlb_mb": 8.0}}
    assert set(artifact.read_card(path)["figures"]) == set(predictor.targets)
    few = [row for row in World(workloads=3, latency=True, jitter=True).rows() if row["outcome"] != "jitter_ms"]
    few += [row for row in World(workloads=3, jitter=True).rows() if row["outcome"] == "jitter_ms"][:6]
    write_csv(full / "colocations.csv", few, COLOCATION_COLUMNS)
    assert list(artifact.load(train([full], tmp_path / "models")).targets) == ["throughput", "latency"]


def test_profiles_of_one_dataset_do_not_fill_in_for_those_of_another(small: Path, tmp_path: Path) -> None:
    bare = World(workloads=3).write(tmp_path / "bare")
    (bare / "profiles.csv").unlink()
    predictor = artifact.load(train([small, bare], tmp_path / "models"))
    assert {name: len(seen) for name, seen in predictor.reference.items()} == {"w0": 1, "w1": 1, "w2": 1}


def test_progress_runs_from_nought_to_one(small: Path, tmp_path: Path) -> None:
    said: list[tuple[str, float]] = []
    train([small], tmp_path / "models", progress=lambda what, done: said.append((what, done)))
    done = [one for _, one in said]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0.0, 1.0)
    assert all(what for what, _ in said)


def test_too_few_rows_write_nothing(small: Path, tmp_path: Path) -> None:
    write_csv(small / "colocations.csv", World().rows()[:6], COLOCATION_COLUMNS)
    with pytest.raises(DatasetError, match="small: 6 measured throughput ratios, at least 8 are needed"):
        train([small], tmp_path / "models")
    with pytest.raises(DatasetError, match="no dataset: 0 measured"):
        train([], tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_a_broken_dataset_among_good_ones_writes_nothing(small: Path, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is not a dataset directory"):
        train([small, tmp_path / "nowhere"], tmp_path / "models")
    assert not (tmp_path / "models").exists()


def test_what_left_out_campaigns_show_decides_how_far_it_is_believed_and_half_where_they_show_nothing() -> None:
    trusts = (0.0, 0.25, 0.5)
    assert _best(trusts, lambda trust: -0.02 * trust, 1.0, untried=0.5) == 0.5
    assert _best(trusts, lambda trust: 0.02 * trust, 1.0, untried=0.5) == 0.0
    assert _best(trusts, lambda trust: 100 * (trust - 0.25) ** 2, 1000.0, untried=0.5) == 0.25
    assert _best(trusts, lambda _: 0.0, 1.0, untried=0.5) == 0.5  # as far from training as any question
    assert _best(trusts, lambda trust: 0.001 * trust, 1.0, untried=0.5) == 0.5
