"""A Prometheus-compatible store, asked for series as they were scraped, and the agent's series as windows."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np

from advisor.errors import InvalidInput, NotFound, SeriesUnavailable
from advisor.settings import Settings
from advisor.telemetry.profiles import Seen, parse_since
from models.profiling.windows import SeriesKey, hosts_of
from profiler.agent.http_client import ServerUrl, may_carry_token
from profiler.collectors import unit_of
from profiler.files import read_secret
from profiler.metrics import ADDITIONAL_UNITS, ATTRIBUTED, BY_NAME, PREFIX, SCOPES, gauge_of
from profiler.observed import check_id

DEADLINE_S = 30.0  # for one query, with its answer
MOST_BYTES = 128 * 2**20  # of an answer: a day of ten-second windows of 300 instances is about half of it


@dataclass(frozen=True, slots=True)
class Scraped:
    """One series: its labels with its name as `__name__`, and its samples in order of time (s, any unit)."""

    labels: Mapping[str, str]
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class SeriesStore:
    """A store that answers `/api/v1/query` and `/api/v1/query_range` as Prometheus does."""

    url: str
    authorization: str | None = None
    named_by: str = "prometheus"  # how the names of its settings begin

    @classmethod
    def of(cls, settings: Settings) -> SeriesStore:
        """The store of the settings; InvalidInput where its URL or its secret cannot be used."""
        return cls.at("prometheus", settings.prometheus_url, settings.prometheus_authorization_file)

    @classmethod
    def at(cls, named_by: str, address: str | None, secret_file: Path | None) -> SeriesStore:
        """The store at an address; the same errors."""
        field, setting = f"{named_by}_url", f"COTENANT_{named_by.upper()}_URL"
        url = (address or "").rstrip("/")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"{setting}: {url[:100]!r} is no URL ({error})", field=field) from error
        if parts.username is not None or parts.password is not None:
            file = f"COTENANT_{named_by.upper()}_AUTHORIZATION_FILE"
            raise InvalidInput(f"{setting} holds a user or password; name a file by {file} instead", field=field)
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or not plain:
            raise InvalidInput(f"{setting}: {url[:100]!r} is no URL such as http://127.0.0.1:9090", field=field)
        secret = _secret(secret_file, f"{named_by}_authorization_file")
        if secret and not may_carry_token(ServerUrl(parts.scheme == "https", parts.hostname, port or 0, "")):
            raise InvalidInput(
                f"{setting}: {url[:100]} would get the secret unencrypted; give an https URL", field=field
            )
        return cls(url, secret, named_by)

    def select(self, selector: str, since_s: float, now: datetime) -> Iterator[Scraped]:
        """Every sample of what a selector names in the last `since_s` seconds, as it was scraped; no NaN or infinity.

        SeriesUnavailable where the store does not answer, refuses, or answers with what is none.
        """
        return self.select_until(selector, since_s, now.timestamp())

    def select_until(self, selector: str, since_s: float, end_s: float) -> Iterator[Scraped]:
        """The same up to a time, s since the epoch."""
        return self._matrix("query", {"query": f"{selector}[{math.ceil(since_s)}s]", "time": f"{end_s:.3f}"})

    def range(self, query: str, begin: datetime, end: datetime, step_s: int) -> Iterator[Scraped]:
        """What a query gives at `begin` and every `step_s` seconds up to `end` (HTTP API, "Range queries")."""
        return self.range_s(query, begin.timestamp(), end.timestamp(), step_s)

    def range_s(self, query: str, begin_s: float, end_s: float, step_s: float) -> Iterator[Scraped]:
        """The same by seconds since the epoch; VictoriaMetrics shifts no time to a multiple of the step."""
        times = {"start": f"{begin_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:g}", "nocache": "1"}
        return self._matrix("query_range", {"query": query, **times})

    def _matrix(self, endpoint: str, form: Mapping[str, str]) -> Iterator[Scraped]:
        status, body = self._post(endpoint, urlencode(form))
        return series_in(self.url, status, body)

    def _post(self, endpoint: str, form: str) -> tuple[int, bytes]:
        """Ask within the deadline; a redirect is not followed, for the secret would go along."""
        import urllib3  # only who reads a store waits for it

        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        ends = time.monotonic() + DEADLINE_S
        body = bytearray()
        try:
            with urllib3.PoolManager(timeout=DEADLINE_S / 3, retries=False) as pool:
                url = f"{self.url}/api/v1/{endpoint}"
                answer = pool.request("POST", url, body=form, headers=headers, preload_content=False)
                while part := answer.read1(2**16):  # what is there: to wait for so much could outlast the deadline
                    body += part
                    if len(body) > MOST_BYTES:
                        raise self._unavailable(f"answered with over {MOST_BYTES >> 20} MiB; ask for less time")
                    if time.monotonic() > ends:
                        raise self._unavailable(f"did not answer within {DEADLINE_S:.0f} s; ask for less time")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unavailable(f"does not answer ({reason_of(error)})") from error
        if 300 <= answer.status < 400:
            raise self._unavailable(f"sends elsewhere with {answer.status}; give the address that answers itself")
        if answer.status in {401, 403}:
            file = f"COTENANT_{self.named_by.upper()}_AUTHORIZATION_FILE"
            raise self._unavailable(f"refuses with {answer.status}; see {file}")
        return answer.status, bytes(body)

    def _unavailable(self, what: str) -> SeriesUnavailable:
        return SeriesUnavailable(f"{self.url} {what}")


def series_in(where: str, status: int, body: bytes) -> Iterator[Scraped]:
    """The series of an answer of Prometheus's API, without times and values that are NaN or infinite.

    SeriesUnavailable, with `where`, where it refuses or holds something else."""
    for item in _result(where, status, body):
        try:
            labels = {str(name): str(value) for name, value in item["metric"].items()}
            "".join((*labels, *labels.values())).encode()  # JSON can spell half a character, no query can ask for one
            samples = [(float(at), float(value)) for at, value in item["values"]]
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise SeriesUnavailable(f"{where} answered with something that is no series") from error
        pairs = [pair for pair in samples if math.isfinite(pair[0]) and math.isfinite(pair[1])]
        if pairs:
            yield Scraped(labels, [at for at, _ in pairs], [value for _, value in pairs])


def _result(where: str, status: int, body: bytes) -> Sequence[Mapping[str, Any]]:
    try:
        answer = json.loads(body)
        if answer["status"] == "success" and answer["data"]["resultType"] == "matrix":
            return list(answer["data"]["result"])
        reason = str(answer["error"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SeriesUnavailable(f"{where} answered {status} and nothing that Prometheus would say") from error
    raise SeriesUnavailable(f"{where} refused the query with {status}: {reason[:200]}")


def _secret(file: Path | None, field: str) -> str | None:
    if file is None:
        return None
    try:
        text = read_secret(file).strip()
    except ValueError as error:
        raise InvalidInput(str(error), field=field) from error
    if not (text.isascii() and text.isprintable()) or len(text) > 8192 or len(text.split(" ")) != 2:
        raise InvalidInput(f"{file} is to hold one line such as 'Bearer TOKEN' or 'Basic BASE64'", field=field)
    return text


def reason_of(error: Exception) -> str:
    """The first of a chain of causes, which says what happened and not who asked."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return str(getattr(cause, "strerror", None) or type(cause).__name__)


