"""Accounts at clouds that are read: from the environment or a section of a private file, and never shown."""

from __future__ import annotations

import pytest

from advisor.inventories.cloudstack import calls as cloudstack
from advisor.inventories.xapi import calls as xapi
from tests.advisor.inventories.account_cases import AccountCase, AccountRules

CASES = {
    "cloudstack": AccountCase(
        cloudstack.account,
        "CLOUDSTACK_",
        {"endpoint": "https://c/client/api", "key": "k%1", "secret": "hidden word"},
        cloudstack.Account("https://c/client/api", "k%1", "hidden word"),
        wrong=[({"endpoint": "http://c/client/api"}, "not an https:// address")],
    ),
    "xapi": AccountCase(
        xapi.account,
        "XENSERVER_",
        {"host": "xen1", "user": "u", "password": "hidden word"},
        xapi.XapiAccount("https://xen1", "u", "hidden word"),
        wrong=[
            ({"password": ""}, "names no password"),
            ({"host": "http://xen1"}, "not a name or an address"),
            ({"host": "https://u:p@xen1"}, "not a name or an address"),
            ({"fingerprint": "12:34"}, "not SHA-256"),
            ({"ca_file": "nowhere.pem"}, "there is no ca_file"),
        ],
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> AccountCase:
    return CASES[request.param]


class TestAccount(AccountRules):
    pass
