"""Asks what each part of the learned model earns: members, effects, stacking, what is left out, features, metrics.

`python -m research.learning_ablation datasets/lab-neighbours datasets/papers` prints a table in Markdown for each
dataset and protocol: the error of T/B without each part, and by how much it differs from that of the whole, with 95 %
intervals by bootstrap over pairs. Every figure is of the whole product, fitted anew on each fold's training rows, so it
takes minutes for a small dataset and hours for a large one. `--only` and `--protocol` ask for less.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from models.arrays import Floats, Ints
from models.data.dataset import load_dataset
from models.evaluation.bootstrap import interval, resampled_means
from models.evaluation.methods import predict_rows
from models.evaluation.protocols import PROTOCOLS, ProtocolFold, folds_of, why_skipped
from models.evaluation.row_groups import codes
from models.features.examples import Examples, build_examples, metrics_of
from models.features.feature_matrix import PLATFORM
from models.learning import effects, fitted_target, residual_model
from models.learning.effects import Regularisation
from models.learning.residual_model import BASE_LEARNERS, LEAST_ROWS, StackingWeights

DEFAULT = ("unseen_pair", "unseen_workload", "unseen_platform", "pairs_to_n")
GROUPS: Mapping[str, Callable[[str], bool]] = {
    "own metrics": lambda name: name.startswith("own "),
    "metrics of neighbours on the same pCPUs": lambda name: name.startswith("near "),
    "metrics of all neighbours": lambda name: name.startswith("host "),
    "bubble curves": lambda name: name.startswith(("curve ", "press ")),
    "the prior's columns": lambda name: name == "prior" or name.startswith("prior "),
    "settings": lambda name: name in {"load", "vcpus", "cap", "weight_share", "cpu_set", "net_rate", "disk_limit"},
    "crowd": lambda name: name in {"neighbours", "near", "cpu_crowd", "pcpus_per_instance", "driver_cpus"},
}


@dataclass(frozen=True, slots=True)
class Ablation:
    """What is left out: `columns` says of which features, and `instead` what stands in for which part of the code."""

    columns: Callable[[str], bool] = lambda _name: False
    instead: Sequence[tuple[Any, str, Any]] = field(default_factory=tuple)

    def of(self, examples: Examples) -> Examples:
        """The same rows without the columns."""
        kept = [at for at, name in enumerate(examples.names) if not self.columns(name)]
        names, monotone = tuple(examples.names[at] for at in kept), examples.monotone[kept]
        return replace(examples, x=examples.x[:, kept], names=names, monotone=monotone)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """While parts of the code are replaced."""
        with ExitStack() as stack:
            for where, name, what in self.instead:
                stack.enter_context(patch.object(where, name, what))
            yield


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """J predictions: `row` (J,) of the examples, `error` of T/B, of slowdown, and whether the interval held, (J,)."""

    row: Ints
    error: Floats
    slowdown: Floats
    inside: Floats


def ablations(metrics: Sequence[str]) -> dict[str, Ablation]:
    """Every ablation by what it leaves out, for a dataset with these keys of features; the first leaves out nothing."""
    parts = {"nothing": Ablation()}
    parts |= {name: _without_member(at) for at, name in enumerate(BASE_LEARNERS)}
    nobody = (0.0,) * len(BASE_LEARNERS)
    parts["all four"] = Ablation(instead=[(residual_model, "_weight_grid", lambda: iter([nobody]))])
    parts["effects of names"] = Ablation(instead=[(fitted_target, "choose_regularisation", _no_effects)])
    parts["factors"] = Ablation(instead=[(effects, "RANKS", ())])
    parts["chosen weights (a quarter each)"] = Ablation(
        instead=[(fitted_target, "choose_stacking_weights", _quarter_each)]
    )
    parts["weights of their own for known workloads"] = Ablation(
        instead=[(fitted_target, "_stacking_weights", partial(_of_all, fitted_target._stacking_weights))]
    )
    judged = {name: what for name, what in fitted_target.LEFT_OUT.items() if name != "unseen_platform"}
    parts["judging of left-out platforms"] = Ablation(instead=[(fitted_target, "LEFT_OUT", judged)])
    parts |= {name: Ablation(columns=columns) for name, columns in GROUPS.items()}
    for key in metrics:
        if not key.startswith(PLATFORM):
            names = {f"{where} {key}" for where in ("own", "near", "host", "socket", "core")}
            parts[f"`{key}`"] = Ablation(columns=names.__contains__)
    return parts


def _without_member(at: int) -> Ablation:
    grid = [weights for weights in residual_model._weight_grid() if not weights[at]]
    return Ablation(instead=[(residual_model, "_weight_grid", lambda: iter(grid))])


def _no_effects(_terms: object, _residual: object, folds: Sequence[object], _pair: object) -> object:
    return Regularisation(), (Regularisation(),) * len(folds)


def _quarter_each(_examples: object, _ratio: object, rows: Ints, _parts: object, found: Floats) -> StackingWeights:
    return StackingWeights((0.25,) * len(BASE_LEARNERS), 1.0 * bool(len(rows) and found.any()))


def _of_all(original: Callable[..., StackingWeights], rows: object, predictions: object, known: bool) -> object:
    """Weights from all left-out rows, whether their workloads are known or not."""
    del known
    judged = [replace(one, known=np.ones(len(one.row), dtype=bool)) for one in predictions]  # type: ignore[attr-defined]
    return original(rows, judged, known=True)


def judge(examples: Examples, folds: Sequence[ProtocolFold], ablation: Ablation) -> JudgedRows:
    """Fit the product on each fold's training rows without the part, and judge it on the test rows."""
    some = ablation.of(examples)
    with ablation.at_work():
        told = [predict_rows(some.take(fold.train), some.take(fold.test)) for fold in folds]
    row = np.concatenate([fold.test for fold in folds])
    measured = examples.ratio[row]
    expected, lower, upper = (
        np.concatenate([getattr(one, name) for one in told]) for name in ("expected", "lower", "upper")
    )
    slowdown = np.abs(np.maximum(measured, 0.01) / np.maximum(expected, 0.01) - 1)
    return JudgedRows(row, np.abs(measured - expected), slowdown, 1.0 * ((measured >= lower) & (measured <= upper)))


