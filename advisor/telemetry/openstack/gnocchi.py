"""Gnocchi, which keeps Ceilometer's meters as means of windows: differences between them are rates."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from advisor.domain import Instance
from advisor.telemetry.monitoring_history import Preset
from advisor.telemetry.openstack.endpoint import CloudEndpoint
from advisor.telemetry.series_store import Scraped

PRESET = Preset("gnocchi", "servers of Nova, by Ceilometer and Gnocchi", ("server",), {
    name: name for name in ("cpu", "net_mbit", "disk_mb_s")
})  # fmt: skip
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MOST_SERVERS = 50  # of one question: each of their means of a day comes back
# By resource: the type that Ceilometer gives what it meters, its attribute that holds the server's id, its cumulative
# meters, and what one of their units per second is (gnocchi_resources.yaml of Ceilometer).
_METERS: Mapping[str, tuple[str, str, Sequence[str], float]] = {
    "cpu": ("instance", "id", ("cpu",), 1e-9),
    "net_mbit": (
        "instance_network_interface", "instance_id", ("network.incoming.bytes", "network.outgoing.bytes"), 8e-6,
    ),
    "disk_mb_s": ("instance_disk", "instance_id", ("disk.device.read.bytes", "disk.device.write.bytes"), 1e-6),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gnocchi:
    """Gives the rates of the servers' cumulative meters, by the names in `PRESET`."""

    endpoint: CloudEndpoint
    servers: Sequence[str]

    @classmethod
    def of(cls, cloud: str | None, instances: Iterable[Instance]) -> Gnocchi:
        """That of a cloud, asked about every instance that has a UUID; InvalidInput where its settings do not fit."""
        names = {name for instance in instances for name in (instance.id, instance.labels.get("uuid", ""))}
        return cls(CloudEndpoint.of(cloud, "metric", "Gnocchi"), sorted(filter(_UUID.fullmatch, names)))

    def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]:
        """A series for each meter and what it belongs to: a server, one of its ports, or one of its disks.

        A mean of a cumulative meter less the mean before is what came in between, however often it was read. It counts
        for the window of the later one. After a restart a meter begins anew: what is lower than before says nothing.
        SeriesUnavailable where Gnocchi does not answer, refuses, or keeps no means of `step_s`.
        """
        kind, owner, meters, scale = _METERS[query]
        times = {
            "start": (begin - timedelta(seconds=2 * step_s)).isoformat(),
            "stop": end.isoformat(),
            "granularity": str(step_s),
            "details": "true",  # the resources, too
        }
        for at in range(0, len(self.servers), MOST_SERVERS):
            chosen = {"in": {owner: list(self.servers[at : at + MOST_SERVERS])}}
            for meter in meters:
                question = {"operations": f"(metric {meter} mean)", "resource_type": kind, "search": chosen}
                for name, means in self._means(times, question, owner, meter):
                    rates = list(_rates(means, step_s, scale))
                    yield Scraped({"server": name}, [at_s for at_s, _ in rates], [rate for _, rate in rates])

    def _means(
        self, times: Mapping[str, str], question: Mapping[str, object], owner: str, meter: str
    ) -> Sequence[tuple[str, Sequence[tuple[float, float]]]]:
        """The server of each resource that has the meter, with (begin in s, mean) of its windows."""
        status, body = self.endpoint.post("/v1/aggregates", times, question)
        try:
            answer = json.loads(body)
            if status != 200:
                reason = str(answer["description"])
            else:
                owners = {str(resource["id"]): str(resource[owner]) for resource in answer["references"]}
                measures = answer["measures"].items()
                return [(owners[name], _windows(by_meter[meter]["mean"])) for name, by_meter in measures]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise self.endpoint.unavailable(f"answered {status} and nothing that Gnocchi would say") from error
        if "does not exist" in reason:  # none of these servers has the meter, or a port
            return []
        raise self.endpoint.unavailable(f"refused the question with {status}: {reason[:200]}")


def _windows(rows: Iterable[tuple[str, float, float]]) -> Sequence[tuple[float, float]]:
    return [(datetime.fromisoformat(begin).timestamp(), float(mean)) for begin, _, mean in rows]


def _rates(means: Sequence[tuple[float, float]], step_s: int, scale: float) -> Iterator[tuple[float, float]]:
    """End of each window and the rate up to it, where the window before is there, too."""
    for (before_s, before), (at_s, mean) in pairwise(means):
        if at_s - before_s == step_s and before <= mean < math.inf:
            yield at_s + step_s, (mean - before) / step_s * scale
