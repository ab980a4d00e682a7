"""Alarms: anomalies, where measured contention is above the predicted range."""

from __future__ import annotations

from api.routes.common import CloudDep
from api.schemas.alarms import AlarmsOut, AnomalyOut, DoctorOut


def listing(cloud: CloudDep) -> AlarmsOut:
    """Which instances get less of the CPU time that they want than was predicted, and who is likely behind it.

    An alarm takes several windows in a row. The audit log also says when alarms are raised and when they end.
    """
    standing = cloud.alarms()
    scores = cloud.scores().instances if standing else {}
    return AlarmsOut(
        alarms=[
            AnomalyOut.like(alarm).model_copy(
                update={"score": scores[alarm.instance].score if alarm.instance in scores else None}
            )
            for alarm in standing
        ]
    )


def checkup(cloud: CloudDep) -> DoctorOut:
    """What is wrong with the cloud and the service now, in sentences, as `cotenant doctor` says it."""
    return DoctorOut.like(cloud.checkup())
