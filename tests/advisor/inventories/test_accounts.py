"""Accounts at clouds that are read: from the environment or a section of a private file, and never shown."""

from __future__ import annotations

import pytest

from advisor.inventories.cloudstack import calls as cloudstack
from tests.advisor.inventories.account_cases import AccountCase, AccountRules

CASES = {
    "cloudstack": AccountCase(
        cloudstack.account,
        "CLOUDSTACK_",
        {"endpoint": "https://c/client/api", "key": "k%1", "secret": "hidden word"},
        cloudstack.Account("https://c/client/api", "k%1", "hidden word"),
        wrong=[({"endpoint": "http://c/client/api"}, "not an https:// address")],
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> AccountCase:
    return CASES[request.param]


class TestAccount(AccountRules):
    pass
