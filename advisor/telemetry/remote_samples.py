"""Samples of windows in a Prometheus-compatible store: written by remote write, read by PromQL.

Series have the names, labels and units of the agent's exporter (`profiler.metrics`), without the label `job`, which
distinguishes them from scraped ones; the time of a sample is the end of its window. The database keeps samples of the
last hours, from which the service learns, so that the other store is asked for answers only.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from advisor.domain import Usage
from advisor.errors import SeriesUnavailable
from advisor.prediction.active import LRUCache
from advisor.settings import Settings
from advisor.store import samples
from advisor.store.demands import Means
from advisor.store.packs import Values
from advisor.store.rollups import BUCKET_S, WaitSums
from advisor.store.sample_store import STORED, HostWindow, Metrics, Series
from advisor.store.schema import chunks
from advisor.telemetry.layouts import Template
from advisor.telemetry.series_store import GAUGES, Scraped, SeriesStore, quoted, reason_of
from models.profiling.windows import Readings, SeriesKey, hosts_of
from profiler.agent.store_connection import HEADERS, OTHER, P95, WAITED, gauge_name, is_refusal, write_request
from profiler.metrics import ATTRIBUTED, PREFIX, SCOPES, WAITED_FOR
from profiler.observed import MetricSample

WRITE_S = 10.0  # for one write with its answer: an agent waits for it
ONE_BY_ONE_S = 7200.0  # means of longer times are made by the store
MOST_POINTS = 10_000  # of a series in one answer: Prometheus gives at most 11,000
EVER_S = 86_400.0  # for which an instance counts as measured on a host
_JUST_S = 0.001  # times have whole ms: a range that ends so long before a border has nothing of the next window
LEARNED_S = 3600.0  # for which the database keeps what was learned
TEMPLATES = 5_000  # of a host each, with 60 KB for 30 instances
MOST_SAID = 1 << 16  # bytes of an answer to a write, which is empty as a rule
_REASON = 300  # characters of what the store says
_ALL = f'__name__=~"{PREFIX}.+"'
Selected = dict[SeriesKey, tuple[list[float], list[float]]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Series that are read together; no hosts = any, no instances = the hosts' own."""

    hosts: tuple[str, ...]
    instances: tuple[str, ...]
    metrics: tuple[tuple[str, str], ...]


