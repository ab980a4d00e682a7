"""Series of the agent's exporter, read back by PromQL from a Prometheus-compatible store as windows for a profile."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from advisor.errors import InvalidInput, NotFound, SeriesUnavailable
from advisor.profiling import parse_since
from advisor.settings import Settings
from models.windows import Readings, SeriesKey, hosts_of
from profiler.agent.wire import Server, may_carry_token
from profiler.collectors import unit_of
from profiler.collectors.further import UNITS
from profiler.metrics import BY_NAME, SCOPES
from profiler.observed import check_id

DEADLINE_S = 30.0  # for one query, with its answer
MOST_BYTES = 128 * 2**20  # of an answer: a day of ten-second windows of 300 instances is about half of it
_ATTRIBUTED = "cotenant_attributed_"  # begins the name of an instance's part of the driver domain
# Unit → how the exporter's gauge ends, and the factor from its base unit; profiler/agent/exposition.py has the inverse.
_OF_UNIT = {
    "%": ("_ratio", 100.0),
    "1/s": ("_per_second", 1.0),
    "pages/s": ("_per_second", 1.0),
    "Mbit/s": ("_bytes_per_second", 8e-6),
    "MB/s": ("_bytes_per_second", 1e-6),
    "MB": ("_bytes", 2.0**-20),
}
_PLAIN = {"net_mbit": "network", "disk_mb_s": "disk", "rss_mb": "resident_memory"}
_WHO = ("__name__", "instance", "scope", "statistic")  # labels that tell series of one scrape apart


@dataclass(frozen=True, slots=True)
class _Series:
    """One series: whose it is, which scrapes it is from (all other labels), and its samples in order of time."""

    key: SeriesKey
    source: frozenset[tuple[str, str]]
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class SeriesStore:
    """A store that answers `/api/v1/query` as Prometheus does (HTTP API, "Instant queries")."""

    url: str
    authorization: str | None = None

    @classmethod
    def of(cls, settings: Settings) -> SeriesStore:
        """The store of the settings; InvalidInput where its URL or its secret cannot be used."""
        field = "prometheus_url"
        url = (settings.prometheus_url or "").rstrip("/")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"{url[:100]!r} is no URL ({error})", field=field) from error
        if parts.username is not None or parts.password is not None:
            file = "COTENANT_PROMETHEUS_AUTHORIZATION_FILE"
            raise InvalidInput(f"the URL holds a user or password; name a file by {file} instead", field=field)
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or not plain:
            raise InvalidInput(f"{url[:100]!r} is no URL such as http://127.0.0.1:9090", field=field)
        secret = _secret(settings.prometheus_authorization_file)
        if secret and not may_carry_token(Server(parts.scheme == "https", parts.hostname, port or 0, "")):
            raise InvalidInput(f"{url[:100]} would get the secret unencrypted; give an https URL", field=field)
        return cls(url, secret)

    def select(self, selector: str, since_s: float, now: datetime) -> Iterator[_Series]:
        """Every sample of what a selector names in the last `since_s` seconds, as it was scraped."""
        seconds = math.ceil(since_s)
        for one in self._query(f"{selector}[{seconds}s]", now):
            try:
                labels = {str(name): str(value) for name, value in one["metric"].items()}
                pairs = [(float(at), float(value)) for at, value in one["values"]]
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise self._unavailable("answered with something that is no series") from error
            found = _named(labels)
            if found is not None and pairs:
                source = frozenset((name, value) for name, value in labels.items() if name not in _WHO)
                yield _Series(found[0], source, [at for at, _ in pairs], [value * found[1] for _, value in pairs])

    def _query(self, query: str, now: datetime) -> Sequence[Mapping[str, Any]]:
        status, body = self._post(urlencode({"query": query, "time": f"{now.timestamp():.3f}"}))
        try:
            answer = json.loads(body)
            if answer["status"] == "success" and answer["data"]["resultType"] == "matrix":
                return list(answer["data"]["result"])
            said = str(answer["error"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise self._unavailable(f"answered {status} and nothing that Prometheus would say") from error
        raise self._unavailable(f"refused the query with {status}: {said[:200]}")

    def _post(self, form: str) -> tuple[int, bytes]:
        """Ask within the deadline; a redirect is not followed, for the secret would go along."""
        import urllib3  # only who reads a store waits for it

        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        ends = time.monotonic() + DEADLINE_S
        body = bytearray()
        try:
            with urllib3.PoolManager(timeout=DEADLINE_S / 3, retries=False) as pool:
                answer = pool.request(
                    "POST", f"{self.url}/api/v1/query", body=form, headers=headers, preload_content=False
                )
                for part in answer.stream(2**16):
                    body += part
                    if len(body) > MOST_BYTES:
                        raise self._unavailable(f"answered with over {MOST_BYTES >> 20} MiB; ask for less time")
                    if time.monotonic() > ends:
                        raise self._unavailable(f"did not answer within {DEADLINE_S:.0f} s; ask for less time")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(f"does not answer ({_reason(error)})") from error
        if 300 <= answer.status < 400:
            raise self._unavailable(f"sends elsewhere with {answer.status}; give the address that answers itself")
        if answer.status in {401, 403}:
            raise self._unavailable(f"refuses with {answer.status}; see COTENANT_PROMETHEUS_AUTHORIZATION_FILE")
        return answer.status, bytes(body)

    def _unavailable(self, what: str) -> SeriesUnavailable:
        return SeriesUnavailable(f"{self.url} {what}")


def read(settings: Settings, instance_id: str, *, since: str, now: datetime) -> Readings:
    """What a profile is made of: an instance's window means, its host's where it was last, and its neighbours' CPU.

    A window that was scraped more than once counts once, at the first scrape; with scrapes further apart than windows,
    some windows are not seen. NotFound where the store has nothing of the instance, SeriesUnavailable where it does not
    answer.
    """
    try:
        check_id(instance_id, "instance")  # it becomes part of a query
    except ValueError as error:
        raise InvalidInput(str(error), field="instance") from error
    store, since_s = SeriesStore.of(settings), parse_since(since)
    mine = f'{{__name__=~"cotenant_.+",statistic="mean",instance="{instance_id}"}}'
    own = [one for one in store.select(mine, since_s, now) if one.key[1] == instance_id]
    hosts = hosts_of({one.key: (one.times, one.values) for one in own}, instance_id)
    if not hosts:
        raise NotFound(
            f"{store.url} has no series of instance {instance_id} in the last {since}; "
            "is the agent on its host scraped, with honor_labels: true?"
        )
    last = max(hosts, key=lambda host: (hosts[host][0], host))
    there = f'statistic="mean",host={json.dumps(last)}'  # escapes as PromQL does: the store may say any name
    around = (
        f'{{__name__=~"cotenant_.+",__name__!~"{_ATTRIBUTED}.+",scope!="instance",{there}}}',
        f'cotenant_cpu_ratio{{scope="instance",instance!="{instance_id}",{there}}}',
    )
    others = [one for selector in around for one in store.select(selector, since_s, now)]
    by_host: dict[str, list[_Series]] = defaultdict(list)
    for one in (*own, *others):
        by_host[one.key[0]].append(one)
    return {key: series for there in by_host.values() for key, series in _windows_of(there).items()}


def _windows_of(there: Sequence[_Series]) -> dict[SeriesKey, tuple[Sequence[float], Sequence[float]]]:
    """One host's series with each window once, from those scrapes that have most to say.

    The exporter shows a window until the next one is finished, and does not say which it is: scrapes in which nothing
    of a host differs show the same one.
    """
    said: dict[frozenset[tuple[str, str]], int] = defaultdict(int)
    for one in there:
        said[one.source] += len(one.times)
    best = max(said, key=lambda source: (said[source], sorted(source)))
    series = {one.key: one for one in there if one.source == best}
    times = np.unique(np.concatenate([one.times for one in series.values()]))
    table = np.full((len(series), len(times)), np.nan)
    for row, one in zip(table, series.values(), strict=True):
        row[np.searchsorted(times, one.times)] = one.values
    before = table[:, :-1]
    same = ((table[:, 1:] == before) | (np.isnan(table[:, 1:]) & np.isnan(before))).all(axis=0)
    first = np.concatenate([[True], ~same])
    found: dict[SeriesKey, tuple[Sequence[float], Sequence[float]]] = {}
    for key, row in zip(series, table, strict=True):
        kept = first & ~np.isnan(row)
        found[key] = times[kept].tolist(), row[kept].tolist()
    return found


def _gauges() -> dict[str, tuple[str, float]]:
    """The exporter's gauges without their prefix → metric, and the factor to its unit."""
    found = {}
    for metric in (*BY_NAME, *UNITS):
        ending, factor = _OF_UNIT.get(unit_of(metric), ("", 1.0))
        found[f"{_PLAIN.get(metric, metric)}{ending}"] = metric, factor
    return found


