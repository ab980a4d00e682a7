"""What holds for every system that is read, for Proxmox VE: accounts, and rows that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi, account
from cotenant_proxmox.source import Proxmox
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, serving

from tests.advisor.inventories.account_cases import AccountCase, AccountRules
from tests.advisor.inventories.bad_rows import BadRowRules, System


class TestAccount(AccountRules):
    pass


class TestBadRows(BadRowRules):
    pass


@pytest.fixture
def case() -> AccountCase:
    return AccountCase(
        account,
        "PROXMOX_VE_",
        {"endpoint": "https://west:8006/", "api_token": TOKEN},
        ProxmoxAccount("https://west:8006", TOKEN),
        wrong=[
            ({"endpoint": "http://pve1:8006"}, "endpoint is not"),
            ({"endpoint": "https://root:x@pve1:8006"}, "endpoint is not"),
            ({"api_token": "secret"}, "api_token is not"),
            ({"api_token": f"{TOKEN}\r\nX: y"}, "api_token is not"),
            ({"api_token": ""}, "names no api_token"),
            ({"fingerprint": "AB:CD"}, "fingerprint is not"),
            ({"ca_file": "/nonexistent.pem"}, "no ca_file"),
        ],
    )


@pytest.fixture
def system() -> Iterator[System]:
    cluster = Cluster()
    with serving(cluster) as url:
        yield System(
            lambda: [*cluster.nodes, *cluster.guests, *cluster.configs.values()],
            lambda: Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(url, TOKEN))).read(),
        )
