"""What posted results are worth: the spreads of models.learning.posted_results, and errors before and after.

The spreads are those under which the analytic model's errors on the measured campaigns are most likely, each campaign
being judged by those of all others. Then results of a campaign are posted and the others predicted: of the same pairs
(one result of each is posted), and of pairs of which nothing was posted (all results of four fifths of the pairs are).
Probes stand in for results: what a program that always runs (LOOP) reached beside a neighbour is posted as a probe's
result of each other program beside that neighbour, and these are predicted.

    python -m research.benchmarks.posted_results [datasets ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from models.arrays import Floats, Ints
from models.data.dataset import Dataset, load_dataset, status_of
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.examples import measured
from models.learning.posted_results import (
    MEASURED,
    PROBE,
    PostedResults,
    PostedRow,
    Scenes,
    Spreads,
    as_scenes,
    cells_of,
    covariance_of,
    number_of,
    posted_row,
)
from models.physics.prior import PriorPredictor
from models.prediction import BandArrays

LEAST_RESULTS = 40  # of a campaign
FOLDS = 5
MOST_CELLS = 120  # of a campaign that a fit looks at
RESAMPLES = 1_000
LOOP = "spin"  # of the lab's programs the one that is like the probes of CPUs


@dataclass(frozen=True, slots=True)
class PostedCampaign:
    """Results of a campaign: as posted, the scene (row of `scenes`) and slot of each, and what was predicted there."""

    name: str
    rows: tuple[PostedRow, ...]
    scene: Ints
    slot: Ints
    scenes: SceneBatch
    band: BandArrays

    @property
    def pair(self) -> list[tuple[object, ...]]:
        """What each result is about: whose, and beside which others."""
        return [(row.victim, *sorted(row.beside)) for row in self.rows]


def campaign_of(dataset: Dataset) -> PostedCampaign:
    """All throughput ratios of a dataset beside the analytic model's."""
    subjects = {name: number_of(name) for name in {profile.name for profile in dataset.profiles}}
    table = replace(ProfileTable.build(dataset.profiles, dataset.platform_numbers), subjects=subjects)
    ratios = [measured(one, "throughput") for one in dataset.colocations]
    used = [(one, ratio) for one, ratio in zip(dataset.colocations, ratios, strict=True) if ratio]
    there = [list({outcome.instance.id: outcome.instance for outcome in one.outcomes}.values()) for one, _ in used]
    hosts = [replace(dataset.platforms[one.platform], driver_cpus=one.driver_cpus) for one, _ in used]
    scenes = build_batch(list(zip(hosts, there, strict=True)), table)
    # A generator uses CPUs and is no instance's neighbour: a service's users would not post it.
    whole = [(host, [*some, *one.generators]) for host, some, (one, _) in zip(hosts, there, used, strict=True)]
    analytic = PriorPredictor().predict(build_batch(whole, table), ("throughput",)).throughput
    band = BandArrays(*(edge[:, : scenes.slots] for edge in (analytic.expected, analytic.lower, analytic.upper)))
    rows, scene, slot = [], [], []
    for at, (_, ratio) in enumerate(used):
        for place, instance in enumerate(there[at]):
            if instance.id in ratio and len(there[at]) > 1:
                rows.append(posted_row(scenes, at, place, float(band.expected[at, place]), ratio[instance.id], ""))
                scene.append(at)
                slot.append(place)
    return PostedCampaign(dataset.name, tuple(rows), np.array(scene), np.array(slot), scenes, band)


def fitted(campaigns: Sequence[PostedCampaign], start: Spreads = MEASURED) -> Spreads:
    """The spreads under which the errors of these campaigns are most likely; each campaign counts alike, by at most
    MOST_CELLS scenes."""
    data = [_cells_as_arrays(one.rows) for one in campaigns]

    def cost(logs: Floats) -> float:
        spreads = Spreads(*np.exp(logs).tolist())
        total = 0.0
        for scenes, off, count, inside in data:
            covariance = covariance_of(spreads, scenes, scenes) + np.diag(spreads.noise**2 / count + 1e-8)
            factor = np.linalg.cholesky(covariance)
            white = np.linalg.solve(factor, off)
            likely = -0.5 * float(white @ white) - float(np.log(np.diag(factor)).sum())
            further = float((count - 1).sum())  # results of one scene around their mean
            likely -= further * np.log(spreads.noise) + 0.5 * inside / spreads.noise**2
            total -= likely / float(count.sum())
        return total

    begin = np.log(astuple(start))
    bounds = [(np.log(0.01), np.log(2.0))] * (len(begin) - 1) + [(np.log(0.01), 0.0)]
    best = minimize(cost, begin, method="L-BFGS-B", bounds=bounds, options={"maxiter": 25})
    return Spreads(*np.round(np.exp(best.x), 3).tolist())


def _cells_as_arrays(rows: Sequence[PostedRow]) -> tuple[Scenes, Floats, Floats, float]:
    every = cells_of(rows, MEASURED)
    chosen = np.random.default_rng(0).permutation(len(every))[:MOST_CELLS].tolist()
    cells = [every[at] for at in sorted(chosen)]
    numbers = sorted({who for one in cells for who in one.beside})
    beside = np.zeros((len(cells), len(numbers)))
    for at, one in enumerate(cells):
        for who, weight in one.beside.items():
            beside[at, numbers.index(who)] = weight
    count = np.array([float(one.count) for one in cells])
    return (
        as_scenes(cells, beside),
        np.array([one.off for one in cells]),
        count,
        float(sum(max(one.count - 1, 0) * one.scatter**2 for one in cells)),
    )


