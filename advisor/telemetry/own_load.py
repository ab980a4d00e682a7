"""A host's own load: the CPUs that its own work uses, outside of instances and of its driver domain, as measured.

An agent measures how busy all CPUs are (`busy`). What no instance used of that, and not the driver domain, is work of
the host: databases, storage, networks, and instances that the service does not know. In Xen `busy` is of Dom0 alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection

from advisor.store import hosts
from advisor.store.sample_store import STORED, SampleStore
from profiler.observed import MetricSample

EVERY_S = 300.0  # samples of a host are read again
MOST_S = 3600.0  # of samples that are read at a time
MEMORY_S = 1800.0  # over which older means fade
LEAST_CPUS, LEAST_PART = 0.25, 0.02  # of a CPU, and of a host's CPUs: what is less counts as nothing


def learn(connection: Connection, taken: Iterable[MetricSample], samples: SampleStore = STORED) -> bool:
    """Learn the own load of the hosts that these samples, which must be stored, are of; True where it is another."""
    newest: dict[str, float] = {}
    for sample in taken:
        if sample.metric == "busy" and sample.scope == "host":
            newest[sample.host] = max(sample.time_s, newest.get(sample.host, 0.0))
    news = False
    for row in hosts.own_load_due(connection, newest, EVERY_S) if newest else ():
        end_s = newest[row.id]
        begin_s = max(row.until_s or 0.0, end_s - MOST_S)
        cpus = _mean(samples.busy(connection, row.id, begin_s, end_s))
        if cpus is None:
            continue
        faded = 1.0 if row.cpus is None else min((end_s - begin_s) / MEMORY_S, 1.0)
        now = cpus if row.cpus is None else row.cpus + faded * (cpus - row.cpus)
        news |= row.cpus is None or shown(now, row.pcpus) != shown(row.cpus, row.pcpus)
        hosts.put_own_load(connection, row.id, now, end_s)
    return news


def shown(cpus: float, pcpus: int) -> float:
    """In steps, so that noise makes no host another one and like hosts stay alike."""
    step = max(LEAST_CPUS, LEAST_PART * pcpus)
    return min(math.floor(cpus / step + 0.5) * step, float(pcpus))


def measured(connection: Connection) -> Mapping[str, float]:
    """The own load of each host of which it was measured, as shown."""
    return {row.id: shown(row.cpus, row.pcpus) for row in hosts.own_loads(connection)}


def _mean(sums: Mapping[str, tuple[float, int]]) -> float | None:
    """CPUs that were busy for nothing else; None where `busy` was not measured."""
    busy, number = sums.get("host", (0.0, 0))
    if not number:
        return None
    others = sums.get("instance", (0.0, 0))[0] + sums.get("driver_domain", (0.0, 0))[0]
    return max(busy - others, 0.0) / number / 100
