"""Scores: one number from 0 to 100 for each VM, and histograms for hosts and the cloud."""

from __future__ import annotations

from api.routes.common import CloudDep, InventoryDep, PathId
from api.routes.instances import Since
from api.schemas.quality import HostScoresOut, ScoresOut, VmScoresOut


def cloud(cloud: CloudDep, since: Since = "24h") -> ScoresOut:
    """The scores of all VMs now, and of the cloud over time: 100 = uncontended.

    Measured where a window of the last 15 minutes is stored, else predicted.
    """
    return ScoresOut.asked(cloud, since)


def instance(instance: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> VmScoresOut:
    """The score of one VM now with its factors, and over time; kept as long as samples are."""
    return VmScoresOut.asked(cloud, inventory.find_instance(instance).id, since)


def host(host: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> HostScoresOut:
    """The scores of the VMs of one host now, the state of its memory, and its scores over time."""
    return HostScoresOut.asked(cloud, inventory.host(host).id, since)
