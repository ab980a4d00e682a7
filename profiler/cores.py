"""Which pCPUs of a host share a core: as the host says, else by their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

Groups = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=4096)
def first_of_core(
    pcpus: int, threads: int, cpu_ids: tuple[int, ...], numa: Groups, siblings: Groups
) -> tuple[int, ...]:
    """The place of the first pCPU on the core of each pCPU, by its own place among the numbers of the host's CPUs.

    `siblings` are the pCPUs of each core that has several; a pCPU in none of them has a core of its own. Without them
    a core has so many `threads`, numbered side by side where only that fits the NUMA nodes or the gaps between
    `cpu_ids`, else those of one thread after those of the other, as Linux numbers them on most servers. Of a number of
    pCPUs that makes no whole cores each is one.
    """
    if siblings:
        place = {cpu: at for at, cpu in enumerate(cpu_ids or range(pcpus))}
        found = list(range(pcpus))
        for core in siblings:
            for cpu in core:
                found[place[cpu]] = place[core[0]]
        return tuple(found)
    threads = threads if pcpus % threads == 0 else 1
    near, far = tuple(at - at % threads for at in range(pcpus)), tuple(at % (pcpus // threads) for at in range(pcpus))
    if _in_runs(cpu_ids, threads):
        return near
    node = _nodes(pcpus, cpu_ids, numa)
    is_near, is_far = (all(node[first] == node[at] for at, first in enumerate(each)) for each in (near, far))
    return near if is_near and not is_far else far


def as_said(
    host: str, pcpus: int, cpu_ids: tuple[int, ...], numa: Groups, siblings: Iterable[Sequence[int]]
) -> tuple[int, Groups]:
    """The most threads of a core, and `siblings` as they are kept: in order; empty where numbers say the same.

    ValueError, which begins with `host`, where a CPU is not one of its `pcpus`, or stands in two cores.
    """
    cores: Groups = tuple(sorted({tuple(sorted(set(core))) for core in siblings if len(set(core)) > 1}))
    named = [cpu for core in cores for cpu in core]
    there = frozenset(cpu_ids or range(pcpus))
    absent = sorted({cpu for cpu in named if cpu not in there})
    if absent:
        raise ValueError(f"{host}siblings name CPU {absent[0]}, which it does not have")
    if len(named) != len(set(named)):
        twice = min(cpu for cpu in set(named) if named.count(cpu) > 1)
        raise ValueError(f"{host}siblings have CPU {twice} on two cores")
    threads = max(map(len, cores), default=1)
    by_numbers = first_of_core(pcpus, threads, cpu_ids, numa, ())
    return threads, () if first_of_core(pcpus, threads, cpu_ids, numa, cores) == by_numbers else cores


def _in_runs(cpu_ids: tuple[int, ...], threads: int) -> bool:
    """Whether the numbers come in runs as long as a core has threads, with gaps between them."""
    if threads < 2 or not cpu_ids or len(cpu_ids) % threads:
        return False
    known = set(cpu_ids)
    runs = [cpu_ids[at : at + threads] for at in range(0, len(cpu_ids), threads)]
    return all(run[-1] - run[0] == threads - 1 and run[0] - 1 not in known for run in runs)


def _nodes(pcpus: int, cpu_ids: tuple[int, ...], numa: Groups) -> list[int]:
    place = {cpu: at for at, cpu in enumerate(cpu_ids or range(pcpus))}
    node = [len(numa)] * pcpus
    for number, cpus in enumerate(numa):
        for cpu in cpus:
            if cpu in place:
                node[place[cpu]] = number
    return node
