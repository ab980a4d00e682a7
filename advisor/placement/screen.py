"""Which of many hosts are worth predicting in full, and which of equal ones to prefer: by room, and by which instances
come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from advisor.domain import Candidate, Headroom, Instance, PlacementRequest
from advisor.placement.candidates import RankedHost, candidates
from advisor.placement.host_classes import (
    HostClasses,
    PlacementQuestion,
    base_with,
    best_options,
    host_classes,
    keys,
    predict_classes,
)
from advisor.prediction.active import PredictionCache, QuestionContext
from advisor.scheduling import pinning, scoring
from advisor.scheduling.pinning import (
    latency_limits_of,
    limits_of,
    prices,
    profile_row,
    rows_by_host,
    short_limits_of,
    without_new_vm,
)
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats, Ints
from models.physics.cpu_speed import clock, clock_lost, core_lost, cores, shares_a_core
from models.physics.demands import demands
from models.physics.peak_demand import demand_sums, p95, shares
from models.prediction import correction_of

# What would be left on hosts in their busy moments; it decides between hosts that are equal in what was asked for.


_NEW_VM = "new_vm"  # of a question: what its new VM adds to the sums of hosts
_HEADROOM = "headroom"  # of a question: of the hosts that were estimated, with their positions in their order


@dataclass(frozen=True, slots=True)
class HostHeadroom:
    """Headroom of H hosts with the new VM, as in Headroom; (H,) arrays, `before` (3, H) of CPU, memory and NIC."""

    cpu: Floats
    memory: Floats
    nic: Floats
    one_node: Bools
    before: Floats

    @property
    def least(self) -> Floats:
        """The part that is left of the scarcest resource, (H,)."""
        return np.minimum(np.minimum(self.cpu, self.memory), self.nic)

    def of(self, at: int) -> Headroom:
        """That of one of the H hosts."""
        cpu, memory, nic = (float(part[at]) for part in (self.cpu, self.memory, self.nic))
        before = self.before[:, at].tolist()
        return Headroom(cpu, memory, nic, bool(self.one_node[at]), *before)

    def take(self, rows: Ints) -> HostHeadroom:
        """That of some of the H hosts."""
        return HostHeadroom(
            self.cpu[rows], self.memory[rows], self.nic[rows], self.one_node[rows], self.before[:, rows]
        )


def headroom_of(question: PlacementQuestion, hosts: Ints) -> HostHeadroom:
    """The headroom of hosts at these positions, (H,), at least one; looked up where it was found for all."""
    if question.once.knows(_HEADROOM):
        every, headroom = question.once(_HEADROOM, lambda: (hosts, _headroom(question, hosts, *_sums(question, hosts))))
        rows = np.searchsorted(every, hosts)
        if rows.max() < len(every) and (every[rows] == hosts).all():
            return headroom.take(rows)
    return _headroom(question, hosts, *_sums(question, hosts))


def _headroom(question: PlacementQuestion, hosts: Ints, without: Floats, together: Floats) -> HostHeadroom:
    snapshot, new_vm = question.snapshot, question.request.instance
    memory, needs_mb = snapshot.used_memory_mb[hosts], new_vm.ordinary_memory_mb
    for host, slot in snapshot.where(new_vm.id):  # it is asked about where it runs already
        memory[hosts == host] -= snapshot.residents[host][slot].ordinary_memory_mb
    rooms = (snapshot.rooms[hosts, 0], snapshot.room_memory_mb[hosts], snapshot.rooms[hosts, 1])

    def left(sums: Floats, memory: Floats) -> Floats:
        used = (p95(sums[:, 0]), memory, p95(sums[:, 1]))
        return np.stack([_left(part, room) for part, room in zip(used, rooms, strict=True)])

    cpu, memory_left, nic = left(together, memory + needs_mb)
    return HostHeadroom(
        cpu=cpu,
        memory=memory_left,
        nic=nic,
        before=left(without, memory),
        one_node=(new_vm.vcpus <= snapshot.node_cpus[hosts]) & (needs_mb <= snapshot.node_memory_mb[hosts]),
    )


def _sums(question: PlacementQuestion, hosts: Ints) -> tuple[Floats, Floats]:
    """What is asked of these hosts without the new VM and with it, as `demand_sums`; (H, 4, 16) both."""
    snapshot = question.snapshot
    sums = snapshot.demand_sums[hosts]
    for host, _ in snapshot.where(question.request.instance.id):  # it is asked about where it runs already
        alone = without_new_vm(snapshot, question.request, np.array([host]), question.table)
        sums[hosts == host] = demand_sums(alone, demands(alone))
    return sums, sums + new_vm_sums(question, hosts)


def new_vm_sums(question: PlacementQuestion, hosts: Ints) -> Floats:
    """What the new VM adds to the sums of hosts, by its demand on the first one; (1, 4, 16)."""
    return question.once(_NEW_VM, lambda: _of_new_vm(question, hosts[:1]))


def _new_vm_known(question: PlacementQuestion, host: Ints, remembered: PredictionCache) -> Floats:
    """The same, computed where it was not found for another question: it depends on less than a prediction does."""
    (key,) = keys(question, host, ())[1]
    known = remembered.sums.find(key)
    if known is None:
        known = _of_new_vm(question, host)
        remembered.sums.keep(key, known)
    return known


def _of_new_vm(question: PlacementQuestion, host: Ints) -> Floats:
    """What the new VM adds to the sums of hosts, by its demand on this one, (1,); (1, 4, 16)."""
    scenes = base_with(question, host)[1]
    alone = replace(scenes, present=np.arange(scenes.slots)[None] == scenes.slots - 1, own_cpus=np.zeros(len(scenes)))
    return demand_sums(alone, demands(alone))


def _left(used: Floats, room: Floats) -> Floats:
    known = np.isfinite(room) & (room > 0)
    return np.where(known, 1 - np.divide(used, room, out=np.zeros_like(used), where=known), 1.0)


# Where few places are left: what each is worth to those that usually come to this cloud, and so is kept for them.

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

    Those that come are taken to be like those that are there. How many come is not known: of the hosts that have a
    place the part taken**2 is expected to be needed, for a cloud that is nearly full more often becomes full. Where a
    host has more places than one, the new VM takes only a part of what it has.
    """
    expected = taken**2 * places.sum() * number / number.sum()
    return np.asarray(TRUST * prices(scores, places, expected) * parts)


