"""What holds for every system that is read, for CloudStack: accounts, and rows that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_cloudstack.calls import Account, Api, account
from cotenant_cloudstack.source import CloudStack
from cotenant_cloudstack.tests.cloudstack_server import KEY, SECRET, Cloud, serving

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
        "CLOUDSTACK_",
        {"endpoint": "https://c/client/api", "key": "k%1", "secret": "hidden word"},
        Account("https://c/client/api", "k%1", "hidden word"),
        wrong=[({"endpoint": "http://c/client/api"}, "not an https:// address")],
    )


@pytest.fixture
def system() -> Iterator[System]:
    cloud = Cloud()
    with serving(cloud) as url:
        yield System(
            lambda: [*cloud.host, *cloud.virtualmachine, *cloud.serviceoffering],
            lambda: CloudStack(open_api=lambda: Api(Account(url, KEY, SECRET))).read(),
        )
