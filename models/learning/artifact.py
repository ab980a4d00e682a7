"""Writes and reads a trained model: text files with checksums, no pickles. Everything is checked before it is used."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from models.features.feature_matrix import probes_needed
from models.learning.fitted_target import FittedTarget
from models.learning.held_out import HELD_OUT, write_held_out
from models.learning.learned_predictor import LearnedPredictor
from models.learning.memory import Memory
from models.learning.residual_learner import ResidualLearner
from models.learning.support import Ranges, Support
from models.learning.trees import TreeEnsembles
from profiler.files import MEGABYTE, TooLargeError, read_text, replace_whole, sha256
from profiler.observed import check_id

MOST_JSON = 64 * MEGABYTE  # of one file: a large model has 2 MB
SCHEMA = 8
CARD, SUMS = "card.json", "SHA256SUMS"


class ArtifactError(ValueError):
    """An artifact is missing, incomplete, altered or of another kind; the message says which."""


def save(directory: Path, predictor: LearnedPredictor, card: Mapping[str, Any]) -> Path:
    """Write an artifact to `directory/VERSION` atomically. An intact artifact of the same version is kept."""
    final = directory / predictor.version
    if _intact(final):
        return final
    directory.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=directory))
    try:
        _write(draft, predictor, card)
        if final.exists():  # broken: the advice for a broken artifact is to train again, so it is replaced
            shutil.rmtree(final)
        replace_whole(draft, final)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError) and _intact(final):
            return final  # another process wrote the same version at the same time
        raise
    return final


def check_writable(directory: Path) -> None:
    """Raise OSError where `save` could not make the directory or write into it; leaves nothing behind."""
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        error.filename = str(there)  # the name of the file, which the operator did not choose, says nothing
        raise


def _intact(path: Path) -> bool:
    try:
        read_card(path)
    except ArtifactError:
        return False
    return True


def _write(draft: Path, predictor: LearnedPredictor, card: Mapping[str, Any]) -> None:
    for name, target in predictor.targets.items():
        (draft / f"{name}.json").write_text(_dump(target_json(target), indent=None), encoding="utf-8")
    held_out = [table for target in predictor.targets.values() for table in target.held_out]
    if held_out:
        write_held_out(draft / HELD_OUT, held_out)
    (draft / "platforms.json").write_text(_dump({k: dict(v) for k, v in predictor.platforms.items()}), "utf-8")
    (draft / "reference.json").write_text(_dump({k: list(v) for k, v in predictor.reference.items()}), "utf-8")
    whole = {**card, "schema": SCHEMA, "version": predictor.version, "origin": predictor.origin}
    whole |= {"metrics": list(predictor.metrics), "further": list(predictor.further)}
    whole |= {"targets": list(predictor.targets)}
    if needed := probes_needed(predictor.metrics):
        whole["probes"] = needed  # what hosts are asked about with
    (draft / CARD).write_text(_dump(whole), encoding="utf-8")
    sums = [f"{_sha256(path)}  {path.name}" for path in sorted(draft.iterdir())]
    (draft / SUMS).write_text("\n".join(sums) + "\n", encoding="utf-8")
    draft.chmod(0o755)


def read_card(path: Path) -> dict[str, Any]:
    """Check an artifact's checksums and return its card; ArtifactError where something is wrong."""
    _check_sums(path)
    card = _json(path / CARD)
    if card.get("schema") != SCHEMA:
        raise ArtifactError(
            f"artifact {path.name} has schema {card.get('schema')!r}, this version reads {SCHEMA}; train again"
        )
    return card


def load(path: Path) -> LearnedPredictor:
    """Read an artifact directory; ArtifactError where anything differs from what was written."""
    card = read_card(path)
    try:
        targets = {name: _target(path, name) for name in card["targets"]}
        return LearnedPredictor(
            version=check_id(str(card["version"]), "model version"),
            origin=str(card["origin"]),
            further=tuple(str(one) for one in card["further"]),
            throughput=targets["throughput"],
            latency=targets.get("latency"),
            jitter=targets.get("jitter"),
            reference=_json(path / "reference.json"),
            platforms=_json(path / "platforms.json"),
            share=targets.get("share"),
        )
    except ArtifactError:
        raise
    except (
        OSError,
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        OverflowError,
    ) as error:
        raise ArtifactError(f"artifact {path.name} is not one of ours: {error}") from None