def looks_ahead(question: PlacementQuestion, hosts: Ints) -> bool:
    """Whether places on these hosts, (H,), are few, and it is known how those that come slow each other.

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


# The instance that is asked about as it stands: on its own host, with the settings that it has there now.


def as_it_stands(
    snapshot: ClusterSnapshot, context: QuestionContext, request: PlacementRequest, found: tuple[Candidate, ...]
) -> Candidate | None:
    """What is predicted of the instance and its neighbours if nothing changes, tied with those of the answers `found`
    that are neither better nor worse beyond the uncertainty; None = it is on no host."""
    placed = snapshot.names.placed.get(request.instance.id)
    position = None if placed is None else snapshot.index(placed.host or "")
    if placed is None or position is None:
        return None
    resident = next(resident for resident in snapshot.residents[position] if resident.id == placed.id)
    same = PlacementRequest(resident, objective=request.objective, limit=1, explain=False, mitigate=False)
    table, row, _ = profile_row(snapshot, same)
    question = PlacementQuestion(snapshot, same, context.active.predictor, table, row)
    held = resident.settings.pinning
    ranked = RankedHost(
        position,
        "as asked" if held is not None and any(held.cpus) else pinning.FREE,
        score=0.0,
        expected=0.0,
        half_width=0.0,
        lowest=np.nan,
        speed=np.nan,
        headroom=headroom_of(question, np.array([position])).of(0),
    )
    (present,) = candidates(question, [ranked], context.active.remembered)
    better = partial(is_better, latency=resident.service == "latency")
    tied = (other.host for other in found if not better(other, present) and not better(present, other))
    return replace(present, tied_with=tuple(tied))


def is_better(one: Candidate, other: Candidate, *, latency: bool) -> bool:
    """Whether the first differs from the other beyond the uncertainty, or an instance there is visibly better off."""
    if one.score <= other.score:
        return False
    if round(one.expected - other.expected, 9) > np.hypot(one.half_width, other.half_width):
        return True
    gain = _lowest(one) - _lowest(other)
    if latency:
        gain = max(gain, 1 / one.new_vm.latency_ratio.expected - 1 / other.new_vm.latency_ratio.expected)
    return bool(gain > scoring.NOTICED)


def _lowest(candidate: Candidate) -> float:
    return min(effect.throughput_ratio.expected for effect in (candidate.new_vm, *candidate.neighbours))


SURELY_FINE = 0.995  # with so much of its demand delivered, on a host where all are treated alike, a limit holds
HIGHEST_LIMIT = 0.97  # up to this one
USUAL_HALF = 0.1  # of an interval of T/B, where it is estimated
MOST_KINDS = 16  # of hosts, each of which is searched by itself
MOST_NAMED = 256  # hosts that are predicted because a limit may be violated there, unless the question names hosts


def may_screen(question: PlacementQuestion) -> bool:
    """Whether the estimate says anything of the answer: of the analytic model's, or of one that corrects it within
    known bounds, in which the most harmed decides or their sum."""
    return correction_of(question.predictor) is not None and question.request.objective != "pack"


@dataclass(frozen=True, slots=True)
class Promise:
    """What an estimate says of H hosts, (H,) each: `order` are their places, the most promising one first; `doubtful`
    are those where a limit may be violated; `needed` are those to predict whatever the estimate says: where results
    were posted of an instance, and the doubtful ones where the answer names all that violate a limit. `kind`
    numbers the kinds of hosts of which a model may know something of its own. `score` is estimated, from `signals`
    (H, K), among others."""

    order: Ints
    doubtful: Bools
    needed: Bools
    kind: Ints
    score: Floats
    signals: Floats

    def further(self, predicted: Bools, scores: Floats, least_shown: float) -> Ints:
        """Places of hosts that were not `predicted` (H,) and may have a score of at least `least_shown`, the most
        promising first.

        A model's scores (P,) of those that were differ from the estimates by what the signals explain, as least
        squares find, and by at most as much more as on any host that was predicted; by more yet where few were, for
        what is left of those that were fitted is smaller than of others.
        """
        kinds = self.kind[:, None] == np.unique(self.kind[predicted])[None]
        columns = np.concatenate([kinds, self.signals], axis=1)
        off = scores - self.score[predicted]
        weights = np.linalg.lstsq(columns[predicted], off, rcond=None)[0]
        fitted = columns @ weights
        few = len(off) / max(len(off) - columns.shape[1], 1)
        margin = max(few * float((off - fitted[predicted]).max(initial=0.0)), 0.0)
        expected = np.where(predicted, -np.inf, self.score + fitted)
        by_score = np.argsort(-expected, kind="stable")
        return np.asarray(by_score[expected[by_score] + margin >= least_shown])


def by_promise(question: PlacementQuestion, hosts: Ints, remembered: PredictionCache) -> Promise:
    """The hosts at these positions (H,) in the order of an answer, with estimates for scores."""
    question.once(_NEW_VM, lambda: _new_vm_known(question, hosts[:1], remembered))
    without, together = _sums(question, hosts)
    score, after = _estimated(question, hosts, without, together)
    headroom = _headroom(question, hosts, without, together)
    question.once(_HEADROOM, lambda: (hosts, headroom))
    lowest = scoring.grouped(after, scoring.NOTICED)
    fits = headroom.one_node.astype(np.float64)
    order = scoring.order(scoring.grouped(score, scoring.EQUAL), hosts, lowest, fits, headroom.least)
    doubtful, needed = _limits_in_question(question, hosts, after, headroom), _posted(question, hosts)
    if question.request.hosts or doubtful.sum() <= MOST_NAMED:
        needed |= doubtful
    signals = _signals(question, hosts, after, headroom)
    return Promise(order, doubtful, needed, _kinds(question, hosts), score, signals)


def _signals(question: PlacementQuestion, hosts: Ints, after: Floats, headroom: HostHeadroom) -> Floats:
    """What may explain by how much a model corrects an estimate, (H, K); nothing does with the analytic one."""
    if question.predictor.origin == "analytic":
        return np.empty((len(hosts), 0))
    scenes, cpus = question.snapshot.scenes, question.snapshot.rooms[hosts, 0]
    residents = scenes.present[hosts].sum(axis=1)
    runners = np.where(scenes.present[hosts], scenes.vcpus[hosts], 0.0).sum(axis=1)
    return np.stack([after, headroom.cpu, headroom.before[0], residents / cpus, runners / cpus], axis=1)


def _posted(question: PlacementQuestion, hosts: Ints) -> Bools:
    """Where results were posted of an instance, (H,): they move predictions, and the estimate knows nothing of it."""
    if not question.snapshot.scenes.table.subjects:
        return np.zeros(len(hosts), dtype=bool)
    return np.asarray((question.snapshot.scenes.subject[hosts] != 0).any(axis=1))


def _kinds(question: PlacementQuestion, hosts: Ints) -> Ints:
    """Hosts that a learned model may tell apart by what they are, as numbers; all are of one kind to the analytic
    model, whose estimate looks at their clocks and cores already. Of very many kinds the rarest are one."""
    kind = np.zeros(len(hosts), dtype=np.int64)
    if question.predictor.origin == "analytic":
        return kind
    scenes = question.snapshot.scenes
    parts = (scenes.host_numbers, scenes.kind, scenes.disk_kind, scenes.disk_mb_s, scenes.mem_bw_mb_s)
    numbers = np.column_stack([np.asarray(part[hosts], dtype=np.float64) for part in parts])
    rows = np.ascontiguousarray(numbers).view(f"V{numbers.itemsize * numbers.shape[1]}").ravel().tolist()
    described = list(zip(rows, scenes.platform[hosts].tolist(), strict=True))
    common = [one for one, _ in Counter(described).most_common(MOST_KINDS)]
    number = {one: at + 1 for at, one in enumerate(common)}
    kind[:] = [number.get(one, 0) for one in described]
    return kind


def _estimated(question: PlacementQuestion, hosts: Ints, without: Floats, together: Floats) -> tuple[Floats, Floats]:
    """About each host's score, and about the relative throughput of all there with the new VM; both (H,)."""
    snapshot = question.snapshot
    count = snapshot.scenes.present[hosts].sum(axis=1)
    after = _throughput(question, hosts, together)
    before, less = np.ones(len(hosts)), np.flatnonzero(after < 1)
    if len(less):
        before[less] = _throughput(question, hosts[less], without[less])
    if question.request.objective == "total":
        return after + count * (after - before), after
    if question.request.objective == "limits":
        half, limits = np.full(len(hosts), USUAL_HALF), np.full(len(hosts), np.nan)
        own, of_resident = (scoring.chance_below(after, half, limits, was) for was in (1.0, before))
        return 1 - own - count * of_resident, after
    loss = 1 - after / before
    return 1 - scoring.harm(1 - after, 1 - after + count * loss), after


