"""What the service says of compressed days and learns from them: recorded windows of real containers, replayed to it.

    python -m research.contention.learned_days RECORD [--together 4] [--again OTHER]

RECORD is what `compressed_days` wrote. So many of its turns together are a window, which has as many bursts as some
seconds have, not minutes: with fewer turns chance is more of it. They go through the service as an agent's do: samples
in, demand learned, each window predicted before and measured afterwards, windows kept, a model trained on them, and the
gate asked. OTHER is a record of the same plan with other chances, which shows how much is chance.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from advisor import offline
from advisor.domain import Host, Instance, Inventory, IsolationSettings
from advisor.lifecycle.window_checks import LEAST_DEMAND
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import predictions
from models.arrays import Bools, Floats
from models.data.dataset import load_dataset
from models.evaluation.gate import gate
from models.evaluation.matched_outcomes import ResampledMeans, beside, errors_of, means_of
from models.evaluation.prediction_checks import CONTENDED, WindowFigures, WindowKey, widen
from models.features.examples import Examples, build_examples
from models.learning.fitting import fit_target
from models.learning.held_out import HeldOutPredictions
from profiler.observed import MetricSample

WINDOW_S, DAY_S = 300.0, 86_400.0
LEAST_LARGER = 60  # shares to learn from, and as many to be held
Readings = Mapping[str, Sequence[Sequence[int]]]  # of each container: what each part of a window added to its counts
_BEGIN = datetime(2026, 11, 2, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RecordedDays:
    """A record: its plan, and of each window what was read of who was on which host. So many turns `together` are one
    window; a host whose company changed meanwhile has none."""

    plan: Mapping[str, Any]
    windows: Sequence[Mapping[str, Readings]]
    together: int = 1

    @classmethod
    def read(cls, path: Path, together: int = 1) -> RecordedDays:
        first, *lines = [json.loads(one) for one in path.read_text("utf-8").splitlines()]
        turns: dict[int, dict[str, list[Readings]]] = {}
        for turn in lines:
            of_window = turns.setdefault(turn["cycle"] // together, {})
            for host, there in turn["hosts"].items():
                of_window.setdefault(host, []).append(there)
        whole = [turns[at] for at in sorted(turns) if all(len(some) == together for some in turns[at].values())]
        joined = [{host: _joined(some) for host, some in one.items() if _alike(some)} for one in whole]
        return cls(first, joined, together)

    @property
    def windows_a_day(self) -> int:
        return int(self.plan["cycles_a_day"]) // self.together

    @property
    def window_s(self) -> float:
        """How long a window really was."""
        return float(self.plan["turn_s"]) * self.together

    def begin_s(self, window: int) -> float:
        """When a window begins, in seconds since the epoch: they are a part of the day apart."""
        return _BEGIN.timestamp() + window * DAY_S / self.windows_a_day // WINDOW_S * WINDOW_S

    def there(self, window: int) -> Inventory:
        """The instances of each host when a window begins."""
        known = {one["name"]: one for one in self.plan["containers"]}
        hosts = tuple(
            Host(f"h{at}", "lxc", pcpus=len(cpus), memory_mb=65_536.0, cpu_overcommit=32.0)
            for at, cpus in enumerate(self.plan["cpus"])
        )
        on = [one for one in self.plan["stays"] if one["first"] <= window * self.together < one["end"]]
        instances = tuple(
            Instance(
                one["name"], known[one["name"]]["vcpus"], 512.0, host=f"h{one['host']}",
                settings=IsolationSettings(weight=known[one["name"]]["weight"]),
            )
            for one in on
        )  # fmt: skip
        return Inventory(hosts, instances)

    def samples(self, window: int) -> Iterator[MetricSample]:
        """What an agent on each host would send of a window."""
        for host, there in self.windows[window].items():
            for name, parts in there.items():
                yield from self._of(host, name, parts, self.begin_s(window))

    def shares(self, window: int) -> dict[str, float]:
        """The share of the CPU time that it wanted and got, of every instance of which that says something."""
        found = {}
        for there in self.windows[window].values():
            for name, parts in there.items():
                run, wait = (sum(part[at] for part in parts) / 1e9 for at in (0, 1))
                if run + wait >= LEAST_DEMAND * self.window_s:
                    found[name] = run / (run + wait)
        return found

    def _of(self, host: str, name: str, parts: Sequence[Sequence[int]], begin_s: float) -> Iterator[MetricSample]:
        seconds = self.window_s / len(parts)
        for at, (run, wait, given, _, _) in enumerate(parts):
            time_s = begin_s + (at + 0.5) * WINDOW_S / len(parts)
            values = {"cpu": run / 1e7 / seconds, "waiting": wait / 1e7 / seconds, "execution": given / seconds}
            for metric, value in values.items():
                yield MetricSample(host, name, "instance", metric, value, time_s)


def _alike(some: Sequence[Readings]) -> bool:
    return all(one.keys() == some[0].keys() for one in some)


def _joined(some: Sequence[Readings]) -> Readings:
    return {name: [part for one in some for part in one[name]] for name in some[0]}


@dataclass(frozen=True, slots=True)
class ScoredShares:
    """What was predicted before windows beside what was measured in them; all (R,). `widening` is what the service
    widened intervals by just then, nan = nothing, for they were not calibrated; `learned` is 1 of a model that was
    learned from windows, 0 of the prior."""

    learned: Floats
    window: Floats
    scene: Floats
    expected: Floats
    lower: Floats
    upper: Floats
    observed: Floats
    widening: Floats

    def covered(self, *, calibrated: bool) -> Bools:
        """Whose outcome is in the interval, as wide as the service answered or as the model's own."""
        factor = np.where(np.isnan(self.widening) | (not calibrated), 1.0, self.widening)
        rows = zip(self.expected, self.lower, self.upper, factor, strict=True)
        edges = np.array([[widen(said, edge, by) for edge in (low, high)] for said, low, high, by in rows])
        return np.asarray((self.observed >= edges[:, 0]) & (self.observed <= edges[:, 1]))

    def take(self, rows: Bools) -> ScoredShares:
        return ScoredShares(*(getattr(self, name)[rows] for name in self.__slots__))


