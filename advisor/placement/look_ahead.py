"""Where few places are left: what each is worth to those who usually come to this cloud, and so is kept for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from advisor.domain import Instance
from advisor.placement.host_classes import HostClasses, PlacementQuestion, best_options, host_classes, predict_classes
from advisor.prediction.cache import PredictionCache
from advisor.scheduling.newcomer import rows_by_host
from advisor.scheduling.seat_prices import prices
from models.arrays import Floats, Ints

MOST_CLASSES = 12  # of arrivals: the most frequent ones stand for all
KNOWN_PART = 0.5  # of all instances, whose workload must have been measured
MOST_HOSTS = 500  # with a place: of more, predictions for all classes would take too long, and not be remembered
LAST_PLACES = 0.25  # of what is left on a host, that the new VM must take at least for its place to be one of few
SCARCE = 0.5  # of the cloud's room, that must be taken
TRUST = 0.7  # of a price: what the future needs is known less well than what the new VM does now
REFUSED = -1.0  # the score where a limit would be violated


def look_ahead_from(taken: float, parts: Floats) -> bool:
    """Whether places are few: in a cloud of which the part `taken` is, where the new VM would take these `parts`
    (H,) of what is left on each host."""
    return taken >= SCARCE and float(np.median(parts)) >= LAST_PLACES


def kept_for_others(scores: Floats, places: Floats, number: Floats, taken: float, parts: Floats) -> Floats:
    """What of the score of each of G kinds of hosts is kept for others, (G,).

    `scores` (G, K) is how well each of K classes of arrivals would do there, `places` (G,) how many such hosts there
    are, `number` (K,) how many of each class are there, and `parts` (G,) as above.

    Those who come are taken to be like those who are there. How many come is not known: of the hosts that have a place
    the part taken**2 is expected to be needed, for a cloud that is nearly full more often becomes full. Where a host
    has more places than one, the new VM takes only a part of what it has.
    """
    expected = taken**2 * places.sum() * number / number.sum()
    return np.asarray(TRUST * prices(scores, places, expected) * parts)


def looks_ahead(question: PlacementQuestion, hosts: Ints) -> bool:
    """Whether places on these hosts, (H,), are few, and it is known how those who come slow each other.

    Never for an instance that runs already: where it leaves, it frees a place.
    """
    snapshot, request = question.snapshot, question.request
    if request.objective == "pack" or not 2 <= len(hosts) <= MOST_HOSTS or snapshot.where(request.instance.id):
        return False
    if not look_ahead_from(_taken(question), _part_taken(question, hosts)):
        return False
    rows = rows_by_host(snapshot, hosts[:1], request.instance, question.table, question.row)
    return bool(question.table.profiled(rows)[0]) and len(_arrivals(question)) > 1


def reserved(question: PlacementQuestion, classes: HostClasses, remembered: PredictionCache) -> Floats:
    """What of each class's score is kept for others, (G,): the price of the place that the new VM would take."""
    arrivals = _arrivals(question)
    return kept_for_others(
        np.stack([_scores(question, classes.hosts, arrival, remembered) for arrival, _ in arrivals], axis=1),
        np.bincount(classes.of, minlength=len(classes)).astype(np.float64),
        np.array([count for _, count in arrivals], dtype=np.float64),
        _taken(question),
        _part_taken(question, classes.hosts),
    )


def _scores(question: PlacementQuestion, hosts: Ints, instance: Instance, remembered: PredictionCache) -> Floats:
    """The score that an answer would give each of these hosts for another instance, (G,)."""
    snapshot = question.snapshot
    request = replace(question.request, instance=instance, profile=None)
    other = PlacementQuestion(snapshot, request, question.predictor, snapshot.scenes.table, None)
    classes = host_classes(other, hosts)
    _, best = best_options(other, classes, predict_classes(other, classes, remembered))
    score = np.where(best.breaks_new_vm | best.breaks_neighbour, REFUSED, best.score)
    return np.asarray(np.maximum(score, REFUSED)[classes.of])


def _arrivals(question: PlacementQuestion) -> tuple[tuple[Instance, int], ...]:
    """One instance of each of the most frequent workloads, and how many there are; none where too few are known.

    They have no limits, and are pinned as the new VM is, for they compete for its place.
    """
    return question.once("arrivals", lambda: _of_residents(question))


def _of_residents(question: PlacementQuestion) -> tuple[tuple[Instance, int], ...]:
    snapshot, pinning = question.snapshot, question.request.instance.settings.pinning
    scenes = snapshot.scenes
    number = np.bincount(scenes.profile[scenes.present], minlength=len(scenes.table.names))
    rows = np.flatnonzero(number)
    known = rows[scenes.table.profiled(rows)]
    if number[known].sum() < KNOWN_PART * number.sum():
        return ()
    by_name: Counter[str] = Counter()
    for row in known.tolist():
        by_name[scenes.table.names[row]] += int(number[row])
    arrivals: list[tuple[Instance, int]] = []
    for name, count in sorted(by_name.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST_CLASSES]:
        row = next(row for row in known.tolist() if scenes.table.names[row] == name)
        host, slot = (int(at[0]) for at in np.nonzero((scenes.profile == row) & scenes.present))
        like = snapshot.residents[host][slot]
        settings = replace(like.settings, pinning=pinning)
        arrival = Instance(
            f"to-come-{len(arrivals)}", like.vcpus, workload=like.workload, load=like.load, settings=settings
        )
        arrivals.append((arrival, count))
    return tuple(arrivals)


def _taken(question: PlacementQuestion) -> float:
    """The part of the cloud's room that is taken, of vCPUs or of memory, whatever is scarcer."""
    snapshot = question.snapshot
    parts = [0.0]
    for used, room in ((snapshot.used_vcpus, snapshot.room_vcpus), (snapshot.used_memory_mb, snapshot.room_memory_mb)):
        known = snapshot.enabled & np.isfinite(room)
        if room[known].sum() > 0:
            parts.append(float(used[known].sum() / room[known].sum()))
    return min(max(parts), 1.0)


def _part_taken(question: PlacementQuestion, hosts: Ints) -> Floats:
    """Which part of what is left on each of these hosts, (H,), the new VM takes."""
    snapshot, new_vm = question.snapshot, question.request.instance
    part = np.zeros(len(hosts))
    for size, used, room in (
        (float(new_vm.vcpus), snapshot.used_vcpus, snapshot.room_vcpus),
        (new_vm.ordinary_memory_mb, snapshot.used_memory_mb, snapshot.room_memory_mb),
    ):
        left = np.maximum(room[hosts] - used[hosts], size)
        part = np.maximum(part, np.divide(size, left, out=np.zeros(len(hosts)), where=np.isfinite(left) & (left > 0)))
    return np.asarray(np.minimum(part, 1.0))
