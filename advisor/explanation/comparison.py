"""How certain a candidate is, and the first beside the second: the lead, and which instances decide it."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.domain import Reason, speed
from advisor.explanation.losses import CandidateArrays, ResourceLoss
from advisor.prediction.active import basis
from advisor.scheduling import scoring

# The uncertainty of a candidate: whose interval decides, its origin, and what would narrow it.

NARROW_LEARNED, NARROW_PRIOR = 0.02, 0.15  # widths that are not reported; the prior's is 0.1 without contention


def uncertainty(arrays: CandidateArrays, at: int, losses: Sequence[ResourceLoss]) -> tuple[Reason, ...]:
    """One sentence on the most affected of candidate `at`; () where it is alone or its interval is narrow."""
    involved = arrays.involved(at)
    slot = arrays.worst_off(at)
    band = arrays.prediction.throughput
    low, high = float(band.lower[at, slot]), float(band.upper[at, slot])
    unknown = bool(arrays.scenes.profile[at, slot] == 0)
    guessed = arrays.predictor.origin == "analytic"
    if len(involved) < 2 or high - low < (NARROW_PRIOR if guessed else NARROW_LEARNED):
        return ()
    name, interval = involved[slot].id, f"{100 * low:.0f}-{100 * high:.0f} % of its uncontended speed"
    antagonist = next((loss.antagonist for loss in losses if loss.victim == slot and loss.antagonist is not None), None)
    measure = _measure(arrays, at, slot, antagonist)
    if unknown:
        text = f"No profile describes what {name} runs, so its interval is wide ({interval}); one would narrow it."
    elif guessed:
        text = f"No learned model answers: the analytic model predicts {interval} for {name}{measure}."
    elif arrays.prediction.outside[at, slot]:
        text = f"Nothing like {name} here was measured, so the analytic model answers for it ({interval}){measure}."
    else:
        known = arrays.prediction.basis
        rests_on = "" if known is None else f": {basis(known, at, slot).sentence}"
        text = f"{name} is at {interval}{rests_on}{measure}."
    by = None if antagonist is None else involved[antagonist].id
    return (Reason("unknown", 0.0, text, by, kind="uncertainty", ratio=arrays.ratio(at, slot)),)


def _measure(arrays: CandidateArrays, at: int, slot: int, beside: int | None) -> str:
    """The pair of workloads whose measurement would narrow the interval, where both are named."""
    involved = arrays.involved(at)
    names = [involved[slot_number].workload for slot_number in (slot, beside) if slot_number is not None]
    if len(names) < 2 or not all(names):
        return ""
    return f"; measuring {names[0]} beside {names[1]} would narrow it"


def compare(arrays: CandidateArrays) -> Reason:
    """How the first of two or more candidates compares with the second."""
    scores = arrays.scores
    best, other = arrays.hosts[0].id, arrays.hosts[1].id
    gap = float(scores.score[0] - scores.score[1])
    tied = scoring.tied(_gap(arrays), *scores.half_width[:2].tolist())
    noticed = _noticed(arrays) if tied and arrays.objective != "pack" else ""
    if arrays.reserved and 0.0 < gap <= arrays.reserved[1] - arrays.reserved[0]:
        text = f"{best} comes before {other}: few places are left, and instances that usually arrive need the one on "
        text += f"{other} more, so its score is reduced by {arrays.reserved[1]:.3f}, that of {best} by "
        text += f"{arrays.reserved[0]:.3f}."
    elif noticed:
        text = f"{best} is ahead of {other}: {noticed}."
    elif tied:
        text = f"{best} and {other} are tied: the difference of what is expected ({_gap(arrays):+.3f}) lies inside the "
        text += f"uncertainty.{_left(arrays)}"
    elif arrays.objective == "pack" and scores.score[1] > 1:
        text = f"{best} is fuller than {other} by {gap:.3f} vCPUs per pCPU, and every limit is met on both."
    elif arrays.objective == "pack" and scores.score[0] > 1:
        text = f"Every limit is met on {best} and not on {other}, where the most affected is {_worst(arrays, 1)}."
    elif arrays.objective == "total":
        text = f"{best} is ahead of {other} by {gap:.3f} in the sum of the gains and losses of all instances there."
    else:
        text = f"{best} is ahead of {other} by {gap:.3f}: the most affected on {best} is {_worst(arrays, 0)}, "
        text += f"on {other} {_worst(arrays, 1)}."
    return Reason("comparison", 0.0, text, kind="comparison")


def _noticed(arrays: CandidateArrays) -> str:
    """Whose ratio differs visibly where scores are equal: a resident that is slow already, or the new VM's answers.

    A clause, empty where nothing differs.
    """
    best, other = (arrays.hosts[at].id for at in (0, 1))
    lowest = [min(arrays.involved(at), key=lambda slot: arrays.ratio(at, slot)) for at in (0, 1)]
    here, there = (arrays.ratio(at, lowest[at]) for at in (0, 1))
    gap = float(arrays.scores.score[0] - arrays.scores.score[1])
    if not scoring.alike(here, there):
        if there > here:  # by its score, which counts what is lost, it is ahead all the same
            lowest_speeds = f"the most affected there runs at {speed(here)}, and at {100 * there:.0f} % on {other}"
            return f"its score is higher by {gap:.3f}, though {lowest_speeds}"
        victim = arrays.involved(1)[lowest[1]].id
        return f"{victim} on {other} runs at {speed(there)}, and every instance on {best} at {100 * here:.0f} % or more"
    if arrays.new_vm.service == "latency":
        here, there = (float(arrays.prediction.latency.expected[at, -1]) for at in (0, 1))
        overloaded = [arrays.overloaded(at, -1) for at in (0, 1)]
        if overloaded == [False, True]:
            return f"{arrays.new_vm.id} is overloaded on {other}, and waits × {here:.2f} on {best}"
        if not any(overloaded) and not scoring.alike(1 / here, 1 / there):
            waits = f"{arrays.new_vm.id} waits × {here:.2f} there, and × {there:.2f} on {other}"
            return f"its score is higher by {gap:.3f}, though {waits}" if here > there else waits
    return ""


def _left(arrays: CandidateArrays) -> str:
    """Why the first of two equal ones comes first: what would stay free, as a sentence after another one."""
    equal = abs(arrays.scores.score[0] - arrays.scores.score[1]) <= scoring.EQUAL
    if arrays.objective == "pack" or not equal or not arrays.headroom:
        return ""
    best, other = arrays.headroom[:2]
    if arrays.home == arrays.hosts[0].id:
        return f" {arrays.home} comes first because {arrays.new_vm.id} is there already."
    if best.one_numa_node != other.one_numa_node:
        return f" {arrays.new_vm.id} fits into one NUMA node of {arrays.hosts[0].id}, and of {arrays.hosts[1].id} not."
    (scarce, left), (scarce_there, left_there) = best.scarcest, other.scarcest
    if round(left, 2) == round(left_there, 2):
        return " The scarcest resource of both would have as much free."
    return (
        f" {arrays.hosts[0].id} comes first because more of its scarcest resource stays free: {_part(scarce, left)}, "
        f"on {arrays.hosts[1].id} {_part(scarce_there, left_there)}."
    )


def _part(resource: str, left: float) -> str:
    """What is left of the scarcest resource of a host."""
    whose = {"cpu": "of its CPUs at busy times", "nic": "of its network at busy times", "memory": "of its memory"}
    return f"{100 * left:.0f} % {whose[resource]}" if left >= 0 else f"{-100 * left:.0f} % too little {whose[resource]}"


def _gap(arrays: CandidateArrays) -> float:
    return float(arrays.scores.expected[0] - arrays.scores.expected[1])


def _worst(arrays: CandidateArrays, at: int) -> str:
    slot = arrays.worst_off(at)
    before = f" ({100 * arrays.before[at, slot]:.0f} % before)" if slot != arrays.scenes.slots - 1 else ""
    return f"{arrays.involved(at)[slot].id} with {100 * arrays.ratio(at, slot):.0f} %{before}"