def newest(directory: Path) -> Path | None:
    """The intact artifact with the latest training time that the gate did not refuse then; None where there is none."""
    intact = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.name.startswith("."):
            continue  # a draft of a training that is still writing
        try:
            card = read_card(path)
        except ArtifactError:
            continue
        if not card.get("refusals"):
            intact.append((str(card.get("created_at", "")), path.name, path))
    return max(intact)[2] if intact else None


def target_json(target: FittedTarget) -> dict[str, Any]:
    """A fitted target as plain JSON values, all but its held-out predictions."""
    learner, support = target.learner, target.support
    return {
        "names": list(target.names),
        "trees": None if learner is None else learner.trees.to_json(),
        "importance": None if learner is None else learner.importance.tolist(),
        "support": None if support is None else support.to_json(),
        "trust": target.trust,
        "memory": target.memory.to_json(),
        "ranges": target.ranges.to_json(),
        "bounds": [target.least, target.most],
        "ceiling": target.ceiling if np.isfinite(target.ceiling) else None,
        "figures": target.figures,
    }


def _target(path: Path, name: str) -> FittedTarget:
    value = _json(path / f"{name}.json")
    names = tuple(str(one) for one in value["names"])
    try:
        learner = None if value["trees"] is None else _learner(value, len(names))
        support = None if learner is None else Support.from_json(value["support"], len(names))
        trust, least, most = _bounds(value)
        return FittedTarget(
            name, names, learner, support, trust, Memory.from_json(value["memory"]), Ranges.from_json(value["ranges"]),
            least, most, np.inf if value["ceiling"] is None else float(value["ceiling"]), value["figures"],
        )  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise ArtifactError(f"artifact {path.name}: {name}.json cannot be used: {error}") from None


def _learner(value: Mapping[str, Any], features: int) -> ResidualLearner:
    importance = np.array(value["importance"], dtype=float)
    if importance.shape != (features,) or not np.isfinite(importance).all():
        raise ValueError("columns and their importance do not fit together")
    return ResidualLearner(TreeEnsembles.from_json(value["trees"], features), importance)


def _bounds(value: Mapping[str, Any]) -> tuple[float, float, float]:
    """Trust, and the least and the most correction."""
    trust, (least, most) = float(value["trust"]), (float(one) for one in value["bounds"])
    if not (0 <= trust <= 1 and -np.inf < least <= 0 <= most < np.inf):
        raise ValueError("trust and bounds are none")
    return trust, least, most


def _check_sums(path: Path) -> None:
    try:
        # Links and pipes are refused before anything is read: they may lead anywhere or never end.
        strange = sorted(entry.name for entry in path.iterdir() if entry.is_symlink() or not entry.is_file())
        lines = [] if strange else read_text(path / SUMS, MEGABYTE).splitlines()
    except (OSError, UnicodeDecodeError, TooLargeError):
        raise ArtifactError(f"{path} is not a model artifact: it has no readable {SUMS}") from None
    if strange:
        raise ArtifactError(f"artifact {path.name}: {strange[0]} is not a plain file")
    listed: dict[str, str] = {}
    for line in lines:
        digest, _, name = line.partition("  ")
        if not name or os.sep in name or name.startswith("."):
            raise ArtifactError(f"artifact {path.name}: {SUMS} has a line that is not a checksum: {line[:60]!r}")
        listed[name] = digest
    if CARD not in listed:
        raise ArtifactError(f"artifact {path.name}: {SUMS} does not list {CARD}")
    present = {entry.name for entry in path.iterdir()} - {SUMS}
    if present != set(listed):
        odd = min(present ^ set(listed))
        raise ArtifactError(f"artifact {path.name}: {odd} is missing or was added after it was written")
    for name, digest in listed.items():
        if _sha256(path / name) != digest:
            raise ArtifactError(f"artifact {path.name}: {name} does not match its checksum; train again or restore it")


def _sha256(path: Path) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise ArtifactError(f"{path.name} cannot be read: {error.strerror}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_text(path, MOST_JSON), parse_constant=_no_number)
    except (OSError, ValueError, RecursionError) as error:  # not there, not UTF-8, not JSON, nested without end
        raise ArtifactError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ArtifactError(f"{path.name} is not a JSON object")
    return value


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _dump(value: Any, indent: int | None = 1) -> str:
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
