"""An agent's way to a time-series database: batches for the server become a remote write, and its answer the server's.

So the spool and the retries are the same, whichever gets the windows. A store says yes or no to a whole batch.
"""

from __future__ import annotations

import json
from datetime import datetime

from profiler.agent.http_client import PATH, HttpAnswer, HttpClient
from profiler.observed import MetricSample
from profiler.remote_write import HEADERS, is_refusal, write_request


class StoreConnection:
    """Carries batches of samples to a Prometheus-compatible store; for one thread, as the client that it speaks by."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    def post(self, body: bytes, to: str = PATH) -> HttpAnswer:  # noqa: ARG002 - a store has one path
        """Write a body of `POST /v1/samples`; HttpError when there is no whole answer in time.

        What the store will never take is 400, which the agent sends window by window, and sets aside what is at fault.
        """
        samples = [
            MetricSample(
                row["host"], row["instance"], row["scope"], row["metric"], row["value"],
                datetime.fromisoformat(row["time"]).timestamp(),
            )
            for row in json.loads(body)["samples"]
        ]  # fmt: skip
        answer = self._client.post(write_request(samples), "", HEADERS)
        said = answer.body[:300].decode("utf-8", "replace")
        if is_refusal(answer.status, said):
            return HttpAnswer(400, json.dumps({"detail": said}).encode(), None)
        if 200 <= answer.status < 300:
            taken = {"accepted": len(samples), "duplicate": 0, "dropped": 0}
            return HttpAnswer(200, json.dumps(taken).encode(), None)
        return answer

    def interrupt(self) -> None:
        self._client.interrupt()

    def close(self) -> None:
        self._client.close()
