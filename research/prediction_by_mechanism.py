"""Errors and coverage of predictions by mechanism, for any predictor, on every measured campaign.

`python -m research.prediction_by_mechanism [DATASET ...] [--model ARTIFACT] [--hidden] [--undisturbed]
    [--large-hosts DIR] [--trace-mixes FILE] [--write FILE] [--before FILE]`

A row is one instance of one co-location: the median of its T/B over repeats, held against the prediction of the scene
with its load generators over that of the instance alone. MAE and bias are means over rows; their 95 % intervals are by
bootstrap over pairs, which are all rows of the same workloads in one dataset. `held` is the part of rows inside of the
predictor's own 90 % range. Without DATASET all that are shipped to train or to judge are read; `--hidden` adds those
that are kept to judge, which is for final tables only.

`--write` keeps each row with its prediction, and `--before` puts the figures of such a file beside these, on rows that
both have. `--large-hosts` is a folder with measurements of large machines (skylake104_sysbench_gemmbench.csv), and
`--trace-mixes` what `research.contention.trace_mixes --out` wrote; both are predicted by the analytic model alone.

The analytic model learns nothing from datasets, but some of its constants were chosen by them: see FITTED.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from models.arrays import Bools, Floats
from models.data.dataset import Dataset, load_dataset, status_of
from models.data.dataset_rules import SUFFIX
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, build_batch
from models.data.tables import DatasetError
from models.evaluation.error_metrics import codes, interval, resampled_means
from models.features.examples import OWN_SETTINGS, measured, scene_of
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler.observed import Colocation, Host, Instance, IsolationSettings
from research import markdown
from research.contention import records, trace_mixes

DATASETS = Path(__file__).resolve().parents[1] / "datasets"
SYNC_WRITERS = frozenset({"log"})  # workloads of the lab that wait for the disk after each line
Scene = tuple[Host, tuple[Instance, ...]]

LARGE, TRACES = "large hosts", "trace mixes (simulated)"
FITTED: Mapping[str, str] = {
    TRACES: "how a mean alone varies is fitted to both traces (decision 164)",
    LARGE: "the range's part for an unknown clock is fitted to the same machine (decisions 160, 168)",
}
"""By mechanism, which constants of the analytic model were chosen on these very rows."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One measured (or simulated) ratio with its prediction. `key` names it across versions of the product, `pair` is
    what its rows are resampled by."""

    key: str
    source: str
    mechanism: str
    pair: str
    measured: float
    expected: float
    lower: float
    upper: float


def mechanism_of(dataset: Dataset, colocation: Colocation, instance: Instance) -> str:
    """What decides how fast this instance is in this co-location."""
    around = dataset.meta.get("circumstances") or {}
    if dataset.origin == "paper":
        return "figures of papers (Xen, EC2)"
    if around.get("instances") in {"qemu", "xen"}:
        return "emulated guests"
    if around.get("volume_mb_s"):
        return "disk"
    if around.get("line_mbit"):
        return "line, network"
    if around.get("host_cap_percent"):
        return "capped together"
    by_id = {outcome.instance.id: outcome.instance for outcome in colocation.outcomes}
    if colocation.driver_cpus:
        return "packet work on a CPU of its own"
    settings = [one.settings for one in by_id.values()]
    if any(one.cap_percent for one in settings):
        return "capped"
    if any(one.weight for one in settings):
        return "weighted"
    if any(one.network for one in settings):
        return "line, network"
    allowed = _cpus(instance)
    if allowed is None or len(allowed) > 1:
        generators = "with load generators" if colocation.generators else "without load generators"
        return f"unpinned pairs, {generators}" if len(by_id) == 2 else f"unpinned mixes of {len(by_id)}"
    beside = [one for one in by_id.values() if one.id != instance.id and (_cpus(one) or allowed) & allowed]
    if not beside:
        return "different CPUs"
    sync = any(one.workload in SYNC_WRITERS for one in (instance, *beside))
    return "same CPU, with sync writers" if sync else "same CPU, without sync writers"


def _cpus(instance: Instance) -> frozenset[int] | None:
    return instance.settings.pinning.union if instance.settings.pinning else None


def rows_of(dataset: Dataset, predictor: Predictor, *, undisturbed: bool = False) -> list[JudgedRow]:
    """Every instance of every co-location with a ratio, repeats joined, predicted by `predictor`.

    `undisturbed` leaves out ratios of which the lab marked the run or the base case as disturbed from outside.
    """
    marked = _disturbed(dataset.path) if undisturbed else frozenset()
    ratios: dict[tuple[str, str], dict[str, list[float]]] = {}
    first: dict[tuple[str, str], Colocation] = {}
    for one in dataset.colocations:
        of_run = ratios.setdefault((one.platform, one.run), {})
        first.setdefault((one.platform, one.run), one)
        for name, ratio in measured(one, "throughput").items():
            if not marked & {(one.run, one.repeat, ""), (one.run.partition(":")[0], one.repeat, _label(name))}:
                of_run.setdefault(name, []).append(ratio)
    asked = [(first[run], name, median(values)) for run, found in ratios.items() for name, values in found.items()]
    own = dataset.meta.get("solo") == OWN_SETTINGS
    table = ProfileTable.build(dataset.profiles, dataset.platform_numbers)
    bands = _bands(dataset, [(run, name) for run, name, _ in asked], table, predictor, own_settings=own)
    found = []
    for (run, name, ratio), (expected, lower, upper) in zip(asked, bands, strict=True):
        workloads = {outcome.instance.id: outcome.instance.workload or "" for outcome in run.outcomes}
        instance = next(outcome.instance for outcome in run.outcomes if outcome.instance.id == name)
        found.append(
            JudgedRow(
                f"{dataset.name}/{run.platform}/{run.run}/{name}",
                dataset.name,
                mechanism_of(dataset, run, instance),
                f"{dataset.name}/{'+'.join(sorted(workloads.values()))}",
                ratio,
                expected,
                lower,
                upper,
            )
        )
    return found


def _disturbed(path: Path) -> frozenset[tuple[str, str, str]]:
    """(run, repeat, "") of each run of a group in blocks that was disturbed, and (pinning form, repeat, label) of each
    base case; none without a table of runs. A run on/off leaves out disturbed windows itself."""
    table = path / "runs.csv"
    if not table.exists():
        return frozenset()
    with table.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["disturbed"] == "1"]
    return frozenset(
        (row["run"], row["repeat"], "")
        if row["kind"] == "group"
        else (row["pinning"], row["repeat"], _label(row["instance"]))
        for row in rows
        if row["kind"] in {"group", "solo"}
    )


def _label(instance: str) -> str:
    """What the lab runs as this instance: the name but for its position."""
    return instance.rpartition(".")[0] or instance


def _bands(
    dataset: Dataset,
    asked: Sequence[tuple[Colocation, str]],
    table: ProfileTable,
    predictor: Predictor,
    *,
    own_settings: bool,
) -> list[tuple[float, float, float]]:
    """Expected T/B with its range: the scene's, over the expected value of the instance alone with its generator."""
    bands: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)] * len(asked)
    by_size: dict[int, list[int]] = {}
    for at, (run, _) in enumerate(asked):
        by_size.setdefault(len(run.outcomes) + len(run.generators), []).append(at)
    for rows in by_size.values():
        together: list[Scene] = []
        alone: list[Scene] = []
        slots: list[int] = []
        for at in rows:
            run, name = asked[at]
            host, instances = scene_of(run, dict(dataset.platforms))
            slot = next(number for number, one in enumerate(instances) if one.id == name)
            one = instances[slot]
            if not own_settings:
                one = replace(one, settings=IsolationSettings(pinning=one.settings.pinning))
            together.append((host, (*instances, *run.generators)))
            alone.append((host, (one, *(other for other in run.generators if other.id == one.id + SUFFIX))))
            slots.append(slot)
        band = predictor.predict(build_batch(together, table), ("throughput",)).throughput
        solo = predictor.predict(build_batch(alone, table), ("throughput",)).throughput.expected[:, 0]
        for number, (at, slot) in enumerate(zip(rows, slots, strict=True)):
            expected, lower, upper = (
                float(values[number, slot] / solo[number]) for values in (band.expected, band.lower, band.upper)
            )
            bands[at] = expected, lower, upper
    return bands


