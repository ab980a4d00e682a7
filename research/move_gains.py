"""Whether moves that a rebalance accepts are good for their instances, on simulated clusters whose demand is known.

    python -m research.move_gains [--seeds 8] [--busy 2.0] [--doubt 0.0] [--moves 16]

Each cluster is one of `research.benchmarks.proxlb`. The advisor is told the mean demand of each VM, off by `--doubt` of
itself with the doubt told, too. Of all moves that sizes allow, half of the drawn ones are predicted to gain more than
`move_gain`. The event simulator says what each of them really gains: the same formula, with the share of the CPU time
that an instance gets, and the part of the time in which it gets less than 95 %. Several rules say which of the moves
they would make.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import Band, Inventory
from advisor.planning.assignment import move_value, neighborhoods
from advisor.planning.assignment.goal import Goal
from advisor.planning.assignment.neighborhoods import HostPair
from advisor.planning.assignment.packing_problem import build_problem
from advisor.planning.assignment.pattern_evaluator import Pattern, PatternEvaluator
from advisor.planning.assignment.search_state import SearchState
from advisor.scheduling.scoring import SHORT_COUNTS, harm
from models.physics.prior import PriorPredictor
from research.benchmarks.proxlb.cluster import MOST_CPUS, SimulatedCluster, made_up

GOAL = Goal("rebalance")
BUSY_HOST = 0.8  # of a host's CPUs in the mean: above it, the rule of thumb moves somebody off
SURE = 1.96  # standard deviations of a 95 % interval


@dataclass(frozen=True, slots=True)
class DrawnMove:
    """A move: its gain as predicted, `old` by the rule before decision 118, CPUs wanted in the mean of both hosts
    before and after as parts of theirs, (2, 2), and what it really gains."""

    gain: Band
    old: Band
    wanted: tuple[tuple[float, float], tuple[float, float]]
    true_gain: float


RULES: Mapping[str, Callable[[DrawnMove], bool]] = {
    "all that were drawn": lambda _: True,
    "source over 80 % of its CPUs, and over the target": lambda one: (
        one.wanted[0][0] > BUSY_HOST and one.wanted[0][1] < one.wanted[0][0]
    ),
    "CPUs of both hosts nearer to each other": lambda one: (
        abs(one.wanted[1][0] - one.wanted[1][1]) < abs(one.wanted[0][0] - one.wanted[0][1])
    ),
    "expected gain alone": lambda one: one.gain.expected > GOAL.move_gain,
    "before: gain of the worst-off, two independent states, 0.05": lambda one: (
        one.old.expected > 0.05 and one.old.lower > 0
    ),
    "now: the same edge before and after": lambda one: move_value.is_worth_it(one.gain, GOAL),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of rules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--busy", type=float, default=2.0, help="what multiplies the demand of the clusters (2.0)")
    parser.add_argument("--doubt", type=float, default=0.0, help="standard deviation of what is told, as a part (0.0)")
    parser.add_argument("--moves", type=int, default=16, help="of each cluster (16)")
    options = parser.parse_args(arguments)
    drawn = [
        one
        for seed in range(1, options.seeds + 1)
        for one in draw_moves(SimulatedCluster.of(made_up(seed, options.busy), seed), options.doubt, options.moves)
    ]
    sys.stdout.write(table(drawn))
    return 0


def draw_moves(cluster: SimulatedCluster, doubt: float, count: int) -> list[DrawnMove]:
    """At most `count` moves of a cluster, half of them predicted to gain more than `move_gain` where there are so many.

    `doubt` is the standard deviation of what is told of each mean, as a part of it.
    """
    rng = np.random.default_rng(cluster.seed)
    told = replace(cluster, inventory=doubted(cluster.inventory, doubt, rng)).snapshot()
    problem = build_problem(told, GOAL, math.inf)
    state = SearchState.of(PatternEvaluator.of(problem, PriorPredictor()), GOAL.objective)
    changes = [sides for host in range(problem.hosts) for _, sides in neighborhoods.moves_off(state, host)]
    state.evaluator.evaluate(side for sides in changes for side in sides)
    promising = [_predicted(state, sides)[0].expected > GOAL.move_gain for sides in changes]
    chosen: list[int] = []
    for wanted in (True, False):
        some = [at for at, found in enumerate(promising) if found == wanted]
        chosen += rng.permutation(some).astype(int).tolist()[: count // 2]
    return [_judged(cluster, state, changes[at]) for at in chosen]


def doubted(inventory: Inventory, doubt: float, rng: np.random.Generator) -> Inventory:
    """The inventory with every mean off by a lognormal factor of this standard deviation on the log scale."""
    if doubt <= 0:
        return inventory
    told = []
    for one in inventory.instances:
        known = one.demand["cpu"]
        mean = min(known.mean * math.exp(doubt * rng.normal() - doubt**2 / 2), MOST_CPUS * one.vcpus)
        told.append(replace(one, demand={"cpu": replace(known, mean=mean, doubt=doubt * mean)}))
    return replace(inventory, instances=tuple(told))


def table(drawn: Sequence[DrawnMove]) -> str:
    """By rule: how many moves it makes, how many of them really gain, with a 95 % interval (Wilson), the mean and the
    least of what they gain, and which part of all that could be gained it leaves."""
    possible = sum(max(one.true_gain, 0.0) for one in drawn)
    lines = [
        "| rule | makes | of them gain, % | mean gain | least gain | left undone, % |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for name, makes in RULES.items():
        gains = np.array([one.true_gain for one in drawn if makes(one)])
        if not len(gains):
            lines.append(f"| {name} | 0 of {len(drawn)} | | | | 100 |\n")
            continue
        low, high = wilson(int((gains > 0).sum()), len(gains))
        left = 100 * (1 - np.maximum(gains, 0).sum() / possible) if possible else 0.0
        share = f"{100 * np.mean(gains > 0):.0f} [{100 * low:.0f}, {100 * high:.0f}]"
        cells = (
            name,
            f"{len(gains)} of {len(drawn)}",
            share,
            f"{gains.mean():.3f}",
            f"{gains.min():.3f}",
            f"{left:.0f}",
        )
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, JASA 22, 1927)."""
    share, square = successes / trials, SURE**2
    middle = share + square / (2 * trials)
    half = SURE * math.sqrt(share * (1 - share) / trials + square / (4 * trials**2))
    return (middle - half) / (1 + square / trials), (middle + half) / (1 + square / trials)


