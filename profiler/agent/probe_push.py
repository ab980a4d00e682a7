"""Sends one result of a probe to the server. Nothing is spooled: a person waits and can try again."""

from __future__ import annotations

import json
from typing import Any

from profiler.agent.http_client import PROBES, HttpError, ServerConnection
from profiler.observed import ProbeResult


class ProbePushError(Exception):
    """The server did not take a result; one sentence that says why and what to do."""


def push_result(
    server: ServerConnection, result: ProbeResult, host: str, instance: str | None = None, peer: str | None = None
) -> None:
    """Send a result of a host, of an `instance` on it, or of the way to a `peer`; ProbePushError unless it is kept."""
    try:
        answer = server.post(json.dumps({"probes": [_body(result, host, instance, peer)]}).encode(), PROBES)
    except HttpError as error:
        raise ProbePushError(f"the result was not sent: {error}") from None
    try:
        reply: Any = json.loads(answer.body)
        if answer.status != 200:
            raise ProbePushError(f"the server refused the result: {answer.status}, {str(reply['detail'])[:500]}")
        if reply["dropped"]:
            raise ProbePushError(f"the server did not take the result: {str(reply['reasons'][0]['reason'])[:500]}")
        if reply["older"]:
            raise ProbePushError("the server has a newer result of this probe; check the clock of this machine")
    except (ValueError, LookupError, TypeError):
        raise ProbePushError(
            f"the answer is not that of a Cotenant server of this version (status {answer.status})"
        ) from None


def _body(result: ProbeResult, host: str, instance: str | None, peer: str | None) -> dict[str, Any]:
    time = result.circumstances["taken_at"]
    return {"host": host, "instance": instance, "peer": peer, "time": time, **result.document()}
