"""Turns datasets into training examples: feature rows, measured ratios, labels of folds, weights, joined repeats."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.arrays import Bools, Floats, Ints, axis_fields, over
from models.data.dataset import RATIO_OUTCOMES, Dataset, throughput_ratio
from models.data.dataset_rules import SUFFIX, check_learnable
from models.data.scene import HOST_NUMBERS, PROBED, ProfileTable, SceneBatch, build_batch
from models.data.topology import cpu_overlap
from models.data.window_dataset import CALM
from models.features.feature_matrix import PLATFORM, FeatureMatrix, build_matrix, select_metrics
from models.physics.prior import solve
from profiler.metrics import ADDITIONAL, EIGHT, split_key
from profiler.observed import Colocation, Host, Instance, IsolationSettings, Outcome

# Cross-validation folds, by what a user's cloud differs in: campaign, machine, family of workloads, pair, host, time.
#
# Each function gives pairs of training and test rows, as scikit-learn's splitters do.

Fold = tuple[Ints, Ints]  # training rows, test rows

FOLDS = 4  # of pairs and hosts: each is large enough
MOST_FOLDS = 6  # of campaigns and workloads: one by one up to here, groups of them beyond
FEW_FAMILIES = 4  # with fewer, programs are left out one by one
_VARIANT = re.compile(r"[-_.]?\d.*$")  # what numbers the variants of one program: `web-10k`, `cpu2`
NEWEST_S = 7 * 86_400.0  # the newest week is held out …
NEWEST_SHARE = 1 / 6  # … or the newest sixth of the time where that is less
FEWEST_HOSTS = 2  # with fewer no host can be left out


def family(workload: str) -> str:
    """What variants of a program have in common: the name up to the first number."""
    return _VARIANT.sub("", workload) or workload


def elsewhere_of(examples: Examples) -> tuple[str, ...]:
    """What is left out as a whole: campaigns, or platforms where there is one campaign; (R,)."""
    return examples.campaign if len(set(examples.campaign)) > 1 else examples.platform


def elsewhere_folds(examples: Examples) -> list[Fold]:
    """Folds that leave out campaigns, or platforms where there is one campaign; none where there is one platform."""
    labels = elsewhere_of(examples)
    return _by_label(labels, MOST_FOLDS) if len(set(labels)) > 1 else []


def pair_folds(examples: Examples, seed: int = 0, folds: int | None = None) -> list[Fold]:
    """Folds in which all rows of one set of workloads, in all repeats and settings, are on the same side."""
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    number = np.random.default_rng(seed).permutation(len(pairs)) % (folds or FOLDS)
    return _by_number(number[which])


def workload_folds(examples: Examples, most: int | None = None) -> list[Fold]:
    """Folds that leave out every run with one family of workloads, or with one group of families."""
    names = examples.workloads
    families = {name: family(name) for name in names}
    if len(set(families.values())) < FEW_FAMILIES:
        families = {name: name for name in names}
    group = {one: number % (most or MOST_FOLDS) for number, one in enumerate(sorted(set(families.values())))}
    pairs, which = np.unique(np.array(examples.pair, dtype=np.str_), return_inverse=True)
    members = [{group[families[name]] for name in pair.split("+")} for pair in pairs]
    folds: list[Fold] = []
    for number in range(max(group.values(), default=-1) + 1):
        inside = np.array([number in one for one in members], dtype=bool)[which]
        if inside.any() and not inside.all():
            folds.append((np.flatnonzero(~inside), np.flatnonzero(inside)))
    return folds


def newest_fold(examples: Examples) -> Fold:
    """Rows of the older and of the newest windows; none are newest where all ended at once."""
    last, first = examples.ends_s.max(), examples.ends_s.min()
    newest = examples.ends_s > last - min(NEWEST_S, NEWEST_SHARE * (last - first))
    newest &= last > first
    return np.flatnonzero(~newest), np.flatnonzero(newest)


def host_folds(examples: Examples, rows: Ints, seed: int = 0) -> list[Fold]:
    """Folds of these `rows` that leave out hosts, and of the other hosts whoever was on one of those, too.

    Of a single host they are spans of time.
    """
    hosts, which = np.unique(np.array([examples.pair[row] for row in rows], dtype=np.str_), return_inverse=True)
    if len(hosts) < FEWEST_HOSTS:
        spans = np.array_split(rows[np.argsort(examples.ends_s[rows], kind="stable")], FOLDS)
        return [(np.setdiff1d(rows, test), np.sort(test)) for test in spans if 0 < len(test) < len(rows)]
    order = np.random.default_rng(seed).permutation(len(hosts))
    victims = np.array([examples.victim[row] for row in rows], dtype=np.str_)
    found = []
    for fold in range(min(FOLDS, len(hosts))):
        test = np.isin(which, order[fold :: min(FOLDS, len(hosts))])
        train = ~test & ~np.isin(victims, victims[test])
        if train.any():
            found.append((rows[train], rows[test]))
    return found


def _by_label(labels: Sequence[str], most: int) -> list[Fold]:
    names, which, count = np.unique(np.array(labels, dtype=np.str_), return_inverse=True, return_counts=True)
    number = np.empty(len(names), dtype=np.int64)
    number[np.argsort(-count, kind="stable")] = np.arange(len(names)) % most
    return _by_number(number[which])


def _by_number(number: Ints) -> list[Fold]:
    folds = [(np.flatnonzero(number != one), np.flatnonzero(number == one)) for one in np.unique(number)]
    return [(train, test) for train, test in folds if len(train) and len(test)]


# What the analytic model says of the ratio of each measured row, relative to the same solo run as the measurement.

OWN_SETTINGS = "own settings"  # of `solo` in dataset.yaml: solo values were measured under the instance's own limits
Scene = tuple[Host, Sequence[Instance]]


def base_ratio(
    matrix: FeatureMatrix,
    rows: Ints,
    table: ProfileTable,
    target: str,
    meta: Mapping[str, Any],
    scenes: Sequence[Scene],
) -> Floats:
    """The analytic throughput, latency, jitter or share ratio of these rows of `matrix`, (R,).

    `scenes` are those of `matrix`, with load generators. A generator shares the CPUs of its run with every instance,
    and those of the solo run with its own instance. Limits count in the solo run where it was measured with them.
    """
    beside = matrix.prior_of(target)[rows]
    own_settings = meta.get("solo") == OWN_SETTINGS
    found, alone = np.flatnonzero([_slowed_alone(scenes[matrix.scene[row]][1], matrix.slot[row], own_settings)
                                   for row in rows]), []  # fmt: skip
    if not len(found):
        return beside
    for row in rows[found].tolist():
        host, instances = scenes[matrix.scene[row]]
        one = instances[matrix.slot[row]]
        kept = one if own_settings else replace(one, settings=IsolationSettings(pinning=one.settings.pinning))
        alone.append((host, (kept, *(other for other in instances if other.id == one.id + SUFFIX))))
    beside[found] /= getattr(solve(build_batch(alone, table)), target)[:, 0]
    return np.asarray(beside)


def _slowed_alone(instances: Sequence[Instance], slot: int, own_settings: bool) -> bool:
    """Whether an instance may be slower in its solo run than with its CPUs to itself and without limits."""
    one = instances[slot]
    limits = one.settings
    limited = limits.cap_percent is not None or limits.network is not None or limits.disk_limit_mb_s is not None
    return (own_settings and limited) or any(other.id == one.id + SUFFIX for other in instances)


# Which machine a host is, by what is stated of its processors: campaigns and clouds name platforms as they like.

STATED = HOST_NUMBERS[:5]  # CPUs, threads of a core, clock, second- and third-level cache
_TELLING = slice(2, 5)  # clock and caches: how many CPUs there are distinguishes no machine
ALIKE = 0.02  # values of one machine may differ by so much: a clock is stated or measured


def alike(stated: Floats, other: Floats) -> Bools:
    """Whether hosts (R, 5) may be the machine `other` (5,), in the order of STATED: no value that is stated of both
    differs; (R,)."""
    return np.asarray(~(np.abs(stated - other) > ALIKE * np.maximum(np.abs(stated), np.abs(other))).any(axis=1))


def machines_of(platform: Sequence[str], stated: Floats) -> tuple[str, ...]:
    """The machine of each row, (R,): the name of the first platform that is stated to be alike. Of whose processors
    neither clock nor cache is stated, each platform counts as a machine; `stated` is (R, 5) or empty."""
    if not len(stated):
        return tuple(platform)
    known: dict[str, Floats] = {}
    found: dict[str, str] = {}
    for name, numbers in zip(platform, stated, strict=True):
        if name not in found:
            telling = bool(np.isfinite(numbers[_TELLING]).any())
            like = (one for one, seen in known.items() if telling and alike(numbers[None], seen)[0])
            found[name] = next(like, name)
            if telling and found[name] == name:
                known[name] = numbers
    return tuple(found[name] for name in platform)


# Which rows of windows are learned from, and how much they count: contended ones as much as calm ones together.

MOST_ROWS = 20_000  # contended rows; more of the same few hosts add nothing that time is worth
LEAST_CALM = 1_000  # calm rows are kept at least, else as many as contended ones


def contended(examples: Examples) -> Bools:
    """Rows in which an instance is or should be short of CPU by the analytic model; (R,)."""
    return np.asarray(np.minimum(examples.base, examples.ratio) < CALM)


def weighted(examples: Examples, seed: int = 0) -> Examples:
    """The rows of windows to learn from: all contended ones and as many calm ones, each kind with the same importance
    in all.

    In most clouds nine rows in ten are calm: nothing is to be gained there, and what weighs all rows alike learns that
    nothing is to be learned. Where no row is contended, or none is calm, they stay as they are.
    """
    short = contended(examples)
    if not short.any() or short.all():
        return examples
    order = np.random.default_rng(seed).permutation(len(examples))
    some, others = order[short[order]][:MOST_ROWS], order[~short[order]]
    kept = np.sort(np.concatenate([some, others[: max(len(some), LEAST_CALM)]]))
    chosen, short = examples.take(kept), short[kept]
    importance = chosen.importance if len(chosen.importance) else np.ones(len(chosen))
    total = importance.sum() / 2
    scale = np.where(short, total / importance[short].sum(), total / importance[~short].sum())
    return replace(chosen, importance=importance * scale)


# Joins repeats of one measurement into one row: their median, weighted by how many there are.


@dataclass(frozen=True, slots=True)
class GroupedExamples:
    """G rows of which no two describe the same situation.

    `residual` (G,) is the median of log(measured / base) over the repeats. `weight` (G,) is n/(n+1) for n repeats,
    scaled to a mean of 1. `count` (G,) is n and `spread` (G,) the variance of the residual over them, nan = not
    repeated. `group` (R,) maps each original row to its grouped row.
    """

    examples: Examples
    residual: Floats
    weight: Floats
    group: Ints
    count: Floats
    spread: Floats


def group_repeats(examples: Examples) -> GroupedExamples:
    """Join rows with the same features, victim, pair, platform and setting.

    Weights saturate because a repeat removes only the noise of single runs, not what is particular to the pair or day.
    """
    residual = target_of(examples)
    found: dict[tuple[str | bytes, ...], int] = {}
    group = np.zeros(len(examples), dtype=np.int64)
    first: list[int] = []
    features = np.ascontiguousarray(examples.x)
    labels = zip(examples.victim, examples.pair, examples.platform, examples.setting, strict=True)
    for row, label in enumerate(labels):
        key = (*label, features[row].tobytes())
        group[row] = found.setdefault(key, len(found))
        if group[row] == len(first):
            first.append(row)
    count = np.bincount(group, minlength=len(first))
    order = np.argsort(group, kind="stable")
    parts = np.split(residual[order], np.cumsum(count)[:-1]) if first else []
    weight = count / (count + 1)
    return GroupedExamples(
        examples=examples.take(np.array(first, dtype=np.int64)),
        residual=np.array([float(np.median(part)) for part in parts]),
        weight=weight / weight.mean() if len(weight) else weight,
        group=group,
        count=count.astype(np.float64),
        spread=np.array([float(np.var(part, ddof=1)) if len(part) > 1 else np.nan for part in parts]),
    )


def target_of(examples: Examples) -> Floats:
    """The residual log(measured / base), which the residual model learns; (R,)."""
    return np.asarray(np.log(examples.ratio) - np.log(examples.base))


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
    is the prior's value of it (models.features.examples). `victim` (R,) is the row's workload, `neighbours` are those
    beside it. `pair` (R,) has the sorted workloads of the run. Folds group rows by `pair`, `platform`, `setting` and
    `run` (R,). `size` (R,) is the number of instances in the run. `key` (R,) identifies a row across trainings. Of
    windows, whose `pair` is their host, `ends_s` (R,) is when they ended and `importance` (R,) how much they count.
    `stated` (R, 5) is what is stated of each row's host (models.features.examples), nan = unknown.
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
