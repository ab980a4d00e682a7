"""Turns datasets into training examples: feature rows, measured ratios, and the labels that folds group rows by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints, axis_fields, over
from models.data.dataset import RATIO_OUTCOMES, Dataset, throughput_ratio
from models.data.scene import PROBED, ProfileTable, SceneBatch, build_batch
from models.data.status import check_learnable
from models.data.topology import cpu_overlap
from models.features.base_ratio import base_ratio
from models.features.feature_matrix import PLATFORM, build_matrix
from models.features.feature_selection import select_metrics
from models.features.machines import STATED
from profiler.metrics import ADDITIONAL, EIGHT, split_key
from profiler.observed import Colocation, Host, Instance, Outcome

# The outcome that each target but throughput is made of.
OUTCOME_OF_TARGET = {"latency": "latency_mean_ms", "jitter": "jitter_ms", "share": "cpu_share"}
# What agents measure stands in the matrix relative to what a host has, and how fast a program was alone in a laboratory
# no agent knows.
_KNOWN = frozenset({one.name for one in (*EIGHT, *ADDITIONAL)}) | frozenset(
    [
        "throughput", "throughput_rps", "throughput_kb_s", "latency_mean_ms", "latency_p95_ms", "latency_us",
        "jitter_ms", "timeouts_percent", "response_ms", "runtime_s", "quality_percent", "load_generator_cpu",
    ]
)  # fmt: skip
LOWEST_RATIO, HIGHEST_RATIO = 1e-3, 1e3  # 0 has no logarithm; what is beyond a thousand-fold counts as that


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbour of a row's instance: its workload, and the share of its pCPUs that the instance may use too, 0-1."""

    workload: str
    overlap: float


@dataclass(frozen=True, slots=True)
class Examples:
    """R measured rows.

    `x` (R, F) are features; `names` and `monotone` (F,) are as in FeatureMatrix. `ratio` (R,) was measured, `base` (R,)
    is the prior's value of it (models.features.base_ratio). `victim` (R,) is the row's workload, `neighbours` are those
    beside it. `pair` (R,) has the sorted workloads of the run. Folds group rows by `pair`, `platform`, `setting` and
    `run` (R,). `size` (R,) is the number of instances in the run. `key` (R,) identifies a row across trainings. Of
    windows, whose `pair` is their host, `ends_s` (R,) is when they ended and `importance` (R,) how much they count.
    `stated` (R, 5) is what is stated of each row's host (models.features.machines), nan = unknown.
    """

    x: Floats = field(metadata=over("row"))
    names: tuple[str, ...]
    monotone: NDArray[np.int8]
    ratio: Floats = field(metadata=over("row"))
    base: Floats = field(metadata=over("row"))
    victim: tuple[str, ...] = field(metadata=over("row"))
    neighbours: tuple[tuple[Neighbour, ...], ...] = field(metadata=over("row"))
    pair: tuple[str, ...] = field(metadata=over("row"))
    platform: tuple[str, ...] = field(metadata=over("row"))
    setting: tuple[str, ...] = field(metadata=over("row"))
    run: tuple[str, ...] = field(metadata=over("row"))
    size: Ints = field(metadata=over("row"))
    key: tuple[str, ...] = field(default=(), metadata=over("row"))
    ends_s: Floats = field(default_factory=lambda: np.zeros(0), metadata=over("row"))
    importance: Floats = field(default_factory=lambda: np.zeros(0), metadata=over("row"))
    campaign: tuple[str, ...] = field(default=(), metadata=over("row"))
    stated: Floats = field(default_factory=lambda: np.zeros((0, len(STATED))), metadata=over("row"))

    def __len__(self) -> int:
        return len(self.ratio)

    def take(self, rows: Ints) -> Examples:
        """The rows with these numbers, in this order."""

        def pick(values: Any) -> Any:
            if not len(values):  # not all rows have a key, an end and an importance
                return values
            return values[rows] if isinstance(values, np.ndarray) else tuple(values[row] for row in rows)

        return replace(self, **{name: pick(getattr(self, name)) for name in _OF_ROWS})

    @property
    def workloads(self) -> tuple[str, ...]:
        """Every workload that occurs, as victim or neighbour, sorted."""
        found = set(self.victim)
        for around in self.neighbours:
            found.update(one.workload for one in around)
        return tuple(sorted(found))

    def involves(self, workload: str) -> NDArray[np.bool_]:
        """Rows of runs that contain a workload, as victim or neighbour; (R,)."""
        return np.array([workload in pair.split("+") for pair in self.pair], dtype=bool)


_OF_ROWS = axis_fields(Examples, "row")


def further_metrics(datasets: Sequence[Dataset]) -> tuple[str, ...]:
    """What probes found on hosts, and metrics of profiles that no agent measures and no outcome gives, the best ones.
    DatasetError where one of the datasets is kept to judge: its metrics choose nothing."""
    check_learnable(datasets)
    keys = {
        key for dataset in datasets for profile in dataset.profiles for key in profile.metrics
        if split_key(key)[1] not in _KNOWN
    }  # fmt: skip
    numbers = (key for dataset in datasets for host in dataset.platform_numbers.values() for key in host)
    probed = sorted({PLATFORM + key for key in numbers if key.startswith(PROBED)})
    return (*select_metrics([profile for dataset in datasets for profile in dataset.profiles], keys), *probed)


