"""Writes and reads a trained model: text files with checksums, no pickles. Everything is checked before it is used."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.feature_matrix import probes_needed
from models.learning.fitted_target import FittedTarget, ResidualLearner
from models.learning.held_out import HELD_OUT, write_held_out
from models.learning.learned_predictor import LearnedPredictor
from models.learning.memory import Memory
from models.learning.support import Ranges, Support
from models.learning.trees import TreeEnsembles
from models.prediction import TARGETS
from profiler.files import MEGABYTE, TooLargeError, read_text, replace_whole, sha256
from profiler.host_kinds import HOST_KINDS
from profiler.observed import Host, Instance, check_id

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


# Smoke test of an artifact: loads it and predicts once in a separate process, which may crash or hang safely.
#
# `artifact.load` checks the files as far as that is possible. What remains runs in C code of numpy and trees.c.

if TYPE_CHECKING:
    from models.prediction import Predictor

_passed: set[str] = set()  # checksums of artifacts that passed in this process and need no second test
LIMIT_S = 60.0  # of CPU time: a test takes about two seconds of it, most of them for loading libraries
STALLED_S = 120.0  # without any CPU time, which even a crowded machine gives: it hangs
_LOOK_S = 0.05
MOST_BYTES = 2 * 2**30  # of memory, the stacks of threads among it
MOST_PROFILES = 50  # profiles of the training that are tried
SECRETS = ("COTENANT_", "OS_", "PG")  # environment variables with these prefixes are not passed on


class SmokeTestError(ValueError):
    """An artifact cannot be read, or its first prediction died, took too long or was none."""


def run(artifact: Path) -> None:
    """Load `artifact` and predict a few scenes in another process, within LIMIT_S of CPU time however long that takes;
    SmokeTestError says how it failed."""
    sums = _sums(artifact)
    if sums in _passed:
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SECRETS)}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-P", "-m", "models.learning.artifact", str(artifact.resolve())]
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        ) as process,
    ):
        try:
            _await(process)
        finally:
            process.kill()
        errors.seek(0)
        last_words = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:]
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise SmokeTestError(f"the process of its first prediction ended by {name}")
    if process.returncode:
        raise SmokeTestError(last_words[0][:500] if last_words else "its first prediction failed")
    if sums is not None:
        _passed.add(sums)


@dataclass(slots=True)
class ProcessProgress:
    """How a process fares by the CPU time that it has used (s) and a clock (s)."""

    used_s: float = 0.0
    changed_s: float = 0.0

    def why_not(self, used_s: float, now_s: float) -> str:
        """Why its prediction is not waited for any longer, empty = it is."""
        if used_s != self.used_s:
            self.used_s, self.changed_s = used_s, now_s
        if used_s > LIMIT_S:
            return f"its first prediction was not there after {LIMIT_S:g} s of CPU time"
        if now_s - self.changed_s > STALLED_S:
            return f"the process of its first prediction did nothing for {STALLED_S:g} s"
        return ""


def _await(process: subprocess.Popen[bytes]) -> None:
    """Wait until it ends; SmokeTestError when it takes too much CPU time, or hangs."""
    began_s = time.monotonic()
    progress = ProcessProgress(changed_s=began_s)
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
            return
        now_s = time.monotonic()
        reason = progress.why_not(_used_s(process.pid, now_s - began_s), now_s)
        if reason:
            raise SmokeTestError(reason)


def _used_s(pid: int, passed_s: float) -> float:
    """CPU time of a process, `passed_s` where this system does not tell it: fields 14 and 15 of proc_pid_stat(5)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return passed_s


def _sums(artifact: Path) -> str | None:
    """A digest of the checksum file, which `load` compares with the files; None where it cannot be read."""
    try:
        return sha256(artifact / "SHA256SUMS")
    except OSError:
        return None


def predict_once(artifact: Path) -> None:
    """The same in this process."""
    from models.learning.held_out import held_out_of

    try:
        predictor = load(artifact)
        held_out_of(artifact)  # which the gate reads next
    except ValueError as error:
        raise SmokeTestError(str(error)) from error
    scenes = _scenes(_profiles(predictor.reference))
    _check(predictor, scenes)


def _check(predictor: Predictor, scenes: SceneBatch) -> None:
    try:
        prediction = predictor.predict(scenes)
    except Exception as error:
        raise SmokeTestError(f"its first prediction failed: {type(error).__name__}: {error}") from error
    for target in TARGETS:
        band = getattr(prediction, target)
        for edge in (band.expected, band.lower, band.upper):
            if edge.shape != scenes.present.shape or not np.isfinite(edge[scenes.present]).all():
                raise SmokeTestError(f"its first prediction of {target} is not finite")


def _profiles(reference: object) -> list[WorkloadProfile]:
    """Some profiles of the training data, so that the learned parts are used."""
    if not isinstance(reference, dict):
        raise SmokeTestError("reference.json is no mapping of names to profiles")
    try:
        seen = [WorkloadProfile(name, dict(several[0])) for name, several in reference.items() if several]
    except (TypeError, ValueError, KeyError) as error:
        raise SmokeTestError(f"reference.json holds what is no profile: {error}") from error
    return seen[:MOST_PROFILES]


def _scenes(profiles: Sequence[WorkloadProfile]) -> SceneBatch:
    """Small and large hosts of each kind: with one to four known workloads, and with a known and an unknown one."""
    names: list[str | None] = [profile.name for profile in profiles] or [None]
    scenes = []
    for kind in HOST_KINDS:
        for pcpus in (2, 64):
            host = Host(f"{kind}-{pcpus}", kind, pcpus, 65536)
            for number in range(len(names)):
                together = [names[(number + at) % len(names)] for at in range(1 + number % 4)]
                scenes.append((host, [Instance(f"i{at}", workload=one) for at, one in enumerate(together)]))
            scenes.append((host, [Instance("known", workload=names[0]), Instance("unknown", vcpus=2)]))
    return build_batch(scenes, ProfileTable.build(profiles))


def main() -> None:
    """What `run` starts: ends with 0, or with 1 and a sentence on standard error."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not fill the disk with core dumps
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
    try:
        predict_once(Path(sys.argv[1]))
    except SmokeTestError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