def judged(one: PostedCampaign, spreads: Spreads) -> dict[str, tuple[Floats, Floats, Floats, list[tuple[object, ...]]]]:
    """By case the errors before and after, and whether the range held before (0, 1) and after, (R, 4) and groups."""
    pairs = one.pair
    order = np.random.default_rng(0).permutation(len(pairs))
    posted, first = [], set()
    for at in order.tolist():
        if pairs[at] not in first:
            first.add(pairs[at])
            posted.append(at)
    rest = [at for at in range(len(pairs)) if at not in set(posted)]
    found = {"same pair, one result each": _errors(one, spreads, posted, rest)}
    names = sorted(first, key=repr)
    fold_of = {
        name: place % FOLDS for place, name in zip(np.random.default_rng(1).permutation(len(names)), names, strict=True)
    }
    parts = []
    for fold in range(FOLDS):
        test = [at for at, pair in enumerate(pairs) if fold_of[pair] == fold]
        train = [at for at, pair in enumerate(pairs) if fold_of[pair] != fold]
        if test and train:
            parts.append(_errors(one, spreads, train, test))
    before, after, held = (
        np.concatenate([np.asarray(part[at], dtype=np.float64) for part in parts]) for at in range(3)
    )
    found["other pairs"] = before, after, held, [pair for part in parts for pair in part[3]]
    probes, about = as_probed(one)
    if probes:
        found["pairs with a probe each"] = _errors(one, spreads, list(range(len(probes))), about, probes)
    return found


def as_probed(one: PostedCampaign, apart: float = PROBE) -> tuple[list[PostedRow], list[int]]:
    """What LOOP reached beside a neighbour, once as the result of a probe inside of each other program beside it; and
    the rows that are about these pairs."""
    pair = one.pair
    loops: dict[tuple[object, ...], PostedRow] = {}
    for row in one.rows:
        if row.victim == number_of(LOOP) and len(row.beside) == 1:
            loops.setdefault((row.place, *row.beside.items()), row)
    posted: dict[tuple[object, ...], PostedRow] = {}
    about = []
    for at, row in enumerate(one.rows):
        loop = loops.get((row.place, *row.beside.items()))
        if loop is not None and row.victim != number_of(LOOP):
            posted.setdefault(pair[at], replace(loop, victim=row.victim, apart=apart))
            about.append(at)
    return list(posted.values()), about


def probe_apart(one: PostedCampaign, spreads: Spreads) -> float | None:
    """The standard deviation PROBE by a campaign: of what the model is off with a loop that part is taken for its error
    with another program which least squares find, less where it expects other ratios of both (`reach`). None where
    the campaign has no loop."""
    probes, about = as_probed(one)
    if not about:
        return None
    pair, by_pair = one.pair, {(row.victim, *sorted(row.beside)): row for row in probes}
    pairs = [(by_pair[pair[at]], one.rows[at]) for at in about]
    rows = [(_off(loop), _off(row), np.log(row.expected / loop.expected)) for loop, row in pairs]
    off, others, apart = np.array(rows).T
    near = np.exp(-0.5 * (apart / spreads.reach) ** 2)
    part = float(np.clip((near * off * others).sum() / ((near * off) ** 2).sum(), 0.01, 1.0))
    return float(np.sqrt(spreads.total * (1 / part - 1)))


def _off(row: PostedRow) -> float:
    (cell,) = cells_of([row], MEASURED)
    return cell.off


def _errors(
    one: PostedCampaign,
    spreads: Spreads,
    posted: Sequence[int],
    test: Sequence[int],
    rows: Sequence[PostedRow] | None = None,
) -> tuple[Floats, Floats, Floats, list[tuple[object, ...]]]:
    rows = one.rows if rows is None else rows
    results = PostedResults.of([rows[at] for at in posted], spreads)
    assert results is not None
    after = results.moved(one.scenes, one.band)
    at = one.scene[list(test)], one.slot[list(test)]
    reached = np.array([one.rows[row].measured for row in test])
    held = [(band.lower[at] <= reached) & (reached <= band.upper[at]) for band in (one.band, after)]
    pairs = one.pair
    return (
        np.asarray(np.abs(one.band.expected[at] - reached)),
        np.asarray(np.abs(after.expected[at] - reached)),
        np.asarray(np.stack(held, axis=1), dtype=np.float64),
        [pairs[row] for row in test],
    )


def _gain(before: Floats, after: Floats, groups: list[tuple[object, ...]]) -> tuple[float, float]:
    """The bootstrap interval of after - before over pairs."""
    _, which = np.unique([repr(group) for group in groups], return_inverse=True)
    count = int(which.max()) + 1
    sums, sizes = np.bincount(which, after - before, count), np.bincount(which, minlength=count)
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    """Print the spreads, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("datasets", nargs="*", type=Path)
    folders = parser.parse_args().datasets or [
        card.parent
        for card in sorted(Path("datasets").glob("*/dataset.yaml"))
        if status_of(card.parent).judged_by_default
    ]
    campaigns = [campaign_of(one) for one in map(load_dataset, folders) if one.colocations]
    campaigns = [one for one in campaigns if len(one.rows) >= LEAST_RESULTS]
    everything = fitted(campaigns)
    print("all:", everything, flush=True)
    for one in campaigns:
        print(f"a probe apart, {one.name}: {probe_apart(one, everything)}", flush=True)
    for one in campaigns:
        spreads = fitted([other for other in campaigns if other is not one], everything)
        for case, (before, after, held, groups) in judged(one, spreads).items():
            low, high = _gain(before, after, groups)
            print(
                f"| `{one.name}` | {case} | {len(before)} | {before.mean():.3f} | {after.mean():.3f} "
                f"| {low:+.3f} to {high:+.3f} | {held[:, 0].mean():.0%} | {held[:, 1].mean():.0%} |",
                flush=True,
            )
        print("  left out:", spreads, flush=True)


if __name__ == "__main__":
    main()
