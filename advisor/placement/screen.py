"""Of many hosts the few that are worth predicting in full: those that come first by a cheap estimate."""

from __future__ import annotations

import numpy as np

from advisor.placement.headroom import HostHeadroom, headroom_of, newcomer_sums, sums_with, sums_without
from advisor.placement.host_classes import PlacementQuestion
from advisor.scheduling import scoring
from advisor.scheduling.newcomer import latency_limits_of, limits_of, short_limits_of
from models.arrays import Bools, Floats, Ints
from models.physics.clock import clock, clock_lost
from models.physics.hyperthreads import core_lost, cores, shares_a_core
from models.physics.peak_demand import shares

SURELY_FINE = 0.995  # who gets about so much of its demand, on a host where all are treated alike, keeps a limit
HIGHEST_LIMIT = 0.97  # up to this one


def may_screen(question: PlacementQuestion) -> bool:
    """Whether the estimate says anything of the answer: the prior's, in which the most harmed decides or their sum."""
    return question.predictor.origin == "prior" and question.request.objective != "pack"


def by_promise(question: PlacementQuestion, hosts: Ints) -> tuple[Ints, Bools]:
    """Places (H,) of the hosts at these positions, the most promising one first, and which of them have to be predicted
    whatever the estimate says, (H,): those where somebody's limit may be violated, for an answer names all of them.

    The order is that of an answer, with estimates for scores.
    """
    score, after = _estimated(question, hosts)
    headroom = headroom_of(question, hosts)
    lowest = scoring.grouped(after, scoring.NOTICED)
    fits = headroom.one_node.astype(np.float64)
    order = scoring.order(scoring.grouped(score, scoring.EQUAL), hosts, lowest, fits, headroom.least)
    return order, _limits_in_question(question, hosts, after, headroom)


def _estimated(question: PlacementQuestion, hosts: Ints) -> tuple[Floats, Floats]:
    """About each host's score, and about the relative throughput of all there with the newcomer; both (H,)."""
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
    """The share of demand that is delivered, times the speed of the newcomer's vCPUs relative to alone; (H,)."""
    scenes = question.snapshot.scenes
    room = question.snapshot.rooms[hosts]
    there, by_clock, busy = cores(scenes)[hosts], clock_lost(scenes)[hosts], sums[:, 0, 0]
    speed = 1 - core_lost(scenes)[hosts] * shares_a_core(busy, there)
    alone = newcomer_sums(question, hosts)[:, 0, 0]
    return np.asarray(shares(sums, room) * speed * clock(by_clock, busy, there) / clock(by_clock, alone, there))


def _limits_in_question(question: PlacementQuestion, hosts: Ints, after: Floats, headroom: HostHeadroom) -> Bools:
    snapshot, newcomer = question.snapshot, question.request.instance
    highest = np.nan_to_num(limits_of(snapshot, hosts, newcomer, question.slots)).max(axis=1)
    waits, shorts = (
        ~np.isnan(limits(snapshot, hosts, newcomer, question.slots)).all(axis=1)
        for limits in (latency_limits_of, short_limits_of)
    )
    alike = ~snapshot.restrained[hosts] & (newcomer.settings == type(newcomer.settings)())
    fine = alike & (after >= SURELY_FINE) & (highest <= HIGHEST_LIMIT) & (headroom.nic >= 0)
    return np.asarray(waits | shorts | ((highest > 0) & ~fine))
