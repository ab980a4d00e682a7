"""Scores: one number from 0 to 100 for each VM, and histograms for hosts and the cloud."""

from __future__ import annotations

from api.routes.common import CloudDep, InventoryDep, PathId
from api.routes.instances import Since
from api.schemas.scores import HostScoresOut, ScoresOut


def cloud(cloud: CloudDep, since: Since = "24h") -> ScoresOut:
    """The scores of all VMs now, and of the cloud over time: 100 = uncontended.

    Measured where a window of the last 15 minutes is stored, else predicted.
    """
    return ScoresOut.of(cloud.scores(), cloud.score_history(since=since))


def host(host: PathId, cloud: CloudDep, inventory: InventoryDep, since: Since = "24h") -> HostScoresOut:
    """The scores of the VMs of one host now, the state of its memory, and its scores over time."""
    name, now = inventory.host(host).id, cloud.scores()
    return HostScoresOut.of_host(now, name, cloud.score_history(name, since=since), cloud.memory().get(name))
