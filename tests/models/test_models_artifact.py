"""Artifacts on disk: what is written is read back bit for bit, and nothing else is read at all."""

from __future__ import annotations

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

from models.data.dataset import Dataset
from models.data.scene import ProfileTable, SceneBatch
from models.learning import artifact
from models.learning.artifact import ArtifactError
from models.learning.held_out import held_out_of
from models.learning.learned_predictor import LearnedPredictor
from models.learning.memory import Memory
from models.physics.prior import PriorPredictor
from tests.models.made_models import seal
from tests.models.synthetic import batch, host, instance

TARGETS = ("throughput", "latency", "jitter")
FILES = {f"{target}.json" for target in TARGETS}
FILES |= {"SHA256SUMS", "card.json", "held_out.csv", "platforms.json", "reference.json"}
OF_EACH_KIND = sorted(FILES - {"latency.json", "jitter.json"})  # damage is looked at in one file of each kind


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, predictor: LearnedPredictor) -> Path:
    return artifact.save(tmp_path_factory.mktemp("models"), predictor, {"created_at": "2026-01-01T00:00:00+00:00"})


@pytest.fixture
def saved(tmp_path: Path, written: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(written, tmp_path / "models" / written.name))


@pytest.fixture(scope="session")
def scenes(world: Dataset) -> SceneBatch:
    table = ProfileTable.build(world.profiles)
    return batch(
        (host("lxc", 2), [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0"), instance("c", None)]),
        (host("xen", 4, l2_mb=2.0), [instance("a", "w5", cap=30.0), instance("b", "stranger", vcpus=2)]),
        (host("kvm", 1), []),
        (host("lxc", 2, platform="p1"), [instance("a", "w0", pins="0:0"), instance("b", "w1", pins="0:0")]),
        table=table,
    )


def refused(path: Path, why: str | None = None) -> None:
    with pytest.raises(ArtifactError, match=why):
        artifact.load(path)


def edit(path: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((path / name).read_text(encoding="utf-8"))
    change(value)
    (path / name).write_text(json.dumps(value), encoding="utf-8")
    seal(path)


def test_what_is_loaded_predicts_bit_for_bit_what_was_saved(
    saved: Path, predictor: LearnedPredictor, scenes: SceneBatch
) -> None:
    before, after = predictor.predict(scenes), artifact.load(saved).predict(scenes)
    for band in TARGETS:
        for edge in ("expected", "lower", "upper"):
            one, other = getattr(getattr(before, band), edge), getattr(getattr(after, band), edge)
            assert one.tobytes() == other.tobytes()
    np.testing.assert_array_equal(before.outside, after.outside)
    learned = before.throughput.expected[-1, :2]
    assert (np.abs(learned - PriorPredictor().predict(scenes).throughput.expected[-1, :2]) > 0.01).all()


def test_what_is_loaded_knows_the_platforms_and_profiles_of_training(saved: Path, predictor: LearnedPredictor) -> None:
    again = artifact.load(saved)
    assert again.platforms == predictor.platforms == {"p1": {"tlb_mb": 8.0}}
    assert again.reference == predictor.reference
    assert again.metrics == predictor.metrics
    for name, target in predictor.targets.items():
        other = again.targets[name]
        assert (other.memory, other.ranges, other.trust) == (target.memory, target.ranges, target.trust)
        assert other.figures == target.figures


def test_what_was_said_to_left_out_rows_is_kept_beside_the_model(saved: Path, predictor: LearnedPredictor) -> None:
    kept = {(table.target, table.protocol): table for table in held_out_of(saved)}
    made = {(table.target, table.protocol): table for one in predictor.targets.values() for table in one.held_out}
    assert kept.keys() == made.keys()
    assert len(made) == 2 * len(TARGETS)
    for name, table in made.items():
        assert kept[name].key == table.key
        for column in ("measured", "prior", "expected", "lower", "upper"):
            np.testing.assert_allclose(getattr(kept[name], column), getattr(table, column), rtol=1e-6)


def test_saving_what_was_loaded_changes_no_byte_of_the_model(
    saved: Path, tmp_path: Path, predictor: LearnedPredictor
) -> None:
    again = artifact.save(tmp_path / "again", artifact.load(saved), artifact.read_card(saved))
    assert {path.name for path in saved.iterdir()} == FILES
    assert {path.name for path in again.iterdir()} == FILES - {"held_out.csv"}  # those rows stay with the first
    for name in FILES - {"SHA256SUMS", "held_out.csv"}:
        assert (again / name).read_bytes() == (saved / name).read_bytes()


def test_an_artifact_is_text_and_json_and_never_pickle(saved: Path) -> None:
    for path in saved.iterdir():
        content = path.read_bytes()
        assert content.decode("utf-8").isprintable() or b"\n" in content
        assert b"\x80\x04" not in content
        if path.suffix == ".json":
            json.loads(content, parse_constant=pytest.fail)


def test_the_card_says_what_it_is(saved: Path, predictor: LearnedPredictor) -> None:
    card = artifact.read_card(saved)
    assert (card["schema"], card["version"], card["origin"]) == (8, predictor.version, "simulated")
    assert card["metrics"] == list(predictor.metrics)
    assert card["targets"] == list(TARGETS)


def test_a_model_that_learned_nothing_is_saved_and_loaded(
    tmp_path: Path, predictor: LearnedPredictor, scenes: SceneBatch
) -> None:
    bare = replace(
        predictor,
        version="m-bare",
        latency=None,
        jitter=None,
        throughput=replace(predictor.throughput, learner=None, support=None, memory=Memory(), least=0.0, most=0.0),
    )
    path = artifact.save(tmp_path, bare, {})
    loaded = artifact.load(path)
    assert loaded.latency is None
    assert loaded.jitter is None
    assert loaded.throughput.learner is None
    for name in ("expected", "lower", "upper"):
        one, other = (getattr(of.predict(scenes).throughput, name) for of in (loaded, bare))
        np.testing.assert_array_equal(one, other)


# altered on disk


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_a_byte_that_changed_is_noticed_in_every_file(saved: Path, name: str) -> None:
    file = saved / name
    whole = file.read_bytes()
    for at in {0, len(whole) // 2, len(whole) - 2}:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        refused(saved)
    file.write_bytes(whole)
    artifact.load(saved)


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.parametrize("how", ["missing", "empty", "cut"])
def test_a_file_that_is_missing_or_cut_is_noticed(saved: Path, name: str, how: str) -> None:
    file = saved / name
    content = file.read_bytes()
    file.unlink()
    if how != "missing":
        file.write_bytes(b"" if how == "empty" else content[: len(content) // 2])
    refused(saved)


def test_a_file_that_was_added_is_noticed(saved: Path) -> None:
    (saved / "notes.txt").write_text("x", encoding="utf-8")
    refused(saved, r"notes\.txt is missing or was added after it was written")


def test_links_and_pipes_and_folders_are_not_read(saved: Path) -> None:
    target = saved.parent / "elsewhere.txt"
    (saved / "throughput.json").rename(target)
    (saved / "throughput.json").symlink_to(target)
    refused(saved, r"throughput\.json is not a plain file")
    (saved / "throughput.json").unlink()
    os.mkfifo(saved / "throughput.json")
    refused(saved, "is not a plain file")
    (saved / "throughput.json").unlink()
    (saved / "throughput.json").mkdir()
    refused(saved, "is not a plain file")


def test_checksums_that_are_a_link_are_not_followed(saved: Path) -> None:
    sums = saved / "SHA256SUMS"
    sums.rename(saved.parent / "sums")
    sums.symlink_to(saved.parent / "sums")
    refused(saved, "SHA256SUMS is not a plain file")


@pytest.mark.parametrize("name", ["../card.json", "/etc/passwd", "./card.json", ".hidden", "", "a/b", "SHA256SUMS"])
def test_checksums_of_what_lies_elsewhere_are_refused(saved: Path, name: str) -> None:
    sums = saved / "SHA256SUMS"
    sums.write_text(sums.read_text(encoding="utf-8") + "0" * 64 + "  " + name + "\n", encoding="utf-8")
    refused(saved)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"hello\n", b"\xff\xfe", b"0" * 64, b"a  b\n", b"\x00  card.json\n"])
def test_checksums_that_are_none_are_refused(saved: Path, content: bytes) -> None:
    (saved / "SHA256SUMS").write_bytes(content)
    refused(saved)


# made by an attacker, with checksums that fit


def test_another_schema_is_refused_by_name(saved: Path) -> None:
    for schema in (7, 9, "8", None):
        edit(saved, "card.json", lambda card, schema=schema: card.update(schema=schema))  # type: ignore[misc]
        refused(saved, f"has schema {schema!r}, this version reads 8; train again")


FOREIGN: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "no schema": ("card.json", lambda card: card.pop("schema")),
    "no targets": ("card.json", lambda card: card.pop("targets")),
    "targets that are no list": ("card.json", lambda card: card.update(targets=3)),
    "a target that is not there": ("card.json", lambda card: card.update(targets=["throughput", "../throughput"])),
    "no throughput": ("card.json", lambda card: card.update(targets=["latency"])),
    "no version": ("card.json", lambda card: card.pop("version")),
    "effects that are no numbers": ("throughput.json", lambda value: value["memory"].update(values={"a": "b"})),
    "effects without end": ("throughput.json", lambda value: value["memory"].update(values={"a": math.inf})),
    "effects that are a list": ("throughput.json", lambda value: value.update(memory=[1, 2])),
    "more than all that is remembered": ("throughput.json", lambda value: value["memory"].update(elsewhere=2.0)),
    "no trees": ("jitter.json", lambda value: value.pop("trees")),
    "trees of other features": ("throughput.json", lambda value: value["names"].append("one more")),
    "trees that are a text": ("throughput.json", lambda value: value.update(trees="very")),
    "a leaf without end": ("throughput.json", lambda value: value["trees"]["value"].__setitem__(0, math.inf)),
    "a tree that goes round": ("throughput.json", lambda value: value["trees"]["right"].__setitem__(0, 0)),
    "an importance too few": ("throughput.json", lambda value: value["importance"].pop()),
    "no support": ("throughput.json", lambda value: value.update(support=None)),
    "a scale of nought": ("throughput.json", lambda value: value["support"]["scale"].__setitem__(0, 0.0)),
    "more known than there is": ("throughput.json", lambda value: value["support"]["known"].__setitem__(0, 1.1)),
    "a platform with too few numbers": (
        "throughput.json",
        lambda value: value["memory"].update(platforms={"d/p": [1.0]}),
    ),
    "fewer counts than centres": ("throughput.json", lambda value: value["support"]["count"].pop()),
    "a reach of nought": ("throughput.json", lambda value: value["support"].update(reach=0.0)),
    "a trust of more than all": ("throughput.json", lambda value: value.update(trust=1.5)),
    "bounds the wrong way round": ("throughput.json", lambda value: value.update(bounds=[1.0, -1.0])),
    "a bound of one number": ("latency.json", lambda value: value["ranges"]["bounds"].update(pair=[1.0])),
    "no bounds of a tier": ("latency.json", lambda value: value["ranges"]["bounds"].pop("elsewhere")),
    "a slope below nought": ("latency.json", lambda value: value["ranges"]["slope"].__setitem__(0, -1.0)),
    "no ranges": ("latency.json", lambda value: value.pop("ranges")),
    "ranges of another kind": ("latency.json", lambda value: value.update(ranges=[1])),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_artifact_is_refused_though_its_checksums_fit(saved: Path, name: str) -> None:
    file, change = FOREIGN[name]
    edit(saved, file, change)
    refused(saved)


@pytest.mark.parametrize("content", [b"", b"[]", b"nonsense", b"\xff", b"[" * 100_000, b"3"])
@pytest.mark.parametrize("name", ["card.json", "throughput.json", "reference.json", "platforms.json"])
def test_files_that_are_no_json_objects_are_refused_though_their_checksums_fit(
    saved: Path, name: str, content: bytes
) -> None:
    (saved / name).write_bytes(content)
    seal(saved)
    refused(saved)


@pytest.mark.parametrize("version", ["../../evil", "", "a b"])
def test_a_version_that_is_no_plain_name_is_refused(saved: Path, version: str) -> None:
    edit(saved, "card.json", lambda value: value.update(version=version))
    refused(saved, "model version")


def test_what_is_no_artifact_at_all_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for name in ("file", "empty", "nowhere"):
        refused(tmp_path / name, "is not a model artifact")


# whole or not at all


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, predictor: LearnedPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
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
    (saved / "throughput.json").write_text("broken", encoding="utf-8")
    refused(saved, "train again")
    artifact.save(saved.parent, predictor, {})
    assert artifact.load(saved).version == predictor.version
    assert [path.name for path in saved.parent.iterdir()] == [predictor.version]


# which one is the newest


def test_the_newest_intact_artifact_that_was_not_refused_is_found(tmp_path: Path, predictor: LearnedPredictor) -> None:
    made = {
        name: artifact.save(tmp_path, replace(predictor, version=name), {"created_at": f"2026-01-0{day}"})
        for name, day in (("m-b", 1), ("m-a", 3), ("m-c", 2))
    }
    assert artifact.newest(tmp_path) == made["m-a"]
    (made["m-a"] / "card.json").write_text("{}", encoding="utf-8")
    assert artifact.newest(tmp_path) == made["m-c"]
    edit(made["m-c"], "card.json", lambda card: card.update(refusals=["throughput: no better than the prior."]))
    assert artifact.newest(tmp_path) == made["m-b"]
    edit(made["m-b"], "card.json", lambda card: card.update(refusals=[]))
    assert artifact.newest(tmp_path) == made["m-b"]


def test_drafts_whole_or_half_written_are_not_the_newest(saved: Path, tmp_path: Path) -> None:
    whole = saved.parent / ".draft-whole"
    shutil.copytree(saved, whole)
    edit(whole, "card.json", lambda card: card.update(created_at="2099-01-01"))
    artifact.read_card(whole)
    half = saved.parent / ".draft-half"
    half.mkdir()
    (half / "throughput.json").write_text("tree", encoding="utf-8")
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
