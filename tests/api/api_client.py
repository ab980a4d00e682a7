"""A synchronous client for an ASGI application in the same process, and an Advisor whose calls can be replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app


def session(app: Any, base_url: str = "http://127.0.0.1", address: str = "127.0.0.1") -> httpx.AsyncClient:
    """What speaks to an application as a client at this address does."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, client=(address, 123)), base_url=base_url)


class Client:
    """One request at a time; `said` is what `session` takes."""

    def __init__(self, app: Any, **said: str) -> None:
        self.app = app
        self._said = said

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            async with session(self.app, **self._said) as client:
                return await client.request(method, path, **options)

        return asyncio.run(asked())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def page(self, path: str) -> httpx.Response:
        return self.get(path, headers={"Accept": "text/html"})


class Bent:
    """An Advisor with some methods of its services replaced, such as `placements={"place": fake}`."""

    def __init__(self, advisor: Advisor, **replaced: Mapping[str, Callable[..., Any]]) -> None:
        self._advisor = advisor
        self._replaced = replaced

    def __getattr__(self, service: str) -> Any:
        return _BentService(getattr(self._advisor, service), self._replaced.get(service, {}))


def bent_client(advisor: Advisor, settings: Settings, **replaced: Mapping[str, Callable[..., Any]]) -> Client:
    """Asks an application with such an Advisor."""
    bent: Any = Bent(advisor, **replaced)
    return Client(create_app(bent, settings))


class _BentService:
    def __init__(self, service: Any, replaced: Mapping[str, Callable[..., Any]]) -> None:
        self._service = service
        self._replaced = replaced

    def __getattr__(self, method: str) -> Any:
        return self._replaced.get(method) or getattr(self._service, method)


def failing(error: Exception) -> Callable[..., Any]:
    """A method that raises this error."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
