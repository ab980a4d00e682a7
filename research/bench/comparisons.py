"""Four questions, each asked of Cotenant and of baselines on the same cases; of every figure less is better.

- Prediction: each measured campaign is left out in turn (`research.benchmarks.left_out_campaigns`), with the analytic
  model and plain methods beside.
- Placement: new VMs come to clouds of large hosts (`research.benchmarks.newcomers`), where rules of schedulers place
  them, too.
- Planning: clouds with rules are rebalanced (`research.benchmarks.peers`), by Cotenant in at most as many moves as the
  balancer beside it makes.
- Speed: CPU time of one question to a cloud in which no two hosts are alike (`research.benchmarks.unlike_hosts`),
  beside Nova's filters and weighers.

Cases are campaigns, clouds by the number that seeds them, or questions. Intervals are of 95 % by bootstrap over cases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import numpy as np

from advisor import offline
from advisor.errors import InvalidInput
from advisor.prediction.active import load
from advisor.scheduling.rules import NOVA
from models.data.dataset import Dataset, DatasetError
from models.executor import each, executor
from models.prediction import Predictor
from models.training import train
from research.arena.clusters import NewVmCluster
from research.arena.contest import interval
from research.arena.rebalances import STAY
from research.arena.ruled import SIZES, ruled
from research.benchmarks.left_out_campaigns import ANALYTIC, PRODUCT, campaigns, left_out, usable_for
from research.benchmarks.measuring import apart
from research.benchmarks.newcomers import BUSY, FIGURES, OURS, policies
from research.benchmarks.peers.__main__ import AT_MOST, COTENANT, PACKING, Contest, peers, play

Question = Literal["prediction", "placement", "planning", "speed"]
Verdict = Literal["better", "worse", "within noise"]
QUESTIONS: tuple[Question, ...] = get_args(Question)
PARTS: Mapping[Question, float] = {
    "prediction": 0.55,
    "placement": 0.25,
    "planning": 0.15,
    "speed": 0.05,
}  # of the time
ANALYTIC_MODEL = "analytic model"
PLAIN = {"LightGBM of log(measured / analytic)": "LightGBM of the correction", "ridge": "ridge regression"}
RULES = {"Cotenant, analytic model": ANALYTIC_MODEL} | {name: name for name in (NOVA, "least loaded", "random")}
SIZE, PLANS_BUSY = "12 x 150", 2.0
MOST_SECONDS = 60.0  # of a question to a balancer
Cases = Mapping[str, Sequence[float]]
"""By name a figure of each case, in one order of cases."""
Say = Callable[[str, float], None]
Done = Callable[[float], None]
"""Takes which part of a question is done."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is compared; `campaigns`: None = all."""

    campaigns: int | None = None
    clouds: int = 24
    new_vms: int = 100
    plans: int = 8
    hosts: int = 1000


