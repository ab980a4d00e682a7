"""Of many hosts the few that are worth predicting in full: those that come first by a cheap estimate."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from advisor.placement.headroom import HostHeadroom, headroom_of, new_vm_sums, sums_with, sums_without
from advisor.placement.host_classes import PlacementQuestion
from advisor.scheduling import scoring
from advisor.scheduling.newcomer import latency_limits_of, limits_of, short_limits_of
from models.arrays import Bools, Floats, Ints
from models.physics.cpu_speed import clock, clock_lost, core_lost, cores, shares_a_core
from models.physics.peak_demand import shares
from models.prediction import correction_of

SURELY_FINE = 0.995  # who gets about so much of its demand, on a host where all are treated alike, keeps a limit
HIGHEST_LIMIT = 0.97  # up to this one
MOST_KINDS = 16  # of hosts, each of which is searched by itself


def may_screen(question: PlacementQuestion) -> bool:
    """Whether the estimate says anything of the answer: of the analytic model's, or of one that corrects it within
    known bounds, in which the most harmed decides or their sum."""
    return correction_of(question.predictor) is not None and question.request.objective != "pack"


@dataclass(frozen=True, slots=True)
class Promise:
    """What an estimate says of H hosts, (H,) each: `order` are their places, the most promising one first; `needed` are
    those to predict whatever the estimate says, where a limit may be violated, for an answer names all of them, or
    results were posted of an instance; `kind`
    numbers the kinds of hosts of which a model may know something of its own. `score` is estimated, from `signals`
    (H, K), among others."""

    order: Ints
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


def by_promise(question: PlacementQuestion, hosts: Ints) -> Promise:
    """The hosts at these positions (H,) in the order of an answer, with estimates for scores."""
    score, after = _estimated(question, hosts)
    headroom = headroom_of(question, hosts)
    lowest = scoring.grouped(after, scoring.NOTICED)
    fits = headroom.one_node.astype(np.float64)
    order = scoring.order(scoring.grouped(score, scoring.EQUAL), hosts, lowest, fits, headroom.least)
    scenes, cpus = question.snapshot.scenes, question.snapshot.rooms[hosts, 0]
    residents = scenes.present[hosts].sum(axis=1)
    runners = np.where(scenes.present[hosts], scenes.vcpus[hosts], 0.0).sum(axis=1)
    signals = np.stack([after, headroom.cpu, headroom.before[0], residents / cpus, runners / cpus], axis=1)
    needed = _limits_in_question(question, hosts, after, headroom) | _posted(question, hosts)
    return Promise(order, needed, _kinds(question, hosts), score, signals)


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


def _estimated(question: PlacementQuestion, hosts: Ints) -> tuple[Floats, Floats]:
    """About each host's score, and about the relative throughput of all there with the new VM; both (H,)."""
    snapshot = question.snapshot
    count = snapshot.scenes.present[hosts].sum(axis=1)
    after = _throughput(question, hosts, sums_with(question, hosts))
    before, less = np.ones(len(hosts)), np.flatnonzero(after < 1)
    if len(less):
        before[less] = _throughput(question, hosts[less], sums_without(question, hosts[less]))
    if question.request.objective == "total":
        return after + count * (after - before), after
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
    highest = np.nan_to_num(limits_of(snapshot, hosts, new_vm, question.slots)).max(axis=1)
    waits, shorts = (
        ~np.isnan(limits(snapshot, hosts, new_vm, question.slots)).all(axis=1)
        for limits in (latency_limits_of, short_limits_of)
    )
    least = correction_of(question.predictor)
    highest = highest / np.exp(0.0 if least is None else least[0])  # below it even where a model takes off the most
    alike = ~snapshot.restrained[hosts] & (new_vm.settings == type(new_vm.settings)())
    fine = alike & (after >= SURELY_FINE) & (highest <= HIGHEST_LIMIT) & (headroom.nic >= 0)
    return np.asarray(waits | shorts | ((highest > 0) & ~fine))
