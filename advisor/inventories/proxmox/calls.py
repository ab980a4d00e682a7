"""Calls to the REST API of Proxmox VE with an API token (pveum(1), "API Tokens")."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from advisor.inventories.accounts import given_account, is_base
from advisor.inventories.certificates import check_certificate, first_cause, session, verified_by

TIMEOUT_S = 30.0
MOST_BYTES = 32 << 20  # a cluster of 10,000 guests answers with about 5 MB
INI = Path("~/.proxmox.ini")  # a section per cluster
_VARIABLE = "PROXMOX_VE_"  # PROXMOX_VE_ENDPOINT and PROXMOX_VE_API_TOKEN, as the Terraform provider names them
_TOKEN = re.compile(r"[^\s!=@:]+@[A-Za-z0-9._-]+![A-Za-z0-9._-]+=[0-9A-Za-z-]+\Z")


class ProxmoxCallError(Exception):
    """A call that was refused or not answered; `refused` where the token may not make it."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class ProxmoxAccount:
    """Where the API is, who asks (USER@REALM!NAME=SECRET), and by what its certificate is known."""

    endpoint: str
    token: str
    ca_file: Path | None = None
    fingerprint: str | None = None

    def __repr__(self) -> str:
        return f"ProxmoxAccount({self.endpoint!r})"


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
    given = given_account(
        cloud, ("endpoint", "api_token"), further, variable=_VARIABLE, environment=environment, ini=ini
    )
    endpoint = given["endpoint"].rstrip("/").removesuffix("/api2/json")
    if not is_base(endpoint):
        raise ValueError("the endpoint is not an address like https://pve1.example.org:8006")
    if not _TOKEN.match(given["api_token"]):
        raise ValueError("the api_token is not USER@REALM!NAME=SECRET, as `pveum user token add` prints its parts")
    ca_file = ca_file or (Path(given["ca_file"]) if given.get("ca_file") else None)
    fingerprint = fingerprint or given.get("fingerprint") or None
    check_certificate(ca_file, fingerprint)
    return ProxmoxAccount(endpoint, given["api_token"], ca_file, fingerprint)


def _signed(token: str) -> Callable[[requests.PreparedRequest], requests.PreparedRequest]:
    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"PVEAPIToken={token}"
        return request

    return sign  # as `auth`, so that a .netrc cannot replace it


class ProxmoxApi:
    """Calls to one node, which answers for the whole cluster; may be used by several threads."""

    def __init__(self, asking: ProxmoxAccount) -> None:
        self._asking = asking
        self._verify = verified_by(asking.ca_file, asking.fingerprint)
        self._session = session(asking.fingerprint)
        self._session.auth = _signed(asking.token)

    def get(self, path: str) -> Any:
        """`data` of the answer of GET `path`, which begins with /; ProxmoxCallError says why there is none."""
        try:
            with self._session.get(
                f"{self._asking.endpoint}/api2/json{path}",
                timeout=TIMEOUT_S,
                allow_redirects=False,
                verify=self._verify,
                stream=True,
            ) as answer:
                body = b""
                for part in answer.iter_content(1 << 16):
                    body += part
                    if len(body) > MOST_BYTES:
                        raise ProxmoxCallError(f"{path}: an answer of more than {MOST_BYTES >> 20} MB")
        except (requests.RequestException, OSError, ValueError) as error:
            where = urlsplit(self._asking.endpoint).netloc
            raise ProxmoxCallError(f"{path}: no answer of {where}: {first_cause(error)}"[:200]) from None
        if answer.status_code != 200:
            reason = "".join(char for char in str(answer.reason) if char.isprintable())
            message = f"{path}: HTTP {answer.status_code} {reason}"[:200]
            raise ProxmoxCallError(message, refused=answer.status_code in {401, 403})
        try:
            return json.loads(body)["data"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProxmoxCallError(f"{path}: HTTP 200 and no answer of Proxmox VE's") from None
