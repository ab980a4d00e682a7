"""Scores: one number from 0 to 100 for each VM, and histograms for hosts and the cloud."""

from __future__ import annotations

from api.routes.common import CloudDep, InventoryDep, PathId
from api.routes.instances import Since
from api.schemas.quality import HostScoresOut, ScoresOut, VmScoresOut


def cloud(cloud: CloudDep, since: Since = "24h") -> ScoresOut:
    """The scores of all VMs now, and of the cloud over time: 100 = uncontended.

    Measured where a window of the last 15 minutes is stored, else predicted.
    """
    return ScoresOut.of(cloud.scores(), cloud.score_history(since=since))


def instance(instance: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> VmScoresOut:
    """The score of one VM now with its factors, and over time; kept as long as samples are."""
    name, now = inventory.find_instance(instance).id, cloud.scores()
    history = list(cloud.vm_score_history(name, since=since))
    return VmScoresOut(instance=name, time=now.time, now=now.instances.get(name), history=history)


def host(host: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> HostScoresOut:
    """The scores of the VMs of one host now, the state of its memory, and its scores over time."""
    name, now = inventory.host(host).id, cloud.scores()
    return HostScoresOut.of_host(now, name, cloud.score_history(name, since=since), cloud.memory().get(name))