# Series of the agent's exporter, read back by PromQL from a Prometheus-compatible store as windows for a profile.

_WHO = ("__name__", "instance", "scope", "statistic")  # labels that tell series of one scrape apart
_ENDS = "cotenant_profiler_window_end_timestamp_seconds"
_FINISHED = "cotenant_profiler_windows_total"
Source = frozenset[tuple[str, str]]  # all other labels: which scrapes a series is from


@dataclass(frozen=True, slots=True)
class _Series:
    """One series of windows: whose it is, which scrapes it is from, and its samples in order of time."""

    key: SeriesKey
    source: Source
    times: Sequence[float]
    values: Sequence[float]


def read(settings: Settings, instance_id: str, *, since: str, now: datetime) -> Seen:
    """What a profile is made of: an instance's window means, its host's where it was last, and its neighbours' CPU.

    A window that was scraped more than once counts once. NotFound where the store has nothing of the instance,
    SeriesUnavailable where it does not answer.
    """
    try:
        check_id(instance_id, "instance")  # it becomes part of a query
    except ValueError as error:
        raise InvalidInput(str(error), field="instance") from error
    store, since_s = SeriesStore.of(settings), parse_since(since)

    def select(selector: str) -> list[Scraped]:
        return list(store.select(selector, since_s, now))

    own_selector = f'{{__name__=~"cotenant_.+",statistic="mean",instance="{instance_id}"}}'
    own = [entry for entry in _named(select(own_selector)) if entry.key[1] == instance_id]
    hosts = hosts_of({entry.key: (entry.times, entry.values) for entry in own}, instance_id)
    if not hosts:
        raise NotFound(
            f"{store.url} has no series of instance {instance_id} in the last {since}; "
            "is the agent on its host scraped, with honor_labels: true?"
        )
    last = max(hosts, key=lambda host: (hosts[host][0], host))
    on_host = f'statistic="mean",host={quoted(last)}'  # the store may say any name
    around = (
        f'{{__name__=~"cotenant_.+",__name__!~"{ATTRIBUTED}.+",scope!="instance",{on_host}}}',
        f'cotenant_cpu_ratio{{scope="instance",instance!="{instance_id}",{on_host}}}',
    )
    by_host: dict[str, list[_Series]] = defaultdict(list)
    for entry in (*own, *(entry for selector in around for entry in _named(select(selector)))):
        by_host[entry.key[0]].append(entry)
    readings: dict[SeriesKey, tuple[Sequence[float], Sequence[float]]] = {}
    notes: tuple[str, ...] = ()
    for host, series in by_host.items():
        source = _fullest(series)
        ends = _only(source, select(f"{_ENDS}{{host={quoted(host)}}}"))
        readings |= _windows_of([entry for entry in series if entry.source == source], ends)
        if host == last and ends is not None:
            target = {name: text for name, text in ends.labels.items() if name not in {"__name__", "host"}}
            matchers = ",".join(f"{name}={quoted(text)}" for name, text in sorted(target.items()))
            counters = select(f"{_FINISHED}{{{matchers}}}")
            notes = _unseen(host, ends, [counter for counter in counters if len(counter.labels) == len(target) + 1])
    return Seen(readings, notes)