class DaysReplay:
    """The service, which lives through recorded days; `folder` holds its database."""

    def __init__(self, days: RecordedDays, folder: Path) -> None:
        self._days = days
        self._clock = _BEGIN
        self._settings = Settings(
            database=f"sqlite:///{folder}/db.sqlite3",
            state_dir=folder,
            max_batch=100_000,
            fresh_s=2 * DAY_S / days.windows_a_day,
        )
        self.advisor = Advisor(self._settings, clock=lambda: self._clock)
        self._rows: list[tuple[float, ...]] = []

    def run(self, learn_at: int | None = None) -> ScoredShares:
        """Live through all windows, and return what was predicted before them. Before the window `learn_at` a model is
        learned from those before, and answers from then on if the gate lets it pass."""
        for window in range(len(self._days.windows)):
            if window == learn_at:
                self._learn()
            self._live(window)
        return ScoredShares(*np.array(self._rows).reshape(-1, 8).T)

    def _learn(self) -> None:
        artifact = offline.train([self.advisor.window_dataset(30 * DAY_S)], settings=self._settings)
        verdict = self.advisor.models.register(artifact).verdict
        if verdict is not None and verdict["passed"]:
            self.advisor.models.activate(artifact.name)

    def _live(self, window: int) -> None:
        begin_s = self._days.begin_s(window)
        self._turn_to(begin_s - 60)
        self.advisor.inventory.put(self._days.there(window), mode="replace", generation=None)
        self._turn_to(begin_s - 30)
        self.advisor.hold_windows()
        predicted, groups = self._predictions(begin_s + WINDOW_S)
        self._turn_to(begin_s + WINDOW_S + 1)
        self.advisor.telemetry.ingest(list(self._days.samples(window)))
        self._turn_to(begin_s + WINDOW_S + 200)
        self.advisor.hold_windows()
        shares = self._days.shares(window)
        for host, one in predicted.items():
            scene = 1000 * window + int(host[1:])
            for version, said in one["said"].items():
                known = groups.get(WindowKey(version, "lxc", "", "forecast", contended=True))
                widening = math.nan if known is None or known.factor is None else known.factor
                for name, *band, _ in said["rows"]:
                    if name in shares:
                        row = (window, scene, *band, shares[name], widening)
                        self._rows.append((version != "analytic", *row))

    def _turn_to(self, time_s: float) -> None:
        self._clock = datetime.fromtimestamp(time_s, UTC)

    def _predictions(self, ends_s: float) -> tuple[Mapping[str, Mapping[str, Any]], Mapping[WindowKey, WindowFigures]]:
        """What was predicted of each host before the window that ends then, and how all before it held."""
        with self.advisor._transactions.read() as connection:
            due = predictions.due(connection, ends_s, 10_000)
            return {one.host: one.predicted for one in due if one.ends_s == ends_s}, predictions.load(connection)


