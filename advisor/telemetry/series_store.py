"""A Prometheus-compatible store, asked for series as they were scraped; whatever it answers is one error or data."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from advisor.errors import InvalidInput, SeriesUnavailable
from advisor.settings import Settings
from profiler.agent.http_client import ServerUrl, may_carry_token
from profiler.files import read_secret

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
        field = f"{named_by}_url"
        url = (address or "").rstrip("/")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidInput(f"{url[:100]!r} is no URL ({error})", field=field) from error
        if parts.username is not None or parts.password is not None:
            file = f"COTENANT_{named_by.upper()}_AUTHORIZATION_FILE"
            raise InvalidInput(f"the URL holds a user or password; name a file by {file} instead", field=field)
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or not plain:
            raise InvalidInput(f"{url[:100]!r} is no URL such as http://127.0.0.1:9090", field=field)
        secret = _secret(secret_file, f"{named_by}_authorization_file")
        if secret and not may_carry_token(ServerUrl(parts.scheme == "https", parts.hostname, port or 0, "")):
            raise InvalidInput(f"{url[:100]} would get the secret unencrypted; give an https URL", field=field)
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
    """The series of an answer of Prometheus's API, without NaN and infinity; SeriesUnavailable, with `where`, where
    it refuses or holds something else."""
    for item in _result(where, status, body):
        try:
            labels = {str(name): str(value) for name, value in item["metric"].items()}
            "".join((*labels, *labels.values())).encode()  # JSON can spell half a character, no query can ask for one
            samples = [(float(at), float(value)) for at, value in item["values"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SeriesUnavailable(f"{where} answered with something that is no series") from error
        pairs = [pair for pair in samples if math.isfinite(pair[1])]
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
