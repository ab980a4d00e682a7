"""Accounts at clouds that are read: from the environment or a section of a private file, and never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cotenant_proxmox import calls as proxmox

from advisor.inventories.cloudstack import calls as cloudstack
from advisor.inventories.xapi import calls as xapi
from tests.integrations.proxmox.proxmox_server import TOKEN

ACCOUNTS: dict[str, tuple[Callable[..., Any], dict[str, str], object]] = {
    "cloudstack": (
        cloudstack.account, {"endpoint": "https://c/client/api", "key": "k%1", "secret": "hidden word"},
        cloudstack.Account("https://c/client/api", "k%1", "hidden word"),
    ),
    "proxmox": (
        proxmox.account, {"endpoint": "https://west:8006/", "api_token": TOKEN},
        proxmox.ProxmoxAccount("https://west:8006", TOKEN),
    ),
    "xapi": (
        xapi.account, {"host": "xen1", "user": "u", "password": "hidden word"},
        xapi.XapiAccount("https://xen1", "u", "hidden word"),
    ),
}  # fmt: skip
VARIABLES = {"cloudstack": "CLOUDSTACK_", "proxmox": "PROXMOX_VE_", "xapi": "XENSERVER_"}


@pytest.mark.parametrize(
    ("cloud", "changes", "reason"),
    [
        ("cloudstack", {"endpoint": "http://c/client/api"}, "not an https:// address"),
        ("proxmox", {"endpoint": "http://pve1:8006"}, "endpoint is not"),
        ("proxmox", {"endpoint": "https://root:x@pve1:8006"}, "endpoint is not"),
        ("proxmox", {"api_token": "secret"}, "api_token is not"),
        ("proxmox", {"api_token": f"{TOKEN}\r\nX: y"}, "api_token is not"),
        ("proxmox", {"api_token": ""}, "names no api_token"),
        ("proxmox", {"fingerprint": "AB:CD"}, "fingerprint is not"),
        ("proxmox", {"ca_file": "/nonexistent.pem"}, "no ca_file"),
        ("xapi", {"password": ""}, "names no password"),
        ("xapi", {"host": "http://xen1"}, "not a name or an address"),
        ("xapi", {"host": "https://u:p@xen1"}, "not a name or an address"),
        ("xapi", {"fingerprint": "12:34"}, "not SHA-256"),
        ("xapi", {"ca_file": "nowhere.pem"}, "there is no ca_file"),
    ],
)
def test_an_account_comes_from_the_environment_and_one_that_cannot_be_right_is_refused_without_its_secret(
    cloud: str, changes: dict[str, str], reason: str
) -> None:
    account, fields, expected = ACCOUNTS[cloud]

    def of(told: dict[str, str]) -> object:
        return account(None, environment={f"{VARIABLES[cloud]}{name.upper()}": text for name, text in told.items()})

    assert of(fields) == expected
    with pytest.raises(ValueError, match=reason) as refused:
        of(fields | changes)
    assert list(fields.values())[-1] not in str(refused.value)


@pytest.mark.parametrize(("account", "fields", "expected"), ACCOUNTS.values(), ids=ACCOUNTS)
def test_an_account_is_a_section_of_a_private_file_and_its_secret_is_never_shown(
    tmp_path: Path, account: Callable[..., Any], fields: dict[str, str], expected: object
) -> None:
    ini = tmp_path / "ini"
    ini.touch(0o600)
    ini.write_text("\n".join(["[west]", *(f"{name} = {value}" for name, value in fields.items())]), encoding="utf-8")
    found = account("west", environment={}, ini=ini)
    assert found == expected
    secret = list(fields.values())[-1]
    assert secret not in repr(found)
    with pytest.raises(ValueError, match=f"section other .* names no {' and no '.join(fields)}"):
        account("other", environment={}, ini=ini)
    ini.chmod(0o644)
    with pytest.raises(ValueError, match=r"others may read it \(mode 644\); chmod 640 it") as refused:
        account("west", environment={}, ini=ini)
    assert secret not in str(refused.value)
    ini.chmod(0o600)
    ini.write_text(f"secret = {secret}", encoding="utf-8")
    with pytest.raises(ValueError, match=r"ini is not sections of name = value\Z"):
        account("west", environment={}, ini=ini)