def _throughput(question: PlacementQuestion, hosts: Ints, sums: Floats) -> Floats:
    """The share of demand that is delivered, times the speed of the new VM's vCPUs relative to alone; (H,)."""
    scenes = question.snapshot.scenes
    room = question.snapshot.rooms[hosts]
    there, by_clock, busy = cores(scenes)[hosts], clock_lost(scenes)[hosts], sums[:, 0, 0]
    speed = 1 - core_lost(scenes)[hosts] * shares_a_core(busy, there)
    alone = new_vm_sums(question, hosts)[:, 0, 0]
    return np.asarray(shares(sums, room) * speed * clock(by_clock, busy, there) / clock(by_clock, alone, there))


def _limits_in_question(question: PlacementQuestion, hosts: Ints, after: Floats, headroom: HostHeadroom) -> Bools:
    snapshot, new_vm = question.snapshot, question.request.instance

    def greatest(limits: Callable[..., Floats], of_residents: Floats, own: float | None) -> Floats:
        """The greatest limit of any instance there, (H,), nan where none has one."""
        if np.isnan(of_residents).all():  # of most clouds
            return np.full(len(hosts), np.nan if own is None else own)
        return np.asarray(np.fmax.reduce(limits(snapshot, hosts, new_vm, question.slots), axis=1))

    highest = np.nan_to_num(greatest(limits_of, snapshot.min_ratio, new_vm.min_throughput_ratio))
    waits = ~np.isnan(greatest(latency_limits_of, snapshot.max_latency, new_vm.max_latency_ratio))
    shorts = ~np.isnan(greatest(short_limits_of, snapshot.max_short, new_vm.max_time_short))
    least = correction_of(question.predictor)
    highest = highest / np.exp(0.0 if least is None else least[0])  # below it even where a model takes off the most
    alike = ~snapshot.restrained[hosts] & (new_vm.settings == type(new_vm.settings)())
    fine = alike & (after >= SURELY_FINE) & (highest <= HIGHEST_LIMIT) & (headroom.nic >= 0)
    return np.asarray(waits | shorts | ((highest > 0) & ~fine))