def build_examples(datasets: Sequence[Dataset], further: Sequence[str], *, target: str = "throughput") -> Examples:
    """All measured rows of the datasets for one target: throughput (T/B), latency or jitter (co-located over solo), or
    share (of the CPU time that an instance wanted in a window, what it got).

    A profile is used for its own dataset only, even where another dataset has a workload of the same name.
    """
    parts = [_one(dataset, further, target) for dataset in datasets]
    filled = [part for part in parts if part is not None]
    if not filled:
        return _nothing(further)
    joined: dict[str, Any] = {}
    for name in _OF_ROWS:
        values = [getattr(part, name) for part in filled]
        joined[name] = tuple(chain(*values)) if isinstance(values[0], tuple) else np.concatenate(values)
    return replace(filled[0], **joined)


def scene_of(colocation: Colocation, platforms: dict[str, Host]) -> tuple[Host, tuple[Instance, ...]]:
    """The host and instances of a co-location, each instance once though it may have several outcomes."""
    host = replace(platforms[colocation.platform], driver_cpus=colocation.driver_cpus)
    instances = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    return host, tuple(instances.values())


def measured(colocation: Colocation, target: str) -> dict[str, float]:
    """The measured ratio by instance. Where an instance has both throughput and run time, throughput counts."""
    found: dict[str, tuple[int, float]] = {}
    for outcome in colocation.outcomes:
        ratio, rank = _ratio(outcome, target)
        if ratio is not None and (outcome.instance.id not in found or rank < found[outcome.instance.id][0]):
            found[outcome.instance.id] = (rank, min(max(ratio, LOWEST_RATIO), HIGHEST_RATIO))
    return {name: ratio for name, (_, ratio) in found.items()}


def _ratio(outcome: Outcome, target: str) -> tuple[float | None, int]:
    if target == "throughput" and outcome.outcome in RATIO_OUTCOMES:
        return throughput_ratio(outcome), 0 if outcome.outcome == "throughput" else 1
    if OUTCOME_OF_TARGET.get(target) == outcome.outcome and outcome.solo and outcome.colocated:
        return outcome.colocated / outcome.solo, 0
    return None, 9


def _one(dataset: Dataset, further: Sequence[str], target: str) -> Examples | None:
    table = ProfileTable.build(dataset.profiles, dataset.platform_numbers)
    ratios = [measured(colocation, target) for colocation in dataset.colocations]
    used = [(one, ratio) for one, ratio in zip(dataset.colocations, ratios, strict=True) if ratio]
    if not used:
        return None
    scenes = [scene_of(colocation, dict(dataset.platforms)) for colocation, _ in used]
    whole = [(host, (*ones, *run.generators)) for (host, ones), (run, _) in zip(scenes, used, strict=True)]
    batch = build_batch(whole, table)
    matrix = build_matrix(batch, further)
    rows, ratio, victims, neighbours, pairs, settings, keys = [], [], [], [], [], [], []
    overlap = cpu_overlap(batch)
    for row, (scene, slot) in enumerate(zip(matrix.scene, matrix.slot, strict=True)):
        instances = scenes[scene][1]
        value = used[scene][1].get(instances[slot].id) if slot < len(instances) else None
        if value is None:
            continue
        rows.append(row)
        ratio.append(value)
        of_window = target == "share"
        victims.append(instances[slot].id if of_window else instances[slot].workload or "")
        neighbours.append(() if of_window else _neighbours(instances, overlap[scene], int(slot)))
        workloads = "+".join(sorted(instance.workload or "" for instance in instances))
        pairs.append(f"{dataset.name}/{used[scene][0].platform}" if of_window else workloads)
        settings.append(_setting(instances))
        run = used[scene][0]
        keys.append(f"{dataset.name}/{run.platform}/{run.run}/{run.repeat}/{instances[slot].id}")
    keep = np.array(rows, dtype=np.int64)
    scene = matrix.scene[keep]
    return Examples(
        x=matrix.x[keep],
        names=matrix.names,
        monotone=matrix.monotone,
        ratio=np.array(ratio),
        base=base_ratio(matrix, keep, table, target, dataset.meta, whole),
        victim=tuple(victims),
        neighbours=tuple(neighbours),
        pair=tuple(pairs),
        platform=tuple(f"{dataset.name}/{used[at][0].platform}" for at in scene),
        setting=tuple(settings),
        run=tuple(f"{dataset.name}/{used[at][0].run}/{used[at][0].repeat}" for at in scene),
        size=np.array([len(scenes[at][1]) for at in scene], dtype=np.int64),
        key=tuple(keys),
        ends_s=np.array([used[at][0].ends_s for at in scene]),
        importance=np.array([used[at][0].importance for at in scene]),
        campaign=(dataset.name,) * len(scene),
        stated=batch.host_numbers[scene][:, : len(STATED)],
    )


def _neighbours(instances: Sequence[Instance], overlap: Floats, slot: int) -> tuple[Neighbour, ...]:
    return tuple(
        Neighbour(one.workload or "", float(overlap[slot, other]))
        for other, one in enumerate(instances)
        if other != slot
    )


def _setting(instances: Sequence[Instance]) -> str:
    """A label of all settings in a run (pinning, cap, weight, tc mode), independent of the instances' order."""
    parts = sorted(
        f"{instance.settings.pinning or ''}/{instance.settings.cap_percent or ''}/{instance.settings.weight or ''}"
        f"/{instance.settings.network.mode if instance.settings.network else ''}"
        for instance in instances
    )
    return " ".join(parts)


def _nothing(further: Sequence[str]) -> Examples:
    empty: SceneBatch = build_batch([], ProfileTable.build([]))
    matrix = build_matrix(empty, further)
    none = np.zeros(0)
    return Examples(
        np.zeros((0, len(matrix.names))), matrix.names, matrix.monotone, none, none, (), (), (), (), (), (),
        np.zeros(0, dtype=np.int64),
    )  # fmt: skip
