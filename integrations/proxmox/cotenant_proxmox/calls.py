"""Calls to the REST API of Proxmox VE with an API token (pveum(1), "API Tokens")."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from advisor.inventories.calls import CalledServer, CallError, given_account, given_certificate, is_base

TIMEOUT_S = 30.0
MOST_BYTES = 32 << 20  # a cluster of 10,000 guests answers with about 5 MB
INI = Path("~/.proxmox.ini")  # a section per cluster
_VARIABLE = "PROXMOX_VE_"  # PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN, as the Terraform provider names them
_TOKEN = re.compile(r"[^\s!=@:]+@[A-Za-z0-9._-]+![A-Za-z0-9._-]+=[0-9A-Za-z-]+\Z")


@dataclass(frozen=True, slots=True)
class ProxmoxAccount:
    """Where the API is, who asks (USER@REALM!NAME=SECRET), and by what its certificate is known."""

    endpoint: str
    token: str = field(repr=False)
    ca_file: Path | None = None
    fingerprint: str | None = None


def account(
    cloud: str | None,
    ca_file: Path | None = None,
    fingerprint: str | None = None,
    environment: Mapping[str, str] = os.environ,
    ini: Path = INI,
) -> ProxmoxAccount:
    """From PROXMOX_VE_ENDPOINT, _API_TOKEN, _CA_FILE and _FINGERPRINT, or a named section of ~/.proxmox.ini; ValueError
    says what lacks. What is given here counts for more. Plain http is taken to this machine only."""
    further = ("ca_file", "fingerprint")
    fields = given_account(
        cloud, ("endpoint", "api_token"), further, variable=_VARIABLE, environment=environment, ini=ini
    )
    endpoint = fields["endpoint"].rstrip("/").removesuffix("/api2/json")
    if not is_base(endpoint):
        raise ValueError("the endpoint is not an address like https://pve1.example.org:8006")
    if not _TOKEN.match(fields["api_token"]):
        raise ValueError("the api_token is not USER@REALM!NAME=SECRET, as `pveum user token add` prints its parts")
    return ProxmoxAccount(endpoint, fields["api_token"], *given_certificate(fields, ca_file, fingerprint))


def _signed(token: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"PVEAPIToken={token}"
        return request

    return sign  # as `auth`, so that a .netrc cannot replace it


class ProxmoxApi:
    """Calls to one node, which answers for the whole cluster; may be used by several threads."""

    def __init__(self, asking: ProxmoxAccount) -> None:
        self._server = CalledServer(
            f"{asking.endpoint}/api2/json",
            asking.ca_file,
            asking.fingerprint,
            most_bytes=MOST_BYTES,
            timeout_s=TIMEOUT_S,
        )
        self._server.session.auth = _signed(asking.token)

    def get(self, path: str) -> Any:
        """`data` of the answer of GET `path`, which begins with /; CallError says why there is none."""
        return self.send("", path)

    def send(self, method: str, path: str, fields: Mapping[str, str] | None = None) -> Any:
        """The same of another method with these fields; empty = GET."""
        status, reason, body = self._server.answer(path, path, fields, method=method)
        if status != 200:
            raise CallError(f"{path}: HTTP {status} {reason}"[:200], status)
        try:
            return json.loads(body)["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CallError(f"{path}: HTTP 200 and no answer of Proxmox VE's") from None
