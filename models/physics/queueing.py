"""Closed-form waiting times: processor sharing, FCFS, CPU caps and full queues; arrays in and out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.arrays import Floats

MOST_BUSY = 0.95  # of a server as a queue sees it: no queue is taken to be longer than twenty, however overloaded


class TimeMoments(NamedTuple):
    """Mean and variance of a time, in one unit and its square."""

    mean: Floats
    variance: Floats

    def times(self, factor: Floats) -> TimeMoments:
        """The same time in a unit `factor` times smaller."""
        return TimeMoments(self.mean * factor, self.variance * factor**2)

    def plus(self, other: TimeMoments) -> TimeMoments:
        """The sum of two independent times."""
        return TimeMoments(self.mean + other.mean, self.variance + other.variance)

    def mixed(self, other: TimeMoments, chance: Floats) -> TimeMoments:
        """This one in some periods and, with probability `chance`, the other: the mean of all, the variance within one.

        Periods are long against what passes through them, and jitter compares neighbours (RFC 3550, section 6.4.1).
        """
        return TimeMoments(
            (1 - chance) * self.mean + chance * other.mean, (1 - chance) * self.variance + chance * other.variance
        )


def processor_sharing(busy: Floats, rate: Floats, servers: Floats) -> TimeMoments:
    """Sojourn of one unit of work where `servers` servers give `rate` (0-1) each and `busy` work per server arrives.

    One server: 1/(rate - busy), the mean of an M/G/1 whatever its services are (Kleinrock, Queueing Systems II, 4.4),
    with the variance of M/M/1 processor sharing (Coffman, Muntz and Trotter, JACM 17, 1970). With several servers the
    wait is divided among them, which is exact in heavy traffic (Koellerstroem, J. Appl. Prob. 11, 1974).
    """
    load = np.minimum(busy / rate, MOST_BUSY)
    mean = (1 + load / (1 - load) / servers) / rate
    return TimeMoments(mean, mean**2 * (2 + load) / (2 - load))


def first_come_first_served(busy: Floats, servers: Floats) -> TimeMoments:
    """Sojourn of one unit of work among exponential ones in a queue whose servers are busy a share `busy` of the time.

    Pollaczek and Khinchine: W = λE[S²] / 2(1 - ρ) and E[W²] = 2W² + λE[S³] / 3(1 - ρ). Several servers as in
    `processor_sharing`.
    """
    load = np.minimum(busy, MOST_BUSY)
    wait = load / (1 - load)
    return TimeMoments(1 + wait / servers, (wait**2 + 2 * wait) / servers**2 + 1)


def among_packets(busy: Floats, others: Floats) -> TimeMoments:
    """Sojourn of one packet of a sender with a clock of its own in a queue that is busy a share `busy` of the time.

    Packets are alike and do not wait for their own sender, so that of the work in Pollaczek and Khinchine's formula
    only the `others'` arrives at random; exact without others, and where the sender's own share is small.
    """
    load = np.minimum(busy, MOST_BUSY)
    random = np.minimum(others, load)
    wait = random / (2 * (1 - load))
    return TimeMoments(1 + wait, wait**2 + random / (3 * (1 - load)))


def worst_cap_stall(share: Floats, period: Floats) -> Floats:
    """The longest stall under a cap: P - Q, with the budget Q = share of the period P; any unit.

    Source: sched-bwc.rst of Linux, credit2.c of Xen.
    """
    return (1 - np.clip(share, 0.0, 1.0)) * period


def cap_stall(share: Floats, period: Floats) -> TimeMoments:
    """Wait of work that arrives at any moment of periods whose last P - Q are a stall: mean (P - Q)² / 2P.

    It meets the stall with probability (P - Q)/P, and then any part of it, evenly: E[W²] = (P - Q)³ / 3P.
    """
    stall = worst_cap_stall(share, period)
    mean = stall**2 / (2 * period)
    return TimeMoments(mean, stall**3 / (3 * period) - mean**2)


def budget_runs_out(share: Floats, busy: Floats, period: Floats, service: Floats) -> Floats:
    """Probability that the work of one period exceeds its budget: 1 from saturation on, 0 without a cap.

    Work of a period has mean dP and, arriving at random in exponential services s, variance 2dsP; beyond the budget
    cP lies at most exp(-(c - d)² P / 4ds) of a normal one (Chernoff's bound).
    """
    spare = np.maximum(np.clip(share, 0.0, 1.0) - busy, 0.0)
    depth = np.divide(spare**2 * period, 4 * busy * service, out=np.full(spare.shape, np.inf), where=busy > 0)
    chance = np.where(spare > 0, np.exp(-np.minimum(depth, 700.0)), 1.0)
    return np.where(share < 1, chance, 0.0)


def behind_backlog(backlog: Floats, rate: Floats) -> TimeMoments:
    """Delay of a first-in-first-out queue of `backlog` megabit that a class of `rate` Mbit/s empties: q/r, in seconds.

    Senders that fill it back off and fill it again (tc-htb(8), RFC 5681): its depth varies evenly between 0 and q.
    """
    delay = np.divide(backlog, rate, out=np.zeros(np.broadcast_shapes(backlog.shape, rate.shape)), where=rate > 0)
    return TimeMoments(delay, delay**2 / 12)
