"""Writes and reads a trained model: text files with checksums, no pickles. Everything is checked before it is used."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from models.arrays import Floats
from models.features.probe_features import probes_needed
from models.learning.effects import Effects
from models.learning.fitted_target import FittedTarget
from models.learning.held_out import HELD_OUT, write_held_out
from models.learning.intervals import HINTS, Calibration
from models.learning.kernel_ridge import KernelRidge
from models.learning.learned_predictor import LearnedPredictor
from models.learning.residual_model import BASE_LEARNERS, BaseLearners, ResidualModel, StackingWeights
from models.learning.stored_trees import Trees
from models.learning.tree_text import read_trees
from profiler.limited import MEGABYTE, TooLargeError, read_text, sha256
from profiler.observed import check_id
from profiler.whole_files import replace_whole

MOST_TREES, MOST_JSON = 64 * MEGABYTE, 64 * MEGABYTE  # of one file: trees of a large model are 2 MB
SCHEMA = 6
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
        error.filename = str(there)  # the name of the file, which nobody chose, says nothing
        raise


def _intact(path: Path) -> bool:
    try:
        read_card(path)
    except ArtifactError:
        return False
    return True


def _write(draft: Path, predictor: LearnedPredictor, card: Mapping[str, Any]) -> None:
    for name, target in predictor.targets.items():
        (draft / f"{name}.json").write_text(_dump(_target_json(target)), encoding="utf-8")
        for part, booster in _boosters(target).items():
            (draft / f"{name}-{part}.txt").write_text(booster.model_to_string(), encoding="utf-8")
    held_out = [table for target in predictor.targets.values() for table in target.held_out]
    if held_out:
        write_held_out(draft / HELD_OUT, held_out)
    (draft / "platforms.json").write_text(_dump({k: dict(v) for k, v in predictor.platforms.items()}), "utf-8")
    (draft / "reference.json").write_text(_dump({k: list(v) for k, v in predictor.reference.items()}), "utf-8")
    whole = {**card, "schema": SCHEMA, "version": predictor.version, "origin": predictor.origin}
    whole |= {"metrics": list(predictor.metrics), "targets": list(predictor.targets)}
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
            metrics=tuple(card["metrics"]),
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


def _boosters(target: FittedTarget) -> dict[str, Trees]:
    """All boosters of a target by the name that is part of their file's name."""
    base_learners = target.model.base_learners
    found = {} if base_learners is None else base_learners.trees()
    if target.calibration.difficulty is not None:
        found["difficulty"] = target.calibration.difficulty
    return found


def _target_json(target: FittedTarget) -> dict[str, Any]:
    model = target.model
    return {
        "smooth": None if model.base_learners is None else model.base_learners.smooth.to_json(),
        "boosters": 0 if model.base_learners is None else len(model.base_learners.boosters),
        "direct": 0 if model.base_learners is None else len(model.base_learners.direct),
        "effects": model.effects.to_json(),
        "known_blend": model.known_weights.named(),
        "unknown_blend": model.unknown_weights.named(),
        "platform_blend": None if model.platform_weights is None else model.platform_weights.named(),
        "known": sorted(model.known),
        "platforms": sorted(model.platforms),
        "calibration": target.calibration.to_json(),
        "difficulty": target.calibration.difficulty is not None,
        "low": _edges_json(target.low),
        "high": _edges_json(target.high),
        "limits": list(target.limits),
        "kinds": {str(column): list(seen) for column, seen in target.kinds.items()},
        "carried": None if target.carried is None else list(target.carried),
        "sizes": list(target.sizes),
        "sets": list(target.sets),
        "loads": list(target.loads),
        "even": list(target.even),
        "host_columns": list(target.host_columns),
        "hosts": [_edges_json(host) for host in target.hosts],
        "most_instances": target.most_instances,
        "ceiling": target.ceiling if np.isfinite(target.ceiling) else None,
        "figures": target.figures,
    }


def _stacking_weights(value: Mapping[str, Any]) -> StackingWeights:
    shares = {name: float(value[name]) for name in (*BASE_LEARNERS, "effects")}
    if not all(0 <= share <= 1 for share in shares.values()):
        raise ValueError(f"a blend keeps shares of 0 to 1, not {shares}")
    return StackingWeights(tuple(shares[name] for name in BASE_LEARNERS), shares["effects"])


def _edges_json(edges: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in edges]


def _edges(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


def _target(path: Path, name: str) -> FittedTarget:
    value = _json(path / f"{name}.json")
    low, high = _edges(value["low"]), _edges(value["high"])
    base_learners = _base_learners(path, name, value, len(low))
    difficulty = _booster(path, f"{name}-difficulty", len(low) + HINTS) if value["difficulty"] else None
    calibration = Calibration.from_json(value["calibration"], difficulty)
    columns: dict[str, Any] = {
        key: tuple(int(column) for column in value[key])
        for key in ("limits", "sizes", "sets", "loads", "even", "host_columns")
    }
    kinds = {int(column): tuple(float(one) for one in seen) for column, seen in value["kinds"].items()}
    hosts = np.array([_edges(host) for host in value["hosts"]], dtype=float)
    hosts = hosts.reshape(len(hosts), len(columns["host_columns"]))
    named = chain(kinds, *columns.values())
    if len(low) != len(high) or any(not 0 <= column < len(low) for column in named):
        raise ArtifactError(f"artifact {path.name}: {name}.json names a column beyond its {len(low)} features")
    return FittedTarget(
        target=name,
        model=ResidualModel(
            base_learners=base_learners,
            effects=Effects.from_json(value["effects"]),
            known_weights=_stacking_weights(value["known_blend"]),
            unknown_weights=_stacking_weights(value["unknown_blend"]),
            platform_weights=_stacking_weights(value["platform_blend"]) if value["platform_blend"] else None,
            known=frozenset(value["known"]),
            platforms=frozenset(value["platforms"]),
        ),
        calibration=calibration,
        low=low,
        high=high,
        most_instances=int(value["most_instances"]),
        ceiling=np.inf if value["ceiling"] is None else float(value["ceiling"]),
        figures=value["figures"],
        hosts=hosts,
        kinds=kinds,
        carried=None if value.get("carried") is None else tuple(float(kind) for kind in value["carried"]),
        **columns,
    )


def _base_learners(path: Path, name: str, value: Mapping[str, Any], features: int) -> BaseLearners | None:
    if value["smooth"] is None:
        return None
    smooth = KernelRidge.from_json(value["smooth"])
    if len(smooth.space.centre) != features:
        raise ArtifactError(f"artifact {path.name}: the smooth member of {name} has another number of features")
    boosters = tuple(_booster(path, f"{name}-booster{number}", features) for number in range(int(value["boosters"])))
    direct = tuple(_booster(path, f"{name}-direct{number}", features) for number in range(int(value["direct"])))
    return BaseLearners(boosters, _booster(path, f"{name}-forest", features), smooth, direct)


def _booster(path: Path, name: str, features: int) -> Trees:
    try:
        return read_trees(read_text(path / f"{name}.txt", MOST_TREES), features)
    except ValueError as error:
        raise ArtifactError(f"artifact {path.name}: {name}.txt cannot be used: {error}") from None


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


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
