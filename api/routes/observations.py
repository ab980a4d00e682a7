"""What was measured: metric samples and co-located outcomes, both harmless to send twice."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Response
from starlette.exceptions import HTTPException

from advisor.errors import InvalidInput
from api.routes.common import (
    CallerDep,
    CloudDep,
    CountersDep,
    Cursor,
    InventoryDep,
    Limit,
    OutcomeDep,
    QueryId,
    SettingsDep,
    TelemetryDep,
    check_batch,
)
from api.schemas.announcements import AnnouncementAnswer, AnnouncementBody
from api.schemas.base import PageOut
from api.schemas.observations import (
    ColocationBody,
    Dropped,
    ProbeOut,
    ProbesAnswer,
    ProbesBody,
    Recorded,
    SamplesAnswer,
    SamplesBody,
)


def announcements(
    body: AnnouncementBody, inventory: InventoryDep, cloud: CloudDep, caller: CallerDep
) -> AnnouncementAnswer:
    """Take what the agent of a host reports of it and of all instances that run there; the inventory follows.

    An instance that is no longer reported counts as stopped, and an hour later as gone. Sending it again does no harm.
    """
    if caller.host not in {"", body.host.id}:
        raise HTTPException(403, f"this token is for the agent of host {caller.host}, not of {body.host.id}")
    announcement = replace(body.to_domain(), bound=bool(caller.host))
    result = inventory.announce(announcement)
    offset_s = (announcement.time - cloud.clock()).total_seconds()
    return AnnouncementAnswer.of(announcement.host_id, result, offset_s=offset_s)


def samples(
    body: SamplesBody, telemetry: TelemetryDep, settings: SettingsDep, counters: CountersDep, caller: CallerDep
) -> SamplesAnswer:
    """Take metric samples, one by one or as windows; answers how many were accepted, duplicate and dropped, and why."""
    if not body.samples and not body.windows:
        raise InvalidInput("there are neither samples nor windows; send one of both", field="samples")
    windows, only = [window.to_domain() for window in body.windows], caller.host or None
    number = len(body.samples) + sum(window.number for window in windows)
    check_batch(range(number), settings, "samples")  # each value of a window becomes a sample of fifty times its bytes
    if body.samples:
        sent = [sample.to_domain() for sample in body.samples]
        counts = telemetry.ingest([*sent, *(one for window in windows for one in window.samples())], only=only)
    else:
        counts = telemetry.ingest_windows(windows, only=only)
    reasons = [Dropped(index=index, reason=reason) for index, reason in counts["dropped"]]
    answer = SamplesAnswer(
        accepted=counts["accepted"], duplicate=counts["duplicate"], dropped=len(reasons), reasons=reasons
    )
    counters.ingested(accepted=answer.accepted, duplicate=answer.duplicate, dropped=answer.dropped)
    return answer


def colocations(body: ColocationBody, outcomes: OutcomeDep, response: Response) -> Recorded:
    """Record what co-located instances reached. The next answers about them are moved by it, and the next training from
    this service learns from it.

    What is not said of an instance is as in the inventory. Many results of one sender count as a few.
    """
    new = outcomes.record_colocation(body.to_domain())
    if new:
        response.status_code = 201
    return Recorded(run=body.run, repeat=body.repeat, new=new)


# Results of probes on hosts, instances and pairs: taken from `cotenant-profiler probe --push`, answered in pages.


def take_probes(body: ProbesBody, telemetry: TelemetryDep, caller: CallerDep) -> ProbesAnswer:
    """Take results of probes; of each host, instance, far end and probe the newest one is kept, for 90 days."""
    counts = telemetry.take_probes([probe.to_domain() for probe in body.probes], only=caller.host or None)
    reasons = [Dropped(index=index, reason=reason) for index, reason in counts["dropped"]]
    return ProbesAnswer(accepted=counts["accepted"], older=counts["older"], dropped=len(reasons), reasons=reasons)


def list_probes(
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
