"""The two clients: the same calls, carried out by httpx with threads or with asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from cotenant_client.calls import AsyncCalls, Call, Page, Patience, SyncCalls, Try, Wait, conversation, following
from cotenant_client.credentials import TokenAuth, base_url
from cotenant_client.errors import CotenantError, Unavailable, of_transport

T = TypeVar("T")
_GRACE_S = 0.5  # after the deadline, for time-outs that end a try by themselves


class _Client:
    """What both have: where the service is, who asks, and how patiently."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        token_file: Path | str | None = None,
        timeout_s: float = 30.0,
        deadline_s: float = 60.0,
        tries: int = 4,
        user_agent: str | None = None,
    ) -> None:
        """ValueError says in one sentence why the URL or the token cannot be used.

        The token is that of the argument, of the file, or of the variable COTENANT_TOKEN. `timeout_s` may pass without
        a byte, `deadline_s` from the first try of a call to its last.
        """
        self.url = url
        parsed = base_url(url)
        # The system's authorities, or those of SSL_CERT_FILE; for plain HTTP none are loaded, which takes 25 ms.
        secure = ssl.create_default_context() if parsed.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._patience = Patience(tries, timeout_s, deadline_s)
        options = {
            "base_url": parsed,
            "auth": TokenAuth(parsed, token, token_file),
            "headers": {
                "User-Agent": user_agent or f"cotenant-client/{_version()}",
                "Accept": "application/json",
                "Accept-Encoding": "identity",  # nothing small becomes large here
            },
            "verify": secure,
            "trust_env": False,  # neither proxies nor the passwords of ~/.netrc
            "follow_redirects": False,
        }
        self._open(options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _open(self, options: Mapping[str, Any]) -> None:
        """Make the client of httpx."""
        raise NotImplementedError

    def _closed_error(self) -> Unavailable:
        return Unavailable(f"{self.url} cannot be asked: the client was closed", kind="closed", sent=False)


class Client(_Client, SyncCalls):
    """Asks a service; for `with`, or until `close`. Threads may share it."""

    def _open(self, options: Mapping[str, Any]) -> None:
        self._http = httpx.Client(**options)
        self._closed = threading.Event()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        weakref.finalize(self, self._http.close)  # where the caller does not close it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End; a call that another thread has under way fails at once."""
        self._closed.set()
        self._cut()
        self._http.close()

    def _ask(self, call: Call[T]) -> T:
        steps = conversation(self.url, call, self._patience)
        step: Try | Wait = next(steps)
        while True:
            error = None
            if isinstance(step, Try):
                error = self._send(step)
            else:
                self._closed.wait(step.seconds)
            try:
                step = steps.send(error)
            except StopIteration as end:
                answer: T = end.value
                return answer

    def _every(self, call: Call[Page[T]]) -> Iterator[T]:
        rest: Call[Page[T]] | None = call
        while rest is not None:
            items, rest = following(self.url, rest, self._ask(rest))
            yield from items

    def _send(self, attempt: Try) -> CotenantError | None:
        if self._closed.is_set():
            return self._closed_error()
        late = threading.Timer(attempt.left_s + _GRACE_S, self._cut)  # a server that sends a byte now and then
        late.daemon = True
        late.start()
        try:
            with self._http.stream(**attempt.options(), extensions={"trace": self._notice}) as attempt.response:
                for chunk in attempt.response.iter_raw():
                    attempt.take(chunk)
        except httpx.TransportError as error:
            return of_transport(self.url, error)
        finally:
            late.cancel()
        return None

    def _notice(self, event: str, info: Mapping[str, Any]) -> None:
        if event in {"connection.connect_tcp.complete", "connection.start_tls.complete"}:
            self._sockets.add(info["return_value"].get_extra_info("socket"))

    def _cut(self) -> None:
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class AsyncClient(_Client, AsyncCalls):
    """Asks a service from asyncio; for `async with`, or until `close`."""

    def _open(self, options: Mapping[str, Any]) -> None:
        self._http = httpx.AsyncClient(**options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End."""
        await self._http.aclose()

    async def _ask(self, call: Call[T]) -> T:
        steps = conversation(self.url, call, self._patience)
        step: Try | Wait = next(steps)
        while True:
            error = None
            if isinstance(step, Try):
                error = await self._send(step)
            else:
                await asyncio.sleep(step.seconds)
            try:
                step = steps.send(error)
            except StopIteration as end:
                answer: T = end.value
                return answer

    async def _every(self, call: Call[Page[T]]) -> AsyncIterator[T]:
        rest: Call[Page[T]] | None = call
        while rest is not None:
            items, rest = following(self.url, rest, await self._ask(rest))
            for item in items:
                yield item

    async def _send(self, attempt: Try) -> CotenantError | None:
        if self._http.is_closed:
            return self._closed_error()
        try:
            async with asyncio.timeout(attempt.left_s), self._http.stream(**attempt.options()) as attempt.response:
                async for chunk in attempt.response.aiter_raw():
                    attempt.take(chunk)
        except (httpx.TransportError, TimeoutError) as error:
            return of_transport(self.url, error)
        return None


def _version() -> str:
    try:
        return version("cotenant-client")
    except PackageNotFoundError:  # in a copy of the source
        return "0"
