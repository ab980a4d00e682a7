"""What OpenStack's telemetry has watched, found by the catalogue of a cloud: Aetos before Prometheus, and Gnocchi."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from advisor.domain import Instance
from advisor.errors import InvalidInput, SeriesUnavailable
from advisor.plug_ins import require
from advisor.telemetry.monitoring_history import CloudHistory, Preset
from advisor.telemetry.series_store import MOST_BYTES, Scraped, series_in

# One service of an OpenStack cloud, found by its type in the catalogue and asked with the cloud's account.

_SETTINGS = "name a cloud of clouds.yaml by --cloud, or set OS_AUTH_URL and what belongs to it"


@dataclass(frozen=True, slots=True)
class CloudEndpoint:
    """Asks for bytes; whatever goes wrong is one SeriesUnavailable. `adapter` is keystoneauth's."""

    adapter: Any
    where: str  # for sentences

    @classmethod
    def of(cls, cloud: str | None, service_type: str, name: str) -> CloudEndpoint:
        """Of clouds.yaml or the environment (OS_*); nothing is asked yet. InvalidInput where those do not fit."""
        require("openstack", "a service of OpenStack")
        from keystoneauth1.adapter import Adapter

        from cotenant_openstack.listings import connect  # openstacksdk takes a second to import

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # openstacksdk warns of what it will no longer do itself
                connection = connect(cloud)
                settings = connection.config
                adapter = Adapter(
                    session=connection.session,
                    service_type=service_type,
                    interface=settings.get_interface(service_type),
                    region_name=settings.get_region_name(service_type),
                    endpoint_override=settings.get_endpoint(service_type),
                )
        except Exception as error:  # openstacksdk and keystoneauth have no common root for wrong settings
            raise InvalidInput(f"{' '.join(str(error).split())[:200]}; {_SETTINGS}", field="cloud") from error
        return cls(adapter, f"{name} of {cloud or 'the cloud'} (service type {service_type})")

    def get(self, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        return self._ask("GET", path, params=params)

    def post(self, path: str, params: Mapping[str, str], json: object) -> tuple[int, bytes]:
        return self._ask("POST", path, params=params, json=json)

    def _ask(self, method: str, path: str, **request: Any) -> tuple[int, bytes]:
        """Status and body; a redirect is not followed, for the token would go along."""
        from keystoneauth1.exceptions import ClientException
        from requests.exceptions import RequestException

        options = {"raise_exc": False, "redirect": False, "stream": True, "headers": {"Accept": "application/json"}}
        try:
            answer = self.adapter.request(path, method, **options, **request)
            body = bytearray()
            for part in answer.iter_content(2**16):
                body += part
                if len(body) > MOST_BYTES:
                    answer.close()
                    raise self.unavailable(f"answered with over {MOST_BYTES >> 20} MiB; ask for less time")
        except (ClientException, RequestException) as error:
            raise self.unavailable(f"does not answer: {' '.join(str(error).split())[:200]}") from error
        if answer.status_code in {401, 403}:
            raise self.unavailable(
                f"refuses with {answer.status_code}; the account needs the role admin, or reader for its project alone"
            )
        return answer.status_code, bytes(body)

    def unavailable(self, what: str) -> SeriesUnavailable:
        return SeriesUnavailable(f"{self.where} {what}")


# Gnocchi, which keeps Ceilometer's meters as means of windows: differences between them are rates.

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


# OpenStack's metric storage: a Prometheus behind Aetos, which checks Keystone's tokens and projects.


@dataclass(frozen=True, slots=True)
class MetricStorage:
    """Gives series as Prometheus does; a project's reader is given those of the project alone."""

    endpoint: CloudEndpoint

    @classmethod
    def of(cls, cloud: str | None, instances: Iterable[Instance] = ()) -> MetricStorage:
        """That of a cloud, whichever instances are asked about; InvalidInput where its settings do not fit."""
        del instances
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
    except (ValueError, KeyError, TypeError, RecursionError):
        return "without a reason"


GNOCCHI = CloudHistory(Gnocchi.of, PRESET)
AETOS = CloudHistory(MetricStorage.of)