def _table(examples: Examples, protocol: str, chosen: Mapping[str, Ablation]) -> None:
    folds = [fold for fold in folds_of(examples, protocol) if len(fold.train) >= LEAST_ROWS and len(fold.test)]
    if not folds:
        say(f"\n{protocol}: {why_skipped(protocol)}")
        return
    whole = judge(examples, folds, Ablation())
    prior = np.abs(examples.ratio - examples.base)[whole.row]
    say(f"\n{protocol}: {len(whole.row)} rows, MAE {whole.error.mean():.4f}, prior {prior.mean():.4f}\n")
    say("| without | MAE | difference (95 %) | error of slowdown | intervals hold |\n|---|---|---|---|---|")
    for name, ablation in chosen.items():
        if name != "nothing" and not ablation.instead and not any(map(ablation.columns, examples.names)):
            continue
        found = whole if name == "nothing" else judge(examples, folds, ablation)
        more = _difference(codes(examples.pair)[whole.row], found.error - whole.error)
        say(
            f"| {name} | {found.error.mean():.4f} | {more if name != 'nothing' else ''} | {found.slowdown.mean():.4f} "
            f"| {found.inside.mean():.3f} |"
        )


def _difference(pair: Ints, error: Floats) -> str:
    means = resampled_means(pair, error[:, None])
    bounds = interval(None if means is None else means[:, [0]])
    return f"{error.mean():+.4f}" + (f" ({bounds[0]:+.4f} to {bounds[1]:+.4f})" if bounds else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m research.learning_ablation", description=__doc__)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET", help="dataset directories, each by itself")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="only parts with this in their name (repeatable)"
    )
    parser.add_argument("--protocol", action="append", choices=PROTOCOLS, help="only this one")
    options = parser.parse_args(arguments)
    for path in options.datasets:
        dataset = load_dataset(path)
        say(f"\n## {dataset.name} ({dataset.origin})")
        metrics = metrics_of([dataset])
        examples = build_examples([dataset], metrics)
        wanted = options.only or [""]
        every = ablations(metrics).items()
        chosen = {name: one for name, one in every if name == "nothing" or any(text in name for text in wanted)}
        for protocol in options.protocol or DEFAULT:
            _table(examples, protocol, chosen)


def say(text: str) -> None:
    """A line at once: the next one may take minutes."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
