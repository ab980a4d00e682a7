"""What a cloud draws and costs, by labels of its hosts."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.domain import Host
from advisor.planning.label_number import label_number
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.pressure import pressure

# Labels of a host: watts without any load and with all CPUs busy, and what it costs a month in any one currency.
IDLE_LABEL, FULL_LABEL, PRICE_LABEL = "watts_idle", "watts_full", "price_per_month"


def watts(snapshot: ClusterSnapshot) -> float | None:
    """What the hosts in use draw, W, linear in how busy their CPUs are; empty hosts count as switched off.

    A line between idle and full load errs by a few per cent on servers (Fan, Weber and Barroso, ISCA 2007). None where
    a host in use does not say both.
    """
    used = [host for host, residents in zip(snapshot.hosts, snapshot.residents, strict=True) if residents]
    if any(label_number(host.labels, label) is None for host in used for label in (IDLE_LABEL, FULL_LABEL)):
        return None
    pressures = pressure(snapshot)
    return _sum(_watts(host, pressures[host.id]["cpu"] or 0.0) for host in used)


def price(snapshot: ClusterSnapshot) -> float | None:
    """What all hosts cost a month, used or not; None where one does not say."""
    return _sum(label_number(host.labels, PRICE_LABEL) for host in snapshot.hosts)


def wrong_labels(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """A sentence for each of these labels that is no number on some host, so that no figure is missing silently."""
    sentences = []
    for label in (IDLE_LABEL, FULL_LABEL, PRICE_LABEL):
        wrong = (host for host in snapshot.hosts if label in host.labels and label_number(host.labels, label) is None)
        if (host := next(wrong, None)) is not None:
            text = host.labels[label][:40]
            sentences.append(
                f"{host.id} has the label {label}: {text}, which is no number from 0 on; it counts as not said."
            )
    return tuple(sentences)


def _watts(host: Host, busy: float) -> float | None:
    idle, full = label_number(host.labels, IDLE_LABEL), label_number(host.labels, FULL_LABEL)
    return None if idle is None or full is None else idle + (full - idle) * min(busy, 1.0)


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if not known or None in known else sum(value for value in known if value is not None)
