"""What holds for every system that is read, for XAPI: accounts, and rows that are wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cotenant_xapi.calls import XapiAccount, XapiSession, account
from cotenant_xapi.source import Xapi
from cotenant_xapi.tests.xapi_server import PASSWORD, USER, Pool, serving

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
        "XENSERVER_",
        {"host": "xen1", "user": "u", "password": "hidden word"},
        XapiAccount("https://xen1", "u", "hidden word"),
        wrong=[
            ({"password": ""}, "names no password"),
            ({"host": "http://xen1"}, "not a name or an address"),
            ({"host": "https://u:p@xen1"}, "not a name or an address"),
            ({"fingerprint": "12:34"}, "not SHA-256"),
            ({"ca_file": "nowhere.pem"}, "there is no ca_file"),
        ],
    )


@pytest.fixture
def system() -> Iterator[System]:
    pool = Pool()
    with serving(pool) as url:
        yield System(
            lambda: [record for records in pool.classes.values() for record in records.values()],
            lambda: Xapi(open_session=lambda: XapiSession(XapiAccount(url, USER, PASSWORD))).read(),
        )