def without_bursts(examples: Examples) -> Examples:
    """The same rows without what is known of bursts."""
    keep = [at for at, name in enumerate(examples.names) if name != "burst"]
    names = tuple(examples.names[at] for at in keep)
    return replace(examples, x=examples.x[:, keep], names=names, monotone=examples.monotone[keep])


def shuffled(examples: Examples) -> Examples:
    """The same scenes with the outcomes of others."""
    return replace(examples, ratio=np.random.default_rng(0).permutation(examples.ratio))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _coverage(predicted: ScoredShares, windows_a_day: int) -> None:
    """Print how forecasts of contended windows held, by day and by which model predicted them."""
    both = np.minimum(predicted.expected, predicted.observed) < CONTENDED
    for day in range(int(predicted.window.max()) // windows_a_day + 1):
        for who, name in enumerate(("prior", "learned")):
            some = predicted.take(both & (predicted.window // windows_a_day == day) & (predicted.learned == who))
            if len(some.window):
                off = some.observed - some.expected
                _say(
                    f"day {day + 1}, {name}: {len(off)} contended forecasts of {len(set(some.scene))} windows, error "
                    f"{_bounded(some, np.abs(off))}, bias {off.mean():+.4f}, interval held "
                    f"{_bounded(some, some.covered(calibrated=False))}, calibrated "
                    f"{_bounded(some, some.covered(calibrated=True))}, width {(some.upper - some.lower).mean():.3f}"
                )


def _gained(predicted: ScoredShares, hosts: int) -> None:
    """Print by how much a learned model's forecasts err less than the prior's of the same instances and windows."""
    rows = {who: predicted.take(predicted.learned == who) for who in (0, 1)}
    same = np.isin(rows[0].scene, rows[1].scene)
    one, other = rows[1], rows[0].take(same)
    if not len(one.scene):
        return
    less = np.abs(one.observed - one.expected) - np.abs(other.observed - other.expected)
    means = means_of(less[:, None], [str(int(scene) % 1000) for scene in one.scene])
    _say(f"forecasts of {hosts} hosts, learned less prior: {_with_interval(means, 0, '+.4f')}")


def _bounded(some: ScoredShares, values: Floats | Bools) -> str:
    """A mean with a 95 % interval over windows."""
    means = means_of(np.asarray(values, dtype=float)[:, None], [str(one) for one in some.scene])
    return _with_interval(means, 0, ".3f")


def judge(examples: Examples) -> None:
    """Learn from windows with and without bursts, and from shuffled ones; print what the gate sees."""
    plain: Mapping[str, HeldOutPredictions] = {}
    for name, rows in (
        ("without bursts", without_bursts(examples)),
        ("with bursts", examples),
        ("shuffled", shuffled(examples)),
    ):
        held_out = fit_target(rows, "share").held_out
        for table in held_out:
            _say(f"{name}, {_errors_of(table)}")
            if name == "with bursts":
                means = beside(table, errors_of(table, table.expected), plain[table.protocol])
                _say(f"  with less without bursts {_with_interval(means, 2, '+.4f') if means else 'unknown'}")
        verdict = gate(held_out, None)
        _say(f"{name}: {'passed' if verdict.passed else ' '.join(verdict.refusals)}")
        plain = {table.protocol: table for table in held_out}


def _errors_of(table: HeldOutPredictions) -> str:
    """Errors of prior and learned with 95 % intervals over hosts, the bias of both, and the coverage."""
    mine, prior = errors_of(table, table.expected), errors_of(table, table.prior)
    inside = ((table.measured >= table.lower) & (table.measured <= table.upper)) * 1.0
    means = means_of(np.column_stack([prior, mine, mine - prior, inside]), table.pair)
    stated = [_with_interval(means, at) for at in range(4)]
    biases = [f"{float((table.measured - one).mean()):+.3f}" for one in (table.prior, table.expected)]
    return (
        f"{table.protocol}: {means.rows} rows of {means.pairs} hosts, error of the prior {stated[0]}, "
        f"learned {stated[1]}, difference {stated[2]}, bias {biases[0]} and {biases[1]}, coverage {stated[3]}"
    )


def _with_interval(means: ResampledMeans, at: int, form: str = ".4f") -> str:
    """One of the means with its 95 % interval, if there are enough pairs for one."""
    bounds = means.bounds(at, 0.025)
    return f"{means.mean[at]:{form}}" + (f" ({bounds[0]:{form}} to {bounds[1]:{form}})" if bounds else "")


def larger(examples: Examples) -> None:
    """Learn from hosts with up to k instances, and print how that holds on those with up to half as many again."""
    for most in np.unique(examples.size).tolist()[1:-1]:
        fewer = np.flatnonzero(examples.size <= most)
        beyond = np.flatnonzero((examples.size > most) & (examples.size <= 1.5 * most))
        if len(fewer) < LEAST_LARGER or len(beyond) < LEAST_LARGER:
            continue
        there = examples.take(beyond)
        predicted = fit_target(examples.take(fewer), "share").ask(there)
        prior, learned = (np.abs(one - there.ratio) for one in (np.minimum(there.base, 1.0), predicted.expected))
        held = (there.ratio >= predicted.lower) & (there.ratio <= predicted.upper)
        means = means_of(np.stack([prior, learned, learned - prior, held], axis=1), there.run)
        _say(
            f"learned up to {most} instances: {len(beyond)} shares beside more, prior {means.mean[0]:.4f}, learned "
            f"{means.mean[1]:.4f}, less {_with_interval(means, 2, '+.4f')}, interval held {held.mean():.2f}"
        )


def noise(days: RecordedDays, other: RecordedDays) -> None:
    """Print by how much the share of an instance differs where the same plan was lived through once more."""
    shares = [[one.shares(at) for at in range(min(len(days.windows), len(other.windows)))] for one in (days, other)]
    off = [abs(a[name] - b[name]) for a, b in zip(*shares, strict=True) for name in a if name in b]
    _say(f"again: {len(off)} shares differ by {np.mean(off):.4f}; who knew their mean would err by that over sqrt 2")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how forecasts held, what is learned, and the noise where a second record is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--again", type=Path, default=None, help="a record of the same plan with other chances")
    parser.add_argument("--together", type=int, default=4, help="turns that are one window (4)")
    options = parser.parse_args(arguments)
    for path in (options.record, options.again):
        if path is not None and not path.is_file():
            parser.error(f"there is no record {path}: python -m research.contention.compressed_days writes one")
    days = RecordedDays.read(options.record, options.together)
    with tempfile.TemporaryDirectory() as folder:
        replay = DaysReplay(days, Path(folder))
        with replay.advisor as advisor:
            predicted = replay.run(learn_at=len(days.windows) * 5 // 6)
            _coverage(predicted, days.windows_a_day)
            _gained(predicted, len(days.plan["cpus"]))
            dataset = load_dataset(advisor.window_dataset(30 * DAY_S))
    examples = build_examples([dataset], (), target="share")
    judge(examples)
    larger(examples)
    if options.again is not None:
        noise(days, RecordedDays.read(options.again, options.together))
    return 0


if __name__ == "__main__":
    sys.exit(main())
