"""What came of the policies of a replay in figures, over all clouds and seeds, and in words that claim no more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from advisor.domain import RatioSpread, Repeat, Replayed
from advisor.replay.evaluation import BIN, Judged
from advisor.replay.simulation import Ran
from models.arrays import Ints

QUANTILES = (0.0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
BOUND = "lower bound"
ADVISED = "cotenant"


def replayed(runs: Sequence[Ran], seeds: Sequence[int]) -> Replayed:
    """What one policy made of the trace under every seed, its clouds added up; the first seed's over time."""
    merged = [_merged([one for one in runs if one.seed == seed]) for seed in seeds]
    first = merged[0]
    hosts = tuple(first.hosts_used.tolist())
    repeats = tuple(_repeat(one, one.judged) for one in merged if one.judged is not None)
    if first.judged is None:
        return Replayed(first.policy, hosts, float(first.hosts_used.mean()))
    judged, sums = first.judged, repeats[0]
    return Replayed(
        policy=first.policy,
        hosts_used=hosts,
        hosts_mean=sums.hosts_mean,
        below=tuple(judged.below.tolist()),
        worst_over_time=tuple(np.where(np.isinf(judged.worst), 1.0, np.round(judged.worst, 4)).tolist()),
        instance_moments=judged.count,
        violations=int(judged.below.sum()),
        violation_share=sums.violation_share,
        worst=sums.worst,
        mean=sums.mean,
        ratios=RatioSpread(QUANTILES, _quantiles(judged.expected), _quantiles(judged.lower)) if judged.count else None,
        moves=first.moves,
        refused=first.refused,
        decisions=first.decisions,
        decision_s=first.decision_s,
        longest_decision_s=first.longest_s,
        repeats=repeats,
    )


def _merged(shards: Sequence[Ran]) -> Ran:
    judged = [one.judged for one in shards if one.judged is not None]
    return Ran(
        policy=shards[0].policy,
        seed=shards[0].seed,
        shard=0,
        hosts_used=np.sum([one.hosts_used for one in shards], axis=0),
        judged=reduce(Judged.plus, judged) if judged else None,
        moves=sum(one.moves for one in shards),
        refused=sum(one.refused for one in shards),
        decisions=sum(one.decisions for one in shards),
        decision_s=sum(one.decision_s for one in shards),
        longest_s=max(one.longest_s for one in shards),
    )


def _repeat(run: Ran, judged: Judged) -> Repeat:
    count = max(judged.count, 1)
    return Repeat(
        seed=run.seed,
        hosts_mean=float(run.hosts_used.mean()),
        violation_share=float(judged.below.sum() / count),
        worst=float(judged.worst.min()) if judged.count else 1.0,
        mean=judged.total / count if judged.count else 1.0,
        moves=run.moves,
        refused=run.refused,
    )


def _quantiles(counts: Ints) -> tuple[float, ...]:
    """The ratio at each of QUANTILES: the lower edge of the bin that it lies in."""
    summed = np.cumsum(counts)
    wanted = np.ceil(np.array(QUANTILES) * summed[-1]).clip(1)
    return tuple(np.round(np.searchsorted(summed, wanted) * BIN, 4).tolist())


def conclusion(policies: Sequence[Replayed], keep_ratio: float, *, same_judge: bool) -> str:
    """What can be said of the advisor beside the others: sentences with the figures, and what they rest on."""
    advised = next((one for one in policies if one.policy == ADVISED), None)
    bound = next((one for one in policies if one.policy == BOUND), None)
    others = [one for one in policies if one.policy not in {ADVISED, BOUND}]
    if advised is None or not others:
        said = [f"{_said(one, keep_ratio)}." for one in policies]
    else:
        said = [f"{_said(advised, keep_ratio)}."]
        said += [f"Against {one.policy}: {_against(advised, one)}." for one in others]
        if bound is not None:
            least = f"{bound.hosts_mean:.2f} hosts on average"
            said.append(f"No policy can keep everybody at {keep_ratio:g} with fewer than {least}.")
    seeds = {len(one.repeats) for one in policies if one.repeats}
    if seeds and max(seeds) > 1:
        said.append(f"These are the figures of the first of {max(seeds)} seeds; the table of seeds has the others.")
    else:
        said.append("This is one seed: what differs by little may differ by chance.")
    rests = ", by the same model that advised" if same_judge else ", by another model than the one that advised"
    if advised is None:
        rests = ""
    said.append(
        f"All ratios are predicted{rests}, from the trace's demand; nothing was measured on hosts, and another trace "
        "may come out otherwise."
    )
    return " ".join(said)


def _said(one: Replayed, keep_ratio: float) -> str:
    if one.mean is None:
        return f"The {one.policy} is {one.hosts_mean:.2f} hosts on average"
    return (
        f"{one.policy} used {one.hosts_mean:.2f} hosts on average and left {_percent(one.violation_share)} of "
        f"instance-moments below {keep_ratio:g} of their speed alone, {one.worst or 0.0:.2f} at worst"
    )


def _against(mine: Replayed, other: Replayed) -> str:
    hosts = mine.hosts_mean - other.hosts_mean
    if abs(hosts) < 0.005:
        fewer = f"{'about ' if hosts else ''}as many hosts"
    else:
        fewer = f"{abs(hosts):.2f} {'fewer' if hosts < 0 else 'more'} hosts"
    below, theirs = mine.violation_share, other.violation_share
    if _percent(below) == _percent(theirs):
        compared = f"{'' if below == theirs else 'about '}as many violations ({_percent(theirs)})"
    else:
        compared = f"{'fewer' if below < theirs else 'more'} violations ({_percent(below)}, not {_percent(theirs)})"
    refused = mine.refused - other.refused
    turned = f", {abs(refused)} {'fewer' if refused < 0 else 'more'} refused" if refused else ""
    return f"{fewer} and {compared}{turned}"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"
