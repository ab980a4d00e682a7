"""One service of an OpenStack cloud, found by its type in the catalogue and asked with the cloud's account."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from advisor.errors import InvalidInput, SeriesUnavailable
from advisor.extras import require
from advisor.telemetry.series_store import MOST_BYTES

_SETTINGS = "name a cloud of clouds.yaml by --cloud, or set OS_AUTH_URL and what belongs to it"


@dataclass(frozen=True, slots=True)
class CloudEndpoint:
    """Asks for bytes; whatever goes wrong is one SeriesUnavailable. `adapter` is keystoneauth's."""

    adapter: Any
    where: str  # for sentences

    @classmethod
    def of(cls, cloud: str | None, service_type: str, name: str) -> CloudEndpoint:
        """Of clouds.yaml or the environment (OS_*); nothing is asked yet. InvalidInput where those do not fit."""
        require("openstack", "a service of OpenStack")
        from keystoneauth1.adapter import Adapter

        from advisor.inventories.openstack.listings import connect  # openstacksdk takes a second to import

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # openstacksdk warns of what it will no longer do itself
                connection = connect(cloud)
                settings = connection.config
                adapter = Adapter(
                    session=connection.session,
                    service_type=service_type,
                    interface=settings.get_interface(service_type),
                    region_name=settings.get_region_name(service_type),
                    endpoint_override=settings.get_endpoint(service_type),
                )
        except Exception as error:  # openstacksdk and keystoneauth have no common root for wrong settings
            raise InvalidInput(f"{' '.join(str(error).split())[:200]}; {_SETTINGS}", field="cloud") from error
        return cls(adapter, f"{name} of {cloud or 'the cloud'} (service type {service_type})")

    def get(self, path: str, params: Mapping[str, str]) -> tuple[int, bytes]:
        return self._ask("GET", path, params=params)

    def post(self, path: str, params: Mapping[str, str], json: object) -> tuple[int, bytes]:
        return self._ask("POST", path, params=params, json=json)

    def _ask(self, method: str, path: str, **request: Any) -> tuple[int, bytes]:
        """Status and body; a redirect is not followed, for the token would go along."""
        from keystoneauth1.exceptions import ClientException
        from requests.exceptions import RequestException

        options = {"raise_exc": False, "redirect": False, "stream": True, "headers": {"Accept": "application/json"}}
        try:
            answer = self.adapter.request(path, method, **options, **request)
            body = bytearray()
            for part in answer.iter_content(2**16):
                body += part
                if len(body) > MOST_BYTES:
                    answer.close()
                    raise self.unavailable(f"answered with over {MOST_BYTES >> 20} MiB; ask for less time")
        except (ClientException, RequestException) as error:
            raise self.unavailable(f"does not answer: {' '.join(str(error).split())[:200]}") from error
        if answer.status_code in {401, 403}:
            raise self.unavailable(
                f"refuses with {answer.status_code}; the account needs the role admin, or reader for its project alone"
            )
        return answer.status_code, bytes(body)

    def unavailable(self, what: str) -> SeriesUnavailable:
        return SeriesUnavailable(f"{self.where} {what}")
