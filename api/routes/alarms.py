"""Alarms: anomalies, where measured contention is above the predicted range, and scores that stay low."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Alarms, Checkup
from api.routes.common import CloudDep

MOST_LOW = 100  # VMs with low scores in one answer


def listing(cloud: CloudDep) -> Alarms:
    """Which instances get less of the CPU time that they want than was predicted, and who is likely behind it; and
    which have a low measured score.

    An alarm takes several windows in a row. The audit log also says when alarms are raised and when they end.
    """
    standing = cloud.alarms()
    scores = cloud.scores().instances if standing else {}
    return Alarms(
        tuple(
            replace(alarm, score=scores[alarm.instance].score) if alarm.instance in scores else alarm
            for alarm in standing
        ),
        cloud.low_scores()[:MOST_LOW],
    )


def checkup(cloud: CloudDep) -> Checkup:
    """What is wrong with the cloud and the service now, in sentences, as `cotenant doctor` says it."""
    return cloud.checkup()
