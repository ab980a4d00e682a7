"""A synchronous client for an ASGI application in the same process, and an Advisor whose calls can be replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from advisor.service import Advisor


class Client:
    """One request at a time."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def asked() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, path, **options)

        return asyncio.run(asked())

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.ask("GET", path, **options)

    def page(self, path: str) -> httpx.Response:
        return self.get(path, headers={"Accept": "text/html"})


class Bent:
    """An Advisor with some of its methods replaced."""

    def __init__(self, advisor: Advisor, **replaced: Callable[..., Any]) -> None:
        self._advisor = advisor
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._advisor, name)


def failing(error: Exception) -> Callable[..., Any]:
    """A method that raises this error."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail
