"""The placement table: prior, rules of thumb, the learned model and an oracle, in worlds and loads, with intervals.

    python -m research.benchmarks.placement [DATASET ...] [--public DIR] [--together] [--hosts 50] [--streams 12]
        [--first-stream 0] [--json] [--chart OUT.png]

Five parts: regret to the oracle of the worst-off of each host, of all instances, and of these with no instance counted
as faster than alone, and violations, all in clouds of measured hosts; and the part of its time in which an instance is
short on simulated evenings (see `new_vm_choices`), where no pair was measured and so no model can be trained.

A cloud is made of hosts whose outcomes are known: a host has as many seats as instances were measured together, and its
outcome is the measured mean T/B of that very set. The product is asked for what a figure is about: with the objective
`total` for all instances, with `limits` for how many are below one, and with its default, `worst`, for the worst-off.
The best rule is the one that does best on streams of its own, of all rules and all values of their parameters, chosen
anew for each world, load and figure. Every interval is of 95 %, by bootstrap over streams or evenings; differences are
of the same stream or evening, and where their interval holds 0 the two are not distinguished.

The learned model that answers about a new VM never saw its workload (see `unseen_newcomer`). By default it learned
from the datasets of `make run` together, and judges are these and the hidden table of unpinned pairs, from which
nothing is learned. Nothing in the product is tuned on these tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from advisor.domain import Objective
from advisor.prediction.active import PredictionCache
from models.data.dataset import load_dataset, status_of
from models.data.tables import DatasetError
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from profiler import pictures
from research import markdown
from research.arena.contest import Advised, interval, played, rules
from research.arena.evenings import Evening, draw
from research.arena.measured_advice import CotenantPolicy
from research.arena.measured_clouds import FULL, PART, SLO, ArrivalLoad, FilledCloud, SituationPolicy, below, fill
from research.arena.measured_hosts import MeasuredWorld, NoWorldError, at_most_alone, halves, worlds
from research.arena.measured_policies import oracles
from research.arena.measured_policies import rules as measured_rules
from research.benchmarks.newcomer_choices import ORACLE as GREEDY_ORACLE
from research.benchmarks.newcomer_choices import EveningPolicy
from research.benchmarks.unseen_newcomer import new_vm_models

WORLDS = tuple(  # of which `make run` learns from all but the last, which is hidden
    Path("datasets") / name
    for name in ("lab-pairs-xeon-2cpu", "lab-pairs", "lab-pairs-shared-xeon-2cpu", "lab-pairs-unpinned-xeon-2cpu")
)
MOST_REGRET, LEAST_REMOVED = 3.0, 50.0  # percent: the aims
PRIOR, FIRST_FIT, LEAST_LOADED, BEST_RULE, LEARNED, ORACLE = COLUMNS = (
    "prior",
    "first fit",
    "least loaded",
    "best rule",
    "learned",
    "oracle",
)
BEATEN = (FIRST_FIT, LEAST_LOADED, PRIOR)  # none of these may do better
REGRET, VIOLATIONS, SHORT = "regret to the oracle, %", f"below {SLO} of alone, %", "time short, %"
WORST_REGRET = "the worst-off of each host: regret to the oracle, %"  # what the objective `worst` is about
CAPPED_REGRET = "no instance counted as faster than alone: regret to the oracle, %"
FAIR_REGRET = "regret to an oracle that knows other repeats, %"
TUNED_ON = 1000  # number of the first stream, or evening's world, that rules are tuned on
TUNING = 4  # streams for it
EVENING_WORLDS, EVENING_SETS = range(10, 14), range(4)
WANTED = 0.8  # of all worlds and loads, in which the first aim is to be met


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """One figure of one world and load: by column a value for each stream, lower is better; an oracle may be missing,
    and so may a model. `rule` is the best rule's name."""

    figure: str
    where: str
    load: str
    rule: str
    values: Mapping[str, Sequence[float]]

    def mean(self, column: str) -> float:
        """Over streams."""
        return float(np.mean(self.values[column]))

    def worse(self, than: str) -> tuple[float, list[float]]:
        """By how much the advice is worse than another column, stream by stream, and the interval of that."""
        theirs = self.values[than]
        each = [mine - its for mine, its in zip(self.values[self.advice], theirs, strict=True)]
        return float(np.mean(each)), interval(each) or [-np.inf, np.inf]

    @property
    def advice(self) -> str:
        """The column that the product answers with."""
        return LEARNED if LEARNED in self.values else PRIOR


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables and which aims are met; 1 with one sentence where a dataset cannot be read."""
    options = _options(arguments)
    public = sorted(path.parent for path in options.public.glob("*/dataset.yaml")) if options.public else []
    named = tuple(options.datasets) or WORLDS
    seeds = range(options.first_stream, options.first_stream + options.streams)
    rows: list[PlacementRow] = []
    try:
        if options.chart:
            pictures.check_target(options.chart)
        shared = None
        if options.together or not options.datasets:
            shared = new_vm_models([path for path in named if not status_of(path).hidden], say=_say)
        for path in named:
            rows += of_dataset(path, options.hosts, seeds, shared)
        for path in public:
            rows += of_dataset(path, options.hosts, seeds)
    except (DatasetError, pictures.PictureError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.chart:
        picture(rows, options.chart)
    rows += [] if options.datasets else [of_evenings()]
    print(json.dumps([asdict(row) for row in rows]) if options.json else "\n".join((*tables(rows), *aims(rows))))
    return 0


def of_dataset(
    path: Path, hosts: int, streams: Sequence[int], learned: Mapping[str, Predictor] | None = None
) -> list[PlacementRow]:
    """The rows of every world that a dataset makes; none, with a sentence, where it makes none. `learned` are models by
    the new VM that each lacks, None = of this dataset alone."""
    dataset = load_dataset(path)
    try:
        found = list(worlds(dataset))
    except NoWorldError as error:
        _say(str(error))
        return []
    models = new_vm_models([path], say=_say) if learned is None else learned
    rows = []
    for world in found:
        _say(f"{dataset.name}: {world.name}")
        missing = set(world.workloads) - models.keys()
        if missing:
            raise DatasetError(f"{dataset.name}: no model is without {', '.join(sorted(missing))}")
        rows += list(of_world(f"{dataset.name}, {world.name}", world, models, hosts, streams))
    return rows


def of_world(
    name: str, world: MeasuredWorld, learned: Predictor | Mapping[str, Predictor], hosts: int, streams: Sequence[int]
) -> Iterator[PlacementRow]:
    """Regret and violations of every column in a world, at both loads."""
    thumb, tunable = measured_rules(world), measured_rules(world, settings=True)
    prior, remembered = PredictionCache(), PredictionCache()

    def asked(objective: Objective) -> dict[str, SituationPolicy]:
        return {
            PRIOR: CotenantPolicy(world, PriorPredictor(), objective, prior),
            **{column: thumb[column] for column in (FIRST_FIT, LEAST_LOADED) if column in thumb},
            LEARNED: CotenantPolicy(world, learned, objective, remembered),
        }

    policies = {objective: asked(objective) for objective in ("worst", "total", "limits")}
    known, parts, capped = oracles(world), halves(world), at_most_alone(world)
    for load in (PART, FULL):

        def filled(
            policy: SituationPolicy,
            seeds: Sequence[int] = streams,
            load: ArrivalLoad = load,
            judge: MeasuredWorld = world,
        ) -> list[FilledCloud]:
            return [fill(judge, hosts, load.workloads(judge, hosts, seed), policy, seed) for seed in seeds]

        clouds = {
            objective: {column: filled(policy) for column, policy in of_objective.items()}
            for objective, of_objective in policies.items()
        }
        tuning = {rule: filled(policy, range(TUNED_ON, TUNED_ON + TUNING)) for rule, policy in tunable.items()}
        for figure, of, objective, oracle, judge in (
            (VIOLATIONS, _below, "limits", known["oracle (total)"], world),
            (WORST_REGRET, _worst_lost, "worst", known["oracle (worst)"], world),
            (CAPPED_REGRET, _lost, "total", oracles(capped)["oracle (total)"], capped),
            (REGRET, _lost, "total", known["oracle (total)"], world),
        ):
            rule = min(tuning, key=lambda one: float(np.mean([of(judge, cloud) for cloud in tuning[one]])))
            every = {**clouds[objective], BEST_RULE: filled(tunable[rule]), ORACLE: filled(oracle)}
            values = {column: [of(judge, cloud) for cloud in every[column]] for column in COLUMNS if column in every}
            yield _row(figure, name, load.name, rule, values)
        if parts:
            yield _fair(name, load, parts, {**policies["total"], BEST_RULE: tunable[rule]}, rule, filled)


def _fair(
    name: str,
    load: ArrivalLoad,
    parts: tuple[MeasuredWorld, MeasuredWorld],
    policies: Mapping[str, SituationPolicy],
    rule: str,
    filled: Callable[..., list[FilledCloud]],
) -> PlacementRow:
    """Regret to an oracle that knows every other repeat, judged by those between, each way round."""
    values: dict[str, list[float]] = {}
    for judge, other in (parts, parts[::-1]):
        every = {**policies, ORACLE: oracles(other)["oracle (total)"]}
        for column, policy in every.items():
            values.setdefault(column, []).extend(_lost(judge, cloud) for cloud in filled(policy, judge=judge))
    each_way = {column: np.reshape(both, (2, -1)).mean(axis=0).tolist() for column, both in values.items()}
    return _row(FAIR_REGRET, name, load.name, rule, each_way)


def _row(figure: str, name: str, load: str, rule: str, values: dict[str, list[float]]) -> PlacementRow:
    if figure != VIOLATIONS:  # what is lost becomes a regret to the oracle of the same stream
        best = values[ORACLE]
        values = {
            column: [100 * (one - least) / (1 - least) for one, least in zip(each, best, strict=True)]
            for column, each in values.items()
        }
    return PlacementRow(figure, name, load, rule, {column: values[column] for column in COLUMNS if column in values})


def _lost(world: MeasuredWorld, cloud: FilledCloud) -> float:
    """One minus the mean T/B."""
    return 1 - float(cloud.ratios(world).mean())


def _worst_lost(world: MeasuredWorld, cloud: FilledCloud) -> float:
    """One minus the mean, over hosts, of the T/B of the worst-off there."""
    return 1 - float(np.mean([min(world.ratios(host)) for host in cloud.hosts if host]))


def _below(world: MeasuredWorld, cloud: FilledCloud) -> float:
    return below(cloud.ratios(world), SLO)


def of_evenings() -> PlacementRow:
    """Time short on simulated evenings; the oracle places greedily by what every instance will ask for."""
    _say("evenings")
    judged = [draw(world, number) for world in EVENING_WORLDS for number in EVENING_SETS]
    tuning = played([draw(TUNED_ON + number, 0) for number in range(TUNING)], rules(Evening.columns, settings=True))
    rule = min(tuning, key=lambda one: float(np.mean([each["short"] for each in tuning[one]])))
    tunable = rules(Evening.columns, settings=True)
    columns: dict[str, EveningPolicy] = {
        PRIOR: Advised(PriorPredictor()),
        FIRST_FIT: tunable[FIRST_FIT],
        LEAST_LOADED: tunable[LEAST_LOADED],
        BEST_RULE: tunable[rule],
        ORACLE: lambda evening: GREEDY_ORACLE(replace(evening, foresight=True)),
    }
    values = {name: [one["short"] for one in each] for name, each in played(judged, columns).items()}
    return PlacementRow(SHORT, "simulated, 10 hosts of 16 CPUs", "30 come to 24", rule, values)


def tables(rows: Sequence[PlacementRow]) -> list[str]:
    """A table for each figure, in Markdown."""
    found = []
    for figure in dict.fromkeys(row.figure for row in rows):
        head = ["", "load", *COLUMNS, *(f"advice - {other}" for other in (*BEATEN, BEST_RULE))]
        found += [f"**{figure[0].upper()}{figure[1:]}**", ""]
        found.append(markdown.table(head, (_cells(row) for row in rows if row.figure == figure)))
    return found


def _cells(row: PlacementRow) -> list[str]:
    cells = [row.where, row.load]
    for column in COLUMNS:
        if column not in row.values:
            cells.append("")
            continue
        ends = interval(row.values[column])
        between = f" ({ends[0]:.1f} to {ends[1]:.1f})" if ends and ends[0] < ends[1] else ""
        cells.append(f"{row.mean(column):.1f}{between}" + (f", {row.rule}" if column == BEST_RULE else ""))
    for other in (*BEATEN, BEST_RULE):
        if other not in row.values or other == row.advice:
            cells.append("")
            continue
        mean, ends = row.worse(other)
        apart = "" if ends[0] > 0 or ends[1] < 0 else "not significant: "
        cells.append(f"{apart}{mean:+.1f} ({ends[0]:+.1f} to {ends[1]:+.1f})")
    return cells


MARKS = {
    FIRST_FIT: ("s", pictures.SOFT),
    LEAST_LOADED: ("^", pictures.BAD),
    PRIOR: ("D", pictures.FAIR),
    BEST_RULE: ("x", pictures.INK),
    LEARNED: ("o", pictures.ACCENT),
    ORACLE: ("|", pictures.GOOD),
}
DRAWN = {
    WORST_REGRET: "lost by the worst-off of each host, beside an oracle, %",
    VIOLATIONS: f"instances below {SLO} of alone, %",
}


def picture(rows: Sequence[PlacementRow], path: Path) -> None:
    """A panel for each of two figures: a line for each world and load, a mark for each column, and an interval."""
    shown = list(dict.fromkeys((row.where, row.load) for row in rows))
    figure, panels = pictures.new_figure(2, width=11.0, height=0.26 * len(shown) + 1.4)
    for axes, (name, text) in zip(panels, DRAWN.items(), strict=True):
        for row in (row for row in rows if row.figure == name):
            at = shown.index((row.where, row.load))
            for column, (marker, colour) in MARKS.items():
                if column in row.values:
                    mean, ends = row.mean(column), interval(row.values[column])
                    axes.plot(ends or [mean, mean], [at, at], color=colour, linewidth=1, alpha=0.6)
                    size = 70 if marker == "|" else 32
                    axes.scatter(mean, at, marker=marker, color=colour, s=size, label=column, zorder=3)
        axes.set_yticks(range(len(shown)), [f"{where.removeprefix('lab-')}, {load}" for where, load in shown])
        axes.invert_yaxis()
        pictures.label(axes, "", text)
    panels[1].set_yticklabels([])
    handles, labels = panels[0].get_legend_handles_labels()
    once = dict(zip(labels, handles, strict=True))
    pictures.legend_below(figure, len(once), handles=list(once.values()), loc="outside lower center")
    pictures.save(figure, path)


def aims(rows: Sequence[PlacementRow]) -> list[str]:
    """Which of the aims are met, a sentence each, and where the others are not."""
    sentences = []
    for figure in (REGRET, FAIR_REGRET):
        regrets = [row for row in rows if row.figure == figure]
        if not regrets:
            continue
        low = sum(row.mean(row.advice) <= MOST_REGRET for row in regrets)
        met = low >= WANTED * len(regrets)
        sentences.append(f"{_met(met)} at most {MOST_REGRET:g} % of {figure[:-3]}: in {low} of {len(regrets)}")
    for other in (*BEATEN, BEST_RULE):
        both = [
            row
            for row in rows
            if row.figure not in (FAIR_REGRET, CAPPED_REGRET) and other in row.values and other != row.advice
        ]
        if not both:
            continue
        worse = [row for row in both if row.worse(other)[1][0] > 0]
        better = sum(row.worse(other)[1][1] < 0 for row in both)
        text = f"{_met(not worse)} never worse than {other} beyond noise: worse in {len(worse)} of {len(both)}"
        places = "; ".join(f"{row.figure.split(',')[0]}: {row.where}, {row.load}" for row in worse)
        sentences.append(f"{text}, better in {better}" + (f" ({places})" if worse else ""))
    some = [row for row in rows if row.figure in (VIOLATIONS, SHORT) and row.mean(FIRST_FIT) > 0]
    for row in some:
        removed, best = (100 * (1 - row.mean(column) / row.mean(FIRST_FIT)) for column in (row.advice, ORACLE))
        text = f"{_met(removed >= LEAST_REMOVED)} {removed:.0f} % of first fit's removed (at least {LEAST_REMOVED:g})"
        sentences.append(f"{text}, the oracle {best:.0f} %: {row.figure.split(',')[0]}, {row.where}, {row.load}")
    return sentences


def _met(met: bool) -> str:
    return "met " if met else "MISS"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks.placement",
        description="Compare placements by the prior, rules of thumb, the learned model and an oracle.",
    )
    parser.add_argument(
        "datasets", nargs="*", type=Path, metavar="DATASET", help="default: the lab's tables of pairs, and evenings"
    )
    parser.add_argument("--public", type=Path, metavar="DIR", help="a folder of converted public datasets")
    parser.add_argument("--together", action="store_true", help="learn from all DATASETs together, as by default")
    parser.add_argument("--hosts", type=int, default=50, help="of each cloud")
    parser.add_argument("--streams", type=int, default=12, help="of arrivals, for each world and load")
    parser.add_argument("--first-stream", type=int, default=0, help="number of the first one, its seed")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    parser.add_argument("--chart", type=Path, metavar="OUT.png", help="draw them, too")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
