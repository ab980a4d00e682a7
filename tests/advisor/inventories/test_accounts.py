"""Accounts at clouds that are read: from a section of a file that only its owner reads, and never shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.inventories.cloudstack import calls as cloudstack
from advisor.inventories.proxmox import calls as proxmox
from advisor.inventories.xapi import calls as xapi
from tests.advisor.inventories.proxmox_server import TOKEN

ACCOUNTS = {
    "cloudstack": (
        cloudstack.account, {"endpoint": "https://c/client/api", "key": "k%1", "secret": "hidden word"},
        cloudstack.Account("https://c/client/api", "k%1", "hidden word"),
    ),
    "proxmox": (
        proxmox.account, {"endpoint": "https://west:8006", "api_token": TOKEN},
        proxmox.ProxmoxAccount("https://west:8006", TOKEN),
    ),
    "xapi": (
        xapi.account, {"host": "xen1", "user": "u", "password": "hidden word"},
        xapi.XapiAccount("https://xen1", "u", "hidden word"),
    ),
}  # fmt: skip


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
