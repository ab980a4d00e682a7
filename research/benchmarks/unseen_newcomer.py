"""Models for questions about a new VM that training never saw: for each workload one that lacks all its runs.

All hosts of a question are ranked by one model, whose training holds no outcome of the new VM. Models that lack the
pairs of the new VM one by one would not do: whoever lacks a bad pair thinks better of the new VM than whoever lacks
a good one, so that the order of hosts is turned round by the division into folds alone (decision 117).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from models.data.dataset import RATIO_OUTCOMES, Dataset, load_dataset
from models.data.dataset_rules import check_learnable
from models.executor import each, executor
from models.learning.learned_predictor import LearnedPredictor
from models.training import fit_predictor
from profiler.observed import Colocation

MOST_MODELS = 20  # of more workloads several are left out together

NewVmModels = dict[str, LearnedPredictor]  # by workload the one that did not see it


def new_vm_models(paths: Sequence[Path], *, say: Callable[[str], None] = lambda _: None) -> NewVmModels:
    """Train on datasets together, once without each of their workloads, or without each group of them."""
    datasets = [load_dataset(path) for path in paths]
    check_learnable(datasets)
    groups = groups_of({name for one in datasets for run in one.colocations for name in workloads_of(run)})
    found: NewVmModels = {}
    with executor() as run:
        models = each(
            run,
            partial(without, paths),
            groups,
            lambda count: say(f"{count} of {len(groups)} models learned"),
        )
    for group, model in zip(groups, models, strict=True):
        found |= dict.fromkeys(group, model)
    return found


def without(paths: Sequence[Path], workloads: Collection[str]) -> LearnedPredictor:
    """A predictor trained on datasets without any run of these workloads."""
    datasets = [throughput_only(load_dataset(path)) for path in paths]
    return fit_predictor(
        [
            replace(one, colocations=tuple(run for run in one.colocations if not workloads_of(run) & set(workloads)))
            for one in datasets
        ]
    )


def groups_of(workloads: Collection[str], most: int = MOST_MODELS) -> list[Sequence[str]]:
    """Divide workloads into at most so many groups, as even as possible."""
    ordered = sorted(workloads)
    order = np.random.default_rng(0).permutation(len(ordered))
    count = min(most, len(ordered))
    return [tuple(ordered[at] for at in sorted(order[first::count])) for first in range(count)]


def workloads_of(colocation: Colocation) -> set[str]:
    """The workloads of a run."""
    return {outcome.instance.workload or "" for outcome in colocation.outcomes}


def throughput_only(dataset: Dataset) -> Dataset:
    """The dataset without latencies, which no benchmark here asks for and which take half of the training."""
    return replace(
        dataset,
        colocations=tuple(
            replace(
                colocation,
                outcomes=tuple(outcome for outcome in colocation.outcomes if outcome.outcome in RATIO_OUTCOMES),
            )
            for colocation in dataset.colocations
        ),
    )
