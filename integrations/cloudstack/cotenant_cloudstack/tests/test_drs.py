"""CloudStack's DRS: the parameters of a plan of migrations."""

from __future__ import annotations

from pathlib import Path

import pytest
from cotenant_cloudstack.drs import ROUTES

from advisor.domain import Host
from advisor.service import Advisor
from tests.api.api_client import Client
from tests.conversations.playing import play, silent


def test_the_conversation_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(__file__).with_name("drs.yaml")
    play(file, tmp_path, monkeypatch)
    assert silent(ROUTES, [file]) == []


def test_a_plan_has_one_entry_in_the_audit_log(advisor: Advisor, client: Client) -> None:
    advisor.inventory.put_host(Host("h1", "kvm", 1, 16_384.0, labels={"cluster": "c1"}))
    before = len(advisor.access.audit(limit=1000).items)
    assert client.get("/cloudstack/drs-plan/c1").status_code == 200
    found = advisor.access.audit(limit=1000).items
    assert [one.operation for one in found[: len(found) - before]] == ["moves.answer"]
