"""Runs every policy on the same streams in one world; results with intervals over streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.domain import Objective
from advisor.prediction.cache import PredictionCache
from advisor.scheduling.scoring import KEPT
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from research.benchmarks.clouds import optimum
from research.benchmarks.clouds.advisor_policy import CotenantPolicy
from research.benchmarks.clouds.policies import BubbleUpPolicy, oracles, pack, rules_of_thumb, spread
from research.benchmarks.clouds.streams import Event, FilledCloud, SituationPolicy, arrivals, churn, counts, fill
from research.benchmarks.clouds.worlds import MeasuredWorld, at_most_alone, halves

SLO, MILD_SLO = KEPT, 0.8
ALLOWED = 0.05  # of the instances may be below the SLO where hosts are counted
PER_HOST = 1.5  # instances that arrive per host where a cloud is not filled
RESAMPLES = 2000
OTHER_REPEATS = "oracle of other repeats"
ORACLE, BEST = "oracle (total)", "offline optimum"
THROUGHPUT, KEEPING, PACKING = "cotenant (total)", "cotenant (worst)", "cotenant (pack)"
FIRST_FIT, ORACLE_WORST, PRIOR_KEEPING = "first fit", "oracle (worst)", "prior (worst)"
OBJECTIVES: tuple[Objective, ...] = ("total", "worst", "pack")
JUDGED = (KEEPING, THROUGHPUT, PRIOR_KEEPING, ORACLE_WORST)  # by the violations of first fit that they remove

Row = dict[str, float | str | list[float] | None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Size:
    """How many hosts a cloud has, how many streams fill it, and how many of them are used to count hosts."""

    hosts: int
    streams: int
    counted: int


SIZES = (Size(10, 40, 20), Size(100, 12, 6), Size(1000, 4, 2))
QUICK = (Size(10, 10, 5), Size(100, 3, 2))


@dataclass(frozen=True, slots=True)
class ArrivalLoad:
    """What arrives in a cloud: instances per host, and turns of departure and arrival per instance after that."""

    name: str
    per_host: float
    turns: float = 0.0

    def events(self, world: MeasuredWorld, hosts: int, seed: int) -> list[Event]:
        count = round(self.per_host * hosts)
        if self.turns:
            return churn(world.workloads, count, round(self.turns * count), seed)
        return arrivals(world.workloads, count, seed)


PART, FULL = ArrivalLoad("1.5 per host", PER_HOST), ArrivalLoad("full", 2.0)
CHURN = ArrivalLoad("1.5 per host, then 3 changes each", PER_HOST, 3.0)


def loads(world: MeasuredWorld) -> tuple[ArrivalLoad, ...]:
    """Loads that a world can have: who remains after a departure was measured only where two at most are together."""
    return (PART, FULL, CHURN) if world.seats == 2 else (PART, FULL)


def advised(world: MeasuredWorld, learned: Predictor | Mapping[str, Predictor]) -> dict[str, SituationPolicy]:
    """The advisor with the prior alone and with what was learned, under every objective; asked once for all runs."""
    found: dict[str, SituationPolicy] = {}
    both: dict[str, Predictor | Mapping[str, Predictor]] = {"prior": PriorPredictor(), "cotenant": learned}
    for name, predictor in both.items():
        remembered = PredictionCache()
        for objective in OBJECTIVES:
            found[f"{name} ({objective})"] = CotenantPolicy(world, predictor, objective, remembered)
    return found


def spreading(world: MeasuredWorld, asked: Mapping[str, SituationPolicy]) -> dict[str, SituationPolicy]:
    """Everybody who uses all the hosts there are, and those who pack because they know no better."""
    known = oracles(world)
    return {
        **rules_of_thumb(world),
        "Bubble-Up-like": spread(BubbleUpPolicy(world).ratios, world),
        **{name: asked[name] for name in ("prior (total)", PRIOR_KEEPING, THROUGHPUT, KEEPING)},
        **{name: known[name] for name in (ORACLE, ORACLE_WORST)},
    }


def packing(world: MeasuredWorld, asked: Mapping[str, SituationPolicy]) -> dict[str, SituationPolicy]:
    """Everybody who may be asked for few hosts at the SLO."""
    return {
        **rules_of_thumb(world),
        "Bubble-Up-like (pack)": pack(BubbleUpPolicy(world).ratios, world, SLO),
        **{name: asked[name] for name in ("prior (pack)", KEEPING, PACKING)},
        "oracle (pack)": oracles(world)["oracle (pack)"],
    }


def run(
    world: MeasuredWorld, learned: Predictor | Mapping[str, Predictor], sizes: Sequence[Size], say: Say
) -> Iterator[dict[str, object]]:
    """One result per size and load, then one per size about hosts used."""
    asked = advised(world, learned)
    policies = spreading(world, asked)
    for size in sizes:
        for load in loads(world):
            say(f"{world.name}: {size.hosts} hosts, {load.name}")
            filled = {
                name: [
                    fill(world, size.hosts, load.events(world, size.hosts, seed), policy, seed)
                    for seed in range(size.streams)
                ]
                for name, policy in policies.items()
            }
            found: dict[str, object] = {"world": world.name, "hosts": size.hosts, "load": load.name}
            found |= {"streams": size.streams, "policies": figures(world, filled)}
            first = filled[FIRST_FIT]
            hosts = [one.opened if load is FULL else size.hosts for one in first]
            found["violations_on"] = "the hosts that first fit opened" if load is FULL else "as many hosts"
            found["violations"] = violations(world, first, refilled(world, policies, filled, load, hosts), hosts)
            yield found
    say(f"{world.name}: noise")
    yield noise(world, asked, sizes[min(1, len(sizes) - 1)])
    policies = packing(world, asked)
    for size in sizes:
        say(f"{world.name}: hosts for {round(PER_HOST * size.hosts)} instances")
        yield {"world": world.name, "instances": round(PER_HOST * size.hosts), "used": used(world, policies, size)}


def figures(world: MeasuredWorld, filled: Mapping[str, Sequence[FilledCloud]]) -> dict[str, Row]:
    """What came of each policy; the regret is to the oracle that knows outcomes and not the future."""
    best = [one.ratios(world) for one in filled[ORACLE]]
    rows = {name: _row(world, runs, best) for name, runs in filled.items()}
    found = [optimum.most_throughput(world, len(one.hosts), counts(one.hosts)) for one in filled[ORACLE]]
    reached = np.array([one for one in found if one is not None])
    if len(reached) == len(found):
        means = reached / [len(one) for one in best]
        for row, runs in zip(rows.values(), filled.values(), strict=True):
            theirs = np.array([one.ratios(world).mean() for one in runs])
            row["regret_to_optimum_percent"] = float(np.mean(100 * (1 - theirs / means)))
        regret = 100 * (1 - means / [one.mean() for one in best])
        rows[BEST] = {"mean_ratio": float(means.mean()), "regret_percent": float(regret.mean())}
    return rows


def _row(world: MeasuredWorld, runs: Sequence[FilledCloud], best: Sequence[np.ndarray]) -> Row:
    ratios = [one.ratios(world) for one in runs]
    made = sum(one.decisions.made for one in runs)

    def of_decisions(name: str) -> float | None:
        return float(100 * sum(getattr(one.decisions, name) for one in runs) / made) if made else None

    def mean(of: Callable[[np.ndarray], float]) -> float:
        return float(np.mean([of(ratio) for ratio in ratios]))

    regret = [100 * (1 - mine.mean() / its.mean()) for mine, its in zip(ratios, best, strict=True)]
    return {
        "mean_ratio": mean(lambda one: float(one.mean())),
        "regret_percent": float(np.mean(regret)),
        "regret_interval": interval(regret),
        "worst_tenth": mean(lambda one: float(np.sort(one)[: max(len(one) // 10, 1)].mean())),
        "below_slo_percent": mean(lambda one: below(one, SLO)),
        "below_mild_slo_percent": mean(lambda one: below(one, MILD_SLO)),
        "hosts_opened": float(np.mean([one.opened for one in runs])),
        "decision_regret_percent": of_decisions("regret"),
        "tied_percent": of_decisions("tied"),
        "right_percent": of_decisions("right"),
        "right_with_ties_percent": of_decisions("right_with_ties"),
    }


def below(ratios: np.ndarray, slo: float) -> float:
    """Percent of instances below an SLO."""
    return float(100 * (ratios < slo).mean())


def interval(values: Sequence[float], seed: int = 0) -> list[float] | None:
    """95 % bootstrap interval of the mean of independent values; None of fewer than two."""
    if len(values) < 2:
        return None
    drawn = np.random.default_rng(seed).choice(np.array(values), (RESAMPLES, len(values)))
    return [float(one) for one in np.percentile(drawn.mean(axis=1), (2.5, 97.5))]


def noise(world: MeasuredWorld, asked: Mapping[str, SituationPolicy], size: Size) -> dict[str, object]:
    """How much of a regret is the measurement's: an oracle also profits from what a few repeats have by chance.

    Judged by every other repeat of each set, which the oracle knows, beside one who knows the repeats between; and with
    every T/B above 1 counted as 1. By load and judge, the regret to that oracle.
    """
    parts = halves(world)
    judges: list[tuple[str, MeasuredWorld, MeasuredWorld | None]] = [("nothing above 1", at_most_alone(world), None)]
    judges += [("half of the repeats", *ways) for ways in (parts, parts[::-1])] if parts else []
    regrets: dict[str, dict[str, list[float]]] = {}
    for judge, judged, other in judges:
        policies = {
            ORACLE: oracles(judged)[ORACLE],
            **({OTHER_REPEATS: oracles(other)[ORACLE]} if other else {}),
            **{name: asked[name] for name in ("prior (total)", THROUGHPUT)},
        }
        for load in (PART, FULL):
            by_policy = regrets.setdefault(f"{load.name}, {judge}", {})
            for seed in range(size.streams):
                events = load.events(judged, size.hosts, seed)
                means = {
                    name: float(fill(judged, size.hosts, events, policy, seed).ratios(judged).mean())
                    for name, policy in policies.items()
                }
                for name, mean in means.items():
                    by_policy.setdefault(name, []).append(100 * (1 - mean / means[ORACLE]))
    figures = {
        case: {
            name: {"regret_percent": float(np.mean(values)), "regret_interval": interval(values)}
            for name, values in by_policy.items()
        }
        for case, by_policy in regrets.items()
    }
    return {"world": world.name, "hosts": size.hosts, "noise": figures}


def refilled(
    world: MeasuredWorld,
    policies: Mapping[str, SituationPolicy],
    filled: Mapping[str, Sequence[FilledCloud]],
    load: ArrivalLoad,
    hosts: Sequence[int],
) -> dict[str, list[FilledCloud]]:
    """What comes of who is judged by violations in clouds of `hosts` hosts, stream by stream; filled anew where the
    clouds had another number."""

    def again(name: str, seed: int, before: FilledCloud) -> FilledCloud:
        had = len(filled[FIRST_FIT][seed].hosts)
        if had == hosts[seed]:
            return before
        return fill(world, hosts[seed], load.events(world, had, seed), policies[name], seed)

    return {name: [again(name, seed, one) for seed, one in enumerate(filled[name])] for name in JUDGED}


def violations(
    world: MeasuredWorld,
    first_fit: Sequence[FilledCloud],
    judged: Mapping[str, Sequence[FilledCloud]],
    hosts: Sequence[int],
) -> dict[str, Row]:
    """How many of first fit's violations others remove on as many hosts, and the best of all placements there."""
    theirs = [float((one.ratios(world) < SLO).sum()) for one in first_fit]
    found: dict[str, Row] = {FIRST_FIT: {"violations": float(np.mean(theirs))}}
    for name in JUDGED:
        found[name] = _removed(theirs, [float((one.ratios(world) < SLO).sum()) for one in judged[name]])
        more = [len(one.hosts) - there for one, there in zip(judged[name], hosts, strict=True)]
        found[name]["more_hosts"] = float(np.mean(more))
    least = [
        optimum.fewest_below(world, there, counts(one.hosts), SLO) for there, one in zip(hosts, first_fit, strict=True)
    ]
    if all(one is not None for one in least):
        found[BEST] = _removed(theirs, [one for one in least if one is not None])
    return found