class RemoteSamples:
    """One per process; thread-safe. InvalidInput where an URL or the secret cannot be used."""

    elsewhere = True

    def __init__(self, settings: Settings) -> None:
        import urllib3  # only who writes to a store waits for it

        self._store = SeriesStore.at("samples", settings.samples_url, settings.samples_authorization_file)
        own = settings.samples_write_url
        self._write_url = f"{self._store.url}/api/v1/write" if own is None else own
        if own:
            SeriesStore.at("samples_write", own, settings.samples_authorization_file)
        self._templates: LRUCache[tuple[samples.SeriesKey, ...], Template] = LRUCache(TEMPLATES)
        self._pool = urllib3.PoolManager(maxsize=16, timeout=WRITE_S / 2, retries=False)

    def send(self, taken: Sequence[MetricSample]) -> Mapping[int, str]:
        """Write all at once; where the store refuses that as too old or as another value of the same time, by time, so
        that the others get there. By position, why it refuses a sample."""
        if not taken or not self._write_url:
            return {}
        order = sorted(range(len(taken)), key=lambda at: taken[at].time_s)
        refused = self._refused([taken[at] for at in order])
        if refused is None:
            return {}
        by_time: dict[float, list[int]] = defaultdict(list)
        for at in order:
            by_time[taken[at].time_s].append(at)
        if len(by_time) == 1:
            return dict.fromkeys(order, refused)
        refusals: dict[int, str] = {}
        for positions in by_time.values():
            reason = self._refused([taken[at] for at in positions])
            refusals |= dict.fromkeys(positions, reason) if reason is not None else {}
        return refusals

    def send_pack(self, series: Sequence[samples.SeriesKey], time_s: float, values: Values) -> bool:
        if not self._write_url:
            return True
        key = tuple(series)
        template = self._templates.find(key)
        if template is None:
            self._templates.keep(key, template := Template.of(series))
        return self._why_not(template.body(values, time_s)) is None

    def _refused(self, part: Sequence[MetricSample]) -> str | None:
        return self._why_not(write_request(part))

    def _why_not(self, request: bytes) -> str | None:
        """Write; None = it is stored, else why the store will never take it. SeriesUnavailable where it may later."""
        import urllib3

        headers = dict(HEADERS)
        if self._store.authorization is not None:
            headers["Authorization"] = self._store.authorization
        until_s, body = time.monotonic() + WRITE_S, bytearray()
        try:
            answer = self._pool.request("POST", self._write_url, body=request, headers=headers, preload_content=False)
            while more := answer.read1(1 << 12):
                body += more
                if len(body) > MOST_SAID or time.monotonic() > until_s:
                    answer.close()  # what is left would be taken for the next answer
                    break
            answer.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise SeriesUnavailable(f"{self._write_url} does not answer ({reason_of(error)})") from error
        said = body.decode("utf-8", "replace").strip()
        if 200 <= answer.status < 300:
            return None
        if is_refusal(answer.status, said):
            return f"the store of samples refuses it: {said[:_REASON]}"
        if answer.status in {401, 403}:
            said = "see COTENANT_SAMPLES_AUTHORIZATION_FILE"
        raise SeriesUnavailable(f"{self._write_url} refuses samples with {answer.status}: {said[:_REASON]}")

    # what is learned on the way in

    def add(self, connection: sa.Connection, taken: Sequence[MetricSample]) -> int:
        return STORED.add(connection, taken)

    def add_packs(self, connection: sa.Connection, coming: Sequence[samples.Pack]) -> list[int]:
        return STORED.add_packs(connection, coming)

    def learned(self, connection: sa.Connection, until: Mapping[str, float]) -> None:
        """What was learned an hour ago goes: a host's own load looks back so far."""
        for host, until_s in until.items():
            samples.forget(connection, host, until_s - 3 * LEARNED_S, until_s - LEARNED_S)

    def metric_names(self, connection: sa.Connection, hosts: Iterable[str]) -> dict[str, set[str]]:  # noqa: ARG002
        """Of metrics beside the agent's own, of the last day: only they are limited."""
        names: dict[str, set[str]] = {}
        matchers = f"{OTHER}{{{_one_of('host', sorted(hosts))}}}"
        query = f"count by (host, metric) (count_over_time({matchers}[1d]))"
        for found in self._at(query, time.time()):
            names.setdefault(found.labels.get("host", ""), set()).add(found.labels.get("metric", ""))
        return names

    def series_of(
        self, connection: sa.Connection, hosts: Iterable[str], ids: Iterable[str], metrics: Sequence[str]
    ) -> Series:
        return STORED.series_of(connection, hosts, ids, metrics)

    def windows(
        self, connection: sa.Connection, of: Series, begin_s: float, end_s: float, hosts: Collection[str]
    ) -> Means:
        return STORED.windows(connection, of, begin_s, end_s, hosts)

    def first_after(self, connection: sa.Connection, of: Series, since_s: float) -> float | None:
        return STORED.first_after(connection, of, since_s)

    def busy(
        self, connection: sa.Connection, host: str, begin_s: float, end_s: float
    ) -> Mapping[str, tuple[float, int]]:
        return STORED.busy(connection, host, begin_s, end_s)

    def last_measured(self, connection: sa.Connection) -> Mapping[str, float]:
        return STORED.last_measured(connection)

    # what answers are made of

    def host_window(
        self,
        connection: sa.Connection,  # noqa: ARG002 - it is elsewhere
        host: str,
        metrics: Sequence[str],
        begin_s: float,
        end_s: float,
    ) -> HostWindow:
        here = _one_of("host", [host])
        names = [(name, _gauge("instance", name)[0]) for name in metrics]
        matchers = ",".join([_one_of("__name__", [gauge for _, gauge in names]), here, 'scope="instance"'])
        found = self._raw(matchers, begin_s, end_s)
        means: dict[str, dict[str, float]] = defaultdict(dict)
        counts: dict[str, int] = {}
        for (_, instance, _, metric), (times, values) in found.items():
            means[instance or ""][metric] = math.fsum(values) / len(values)
            if metric == "cpu":
                counts[instance or ""] = len(times)
        gauge, _ = _gauge("instance", "cpu")
        ever = self._over("count_over_time(", gauge, f'{here},scope="instance"', end_s - EVER_S, end_s)
        return HostWindow({one.labels.get("instance", "") for one in ever}, counts, means)

    def around(
        self,
        connection: sa.Connection,  # noqa: ARG002
        instance: str,
        since_s: float,
        now_s: float,
        whole_s: float,
    ) -> Readings:
        if now_s - since_s <= whole_s:
            return self._around(instance, since_s, now_s)
        matchers = f'{_one_of("instance", [instance])},scope="instance"'
        own = self._over("count_over_time(", _gauge("instance", "cpu")[0], matchers, since_s, now_s)
        hosts = sorted({one.labels.get("host", "") for one in own})
        readings = self._means_around(instance, hosts, since_s, now_s) if hosts else {}
        times = [at for ends, _ in readings.values() for at in ends]
        if not times or max(times) - min(times) <= whole_s:
            return self._around(instance, now_s - whole_s, now_s)
        return readings

    def _around(self, instance: str, since_s: float, now_s: float) -> Readings:
        """All means of an instance and of its hosts, and its neighbours' CPU use."""
        own = {
            key: means
            for key, means in self._raw(f"{_ALL},{_one_of('instance', [instance])}", since_s, now_s).items()
            if not key[3].startswith(WAITED_FOR)
        }
        hosts = sorted(hosts_of(own, instance))
        if not hosts:
            return own
        here = _one_of("host", hosts)
        of_hosts = self._raw(f'{_ALL},{here},instance=""', since_s, now_s)
        gauge, _ = _gauge("instance", "cpu")
        others = self._raw(f'__name__="{gauge}",{here},scope="instance"', since_s, now_s)
        return {**of_hosts, **others, **own}

    def _means_around(self, instance: str, hosts: Sequence[str], since_s: float, now_s: float) -> Readings:
        """The same as means of five minutes, which the store makes."""
        every = tuple((scope, name) for scope in SCOPES for name, _ in GAUGES.values() if scope != "host")
        of_hosts = tuple((scope, name) for scope in SCOPES for name, _ in GAUGES.values() if scope != "instance")
        here = f'{_one_of("host", hosts)},scope="instance"'
        return {
            **self._average("cpu", "instance", here, since_s, now_s, BUCKET_S),
            **self._averages(_Part(tuple(hosts), (), of_hosts), since_s, now_s, BUCKET_S),
            **self._averages(_Part((), (instance,), every), since_s, now_s, BUCKET_S),
        }

    def of_host(
        self,
        connection: sa.Connection,  # noqa: ARG002
        host: str,
        instances: Sequence[str],
        metrics: Metrics,
    ) -> Series:
        return _parts((host,), instances, (host,), metrics)

    def of_instance(
        self,
        connection: sa.Connection,  # noqa: ARG002
        instance: str,
        hosts: Sequence[str],
        metrics: Metrics,
    ) -> Series:
        return _parts((), (instance,), hosts, metrics)

    def means(
        self,
        connection: sa.Connection,  # noqa: ARG002
        of: Series,
        begin_s: float,
        end_s: float,
        step_s: float,
    ) -> dict[Any, tuple[Sequence[float], Sequence[float]]]:
        found: dict[Any, tuple[Sequence[float], Sequence[float]]] = {}
        for part in of:
            if end_s - begin_s <= ONE_BY_ONE_S:
                steps = {key: _steps(*read, step_s) for key, read in self._parts_raw(part, begin_s, end_s).items()}
            else:
                steps = self._averages(part, begin_s, end_s, step_s)
            found |= {(host, instance, metric): means for (host, instance, _, metric), means in steps.items()}
        return found

    def wait_sums(
        self,
        connection: sa.Connection,  # noqa: ARG002
        host: str,
        instances: Sequence[str],
        since_s: float,
        now_s: float,
    ) -> tuple[WaitSums, ...]:
        results: list[WaitSums] = []
        for part in chunks(sorted(instances)):
            matchers = f'{_one_of("host", [host])},{_one_of("instance", part)},scope="instance"'
            for metric in ("cpu", "waiting", "waited_for_host", WAITED_FOR):
                gauge, factor = _gauge("instance", metric)
                totals = self._over("sum_over_time(", gauge, matchers, since_s, now_s)
                counts = self._over("count_over_time(", gauge, matchers, since_s, now_s)
                number = {_identity(one): one.values[-1] for one in counts}
                for one in totals:
                    name = f"{WAITED_FOR}{one.labels.get('other', '')}" if metric == WAITED_FOR else metric
                    total, count = one.values[-1] / factor, int(number.get(_identity(one), 0))
                    results.append(WaitSums(one.labels.get("instance", ""), name, total, count))
        return tuple(results)

    def usage(
        self,
        connection: sa.Connection,  # noqa: ARG002
        instances: Sequence[str],
        since_s: float,
        now_s: float,
    ) -> Mapping[str, Usage]:
        gauge, _ = _gauge("instance", "cpu")
        used: dict[str, Usage] = {}
        for part in chunks(sorted(instances)):
            matchers = f'{_one_of("instance", part)},scope="instance"'
            windows, p95, p99 = (
                {_identity(one): one.values[-1] for one in self._over(function, gauge, matchers, since_s, now_s)}
                for function in ("count_over_time(", "quantile_over_time(0.95, ", "quantile_over_time(0.99, ")
            )
            on_hosts: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
            for key in windows:
                on_hosts[key[1]].append(key)
            moved = sorted(name for name, keys in on_hosts.items() if len(keys) > 1)
            last = self._last_hosts(moved, since_s, now_s) if moved else {}
            for name, keys in on_hosts.items():
                key = next((key for key in keys if key[0] == last.get(name)), keys[0])
                if key in p95 and key in p99:
                    used[name] = Usage(p95[key], int(windows[key]), p99[key])
        return used

    def _last_hosts(self, instances: Sequence[str], since_s: float, now_s: float) -> Mapping[str, str]:
        """On which host each of these was measured last."""
        gauge, _ = _gauge("instance", "cpu")
        matchers = f'__name__="{gauge}",{_one_of("instance", instances)},scope="instance"'
        last: dict[str, tuple[float, str]] = {}
        for (host, instance, _, _), (times, _) in self._raw(matchers, since_s, now_s).items():
            last[instance or ""] = max((times[-1], host), last.get(instance or "", (0.0, "")))
        return {name: host for name, (_, host) in last.items()}

    def memory(
        self,
        connection: sa.Connection,  # noqa: ARG002
        instances: Sequence[str],
        since_s: float,
        now_s: float,
    ) -> Mapping[str, tuple[float | None, float | None]]:
        most: dict[str, dict[str, float]] = defaultdict(dict)
        for part in chunks(sorted(instances)):
            for metric in ("rss_mb", "swap_mb"):
                gauge, factor = _gauge("instance", metric)
                matchers = f'{_one_of("instance", part)},scope="instance"'
                for one in self._over("max_over_time(", gauge, matchers, since_s, now_s):
                    of_instance = most[one.labels.get("instance", "")]
                    of_instance[metric] = max(one.values[-1] / factor, of_instance.get(metric, 0.0))
        return {name: (found.get("rss_mb"), found.get("swap_mb")) for name, found in most.items()}

    def run_and_wait(
        self,
        connection: sa.Connection,  # noqa: ARG002
        since_s: float,
        now_s: float,
    ) -> Mapping[tuple[str, str], Mapping[str, float]]:
        found: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        for metric in ("cpu", "waiting", "throttled"):
            gauge, factor = _gauge("instance", metric)
            for one in self._over("avg_over_time(", gauge, 'scope="instance"', since_s, now_s):
                found[one.labels.get("host", ""), one.labels.get("instance", "")][metric] = one.values[-1] / factor
        return found

    # how the store is asked

    def _parts_raw(self, part: _Part, begin_s: float, end_s: float) -> Selected:
        names = sorted({_gauge(scope, metric)[0] for scope, metric in part.metrics})
        found = self._raw(f"{_one_of('__name__', names)},{_owners(part)}", begin_s, end_s)
        return {key: read for key, read in found.items() if key[2:] in part.metrics}

    def _averages(self, part: _Part, begin_s: float, end_s: float, step_s: float) -> dict[SeriesKey, Any]:
        found: dict[SeriesKey, Any] = {}
        for scope, metric in part.metrics:
            matchers, owned = f'{_owners(part)},scope="{scope}"', bool(part.instances)
            found |= self._average(metric, scope, matchers, begin_s, end_s, step_s, owned=owned)
        return found

    def _average(
        self,
        metric: str,
        scope: str,
        matchers: str,
        begin_s: float,
        end_s: float,
        step_s: float,
        *,
        owned: bool = True,
    ) -> dict[SeriesKey, Any]:
        """Means of steps that end at multiples of `step_s`; a sample on a border begins the next one."""
        gauge, factor = _gauge(scope, metric, owned=owned)
        query = f'avg_over_time({gauge}{{{matchers},statistic="mean",job=""}}[{step_s * 1000:.0f}ms])'
        found: dict[SeriesKey, tuple[list[float], list[float]]] = {}
        first, last = math.floor(begin_s / step_s) + 1, math.ceil(end_s / step_s)
        for at in range(first, last + 1, MOST_POINTS):
            end = min(at + MOST_POINTS - 1, last) * step_s - _JUST_S
            for one in self._store.range_s(query, at * step_s - _JUST_S, end, step_s):
                key = (one.labels.get("host", ""), one.labels.get("instance") or None, scope, metric)
                ends, means = found.setdefault(key, ([], []))
                ends += [round((time_s + _JUST_S) / step_s) * step_s for time_s in one.times]
                means += [value / factor for value in one.values]
        return found

    def _raw(self, matchers: str, begin_s: float, end_s: float) -> Selected:
        """Means of windows as they were written, from one time to before another, each time once."""
        selector = f'{{{matchers},statistic="mean",job=""}}'
        found: Selected = {}
        for one in self._store.select_until(selector, end_s - begin_s + 1.0, end_s):
            named = _named(one.labels)
            if named is None:
                continue
            key, factor = named
            pairs = {at: value for at, value in zip(one.times, one.values, strict=True) if begin_s <= at < end_s}
            if pairs:
                times = sorted(pairs)
                found[key] = times, [pairs[at] / factor for at in times]
        return found

    def _over(self, function: str, gauge: str, matchers: str, begin_s: float, end_s: float) -> list[Scraped]:
        """A function, with its bracket opened, of all values from one time to another, by series."""
        ms = (end_s - begin_s) * 1000 + 1
        selector = f'{gauge}{{{matchers},statistic="mean",job=""}}[{ms:.0f}ms]'
        return self._at(f"{function}{selector})", end_s)

    def _at(self, query: str, at_s: float) -> list[Scraped]:
        return list(self._store.range_s(query, at_s, at_s, BUCKET_S))


