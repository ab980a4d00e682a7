"""Calls of the API of Kubernetes: lists, watches and single objects, by its documentation (API concepts).

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import requests

from advisor.inventories.calls import CallError
from advisor.inventories.certificates import first_cause
from advisor.inventories.kubernetes.account import ClusterAccount

Row = Mapping[str, Any]
PAGE = 500  # objects: about 5 MB of pods
CONNECT_S = 10.0
LIST_S = 60.0
WATCH_S = 300  # after which the server ends a watch, and it is asked for again
SILENCE_S = 150.0  # of a watch: bookmarks come about once a minute
GONE, NOT_FOUND = 410, 404


class KubernetesApi:
    """Calls of one account; each thread has one of its own."""

    def __init__(self, asking: ClusterAccount) -> None:
        self._asking = asking
        self._session = requests.Session()
        self._session.auth = self._sign  # as `auth`, so that a .netrc cannot replace it
        if asking.certificate:
            self._session.cert = tuple(map(str, asking.certificate))

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        token = self._asking.bearer()
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    def pages(self, path: str, selector: str = "", labels: str = "") -> Iterator[tuple[str, list[Row]]]:
        """The pages of a list, each with the resource version of all of them; CallError."""
        next_page = ""
        while True:
            query = {"limit": str(PAGE), "continue": next_page, "fieldSelector": selector, "labelSelector": labels}
            with self._get(path, query, LIST_S) as answer:
                page = _json(path, answer.content)
            metadata = page.get("metadata") or {}
            yield str(metadata.get("resourceVersion") or ""), page.get("items") or []
            next_page = str(metadata.get("continue") or "")
            if not next_page:
                return

    def everything(self, path: str, *, labels: str = "", absent_is_empty: bool = False) -> list[Row]:
        """All objects of a list; `absent_is_empty` = none where that kind is not installed. CallError."""
        try:
            return [row for _, rows in self.pages(path, labels=labels) for row in rows]
        except CallError as error:
            if absent_is_empty and error.status == NOT_FOUND:
                return []
            raise

    def one(self, path: str) -> Row:
        """One object; CallError."""
        with self._get(path, {}, LIST_S) as answer:
            return _json(path, answer.content)

    def send(self, method: str, path: str, body: Row | None = None) -> Row:
        """Make (POST), change (PATCH, a strategic merge) or delete (DELETE) an object; CallError."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        with self._call(method, path, {}, LIST_S, None if body is None else json.dumps(body).encode(), kind) as answer:
            return _json(path, answer.content)

    def events(self, path: str, version: str, selector: str = "") -> Iterator[tuple[str, Row]]:
        """Type and object of each event since a resource version, until the server ends it; CallError, with
        status GONE where that version is too old."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        query |= {"timeoutSeconds": str(WATCH_S), "fieldSelector": selector}
        with self._get(path, query, SILENCE_S) as answer:
            yield "OPEN", {}
            try:
                for line in answer.iter_lines(1 << 16):
                    if line:
                        yield _event(path, line)
            except (requests.RequestException, OSError) as error:
                raise CallError(f"{path}: the watch broke: {first_cause(error)}"[:200]) from None

    def _get(self, path: str, query: Mapping[str, str], silence_s: float) -> AbstractContextManager[requests.Response]:
        return self._call("GET", path, query, silence_s)

    @contextmanager
    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        silence_s: float,
        body: bytes | None = None,
        kind: str = "",
    ) -> Iterator[requests.Response]:
        filled = {name: value for name, value in query.items() if value}
        try:
            answer = self._session.request(
                method,
                self._asking.server + path,
                params=filled,
                data=body,
                headers={"Content-Type": kind} if kind else None,
                timeout=(CONNECT_S, silence_s),
                # Not the session's: REQUESTS_CA_BUNDLE would replace that.
                verify=str(self._asking.ca) if self._asking.ca else True,
                allow_redirects=False,
                stream="watch" in filled,
            )
        except (requests.RequestException, OSError, ValueError) as error:
            raise CallError(f"{path}: no answer: {first_cause(error)}"[:200]) from None
        with answer:
            if not 200 <= answer.status_code < 300:
                raise CallError(f"{path}: HTTP {answer.status_code} {_message(answer)}"[:300], answer.status_code)
            yield answer


def _event(path: str, line: bytes) -> tuple[str, Row]:
    event = _json(path, line)
    kind, row = str(event.get("type")), event.get("object") or {}
    if kind == "ERROR":
        code = row.get("code")
        raise CallError(f"{path}: the watch ended: {str(row.get('message'))[:200]}", int(code or 0))
    return kind, row


def _json(path: str, body: bytes) -> Mapping[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise CallError(f"{path}: an answer that is none of Kubernetes'")
    return document


def _message(answer: requests.Response) -> str:
    """The message of a Status, else the reason."""
    try:
        text = str(json.loads(answer.content[: 1 << 16])["message"])
    except (ValueError, KeyError, TypeError, RecursionError, requests.RequestException):
        text = str(answer.reason)
    return "".join(char if char.isprintable() else " " for char in text)