def _removed(theirs: Sequence[float], mine: Sequence[float]) -> Row:
    """Means, and the share removed of all of them; its interval over streams, each with as many as it had."""
    drawn = np.random.default_rng(0).integers(0, len(theirs), (RESAMPLES, len(theirs)))
    before, after = np.array(theirs)[drawn].sum(axis=1), np.array(mine)[drawn].sum(axis=1)
    some = before > 0
    if not sum(theirs):
        return {"violations": float(np.mean(mine)), "removed_percent": None, "removed_interval": None}
    ends = np.percentile(100 * (1 - after[some] / before[some]), (2.5, 97.5)) if len(theirs) > 1 else None
    return {
        "violations": float(np.mean(mine)),
        "removed_percent": float(100 * (1 - sum(mine) / sum(theirs))),
        "removed_interval": None if ends is None else [float(end) for end in ends],
    }


def used(world: MeasuredWorld, policies: Mapping[str, SituationPolicy], size: Size) -> dict[str, Row]:
    """How many hosts each policy opens so that at most ALLOWED of the instances are below the SLO: the smallest cloud
    in which that is so, by bisection to one host in a hundred; a policy of which it is not so even where there is a
    host for everybody has none."""
    count = round(PER_HOST * size.hosts)
    streams = [arrivals(world.workloads, count, seed) for seed in range(size.counted)]

    def tried(policy: SituationPolicy, hosts: int) -> tuple[float, float]:
        runs = [fill(world, hosts, events, policy, seed) for seed, events in enumerate(streams)]
        share = float(np.mean([below(one.ratios(world), SLO) for one in runs]))
        return share, float(np.mean([one.opened for one in runs]))

    found: dict[str, Row] = {}
    for name, policy in policies.items():
        fewest, most = -(-count // world.seats), count
        share, opened = tried(policy, most)
        if share > 100 * ALLOWED:
            found[name] = {"hosts": None, "below_slo_percent": share}
            continue
        fewest -= 1  # not known to be enough
        while most - fewest > max(1, count // 100):
            middle = (most + fewest) // 2
            there = tried(policy, middle)
            if there[0] <= 100 * ALLOWED:
                most, (share, opened) = middle, there
            else:
                fewest = middle
        found[name] = {"hosts": opened, "below_slo_percent": share}
    least = [optimum.fewest_hosts(world, _wanted(events), SLO, ALLOWED) for events in streams]
    if all(one is not None for one in least):
        found[BEST] = {"hosts": float(np.mean([one for one in least if one is not None]))}
    return found


def _wanted(events: Sequence[Event]) -> dict[str, int]:
    return counts([(event.workload,) for event in events])