def _parts(hosts: tuple[str, ...], instances: Sequence[str], own: Sequence[str], metrics: Metrics) -> dict[_Part, None]:
    """Instances on these hosts (none = wherever), and what `own` hosts themselves have."""
    parts: dict[_Part, None] = {_Part(hosts, tuple(part), tuple(metrics)): None for part in chunks(sorted(instances))}
    of_hosts = tuple((scope, name) for scope, name in metrics if scope == "host")
    if own and of_hosts:
        parts[_Part(tuple(own), (), of_hosts)] = None
    return parts


def _owners(part: _Part) -> str:
    who = _one_of("instance", part.instances) if part.instances else 'instance=""'
    return f"{_one_of('host', part.hosts)},{who}" if part.hosts else who


def _one_of(label: str, values: Sequence[str]) -> str:
    """A matcher of a label that is one of these ids or names of metrics: letters, digits, `._:-`."""
    if len(values) == 1:
        return f"{label}={quoted(values[0])}"
    return f"{label}=~{quoted('|'.join(value.replace('.', chr(92) + '.') for value in values))}"


def _gauge(scope: str, metric: str, *, owned: bool = True) -> tuple[str, float]:
    name, _, factor = gauge_name(metric, scope, owned=owned and scope != "host")
    return name, factor


