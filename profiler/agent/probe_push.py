"""Sends one result of a probe to the server, at once or not at all: a person waits, so nothing is spooled."""

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
        told: Any = json.loads(answer.body)
        if answer.status != 200:
            raise ProbePushError(f"the server refused the result: {answer.status}, {str(told['detail'])[:500]}")
        if told["dropped"]:
            raise ProbePushError(f"the server did not take the result: {str(told['reasons'][0]['reason'])[:500]}")
        if told["older"]:
            raise ProbePushError("the server has a newer result of this probe; check the clock of this machine")
    except (ValueError, LookupError, TypeError):
        raise ProbePushError(f"what answers is no Cotenant server of this version (status {answer.status})") from None


def _body(result: ProbeResult, host: str, instance: str | None, peer: str | None) -> dict[str, Any]:
    circumstances = dict(result.circumstances)
    return {
        "host": host,
        "instance": instance,
        "peer": peer,
        "probe": result.probe,
        "values": {name: {"value": one.value, "unit": one.unit} for name, one in result.values.items()},
        "main": result.main,
        "time": circumstances["taken_at"],
        "circumstances": circumstances,
        "marks": list(result.marks),
    }
