"""OpenStack's metric storage: a Prometheus behind Aetos, which checks Keystone's tokens and projects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from advisor.telemetry.openstack.endpoint import CloudEndpoint
from advisor.telemetry.series_store import Scraped, series_in


@dataclass(frozen=True, slots=True)
class MetricStorage:
    """Gives series as Prometheus does; a project's reader is given those of the project alone."""

    endpoint: CloudEndpoint

    @classmethod
    def of(cls, cloud: str) -> MetricStorage:
        """That of a cloud; InvalidInput where its settings do not fit."""
        return cls(CloudEndpoint.of(cloud, "metric-storage", "Aetos"))

    def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]:
        """What a query gives at `begin` and every `step_s` seconds up to `end`, both multiples of `step_s`.

        Aetos 3.0 takes instant queries by GET alone, so a range is asked for as a subquery, whose steps are multiples
        of their length. Half a step more, for Prometheus 3 leaves the moment at the beginning of a range out.
        SeriesUnavailable where it does not answer, refuses, or answers with what is none.
        """
        seconds = int((end - begin).total_seconds()) + step_s // 2
        query_and_time = {"query": f"({query})[{seconds}s:{step_s}s]", "time": f"{end.timestamp():.3f}"}
        status, body = self.endpoint.get("/api/v1/query", query_and_time)
        if status != 200:
            raise self.endpoint.unavailable(f"refused the query with {status}: {_fault(body)}")
        return series_in(self.endpoint.where, status, body)


def _fault(body: bytes) -> str:
    """What Aetos says in its own words (`error_message.faultstring`)."""
    try:
        return str(json.loads(body)["error_message"]["faultstring"])[:200]
    except (ValueError, KeyError, TypeError):
        return "without a reason"