def quoted(text: str) -> str:
    """A string as PromQL reads it: JSON's escapes are among its own, but half a character (\\ud83d) is none there."""
    return json.dumps(text, ensure_ascii=False)


def _fullest(series: Sequence[_Series]) -> Source:
    """The scrapes that have most samples of a host."""
    counts: dict[Source, int] = defaultdict(int)
    for entry in series:
        counts[entry.source] += len(entry.times)
    return max(counts, key=lambda source: (counts[source], sorted(source)))


def _only(source: Source, scraped: Sequence[Scraped]) -> Scraped | None:
    """The one series from these scrapes; None where there is none, as with older agents, or more than one."""
    matching = [entry for entry in scraped if _source(entry.labels) == source]
    return matching[0] if len(matching) == 1 else None


def _windows_of(
    entries: Sequence[_Series], ends: Scraped | None
) -> dict[SeriesKey, tuple[Sequence[float], Sequence[float]]]:
    """One host's series from the same scrapes with each window once, at its end where the scrape says when that was.

    Where it does not, scrapes in which nothing of a host differs are taken for the same window, at the first of them.
    """
    series = {entry.key: entry for entry in entries}
    times = np.unique(np.concatenate([entry.times for entry in series.values()]))
    table = np.full((len(series), len(times)), np.nan)
    for row, entry in zip(table, series.values(), strict=True):
        row[np.searchsorted(times, entry.times)] = entry.values
    end_at = dict(zip(ends.times, ends.values, strict=True)) if ends is not None else {}
    end = np.array([end_at.get(time, np.nan) for time in times.tolist()])
    before = table[:, :-1]
    alike = ((table[:, 1:] == before) | (np.isnan(table[:, 1:]) & np.isnan(before))).all(axis=0)
    unknown = np.isnan(end[1:]) | np.isnan(end[:-1])
    first = np.concatenate([[True], ~np.where(unknown, alike, end[1:] == end[:-1])])
    when = np.where(np.isnan(end), times, end)
    windows: dict[SeriesKey, tuple[Sequence[float], Sequence[float]]] = {}
    for key, row in zip(series, table, strict=True):
        is_window = first & ~np.isnan(row)
        windows[key] = when[is_window].tolist(), row[is_window].tolist()
    return windows


def _unseen(host: str, ends: Scraped, finished: Sequence[Scraped]) -> tuple[str, ...]:
    """How many windows its agent finished between the first and the last scrape that none of them saw, if any."""
    if len(finished) != 1:
        return ()
    counts = dict(zip(finished[0].times, finished[0].values, strict=True))
    ends_and_counts = [(end, counts[time]) for time, end in zip(ends.times, ends.values, strict=True) if time in counts]
    # an agent that was started again counts from 0
    finished_since = sum(
        int(now - before if now >= before else now) for (_, before), (_, now) in pairwise(ends_and_counts)
    )
    missed = finished_since - sum(now != before for (before, _), (now, _) in pairwise(ends_and_counts))
    if missed <= 0:
        return ()
    return (f"no scrape saw {missed} of {finished_since + 1} windows on host {host}; scrape its agent once per window",)


def _source(labels: Mapping[str, str]) -> Source:
    return frozenset((name, value) for name, value in labels.items() if name not in _WHO)


def _gauges() -> dict[str, tuple[str, float]]:
    """The exporter's gauges without their prefix → metric, and the factor to its unit."""
    gauges = {}
    for metric in (*BY_NAME, *ADDITIONAL_UNITS):
        name, factor = gauge_of(metric, unit_of(metric))
        gauges[name] = metric, factor
    return gauges


GAUGES = _gauges()


def _named(scraped: Sequence[Scraped]) -> list[_Series]:
    """The series that are the agent's gauges, with their values in the metrics' units."""
    series = []
    for entry in scraped:
        owner = _whose(entry.labels)
        if owner is not None:
            key, factor = owner
            series.append(_Series(key, _source(entry.labels), entry.times, [value / factor for value in entry.values]))
    return series


def _whose(labels: Mapping[str, str]) -> tuple[SeriesKey, float] | None:
    """Whose series it is, and the factor from the metric's unit to its gauge's; None = none of the agent's."""
    name, scope = labels.get("__name__", ""), labels.get("scope", "")
    is_share = name.startswith(ATTRIBUTED)
    gauge = GAUGES.get(name.removeprefix(ATTRIBUTED if is_share else PREFIX))
    if gauge is None or scope not in SCOPES or "host" not in labels:
        return None
    # A series that names no instance gets the scraped address as one, so the scope says whether there is one.
    owner = labels.get("instance") if is_share or scope == "instance" else None
    if is_share != (scope == "driver_domain" and owner is not None):
        return None
    return (labels["host"], owner, scope, gauge[0]), gauge[1]