def large_hosts(folder: Path) -> list[JudgedRow]:
    """A machine of 104 CPUs that others measured: busy threads of two groups, relative to one beside one."""
    with (folder / "skylake104_sysbench_gemmbench.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["config"] in {"smt", "nosmt"}]
    table = ProfileTable.build([WorkloadProfile("busy", {"cpu": 100.0})])
    hosts = {"smt": Host("smt", "kvm", 104, 1.0, threads_per_core=2), "nosmt": Host("nosmt", "kvm", 52, 1.0)}
    solo = {row["config"]: float(row["throughput"]) for row in rows if row["na_threads"] == "1"}
    found = []
    for row in (row for row in rows if row["na_threads"] != "1"):
        config, count = row["config"], int(row["na_threads"])
        busy = [Instance(f"i{at}", workload="busy") for at in range(2 * count)]
        band = PriorPredictor().predict(build_batch([(hosts[config], busy)], table), ("throughput",)).throughput
        ratio = float(row["throughput"]) / count / solo[config]
        values = (float(array[0, 0]) for array in (band.expected, band.lower, band.upper))
        found.append(JudgedRow(f"{config}/{count}", "large-hosts", LARGE, f"{config}/{count}", ratio, *values))
    return found


def traces(file: Path) -> list[JudgedRow]:
    """Shares of VMs of which only means are known, on simulated hosts; resampled by hosts."""
    found = []
    for record in records.read(file):
        as_simulated = replace(trace_mixes.scene_of(record.spec), kind=np.zeros(1, dtype=np.int64))
        band = PriorPredictor().predict(as_simulated, ("throughput",)).throughput
        for at, one in enumerate(record.spec.instances):
            values = (float(array[0, at]) for array in (band.expected, band.lower, band.upper))
            share = record.outcome.instances[one.id].share
            found.append(JudgedRow(f"{record.spec.id}/{one.id}", "traces", TRACES, record.spec.id, share, *values))
    return found


@dataclass(frozen=True, slots=True)
class MechanismFigures:
    """Of G rows: `error` and `bias` with their 95 % intervals (None = one pair only), and the part that was `held`."""

    rows: int
    pairs: int
    error: float
    error_range: Sequence[float] | None
    bias: float
    held: float
    held_range: Sequence[float] | None


def figures(rows: Sequence[JudgedRow]) -> MechanismFigures:
    """Errors and coverage of some rows; ValueError where there are none."""
    if not rows:
        raise ValueError("no rows to judge")
    off, held = _off(rows), _held(rows).astype(np.float64)
    pair = codes([row.pair for row in rows])
    means = resampled_means(pair, np.column_stack([np.abs(off), held]))
    of_error, of_held = (None, None) if means is None else (interval(means[:, 0]), interval(means[:, 1]))
    return MechanismFigures(
        len(rows), len(set(pair.tolist())), float(np.abs(off).mean()), of_error, float(off.mean()),
        float(held.mean()), of_held,
    )  # fmt: skip


def _off(rows: Sequence[JudgedRow]) -> Floats:
    return np.array([row.expected - row.measured for row in rows])


def _held(rows: Sequence[JudgedRow]) -> Bools:
    return np.array([row.lower <= row.measured <= row.upper for row in rows])


def table(rows: Sequence[JudgedRow], before: Mapping[str, JudgedRow] | None = None) -> str:
    """By mechanism and dataset, in Markdown; with `before` by key, its figures on rows that both have."""
    head = ["mechanism", "from", "rows", "pairs", "MAE (95 %)", "bias", "held by the 90 % range"]
    if before is not None:
        head += ["before: MAE", "bias", "held", "MAE now - before (95 %)"]
    groups: dict[tuple[str, str], list[JudgedRow]] = {}
    for row in sorted(rows, key=lambda one: (one.mechanism, one.source)):
        groups.setdefault((row.mechanism, "all"), []).append(row)
        groups.setdefault((row.mechanism, row.source), []).append(row)
    several = {mechanism: len({source for name, source in groups if name == mechanism}) > 2 for mechanism, _ in groups}
    shown = [
        _cells(name, of, before)
        for name, of in groups.items()
        if several[name[0]] or name[1] != "all"  # of one source only that source
    ]
    return markdown.table(head, shown)


def _cells(name: tuple[str, str], rows: Sequence[JudgedRow], before: Mapping[str, JudgedRow] | None) -> list[str]:
    found = figures(rows)
    cells = [
        *name, str(found.rows), str(found.pairs), f"{found.error:.3f}{_bracket(found.error_range)}",
        f"{found.bias:+.3f}", f"{found.held:.0%}{_bracket(found.held_range)}",
    ]  # fmt: skip
    if before is None:
        return cells
    both = [row for row in rows if row.key in before]
    if not both:
        return [*cells, "", "", "", ""]
    then = [_predicted_as(before[row.key], row) for row in both]
    was, change = figures(then), np.abs(_off(both)) - np.abs(_off(then))
    means = resampled_means(codes([row.pair for row in both]), change[:, None])
    bracket = _bracket(None if means is None else interval(means[:, 0]), signed=True)
    return [*cells, f"{was.error:.3f}", f"{was.bias:+.3f}", f"{was.held:.0%}", f"{change.mean():+.3f}{bracket}"]


def _predicted_as(older: JudgedRow, row: JudgedRow) -> JudgedRow:
    """A row with what another version predicted; what was measured may have been cleaned since."""
    return replace(row, expected=older.expected, lower=older.lower, upper=older.upper)


def _bracket(ends: Sequence[float] | None, *, signed: bool = False) -> str:
    if ends is None:
        return ""
    low, high = (f"{end:+.3f}" if signed else f"{end:.3f}" for end in ends)
    return f" ({low} to {high})"


def read(file: Path) -> dict[str, JudgedRow]:
    """The rows that `--write` kept, by key."""
    with file.open(encoding="utf-8") as lines:
        rows = [JudgedRow(**json.loads(line)) for line in lines]
    return {row.key: row for row in rows}


def write(file: Path, rows: Iterable[JudgedRow]) -> None:
    """Each row as a line of JSON."""
    file.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows), encoding="utf-8")


