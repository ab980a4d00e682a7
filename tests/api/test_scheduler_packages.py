"""Protocols of schedulers are those of packages that are installed; one that cannot be imported is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor import plug_ins
from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from api import app, routing
from tests.api.api_client import Client
from tests.servers.packages import installed

EXAMPLE = '''
from api.routes.common import CloudDep
from api.routing import Route


def hosts(cloud: CloudDep) -> list[str]:
    """Names of hosts, as the example's scheduler asks for them."""
    return [host.id for host in cloud.inventory().hosts]


ROUTES = (Route("GET", "/example/hosts", hosts, "schedulers", lane="question"),)
'''


@pytest.fixture
def routes_anew() -> Iterator[None]:
    yield
    app._routes.cache_clear()


@pytest.mark.usefixtures("routes_anew")
def test_a_package_that_was_installed_adds_the_protocol_of_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advisor: Advisor, settings: Settings
) -> None:
    installed(tmp_path, monkeypatch, EXAMPLE, {plug_ins.SCHEDULERS: "example = cotenant_example:ROUTES"})
    (added,) = [route for route in routing.protocols() if route.path == "/example/hosts"]
    assert (added.needs, added.is_own) == ("read", False)
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, added))
    app._routes.cache_clear()
    client = Client(app.create_app(advisor, settings))
    assert client.get("/example/hosts").json() == [host.id for host in advisor.cloud.inventory().hosts]
    assert "/example/hosts" not in app.description_with()["paths"]


def test_a_package_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, monkeypatch, EXAMPLE, {plug_ins.SCHEDULERS: "example = cotenant_example:NOTHING"})
    with pytest.raises(InvalidInput, match="the protocol of example cannot be loaded from cotenant_example:NOTHING"):
        routing.protocols()


def test_the_protocol_of_kubernetes_is_a_package_s() -> None:
    added = {route.path for route in routing.protocols() if not route.is_own}
    assert added >= {f"/kubernetes/{verb}" for verb in ("filter", "prioritize", "preempt", "advice")}
