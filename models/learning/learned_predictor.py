"""LearnedPredictor: a trained model as a Predictor. It turns scenes into feature rows, and predictions into scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.dedicated_cpus import given_own_cpus
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch
from models.data.topology import cpu_overlap
from models.features.feature_matrix import WANTED, FeatureMatrix, build_matrix
from models.features.sensitivity_curves import REPORTER
from models.learning.effects import Effects
from models.learning.fitted_target import FittedTarget, TargetEstimate
from models.physics.prior import PriorPredictor, doubt_widths, jitter_band, latency_band, prior_spread
from models.prediction import TARGETS, BandArrays, InterferencePrediction, joined, unasked

MOST_CELLS = 400_000  # scenes x slots x slots that are predicted at a time: about 100 MB
MOST_RESIDENTS = 600  # of a host on which a learned model answers: far more than any training had
_DIGITS = 9  # effects are compared after rounding: sums over the same neighbours in another order are then equal
SAME_PROFILE = 0.25  # median |log(value / value in training)| up to which a name means the same workload
THIN = 0.2  # a profile is thin if it lacks more than this share of the metrics that most training profiles have
AS_THIN = 0.9  # but not if it lacks no more than this quantile of the training profiles


@dataclass(frozen=True, slots=True)
class _PreparedTable:
    """What is derived from a profile table alone: the `given` table, and the `table` completed from training data.

    `thin` marks its thin rows. `same` caches whether a row looks like the workload of that name in training.
    """

    given: ProfileTable
    table: ProfileTable
    thin: Bools
    same: dict[int, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearnedPredictor:
    """Prior plus learned residual. `reference` holds the training profiles by workload name.

    A workload is known if its name was in training and its profile is similar: another operator's `db` may be another
    program. On a platform that training did not see, by name or by all numbers of its hosts, nobody counts as known.
    `platforms` are further numbers of the training platforms. `share` was learned from windows, and answers for the
    throughput of everybody whose demand for CPUs is known over time.
    """

    version: str
    origin: str
    metrics: tuple[str, ...]
    throughput: FittedTarget
    latency: FittedTarget | None
    jitter: FittedTarget | None
    reference: Mapping[str, Sequence[Mapping[str, float]]]
    platforms: Mapping[str, Mapping[str, float]]
    share: FittedTarget | None = None
    _prepared: list[_PreparedTable] = field(default_factory=list, init=False, repr=False, compare=False)  # the last one

    @property
    def targets(self) -> dict[str, FittedTarget]:
        """The fitted targets by name."""
        fitted = {name: getattr(self, name) for name in ("throughput", "latency", "jitter", "share")}
        return {name: target for name, target in fitted.items() if target is not None}

    @property
    def of_windows(self) -> bool:
        """Whether windows of hosts taught it the share that instances get of their demand."""
        return self.share is not None

    @property
    def hosts_of_windows(self) -> int | None:
        """How many hosts had the windows that were left out to calibrate that share; None = none, or not known."""
        return None if self.share is None else self.share.figures.get("unseen_host", {}).get("hosts")

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Predict every instance of every scene; nan in empty slots. Identical neighbouring rows are predicted once.

        Everybody is looked at beside everybody: only so many at a time as MOST_CELLS allow. Of more than MOST_RESIDENTS
        on one host training says nothing, and the prior answers.
        """
        if len(scenes) * scenes.slots**2 <= MOST_CELLS:
            return self._predict(scenes, targets)
        used = np.where(scenes.present, np.arange(1, scenes.slots + 1), 0).max(axis=1, initial=0)
        waiting, parts = np.argsort(-used, kind="stable"), []
        while len(waiting):
            most = max(int(used[waiting[0]]), 1)
            rows, waiting = np.split(waiting, [max(MOST_CELLS // most**2, 1)])
            some = scenes.take(rows).trimmed()
            parts.append((rows, self._predict(some, targets) if most <= MOST_RESIDENTS else _by_prior(some, targets)))
        return joined(parts, (len(scenes), scenes.slots))

    def _predict(self, scenes: SceneBatch, targets: Collection[str]) -> InterferencePrediction:
        prepared, scenes = self._of_table(scenes.table), given_own_cpus(scenes)
        scenes = scenes if prepared.table is scenes.table else replace(scenes, table=prepared.table)
        whole = build_matrix(scenes, self.metrics)
        answered = {name: target for name, target in self.targets.items() if name == "throughput" or name in targets}
        answered.pop("share", None)
        same = self._same_as_seen(scenes, prepared.same)
        effects = {name: _effects(target, scenes, same) for name, target in answered.items()}
        of_names = [np.round(grid[whole.scene, whole.slot], _DIGITS) for grid in effects.values()]
        matrix, row = _without_twins(whole, scenes, [*(whole.prior_of(name) for name in answered), *of_names])
        size = scenes.present.sum(axis=1)[matrix.scene]
        blank = (scenes.profile == 0)[matrix.scene, matrix.slot] | self._nothing_in_common(matrix)
        thin = _anybody(scenes, prepared.thin)[matrix.scene]
        estimates = {
            name: self._estimate(target, matrix, scenes, same, effects[name], size, thin)
            for name, target in answered.items()
        }
        bands = {name: _band(estimate, blank, row, whole, scenes) for name, estimate in estimates.items()}
        if "latency" in targets and "latency" not in bands:
            bands["latency"] = latency_band(whole.prior.latency, scenes)
        if "jitter" in targets and "jitter" not in bands:
            bands["jitter"] = jitter_band(whole.prior.jitter, scenes)
        marks = np.zeros(scenes.present.shape, dtype=bool)
        marks[whole.scene, whole.slot] = (estimates["throughput"].outside | blank)[row]
        marks[self._leave_to_the_prior(scenes, whole, bands, targets)] = True
        marks &= scenes.present
        if self.share is not None:
            bands["throughput"], marks = self._of_windows(self.share, scenes, whole, bands["throughput"], marks)
        nothing = unasked(scenes.present)
        return InterferencePrediction(
            bands["throughput"], bands.get("latency", nothing), bands.get("jitter", nothing), marks, whole.prior.cpu
        )

    def _leave_to_the_prior(
        self, scenes: SceneBatch, whole: FeatureMatrix, bands: dict[str, BandArrays], targets: Collection[str]
    ) -> Ints:
        """Put the prior's own bands where the host is of a kind or size that training says nothing of, and where
        somebody may choose among CPUs, has a limit or another weight than others, and nobody in training did: then it
        says nothing of the others there either. Returns these scenes."""
        x, known = whole.x, self.throughput
        size = scenes.present.sum(axis=1)[whole.scene]
        unheard_of = known.on_foreign_hosts(x) | known.choosing(x) | known.limited(x) | known.weighed(x, size)
        foreign = np.unique(whole.scene[unheard_of])
        if not len(foreign):
            return foreign
        told = PriorPredictor().predict(scenes.take(foreign), targets)
        for name, band in bands.items():
            own: BandArrays = getattr(told, name)
            edges = [edge.copy() for edge in (band.expected, band.lower, band.upper)]
            for edge, values in zip(edges, (own.expected, own.lower, own.upper), strict=True):
                edge[foreign] = values
            bands[name] = BandArrays(*edges)
        return foreign

    def _of_windows(
        self, share: FittedTarget, scenes: SceneBatch, whole: FeatureMatrix, band: BandArrays, marks: Bools
    ) -> tuple[BandArrays, Bools]:
        """The band of throughput, (S, N), where the share learned from windows answers; and who is outside of it."""
        rows = np.flatnonzero(~np.isnan(scenes.cpu_demand[whole.scene, whole.slot, 0]))
        if not len(rows):
            return band, marks
        matrix = build_matrix(scenes, (WANTED,), whole.prior)
        scene, slot = whole.scene[rows], whole.slot[rows]
        size = scenes.present.sum(axis=1)[scene]
        nobody, base = np.zeros(len(rows)), matrix.prior_of("share")[rows]
        told = share.estimate(matrix.x[rows], base, nobody, nobody > 0, size, scenes.platform[scene])
        down, up = (one[scene, slot] for one in doubt_widths(scenes, whole.prior))
        inside = ~told.outside
        at = scene[inside], slot[inside]
        edges = [one.copy() for one in (band.expected, band.lower, band.upper)]
        found = told.expected, told.lower * np.exp(-down), np.minimum(told.upper * np.exp(up), 1.0)
        for edge, values in zip(edges, found, strict=True):
            edge[at] = values[inside]
        marks[at] = False
        return BandArrays(*edges), marks

    def _of_table(self, table: ProfileTable) -> _PreparedTable:
        """Prepared once per table: all questions about one cloud share their table."""
        for prepared in self._prepared:
            if prepared.given is table:
                return prepared
        known = self._with_what_training_knew(table)
        new = _PreparedTable(table, known, self._thin(known))
        self._prepared[:] = [new]  # another thread may put its own at any time
        return new

    def _with_what_training_knew(self, table: ProfileTable) -> ProfileTable:
        """The table, completed with the training data's platforms and sweep reporter where it has none."""
        for metrics in self.reference.get(REPORTER, ())[:1]:
            if REPORTER not in table.names:
                table = table.with_profile(WorkloadProfile(REPORTER, metrics))
        if self.platforms and not table.platforms:
            table = replace(table, platforms=self.platforms)
        return table

    def _same_as_seen(self, scenes: SceneBatch, before: dict[int, bool]) -> Bools:
        """Which rows of the profile table look like the workload of that name in training; (rows,).

        Rows that no instance uses are False. `before` caches the results of this table's rows.
        """
        table, found = scenes.table, np.zeros(len(scenes.table.values), dtype=bool)
        for row in np.unique(scenes.profile[scenes.present]).tolist():
            if row not in before:
                several = self.reference.get(table.names[row], ())
                before[row] = any(_same(table.columns, table.values[row], seen) for seen in several)
            found[row] = before[row]
        return found

    def _thin(self, table: ProfileTable) -> Bools:
        """Which rows of a profile table know too few metrics for the learned residual; (rows,).

        An unknown metric of a neighbour counts as no pressure, so a whole scene with a thin profile is uncertain.
        """
        profiles = [seen for name, several in self.reference.items() if name != REPORTER for seen in several]
        count = Counter(key for seen in profiles for key in seen)
        usual = [key for key in self.metrics if 2 * count[key] > len(profiles)]
        if not usual:
            return np.zeros(len(table.values), dtype=bool)
        lacked = [sum(key not in seen for key in usual) / len(usual) for seen in profiles]
        lacking = np.stack([np.isnan(table.column(key)) for key in usual], axis=1).mean(axis=1)
        return np.asarray(lacking > max(THIN, float(np.quantile(lacked, AS_THIN))))

    def _nothing_in_common(self, matrix: FeatureMatrix) -> Bools:
        """Rows for which no metric of the training data is known; (R,)."""
        own = [column for column, name in enumerate(matrix.names) if name.startswith("own ")]
        return np.asarray(~np.isfinite(matrix.x[:, own]).any(axis=1))

    def _estimate(
        self,
        target: FittedTarget,
        matrix: FeatureMatrix,
        scenes: SceneBatch,
        same: Bools,
        effects: Floats,
        size: Ints,
        thin: Bools,
    ) -> TargetEstimate:
        """`same` (rows of the table,) and `effects` (S, N) as in `_effects`."""
        known = _scene_known(scenes, _known_rows(target, scenes, same))[matrix.scene, matrix.slot]
        base, of_names = matrix.prior_of(target.target), effects[matrix.scene, matrix.slot]
        platform = scenes.platform[matrix.scene]
        return target.estimate(matrix.x, base, of_names, known, size, platform, thin)


def _known_rows(target: FittedTarget, scenes: SceneBatch, same: Bools) -> Bools:
    """Rows of the table whose workload is known to this target; targets may have different training rows. (rows,)."""
    return np.asarray(same & np.array([name in target.model.known for name in scenes.table.names], dtype=bool))


def _effects(target: FittedTarget, scenes: SceneBatch, same: Bools) -> Floats:
    """The effects of known workloads on a target; (S, N). `same` (rows,) marks rows that look as in training."""
    model = target.model
    blends = model.known_weights, model.unknown_weights, model.platform_weights
    if not any(blend is not None and blend.effects for blend in blends):
        return np.zeros(scenes.present.shape)  # their stacking weights are 0
    known_rows = _known_rows(target, scenes, same)
    return scene_effects(target.model.effects, scenes, np.where(known_rows, np.arange(len(known_rows)), 0))


def _without_twins(matrix: FeatureMatrix, scenes: SceneBatch, others: Sequence[Floats]) -> tuple[FeatureMatrix, Ints]:
    """Drop rows that equal the row before them; also returns the index (R,) of the kept row for each original row.

    Two rows of a scene are equal if their features, workload and `others` (R,) are: the prior's ratios and the effects.
    Every base learner then predicts the same. Such rows are instances in neighbouring slots that run the same workload
    with the same settings.
    """
    if not len(matrix.x):
        return matrix, np.zeros(0, dtype=np.int64)
    bits = matrix.x.view(np.int64)  # nan equals nan
    differs = np.ones(len(bits), dtype=bool)
    profile = scenes.profile[matrix.scene, matrix.slot]  # what is known goes by name
    differs[1:] = (matrix.scene[1:] != matrix.scene[:-1]) | (profile[1:] != profile[:-1])
    for numbers in (bits, *(column[:, None] for column in others)):
        differs[1:] |= (numbers[1:] != numbers[:-1]).any(axis=1)
    if differs.all():
        return matrix, np.arange(len(bits))
    kept = np.flatnonzero(differs)
    few = replace(
        matrix, x=matrix.x[kept], scene=matrix.scene[kept], slot=matrix.slot[kept], log_prior=matrix.log_prior[kept]
    )
    return few, np.cumsum(differs) - 1


def _band(estimate: TargetEstimate, blank: Bools, row: Ints, whole: FeatureMatrix, scenes: SceneBatch) -> BandArrays:
    """Spread the estimates over scenes by `row` (R,). Rows without any known metric get the prior's wide interval."""
    wide = np.where(blank, np.exp(prior_spread(np.full(len(blank), 0.5), np.ones(len(blank), dtype=bool))), 1.0)
    out = []
    for values in (estimate.expected, estimate.lower / wide, np.maximum(estimate.upper, estimate.expected)):
        grid = np.full(scenes.present.shape, np.nan)
        grid[whole.scene, whole.slot] = values[row]
        out.append(grid)
    return BandArrays(*out)


def _by_prior(scenes: SceneBatch, targets: Collection[str]) -> InterferencePrediction:
    """What the prior says, marked as outside the training data."""
    return replace(PriorPredictor().predict(scenes, targets), outside=scenes.present.copy(), devices=None)


def scene_effects(effects: Effects, scenes: SceneBatch, effect_rows: Ints) -> Floats:
    """`Effects.predict` for whole scenes at once, (S, N): the fast path of the same sums.

    `effect_rows` maps table rows to themselves, or to 0 where the workload is not known.
    """
    total = np.zeros(scenes.present.shape)
    if not effects.values and not effects.factors:
        return total
    names = scenes.table.names
    row = effect_rows[scenes.profile]
    overlap = cpu_overlap(scenes)
    beside = np.where(np.eye(scenes.slots, dtype=bool)[None], 0.0, scenes.present[:, None, :] * 1.0)
    for domain, share in (("near", overlap * beside), ("far", (1 - overlap) * beside)):
        victim = _vector(effects, f"victim|{domain}|", names)
        neighbour = _vector(effects, f"neighbour|{domain}|", names)
        pair = _matrix(effects, f"pair|{domain}|", names)
        total += victim[row] * share.sum(axis=2) + np.einsum("snm,sm->sn", share, neighbour[row])
        total += (pair[row[:, :, None], row[:, None, :]] * share).sum(axis=2)
        left, right = (_factors(effects, f"{side}|{domain}|", names) for side in ("victim", "neighbour"))
        total += np.einsum("snk,snk->sn", left[row], share @ right[row])
    return np.where(scenes.present, total, 0.0)


def _vector(effects: Effects, prefix: str, names: Sequence[str]) -> Floats:
    return np.array([effects.values.get(prefix + name, 0.0) if name else 0.0 for name in names])


def _factors(effects: Effects, prefix: str, names: Sequence[str]) -> Floats:
    """The factors by name, 0 for names without factors; (names, K)."""
    none = (0.0,) * max(map(len, effects.factors.values()), default=0)
    return np.array([effects.factors.get(prefix + name, none) for name in names]).reshape(len(names), len(none))


def _matrix(effects: Effects, prefix: str, names: Sequence[str]) -> Floats:
    matrix = np.zeros((len(names), len(names)))
    position: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        position.setdefault(name, []).append(row)
    for key, value in effects.values.items():
        if key.startswith(prefix):
            victim, _, neighbour = key.removeprefix(prefix).partition("|")
            for one in position.get(victim, ()):
                matrix[one, position.get(neighbour, [])] = value
    return matrix


def _anybody(scenes: SceneBatch, rows: Bools) -> Bools:
    """Scenes in which any instance uses one of these rows of the table; (S,)."""
    return np.asarray((rows[scenes.profile] & scenes.present).any(axis=1))


def _scene_known(scenes: SceneBatch, known_rows: Bools) -> Bools:
    """Whether all instances of a scene are known, for each of its slots; (S, N)."""
    everybody = np.asarray((known_rows[scenes.profile] | ~scenes.present).all(axis=1))
    return np.asarray(np.broadcast_to(everybody[:, None], scenes.present.shape))


def _same(columns: Sequence[str], values: Floats, seen: Mapping[str, float]) -> bool:
    both = [at for at, key in enumerate(columns) if key in seen and np.isfinite(values[at])]
    gaps = np.log((values[both] + 1e-6) / (np.array([seen[columns[at]] for at in both]) + 1e-6))
    return bool(both) and float(np.median(np.abs(gaps))) <= SAME_PROFILE
