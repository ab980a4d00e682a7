"""The mix that a cloud has: a few of its own instances that stand for all, in order of their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.domain import Instance, IsolationSettings, listed
from advisor.errors import InvalidInput
from advisor.snapshot import ClusterSnapshot

MEMBERS = 8  # each stands for an eighth of the instances
KEPT_LABELS = ("class", "flavor", "flavor_name")  # rules of single instances are not those of new VMs


def own_mix(snapshot: ClusterSnapshot) -> tuple[Instance, ...]:
    """Members of the mix: of all instances in order of vCPUs, memory and mean demand, the middle one of each eighth.

    So the mix has the cloud's own sizes, workloads and measured demand, each in its share. InvalidInput in a cloud
    without instances.
    """
    there = [one for residents in snapshot.residents for one in residents]
    if not there:
        raise InvalidInput("the cloud has no instances to take a mix from; name some", field="instances")
    order = sorted(there, key=lambda one: (one.vcpus, one.memory_mb, _mean(one), one.id))
    count = min(MEMBERS, len(order))
    members = [order[(2 * at + 1) * len(order) // (2 * count)] for at in range(count)]
    return tuple(_template(member) for member in members)


def mix_note(mix: Sequence[Instance]) -> str:
    """Which instances stand for all, as a sentence."""
    return f"The mix is the cloud's own, in order of size: instances like {listed([one.id for one in mix], MEMBERS)}."


def _template(member: Instance) -> Instance:
    labels = {name: text for name, text in member.labels.items() if name in KEPT_LABELS}
    settings: IsolationSettings = replace(member.settings, pinning=None)
    return replace(member, host=None, labels=labels, settings=settings)


def _mean(instance: Instance) -> float:
    cpu = instance.demand.get("cpu")
    return 0.0 if cpu is None else cpu.mean