def _identity(one: Scraped) -> tuple[str, str, str]:
    return one.labels.get("host", ""), one.labels.get("instance", ""), one.labels.get("other", "")


def _named(labels: Mapping[str, str]) -> tuple[SeriesKey, float] | None:
    """Whose series it is, and the factor from the metric's unit to its gauge's; None = none that was written here."""
    name, scope, host = labels.get("__name__", ""), labels.get("scope", ""), labels.get("host", "")
    if scope not in SCOPES or not host:
        return None
    if name == WAITED:
        metric, factor = f"{WAITED_FOR}{labels.get('other', '')}", 0.01
    elif name == OTHER:
        metric, factor = labels.get("metric", ""), 1.0
    else:
        known = GAUGES.get(name.removeprefix(ATTRIBUTED if name.startswith(ATTRIBUTED) else PREFIX))
        if known is None:
            return None
        metric, factor = known
    if labels.get("statistic") == "p95":
        metric = f"{metric}{P95}"
    return (host, labels.get("instance") or None, scope, metric), factor


def _steps(times: Sequence[float], values: Sequence[float], step_s: float) -> tuple[list[float], list[float]]:
    """Ends and means of steps that end at multiples of `step_s`."""
    at = np.floor(np.asarray(times) / step_s)
    steps, which, counts = np.unique(at, return_inverse=True, return_counts=True)
    sums = np.bincount(which, weights=np.asarray(values), minlength=len(steps))
    return ((steps + 1) * step_s).tolist(), (sums / counts).tolist()
