"""A trained model on disk: text files with checksums, never pickled; reading checks everything before use."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

from models.effects import Effects
from models.estimators import ResidualModel
from models.fitted import FittedTarget
from models.intervals import Calibration
from models.learned import LearnedPredictor

SCHEMA = 2
CARD, SUMS = "card.json", "SHA256SUMS"
TARGETS = ("throughput", "latency")


class ArtifactError(ValueError):
    """An artifact is missing, incomplete, altered or of another kind; the message says which."""


def save(
    directory: Path,
    predictor: LearnedPredictor,
    card: Mapping[str, Any],
) -> Path:
    """Write an artifact as `directory/VERSION`, whole or not at all; an intact one of the same version is kept."""
    final = directory / predictor.version
    if _intact(final):
        return final
    directory.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=directory))
    try:
        _write(draft, predictor, card)
        if final.exists():  # a broken one: what training says of it is "train again"
            shutil.rmtree(final)
        draft.rename(final)
    except BaseException as error:
        shutil.rmtree(draft, ignore_errors=True)
        if isinstance(error, OSError) and _intact(final):
            return final  # another process trained the same thing at the same time
        raise
    return final


def _intact(path: Path) -> bool:
    try:
        read_card(path)
    except ArtifactError:
        return False
    return True


def _write(draft: Path, predictor: LearnedPredictor, card: Mapping[str, Any]) -> None:
    targets = {"throughput": predictor.throughput, "latency": predictor.latency}
    parts = {name: target for name, target in targets.items() if target is not None}
    for name, target in parts.items():
        (draft / f"{name}.json").write_text(_dump(_target_json(target)), encoding="utf-8")
        if target.model.booster is not None:
            (draft / f"{name}.txt").write_text(target.model.booster.model_to_string(), encoding="utf-8")
    (draft / "reference.json").write_text(_dump({k: list(v) for k, v in predictor.reference.items()}), "utf-8")
    whole = {**card, "schema": SCHEMA, "version": predictor.version, "origin": predictor.origin}
    whole |= {"metrics": list(predictor.metrics), "targets": list(parts)}
    (draft / CARD).write_text(_dump(whole), encoding="utf-8")
    sums = [f"{_sha256(path)}  {path.name}" for path in sorted(draft.iterdir())]
    (draft / SUMS).write_text("\n".join(sums) + "\n", encoding="utf-8")
    draft.chmod(0o755)


def read_card(path: Path) -> dict[str, Any]:
    """The card of an artifact after its checksums were checked; ArtifactError otherwise."""
    _check_sums(path)
    card = _json(path / CARD)
    if card.get("schema") != SCHEMA:
        raise ArtifactError(f"artifact {path.name} has schema {card.get('schema')!r}, this version reads {SCHEMA}")
    return card


def load(path: Path) -> LearnedPredictor:
    """Read an artifact directory; ArtifactError when anything about it is not as it was written."""
    card = read_card(path)
    try:
        targets = {name: _target(path, name) for name in card["targets"]}
        return LearnedPredictor(
            version=str(card["version"]),
            origin=str(card["origin"]),
            metrics=tuple(card["metrics"]),
            throughput=targets["throughput"],
            latency=targets.get("latency"),
            reference=_json(path / "reference.json"),
        )
    except ArtifactError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, lightgbm.basic.LightGBMError) as error:
        raise ArtifactError(f"artifact {path.name} is not one of ours: {error}") from None


def newest(directory: Path) -> Path | None:
    """The intact artifact that was trained last, None where there is none."""
    found = []
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.name.startswith("."):
            continue  # a draft: whole perhaps, and about to be renamed
        try:
            found.append((str(read_card(path).get("created_at", "")), path.name, path))
        except ArtifactError:
            continue
    return max(found)[2] if found else None


def _target_json(target: FittedTarget) -> dict[str, Any]:
    return {
        "effects": target.model.effects.to_json(),
        "trust_known": target.model.trust_known,
        "trust_unknown": target.model.trust_unknown,
        "known": sorted(target.model.known),
        "calibration": target.calibration.to_json(),
        "low": [None if np.isnan(value) else float(value) for value in target.low],
        "high": [None if np.isnan(value) else float(value) for value in target.high],
        "limits": list(target.limits),
        "most_instances": target.most_instances,
        "figures": target.figures,
    }


def _target(path: Path, name: str) -> FittedTarget:
    value = _json(path / f"{name}.json")
    text = path / f"{name}.txt"
    booster = lightgbm.Booster(model_str=text.read_text(encoding="utf-8")) if text.is_file() else None
    low, high = (
        np.array([np.nan if edge is None else edge for edge in value[end]], dtype=float) for end in ("low", "high")
    )
    if len({len(low), len(high)} | ({booster.num_feature()} if booster else set())) > 1:
        raise ArtifactError(f"artifact {path.name}: {text.name} has another number of features than {name}.json")
    limits = tuple(int(column) for column in value["limits"])
    if any(not 0 <= column < len(low) for column in limits):
        raise ArtifactError(f"artifact {path.name}: {name}.json names a limit beyond its {len(low)} features")
    return FittedTarget(
        target=name,
        model=ResidualModel(
            booster=booster,
            effects=Effects({str(key): float(effect) for key, effect in value["effects"].items()}),
            trust_known=float(value["trust_known"]),
            trust_unknown=float(value["trust_unknown"]),
            known=frozenset(value["known"]),
        ),
        calibration=Calibration.from_json(value["calibration"]),
        low=low,
        high=high,
        limits=limits,
        most_instances=int(value["most_instances"]),
        figures=value["figures"],
    )


def _check_sums(path: Path) -> None:
    try:
        # nothing is read before it is known to be a file: a link or a pipe may lead anywhere or never end
        strange = sorted(entry.name for entry in path.iterdir() if entry.is_symlink() or not entry.is_file())
        lines = [] if strange else (path / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
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
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ArtifactError(f"{path.name} cannot be read: {error.strerror}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # not there, not UTF-8, not JSON, nested without end
        raise ArtifactError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ArtifactError(f"{path.name} is not a JSON object")
    return value


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
