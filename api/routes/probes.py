"""What probes found of hosts, instances and pairs: in from `cotenant-profiler probe --push`, and out in pages."""

from __future__ import annotations

from api.routes.common import CallerDep, Cursor, Limit, QueryId, TelemetryDep
from api.schemas.observations import Dropped
from api.schemas.pages import PageOut
from api.schemas.probes import ProbeOut, ProbesAnswer, ProbesBody


def take(body: ProbesBody, telemetry: TelemetryDep, caller: CallerDep) -> ProbesAnswer:
    """Take results of probes; of each host, instance, far end and probe the newest one is kept, for 90 days."""
    taken = telemetry.take_probes([one.to_domain() for one in body.probes], only=caller.host or None)
    reasons = [Dropped(index=index, reason=reason) for index, reason in taken["dropped"]]
    return ProbesAnswer(accepted=taken["accepted"], older=taken["older"], dropped=len(reasons), reasons=reasons)


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
    return PageOut(items=[ProbeOut.of(one) for one in page.items], next_cursor=page.next_cursor)