def judged(folder: Path, *, hidden: bool = False) -> list[Path]:
    """The datasets in a folder that are judged by when none is named, and with `hidden` those that are kept to it."""
    status = {path.parent: status_of(path.parent) for path in sorted(folder.glob("*/dataset.yaml"))}
    return [path for path, one in status.items() if one.judged_by_default or (hidden and one.hidden)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and what was fitted; 1 with one sentence where something cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m research.prediction_by_mechanism", description=__doc__)
    parser.add_argument("datasets", nargs="*", type=Path, metavar="DATASET")
    parser.add_argument("--model", type=Path, help="a trained model's folder; without it the analytic model answers")
    parser.add_argument("--hidden", action="store_true", help="judge by the datasets that are kept to it, too")
    parser.add_argument("--undisturbed", action="store_true", help="leave out ratios of disturbed runs and base cases")
    parser.add_argument("--large-hosts", type=Path, metavar="DIR", help="measurements of large machines")
    parser.add_argument("--trace-mixes", type=Path, metavar="FILE", help="hosts that trace_mixes simulated")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the rows with their predictions")
    parser.add_argument("--before", type=Path, metavar="FILE", help="rows that another version wrote")
    options = parser.parse_args(arguments)
    try:
        predictor = _predictor(options.model)
        rows: list[JudgedRow] = []
        for path in options.datasets or judged(DATASETS, hidden=options.hidden):
            dataset = load_dataset(path)
            sys.stderr.write(f"{dataset.name}: {dataset.artefacts}\n")
            rows += rows_of(dataset, predictor, undisturbed=options.undisturbed)
        rows += large_hosts(options.large_hosts) if options.large_hosts else []
        rows += traces(options.trace_mixes) if options.trace_mixes else []
        before = read(options.before) if options.before else None
        if options.write:
            write(options.write, rows)
    except (DatasetError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(table(rows, before))
    for name, what in FITTED.items():
        if any(row.mechanism == name for row in rows):
            sys.stdout.write(f"\n{name}: {what}.\n")
    return 0


def _predictor(path: Path | None) -> Predictor:
    if path is None:
        return PriorPredictor()
    from models.learning import artifact

    return artifact.load(path)


if __name__ == "__main__":
    sys.exit(main())
