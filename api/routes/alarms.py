"""Alarms: where what was measured contradicts what was predicted."""

from __future__ import annotations

from api.routes.common import CloudDep
from api.schemas.alarms import AlarmsOut, ContradictionOut


def listing(cloud: CloudDep) -> AlarmsOut:
    """Who gets less of the CPU time that it wants than was predicted, window after window, and who is likely behind it.

    Alarms are raised and ended in the audit log, too.
    """
    return AlarmsOut(alarms=[ContradictionOut.like(one) for one in cloud.alarms()])