GAUGES = _gauges()


def _named(labels: Mapping[str, str]) -> tuple[SeriesKey, float] | None:
    """Whose series it is, and the factor to the metric's unit; None = none of the agent's."""
    name, scope = labels.get("__name__", ""), labels.get("scope", "")
    is_share = name.startswith(_ATTRIBUTED)
    gauge = GAUGES.get(name.removeprefix(_ATTRIBUTED if is_share else "cotenant_"))
    if gauge is None or scope not in SCOPES or "host" not in labels:
        return None
    # A series that names no instance gets the scraped address as one, so the scope says whether there is one.
    owner = labels.get("instance") if is_share or scope == "instance" else None
    if is_share != (scope == "driver_domain" and owner is not None):
        return None
    return (labels["host"], owner, scope, gauge[0]), gauge[1]


def _secret(file: Path | None) -> str | None:
    if file is None:
        return None
    field = "prometheus_authorization_file"
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise InvalidInput(f"{file} cannot be read: {reason}", field=field) from error
    if not text.isprintable() or len(text) > 8192 or len(text.split(" ")) != 2:
        raise InvalidInput(f"{file} is to hold one line such as 'Bearer TOKEN' or 'Basic BASE64'", field=field)
    return text


def _reason(error: Exception) -> str:
    """The last of a chain of causes, which says what happened and not who asked."""
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or type(reason).__name__)
