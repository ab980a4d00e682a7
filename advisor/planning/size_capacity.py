"""How many more of a mix sizes alone would let in: by first fit, and at most by any packing; nothing is predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from advisor.domain import Instance
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats

MOST = 100_000  # of a mix; beyond it nobody plans instance by instance


def more_of(mix: Sequence[Instance], taken: frozenset[str]) -> Iterator[Instance]:
    """Instances of the mix in turn, again and again, under names that nobody in `taken` has."""
    for number in count(1):
        one = mix[(number - 1) % len(mix)]
        name = f"{one.id[:230]}.more-{number}"
        while name in taken:
            name += "-"
        yield replace(one, id=name, host=None)


def room(snapshot: ClusterSnapshot, hosts: frozenset[str] | None) -> Floats:
    """vCPUs, MB of memory and GB of disk that may still be promised on each host with the slack of rounding, 0 where
    nobody may go; (H, 3)."""
    left = np.stack(
        [
            with_slack(snapshot.room_vcpus) - snapshot.used_vcpus,
            with_slack(snapshot.room_memory_mb) - snapshot.used_memory_mb,
            with_slack(snapshot.room_disk_gb) - snapshot.used_disk_gb,
        ],
        axis=1,
    )
    open_to_all = snapshot.enabled & ~snapshot.exclusive
    named = np.array([hosts is None or host.id in hosts for host in snapshot.hosts], dtype=bool)
    return np.where((open_to_all & named)[:, None], np.maximum(left, 0.0), 0.0)


def first_fit(left: Floats, mix: Sequence[Instance]) -> int:
    """How many of the mix in turn find room on the first host that has it, before one finds none."""
    left = left.copy()
    at = [0] * len(mix)  # rooms only shrink, so the search of each begins where its last one ended
    for number in range(MOST):
        which = number % len(mix)
        needs = _needs(mix[which])
        while at[which] < len(left) and (left[at[which]] < needs).any():
            at[which] += 1
        if at[which] == len(left):
            return number
        left[at[which]] -= needs
    return MOST


def most(left: Floats, mix: Sequence[Instance]) -> int:
    """More than this cannot be: each kind must find room by itself, and all of them in the sum of rooms."""
    needs = np.array([_needs(one) for one in mix])
    alone = min(_alone(left, need) * len(mix) + which for which, need in enumerate(needs))
    whole, total = needs.sum(axis=0), left.sum(axis=0)
    rounds = np.divide(total, whole, out=np.full(3, np.inf), where=whole > 0).min()
    if min(rounds * len(mix), alone) >= MOST:
        return MOST
    done = int(rounds)
    rest = total - done * whole
    further = 0
    for need in needs:
        rest = rest - need
        if (rest < 0).any():
            break
        further += 1
    return min(done * len(mix) + further, alone)


def _alone(left: Floats, need: Floats) -> int:
    """How many instances of one kind find room when no other comes."""
    times = np.divide(left, need, out=np.full(left.shape, np.inf), where=need > 0)
    return int(np.floor(times.min(axis=1)).sum())


def _needs(one: Instance) -> Floats:
    return np.array([one.vcpus, one.memory_mb, one.disk_gb], dtype=np.float64)