def _predicted(state: SearchState, sides: HostPair) -> tuple[Band, list[Pattern], list[Pattern]]:
    before = [state.pattern(host) for host, _ in sides]
    after = [state.evaluator.at(*side) for side in sides]
    return move_value.gain_between(before, after), before, after


def _judged(cluster: SimulatedCluster, state: SearchState, sides: HostPair) -> DrawnMove:
    gain, before, after = _predicted(state, sides)
    hosts = [state.problem.snapshot.hosts[host] for host, _ in sides]
    (kind,) = (Counter(state.movers[sides[0][0]]) - Counter(sides[0][1])).elements()
    moved = next(name for name in state.problem.ids_of_kind[kind] if cluster.places[name] == hosts[0].id)
    then = cluster.after({**cluster.places, moved: hosts[1].id})
    names = [host.id for host in hosts]
    wanted = [[_wanted(one, host.id) / host.pcpus for host in hosts] for one in (cluster, then)]
    return DrawnMove(
        gain,
        _by_two_states(before, after),
        ((wanted[0][0], wanted[0][1]), (wanted[1][0], wanted[1][1])),
        _true_harm(cluster, names) - _true_harm(then, names),
    )


def _wanted(cluster: SimulatedCluster, host: str) -> float:
    return sum(one.demand["cpu"].mean for one in cluster.inventory.instances if one.host == host)


def _true_harm(cluster: SimulatedCluster, hosts: Sequence[str]) -> float:
    simulated = cluster.simulated()
    losses = [
        (1 - SHORT_COUNTS) * (1 - one.share) + SHORT_COUNTS * one.short_95
        for host in hosts
        if host in simulated
        for one in simulated[host].outcome.instances.values()
    ]
    return harm(max(losses, default=0.0), sum(losses))


def _by_two_states(before: Sequence[Pattern], after: Sequence[Pattern]) -> Band:
    """The gain in T/B of the worst-off of those that change by more than 0.01, or of one that is relieved, whichever is
    surer, with the doubt before and after taken as independent."""
    below = [{entry for pattern in patterns for entry in pattern.below} for patterns in (before, after)]
    pairs = list(zip(_ratios(before), _ratios(after), strict=True))
    changed = [(was, now) for was, now in pairs if abs(now[1] - was[1]) > move_value.NOTICEABLE_CHANGE]
    if not changed:
        return Band(0.0, 0.0, 0.0)
    bands = [_difference(*(min((one[at] for one in changed), key=lambda one: one[1]) for at in (0, 1)))]
    if sum(len(pattern.below) for pattern in after) < sum(len(pattern.below) for pattern in before):
        bands += [_difference(was, now) for was, now in changed if was[:2] in below[0] and now[:2] not in below[1]]
    return max(bands, key=lambda band: (band.lower, band.expected))


def _ratios(patterns: Sequence[Pattern]) -> list[tuple[int, float, float]]:
    """Kind, T/B and half its interval of everybody, by kind."""
    return sorted(
        (kind, ratio, (loss[move_value.WORSE] - loss[move_value.EXPECTED]) / (1 - SHORT_COUNTS))
        for pattern in patterns
        for kind, ratio, loss in zip(pattern.kinds, pattern.ratios, pattern.losses, strict=True)
    )


def _difference(was: tuple[int, float, float], now: tuple[int, float, float]) -> Band:
    gain, half = now[1] - was[1], math.hypot(was[2], now[2])
    return Band(gain, gain - half, gain + half)


if __name__ == "__main__":
    sys.exit(main())
