"""Artifacts on disk: what is written is read back bit for bit, and nothing else is read at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import batch, host, instance

from models import artifact
from models.artifact import ArtifactError
from models.dataset import Dataset
from models.learned import LearnedPredictor
from models.scene import ProfileTable, SceneBatch

FILES = {
    "SHA256SUMS",
    "card.json",
    "latency.json",
    "latency.txt",
    "reference.json",
    "throughput.json",
    "throughput.txt",
}


@pytest.fixture
def saved(tmp_path: Path, predictor: LearnedPredictor) -> Path:
    return artifact.save(tmp_path / "models", predictor, {"created_at": "2026-01-01T00:00:00+00:00"})


@pytest.fixture(scope="session")
def scenes(world: Dataset) -> SceneBatch:
    table = ProfileTable.build(world.profiles)
    return batch(
        (host("lxc", 2), [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0"), instance("c", None)]),
        (host("xen", 4, l2_mb=2.0), [instance("a", "w5", cap=30.0), instance("b", "stranger", vcpus=2)]),
        (host("kvm", 1), []),
        table=table,
    )


def reseal(path: Path) -> None:
    """Write checksums that fit, as somebody would who makes an artifact of their own."""
    names = sorted(entry.name for entry in path.iterdir() if entry.name != "SHA256SUMS" and entry.is_file())
    lines = [f"{hashlib.sha256((path / name).read_bytes()).hexdigest()}  {name}" for name in names]
    (path / "SHA256SUMS").write_text("\n".join(lines) + "\n", encoding="utf-8")


def edit(path: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((path / name).read_text(encoding="utf-8"))
    change(value)
    (path / name).write_text(json.dumps(value), encoding="utf-8")
    reseal(path)


def test_what_is_loaded_predicts_bit_for_bit_what_was_saved(
    saved: Path, predictor: LearnedPredictor, scenes: SceneBatch
) -> None:
    before, after = predictor.predict(scenes), artifact.load(saved).predict(scenes)
    for band in ("throughput", "latency"):
        for edge in ("expected", "lower", "upper"):
            one, other = getattr(getattr(before, band), edge), getattr(getattr(after, band), edge)
            assert one.tobytes() == other.tobytes()
    np.testing.assert_array_equal(before.outside, after.outside)


def test_saving_what_was_loaded_changes_no_byte_of_the_model(saved: Path, tmp_path: Path) -> None:
    again = artifact.save(tmp_path / "again", artifact.load(saved), artifact.read_card(saved))
    assert {path.name for path in saved.iterdir()} == FILES
    for name in FILES - {"throughput.txt", "latency.txt", "SHA256SUMS"}:
        assert (again / name).read_bytes() == (saved / name).read_bytes()


def test_an_artifact_is_text_and_json_and_never_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        content = path.read_bytes()
        assert content.decode("utf-8").isprintable() or b"\n" in content
        assert b"\x80\x04" not in content
        if path.suffix == ".json":
            json.loads(content, parse_constant=pytest.fail)


def test_models_never_import_pickle() -> None:
    folder = Path(artifact.__file__).parent
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("import pickle", "from pickle", "joblib", "marshal", "allow_pickle=True"):
            assert word not in text


def test_the_card_says_what_it_is(saved: Path, predictor: LearnedPredictor) -> None:
    card = artifact.read_card(saved)
    assert (card["schema"], card["version"], card["origin"]) == (2, predictor.version, "simulated")
    assert card["metrics"] == list(predictor.metrics)
    assert card["targets"] == ["throughput", "latency"]


def test_a_model_without_latency_or_trees_is_saved_and_loaded(
    tmp_path: Path, predictor: LearnedPredictor, scenes: SceneBatch
) -> None:
    bare = replace(
        predictor,
        version="m-bare",
        latency=None,
        throughput=replace(predictor.throughput, model=replace(predictor.throughput.model, booster=None)),
    )
    path = artifact.save(tmp_path, bare, {})
    loaded = artifact.load(path)
    assert loaded.latency is None
    assert loaded.throughput.model.booster is None
    np.testing.assert_array_equal(loaded.predict(scenes).throughput.expected, bare.predict(scenes).throughput.expected)


# altered on disk


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_byte_that_changed_is_noticed_in_every_file(saved: Path, name: str) -> None:
    file = saved / name
    whole = file.read_bytes()
    for at in {0, len(whole) // 2, len(whole) - 2}:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(ArtifactError):
            artifact.load(saved)
    file.write_bytes(whole)
    artifact.load(saved)


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
def test_a_file_that_is_missing_or_cut_is_noticed(saved: Path, name: str, how: str) -> None:
    file = saved / name
    content = file.read_bytes()
    file.unlink()
    if how != "missing":
        file.write_bytes(b"" if how == "empty" else content[: len(content) // 2])
    with pytest.raises(ArtifactError):
        artifact.load(saved)


def test_a_file_that_was_added_is_noticed(saved: Path) -> None:
    (saved / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"notes\.txt is missing or was added after it was written"):
        artifact.load(saved)


def test_links_and_pipes_and_folders_are_not_read(saved: Path) -> None:
    target = saved.parent / "elsewhere.txt"
    (saved / "throughput.txt").rename(target)
    (saved / "throughput.txt").symlink_to(target)
    with pytest.raises(ArtifactError, match=r"throughput\.txt is not a plain file"):
        artifact.load(saved)
    (saved / "throughput.txt").unlink()
    os.mkfifo(saved / "throughput.txt")
    with pytest.raises(ArtifactError, match="is not a plain file"):
        artifact.load(saved)
    (saved / "throughput.txt").unlink()
    (saved / "throughput.txt").mkdir()
    with pytest.raises(ArtifactError, match="is not a plain file"):
        artifact.load(saved)


def test_checksums_that_are_a_link_are_not_followed(saved: Path) -> None:
    sums = saved / "SHA256SUMS"
    sums.rename(saved.parent / "sums")
    sums.symlink_to(saved.parent / "sums")
    with pytest.raises(ArtifactError, match="SHA256SUMS is not a plain file"):
        artifact.load(saved)


@pytest.mark.parametrize("name", ["../card.json", "/etc/passwd", "./card.json", ".hidden", "", "a/b", "SHA256SUMS"])
def test_checksums_of_what_lies_elsewhere_are_refused(saved: Path, name: str) -> None:
    sums = saved / "SHA256SUMS"
    sums.write_text(sums.read_text(encoding="utf-8") + "0" * 64 + "  " + name + "\n", encoding="utf-8")
    with pytest.raises(ArtifactError):
        artifact.load(saved)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b"\xff\xfe", b"0" * 64, b"a  b\n", b"\x00  card.json\n"])
def test_checksums_that_are_none_are_refused(saved: Path, content: bytes) -> None:
    (saved / "SHA256SUMS").write_bytes(content)
    with pytest.raises(ArtifactError):
        artifact.load(saved)


# made by somebody else, with checksums that fit


def test_another_schema_is_refused_by_name(saved: Path) -> None:
    edit(saved, "card.json", lambda card: card.update(schema=3))
    with pytest.raises(ArtifactError, match="has schema 3, this version reads 2"):
        artifact.load(saved)


FOREIGN: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "no schema": ("card.json", lambda card: card.pop("schema")),
    "no targets": ("card.json", lambda card: card.pop("targets")),
    "targets that are no list": ("card.json", lambda card: card.update(targets=3)),
    "a target that is not there": ("card.json", lambda card: card.update(targets=["throughput", "../throughput"])),
    "no throughput": ("card.json", lambda card: card.update(targets=["latency"])),
    "no version": ("card.json", lambda card: card.pop("version")),
    "effects that are no numbers": ("throughput.json", lambda value: value.update(effects={"a": "b"})),
    "effects that are a list": ("throughput.json", lambda value: value.update(effects=[1, 2])),
    "trust that is no number": ("throughput.json", lambda value: value.update(trust_known="very")),
    "no calibration": ("latency.json", lambda value: value.pop("calibration")),
    "a calibration of another kind": ("latency.json", lambda value: value.update(calibration=[1])),
    "fewer features than the trees": ("throughput.json", lambda value: value.update(low=[0.0], high=[1.0])),
    "edges of unequal length": ("throughput.json", lambda value: value["low"].append(0.0)),
    "a limit beyond the features": ("throughput.json", lambda value: value["limits"].append(10_000)),
    "edges that are texts": ("throughput.json", lambda value: value.update(low=["x"] * len(value["low"]))),
    "a size that is no number": ("throughput.json", lambda value: value.update(most_instances=None)),
    "a size without end": ("throughput.json", lambda value: value.update(most_instances=math.inf)),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_artifact_is_refused_though_its_checksums_fit(saved: Path, name: str) -> None:
    file, change = FOREIGN[name]
    edit(saved, file, change)
    with pytest.raises(ArtifactError):
        artifact.load(saved)


@pytest.mark.parametrize("content", [b"", b"[]", b"nonsense", b"\xff", b"[" * 100_000, b"3"])
@pytest.mark.parametrize("name", ["card.json", "throughput.json", "reference.json"])
def test_files_that_are_no_json_objects_are_refused_though_their_checksums_fit(
    saved: Path, name: str, content: bytes
) -> None:
    (saved / name).write_bytes(content)
    reseal(saved)
    with pytest.raises(ArtifactError):
        artifact.load(saved)


def test_trees_that_are_none_are_refused_though_their_checksum_fits(saved: Path) -> None:
    (saved / "throughput.txt").write_text("tree\nnonsense\n", encoding="utf-8")
    reseal(saved)
    with pytest.raises(ArtifactError):
        artifact.load(saved)


def test_what_is_no_artifact_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for name in ("file", "empty", "nowhere"):
        with pytest.raises(ArtifactError, match="is not a model artifact"):
            artifact.load(tmp_path / name)


# whole or not at all


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, predictor: LearnedPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        artifact.save(tmp_path, predictor, {})
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_is_no_json_leaves_nothing_behind(tmp_path: Path, predictor: LearnedPredictor) -> None:
    for odd in (math.nan, object()):
        with pytest.raises((ValueError, TypeError)):
            artifact.save(tmp_path, predictor, {"figure": odd})
    assert list(tmp_path.iterdir()) == []


def test_an_intact_artifact_of_the_same_version_is_kept(saved: Path, predictor: LearnedPredictor) -> None:
    again = artifact.save(saved.parent, predictor, {"created_at": "2030-01-01T00:00:00+00:00"})
    assert again == saved
    assert artifact.read_card(saved)["created_at"].startswith("2026")


def test_training_again_mends_a_broken_artifact(saved: Path, predictor: LearnedPredictor) -> None:
    """Which is what the refusal of a broken one advises."""
    (saved / "throughput.txt").write_text("broken", encoding="utf-8")
    with pytest.raises(ArtifactError, match="train again"):
        artifact.load(saved)
    artifact.save(saved.parent, predictor, {})
    assert artifact.load(saved).version == predictor.version
    assert [path.name for path in saved.parent.iterdir()] == [predictor.version]


# which one is the newest


def test_the_newest_intact_artifact_is_found(tmp_path: Path, predictor: LearnedPredictor) -> None:
    made = {
        name: artifact.save(tmp_path, replace(predictor, version=name), {"created_at": f"2026-01-0{day}"})
        for name, day in (("m-b", 1), ("m-a", 3), ("m-c", 2))
    }
    assert artifact.newest(tmp_path) == made["m-a"]
    (made["m-a"] / "card.json").write_text("{}", encoding="utf-8")
    assert artifact.newest(tmp_path) == made["m-c"]
    shutil.rmtree(made["m-c"])
    assert artifact.newest(tmp_path) == made["m-b"]


def test_drafts_whole_or_half_written_are_not_the_newest(saved: Path, tmp_path: Path) -> None:
    whole = saved.parent / ".draft-whole"
    shutil.copytree(saved, whole)
    edit(whole, "card.json", lambda card: card.update(created_at="2099-01-01"))
    artifact.read_card(whole)
    half = saved.parent / ".draft-half"
    half.mkdir()
    (half / "throughput.txt").write_text("tree", encoding="utf-8")
    (saved.parent / "README").write_text("x", encoding="utf-8")
    assert artifact.newest(saved.parent) == saved


def test_where_there_are_no_artifacts_none_is_the_newest(tmp_path: Path) -> None:
    assert artifact.newest(tmp_path) is None
    assert artifact.newest(tmp_path / "nowhere") is None


def test_of_artifacts_of_one_moment_the_last_by_name_is_the_newest(tmp_path: Path, predictor: LearnedPredictor) -> None:
    for name in ("m-b", "m-a"):
        artifact.save(tmp_path, replace(predictor, version=name), {"created_at": "2026-01-01"})
    found = artifact.newest(tmp_path)
    assert found is not None
    assert found.name == "m-b"
