"""What is asked of OpenStack's services: each listing as rows in the names of the wire, or why there are none."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import openstack
from keystoneauth1.exceptions import ClientException
from openstack.exceptions import HttpException, SDKException, raise_from_response
from openstack.resource import Resource

from advisor.inventories.calls import read_settings
from advisor.inventories.reading import Part

Row = Mapping[str, Any]
# Nova's 2.69 lists servers and services of a cell that is down, without it they would seem to be gone (Rocky and
# later); from 2.88 on hypervisors no longer tell their capacity.
COMPUTE = "2.69"
TIMEOUT_S = 60.0
REFUSED = (401, 403)


class Listings:
    """One connection; `parts` says how each listing of this read went."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.parts: list[Part] = []

    def hypervisors(self) -> list[Row] | None:
        """With their capacity."""
        return self._rows("hypervisors", lambda: self._compute.hypervisors(details=True, microversion=COMPUTE))

    def services(self) -> list[Row] | None:
        """The compute services, those of cells that are down included."""
        return self._rows("services", lambda: self._compute.services(binary="nova-compute", microversion=COMPUTE))

    def aggregates(self) -> list[Row] | None:
        return self._rows("aggregates", lambda: self._compute.aggregates(microversion=COMPUTE))

    def zones(self) -> list[Row] | None:
        """With the hosts in each."""
        return self._rows("zones", lambda: self._compute.availability_zones(details=True))

    def flavors(self) -> list[Row] | None:
        """Public and private ones, with extra specs."""
        return self._rows("flavors", lambda: self._compute.flavors(details=True, is_public=None, microversion=COMPUTE))

    def servers(self, changed_since: datetime | None) -> list[Row] | None:
        """Of all projects; deleted ones only among those that `changed_since`."""
        query = {} if changed_since is None else {"changes_since": changed_since.isoformat()}
        return self._rows(
            "servers", lambda: self._compute.servers(details=True, all_projects=True, microversion=COMPUTE, **query)
        )

    def server_groups(self) -> list[Row] | None:
        """Of all projects, with their policy and members. openstacksdk would ask for the first page only."""

        def pages() -> Iterator[Row]:
            seen: set[str] = set()
            while True:
                query = {"all_projects": "True", "offset": len(seen)}
                answer = self._compute.get("/os-server-groups", params=query, microversion=COMPUTE)
                raise_from_response(answer)
                page = [row for row in answer.json()["server_groups"] if row["id"] not in seen]
                if not page:
                    return
                seen.update(row["id"] for row in page)
                yield from page

        return self._rows("server groups", pages)

    def cpu_policies(self) -> dict[str, str] | None:
        """Images by id whose property says how their servers use CPUs."""
        rows = self._rows("images", lambda: self._connection.image.images())  # noqa: PLW0108 - asked for inside
        if rows is None:
            return None
        texts = {str(row["id"]): {**(row.get("properties") or {}), **row}.get("hw_cpu_policy") for row in rows}
        return {name: str(text) for name, text in texts.items() if text}

    def providers(self) -> list[Row] | None:
        """Placement's resource providers."""
        return self._rows("placement", lambda: self._placement.resource_providers())  # noqa: PLW0108 - asked for inside

    def inventories(self, provider: str) -> dict[str, Row] | None:
        """Of one provider by resource class, None when they cannot be read."""
        rows = self._rows("placement", lambda: self._placement.resource_provider_inventories(provider), quiet=True)
        return None if rows is None else {row["resource_class"]: row for row in rows}

    def with_trait(self, trait: str) -> frozenset[str] | None:
        """Ids of the providers, those at the root of each, that have a trait; None when they cannot be read."""
        rows = self._rows("placement", lambda: self._placement.resource_providers(required=trait), quiet=True)
        return None if rows is None else frozenset(str(row.get("root_provider_uuid") or row["uuid"]) for row in rows)

    @property
    def _compute(self) -> Any:
        return self._connection.compute

    @property
    def _placement(self) -> Any:
        return self._connection.placement

    def _rows(self, name: str, listing: Callable[[], Iterable[Any]], *, quiet: bool = False) -> list[Row] | None:
        """All pages, or None with the reason kept; `quiet` keeps no word of success."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # openstacksdk warns of fields that newer microversions lack
                rows = [
                    row.to_dict(headers=False, computed=False, original_names=True)
                    if isinstance(row, Resource)
                    else row
                    for row in listing()
                ]
        except (SDKException, ClientException, ValueError, KeyError, TypeError, AttributeError) as error:
            # The latter four are what openstacksdk raises over an answer that is not what it should be.
            status = error.status_code if isinstance(error, HttpException) else getattr(error, "http_status", None)
            self.parts.append(Part(name, "refused" if status in REFUSED else "failed", reason=_reason(error)))
            return None
        if not quiet:
            self.parts.append(Part(name, "read", len(rows)))
        return rows


def connect(cloud: str | None) -> Any:
    """A connection by clouds.yaml or the environment (OS_*); nothing is asked yet.

    ConfigException, ClientException; ValueError where a file with the account is open to others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openstacksdk warns of what it will no longer do itself
        read_settings()
        return openstack.connect(cloud=cloud, api_timeout=TIMEOUT_S, app_name="cotenant")


def _reason(error: Exception) -> str:
    """One short line; for a message may quote whatever the other side sent."""
    text = "".join(char if char.isprintable() else " " for char in str(error) or type(error).__name__)
    return " ".join(text.split())[:200]
