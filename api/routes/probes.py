"""Results of probes on hosts, instances and pairs: taken from `cotenant-profiler probe --push`, answered in pages."""

from __future__ import annotations

from api.routes.common import CallerDep, Cursor, Limit, QueryId, TelemetryDep
from api.schemas.base import PageOut
from api.schemas.observations import Dropped, ProbeOut, ProbesAnswer, ProbesBody


def take(body: ProbesBody, telemetry: TelemetryDep, caller: CallerDep) -> ProbesAnswer:
    """Take results of probes; of each host, instance, far end and probe the newest one is kept, for 90 days."""
    counts = telemetry.take_probes([probe.to_domain() for probe in body.probes], only=caller.host or None)
    reasons = [Dropped(index=index, reason=reason) for index, reason in counts["dropped"]]
    return ProbesAnswer(accepted=counts["accepted"], older=counts["older"], dropped=len(reasons), reasons=reasons)


def listing(
    telemetry: TelemetryDep,
    host: QueryId = None,
    instance: QueryId = None,
    probe: QueryId = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> PageOut[ProbeOut]:
    """The newest result of every probe, or those of one host, one instance, one kind of probe, in pages."""
    page = telemetry.probes(host=host, instance=instance, probe=probe, cursor=cursor, limit=limit)
    return PageOut(items=[ProbeOut.of(report) for report in page.items], next_cursor=page.next_cursor)
