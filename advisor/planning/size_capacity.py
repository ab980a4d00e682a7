"""How many instances of a mix fit by size alone: first fit, and an upper bound for any packing; no predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from advisor.domain import Instance
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from models.arrays import Floats

MAX_INSTANCES = 100_000  # instances of a mix; larger numbers are not counted


def repeat_mix(mix: Sequence[Instance], taken: frozenset[str]) -> Iterator[Instance]:
    """Copies of the mix in turn, without end, under ids that are not in `taken`."""
    for number in count(1):
        template = mix[(number - 1) % len(mix)]
        name = f"{template.id[:230]}.more-{number}"
        while name in taken:
            name += "-"
        yield replace(template, id=name, host=None)


def free_room(snapshot: ClusterSnapshot, hosts: frozenset[str] | None) -> Floats:
    """Free shared vCPUs, vCPUs in all, MB of memory, GB of disk and pCPUs for dedicated vCPUs of each host, (H, 5).

    With slack for rounding; 0 on closed hosts. Where a host sets no pCPUs apart, dedicated vCPUs count among the vCPUs
    that it may promise, else beside these.
    """
    vcpus = np.maximum(with_slack(snapshot.room_vcpus) - snapshot.used_vcpus, 0.0)
    own = np.maximum(snapshot.room_own - snapshot.used_own, 0.0)
    apart = np.array([bool(host.dedicated_cpus) for host in snapshot.hosts], dtype=bool)
    left = np.stack(
        [
            vcpus,
            np.where(apart, vcpus + own, vcpus),
            with_slack(snapshot.room_memory_mb) - snapshot.used_memory_mb,
            with_slack(snapshot.room_disk_gb) - snapshot.used_disk_gb,
            own,
        ],
        axis=1,
    )
    open_to_all = snapshot.enabled & ~snapshot.exclusive
    usable = np.array([hosts is None or host.id in hosts for host in snapshot.hosts], dtype=bool)
    return np.where((open_to_all & usable)[:, None], np.maximum(left, 0.0), 0.0)


def first_fit(left: Floats, mix: Sequence[Instance]) -> int:
    """How many of the mix in turn fit on the first host with room, until one does not."""
    left = left.copy()
    at = [0] * len(mix)  # room only shrinks, so each search starts where the last one ended
    for number in range(MAX_INSTANCES):
        which = number % len(mix)
        needs = _needs(mix[which])
        while at[which] < len(left) and (left[at[which]] < needs).any():
            at[which] += 1
        if at[which] == len(left):
            return number
        left[at[which]] -= needs
    return MAX_INSTANCES


def size_bound(left: Floats, mix: Sequence[Instance]) -> int:
    """An upper bound for any packing: by each kind alone, and by the sum of all room."""
    needs = np.array([_needs(instance) for instance in mix])
    by_single_kind = min(_alone_fit(left, need) * len(mix) + which for which, need in enumerate(needs))
    mix_needs, total = needs.sum(axis=0), left.sum(axis=0)
    rounds = np.divide(total, mix_needs, out=np.full(total.shape, np.inf), where=mix_needs > 0).min()
    if min(rounds * len(mix), by_single_kind) >= MAX_INSTANCES:
        return MAX_INSTANCES
    full_rounds = int(rounds)
    left_over = total - full_rounds * mix_needs
    further = 0
    for need in needs:
        left_over = left_over - need
        if (left_over < 0).any():
            break
        further += 1
    return min(full_rounds * len(mix) + further, by_single_kind)


def _alone_fit(left: Floats, need: Floats) -> int:
    """How many instances of one kind fit when no other comes."""
    times = np.divide(left, need, out=np.full(left.shape, np.inf), where=need > 0)
    return int(np.floor(times.min(axis=1)).sum())


def _needs(instance: Instance) -> Floats:
    sizes = (
        instance.shared_vcpus,
        instance.vcpus,
        instance.ordinary_memory_mb,
        instance.disk_gb,
        instance.dedicated_vcpus,
    )
    return np.array(sizes, dtype=np.float64)
