"""Gavel's training jobs alone and in pairs on one GPU, as a dataset; nothing about writing it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from models.data.tables import DatasetError
from research.benchmarks.public_data.dataset_writer import Cells, Converted, metric

FILE = "physical_cluster_throughputs.json"
META = {
    "name": "gavel-gpu-pairs",
    "origin": "measured",
    "licence": "MIT",
    "source": f"github.com/stanford-futuredata/gavel, commit c4fa4009, {FILE}",
    "notes": (
        "Training jobs of one worker, alone and two at once on one GPU. A platform is a GPU, counted as the one CPU"
        " that both jobs share. Pairs that did not fit into the GPU's memory (0 steps/s) are left out, and jobs that"
        " did not fit alone. family_<model> is 1 for jobs of that model."
    ),
}
DEFAULT_PLATFORMS = ("p100",)
ALONE = "null"
_JOB = re.compile(r"\('(?P<model>[^'()]+?)(?: \(batch size (?P<batch>\d+)\))?', (?P<workers>\d+)\)")

Speeds = Mapping[str, Mapping[str, Any]]  # job -> job beside it or ALONE -> steps/s, of both where two


def convert(source: Path, platforms: Sequence[str] = DEFAULT_PLATFORMS) -> Converted:
    """Read the source's folder, these platforms of it; DatasetError names the file and the entry that is wrong."""
    whole = _read(source / FILE)
    profiles: list[Cells] = []
    colocations: list[Cells] = []
    jobs: dict[str, re.Match[str]] = {}
    for platform in dict.fromkeys(platforms):
        if platform not in whole:
            raise DatasetError(f"{FILE} has no platform {platform!r}; it has {', '.join(whole)}")
        speeds = {key: beside for key, beside in _mapping(whole[platform], platform).items() if _workers(key) == 1}
        alone = {key: _alone(platform, key, _mapping(beside, key)) for key, beside in speeds.items()}
        alone = {key: speed for key, speed in alone.items() if speed > 0}
        jobs |= {key: _job(key) for key in alone}
        profiles += [metric(_id(key), "solo_steps_per_s", speed, "1/s", platform) for key, speed in alone.items()]
        colocations += _colocations(platform, speeds, alone)
    rows: list[Cells] = [{"platform": name, "kind": "bare metal", "pcpus": 1} for name in dict.fromkeys(platforms)]
    return Converted(META, rows, [*_descriptions(jobs), *profiles], colocations)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(path.read_text(encoding="utf-8")), "the whole")
    except OSError as error:
        raise DatasetError(f"{path.name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path.name} is not UTF-8 text: {error.reason}") from None
    except json.JSONDecodeError as error:
        raise DatasetError(f"{path.name}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except RecursionError:
        raise DatasetError(f"{path.name} is nested too deeply") from None


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DatasetError(f"{FILE}, {where}: it must be an object by name")
    return value


def _job(key: str) -> re.Match[str]:
    match = _JOB.fullmatch(key)
    if not match:
        raise DatasetError(f"{FILE}: {key[:60]!r} is not a job type such as ('LM (batch size 5)', 1)")
    return match


def _workers(key: str) -> int:
    return int(_job(key)["workers"])


def _id(key: str) -> str:
    """`('LM (batch size 5)', 1)` -> `LM.5`, `('A3C', 1)` -> `A3C`."""
    match = _job(key)
    return ".".join(filter(None, (re.sub(r"[^A-Za-z0-9-]+", "_", match["model"]), match["batch"])))


def _family(key: str) -> str:
    return "family_" + re.sub(r"[^a-z0-9]+", "_", _job(key)["model"].lower())


def _speed(value: object, where: str) -> float:
    """Steps per second, 0 = did not fit."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise DatasetError(f"{FILE}, {where}: {str(value)[:40]!r} is not a number of steps per second")
    return float(value)


def _alone(platform: str, key: str, beside: Mapping[str, Any]) -> float:
    where = f"{platform}, {key}"
    if ALONE not in beside:
        raise DatasetError(f"{FILE}, {where}: the speed alone ({ALONE!r}) is missing")
    return _speed(beside[ALONE], f"{where}, {ALONE}")


def _descriptions(jobs: Mapping[str, re.Match[str]]) -> Iterator[Cells]:
    """Batch size, where a job has one, and model family of every job, on every platform the same."""
    families = list(dict.fromkeys(_family(key) for key in jobs))
    for key, match in jobs.items():
        if match["batch"]:
            yield metric(_id(key), "batch_size", int(match["batch"]))
        for family in families:
            yield metric(_id(key), family, int(_family(key) == family))


def _colocations(platform: str, speeds: Speeds, alone: Mapping[str, float]) -> Iterator[Cells]:
    for keys, measured in _runs(platform, speeds, alone).items():
        for repeat, both in enumerate(measured, start=1):
            for number, (key, speed) in enumerate(zip(keys, both, strict=True), start=1):
                yield {
                    "run": "+".join(map(_id, keys)), "platform": platform, "instance": f"{_id(key)}.{number}",
                    "workload": _id(key), "load": 1, "vcpus": 1, "outcome": "throughput", "solo": alone[key],
                    "colocated": speed, "unit": "1/s", "repeat": repeat,
                }  # fmt: skip


def _runs(
    platform: str, speeds: Speeds, alone: Mapping[str, float]
) -> dict[tuple[str, str], dict[tuple[float, float], None]]:
    """The speeds of every pair that fitted. A pair stands under either job; equal entries are the same run."""
    runs: dict[tuple[str, str], dict[tuple[float, float], None]] = {}
    for key in alone:
        for other, both in speeds[key].items():
            if other not in alone:
                continue
            where = f"{platform}, {key}, {other}"
            if not isinstance(both, list) or len(both) != 2:
                raise DatasetError(f"{FILE}, {where}: it must be a list of two speeds")
            mine, its = (_speed(value, where) for value in both)
            if mine > 0 and its > 0:
                pair, measured = ((key, other), (mine, its)) if key <= other else ((other, key), (its, mine))
                runs.setdefault(pair, {})[measured] = None
    return runs