FULL = Extent()
QUICK = Extent(campaigns=4, clouds=4, plans=3)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Cotenant beside one baseline: means over cases, and by how much Cotenant's is less.

    `lower` and `upper` are the ends of its interval, None of fewer than two cases, which are within noise.
    """

    question: Question
    figure: str
    data: str
    cases: str
    cotenant: float
    baseline: str
    of_baseline: float
    less: float
    lower: float | None
    upper: float | None
    verdict: Verdict
    note: str = ""


def compared(
    wanted: Collection[Question], extent: Extent, folder: Path, environments: Path, say: Say
) -> Iterator[Comparison]:
    """The comparisons in the order of QUESTIONS; `folder` has the datasets, `environments` those of balancers.

    InvalidInput where the folder has no datasets to learn from.
    """
    asks: Mapping[Question, Callable[[Executor, Done], list[Comparison]]] = {
        "prediction": lambda run, done: prediction(extent, folder, run, done),
        "placement": lambda run, done: placement(extent, model, run, done),
        "planning": lambda run, done: planning(extent, environments, run, done),
        "speed": lambda _, __: speed(extent, model),
    }
    begin, whole = 0.0, sum(PARTS[one] for one in wanted)
    with TemporaryDirectory() as made, executor() as run:
        model = _trained(folder, Path(made), say) if {"placement", "speed"} & {*wanted} else Path()
        for question in (one for one in QUESTIONS if one in wanted):

            def done(part: float, what: Question = question, before: float = begin) -> None:
                say(what, before + part * PARTS[what] / whole)

            done(0.0)
            yield from asks[question](run, done)
            begin += PARTS[question] / whole
    say("done", 1.0)


def _trained(folder: Path, made: Path, say: Say) -> Path:
    """A model of all that models may learn from, as `cotenant train` makes it."""
    _known(folder)
    say("training", 0.0)
    return train(offline.datasets_to_learn(folder), made)


@cache
def _campaigns(folder: Path) -> list[Dataset]:
    return campaigns(folder)


def _known(folder: Path) -> list[Dataset]:
    try:
        found = _campaigns(folder)
    except DatasetError as error:
        raise InvalidInput(str(error), field="datasets") from error
    if len(found) < 2:
        more = "run this in a clone of the repository, or let COTENANT_DATASETS_DIR name its datasets"
        raise InvalidInput(f"{folder} holds no two campaigns to learn from: {more}", field="datasets")
    return found


def prediction(extent: Extent, folder: Path, run: Executor, done: Done) -> list[Comparison]:
    """Mean absolute error of T/B on each campaign, learned from all others."""
    names = [one.name for one in _known(folder)]
    names = names[:: -(-len(names) // (extent.campaigns or len(names)))]
    found = each(run, _errors, [(folder, name) for name in names], lambda count: done(count / len(names)))
    shown = {ANALYTIC: ANALYTIC_MODEL, **PLAIN}
    return _beside(
        "prediction",
        "mean error of T/B",
        "measured",
        f"{len(names)} campaigns, each left out",
        _by_name(found),
        PRODUCT,
        shown,
    )


def _errors(task: tuple[Path, str]) -> dict[str, float]:
    folder, name = task
    every = _campaigns(folder)
    asked = next(one for one in every if one.name == name)
    rows = left_out(usable_for(asked, every), asked, plain=tuple(PLAIN))
    return {
        method: float(np.mean([abs(row.expected[method] - row.measured) for row in rows]))
        for method in rows[0].expected
    }


def placement(extent: Extent, model: Path, run: Executor, done: Done) -> list[Comparison]:
    """How much of the time VMs are contended where each policy has placed the new ones."""
    tasks = [(seed, extent.new_vms, model) for seed in range(1, extent.clouds + 1)]
    found = each(run, _contended, tasks, lambda count: done(count / len(tasks)))
    return _beside(
        "placement", "contended time, %", "simulated", f"clouds 1 to {extent.clouds}", _by_name(found), OURS, RULES
    )


def _contended(task: tuple[int, int, Path]) -> dict[str, float]:
    seed, new_vms, model = task
    cloud = NewVmCluster.draw(seed, BUSY, new_vms, kinds=False, never_known=False)
    every = policies(_model(model))
    return {name: cloud.judged(every[name](cloud))[FIGURES[0]] for name in (OURS, *RULES) if name in every}


@cache
def _model(path: Path) -> Predictor:
    return load(path)


def planning(extent: Extent, environments: Path, run: Executor, done: Done) -> list[Comparison]:
    """How much of the time VMs are contended after the moves of each balancer."""
    tasks = [(seed, environments) for seed in range(1, extent.plans + 1)]
    found = each(run, _planned, tasks, lambda count: done(count / len(tasks)))
    rows = []
    for name in (name for name in found[0] if all(name in one for one in found)):
        ours, theirs = zip(*(one[name] for one in found), strict=True)
        cases = {side: [one["contended, %"] for one in some] for side, some in ((OURS, ours), (name, theirs))}
        of = f"clouds 1 to {extent.plans}"
        note = _moves(theirs, ours)
        rows += _beside("planning", "contended time, %", "simulated", of, cases, OURS, {name: name}, note)
    return rows


def _moves(theirs: Sequence[Mapping[str, float]], ours: Sequence[Mapping[str, float]]) -> str:
    """Means over clouds of the moves of both, and of what is wrong with them."""
    moves, mine = (float(np.mean([one["moves"] for one in some])) for some in (theirs, ours))
    broken, impossible, wrong = (
        float(np.mean([sum(one[column] for column in columns) for one in some]))
        for some, columns in ((theirs, _WRONG[:1]), (theirs, _WRONG[1:]), (ours, _WRONG))
    )
    return (
        f"{moves:.1f} moves, {broken:.1f} rules broken, {impossible:.1f} moves impossible; "
        f"Cotenant {mine:.1f} moves, {wrong:.1f} of both"
    )


_WRONG = ("rules broken", "moves impossible at their moment")


def _planned(task: tuple[int, Path]) -> dict[str, tuple[Mapping[str, float], Mapping[str, float]]]:
    """By balancer what comes of Cotenant's plan and of its own."""
    seed, environments = task
    contest = Contest.of(ruled(seed, SIZES[SIZE], PLANS_BUSY), seed)
    asks = peers(environments, MOST_SECONDS)
    play(contest, {name: one for name, one in asks.items() if not any(word in name for word in PACKING)}, {}, None)
    rows = contest.rows
    beside = {name: (rows[f"{AT_MOST}: {name}"], rows[name]) for name in asks if f"{AT_MOST}: {name}" in rows}
    return {STAY: (rows[COTENANT], rows[STAY]), **beside}


def speed(extent: Extent, model: Path) -> list[Comparison]:
    """CPU time of a cold question with its reasons, in turns with the same question to others, in a process of its own
    with one thread."""
    found = apart("unlike_hosts", "--model", str(model), "--one", str(extent.hosts))
    cases = f"{found['questions']} questions to {extent.hosts:,} hosts"
    shown = {"prior": ANALYTIC_MODEL, "nova": f"{NOVA}, choice alone"}
    return _beside("speed", "CPU time of a question, ms", "measured", cases, found["each_ms"], "model", shown)


def _by_name(found: Sequence[Mapping[str, float]]) -> Cases:
    return {name: [one[name] for one in found] for name in found[0]}


def _beside(
    question: Question,
    figure: str,
    data: str,
    cases: str,
    found: Cases,
    ours: str,
    shown: Mapping[str, str],
    note: str = "",
) -> list[Comparison]:
    """A comparison with each of `shown` that was found, which has its name in the table."""
    mine = np.array(found[ours])
    rows = []
    for name, title in shown.items():
        if name not in found:
            continue
        less = np.array(found[name]) - mine
        ends = interval(less.tolist())
        lower, upper = ends or (None, None)
        rows.append(
            Comparison(
                question, figure, data, cases, float(mine.mean()), title, float(np.mean(found[name])),
                float(less.mean()), lower, upper, verdict(ends), note,
            )
        )  # fmt: skip
    return rows


def verdict(ends: Sequence[float] | None) -> Verdict:
    """What an interval of how much less Cotenant has says of Cotenant."""
    if ends is None or ends[0] <= 0 <= ends[1]:
        return "within noise"
    return "better" if ends[0] > 0 else "worse"
