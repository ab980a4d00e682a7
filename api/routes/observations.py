"""What was measured: metric samples and co-located outcomes, both harmless to send twice."""

from __future__ import annotations

from fastapi import Response

from api.routes.common import CountersDep, OutcomeDep, SettingsDep, TelemetryDep, check_batch
from api.schemas.observations import ColocationBody, Dropped, Recorded, SamplesAnswer, SamplesBody


def samples(body: SamplesBody, telemetry: TelemetryDep, settings: SettingsDep, counters: CountersDep) -> SamplesAnswer:
    """Take metric samples; answers how many were accepted, duplicate and dropped, and why."""
    check_batch(body.samples, settings, "samples")
    counts = telemetry.ingest([sample.to_domain() for sample in body.samples])
    reasons = [Dropped(index=index, reason=reason) for index, reason in counts["dropped"]]
    answer = SamplesAnswer(
        accepted=counts["accepted"], duplicate=counts["duplicate"], dropped=len(reasons), reasons=reasons
    )
    counters.ingested(accepted=answer.accepted, duplicate=answer.duplicate, dropped=answer.dropped)
    return answer


def colocations(body: ColocationBody, outcomes: OutcomeDep, response: Response) -> Recorded:
    """Record what co-located instances reached; a training example."""
    new = outcomes.record_colocation(body.to_domain())
    if new:
        response.status_code = 201
    return Recorded(run=body.run, repeat=body.repeat, new=new)
