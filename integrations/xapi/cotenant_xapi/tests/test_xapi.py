"""XAPI: what hosts and VMs become, what stays as it is, and what is said where something is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cotenant_xapi.calls import XapiAccount, XapiSession
from cotenant_xapi.source import Xapi
from cotenant_xapi.tests.xapi_server import NOWHERE, PASSWORD, USER, Pool, serving, vm
from hypothesis import given
from hypothesis import strategies as st

from advisor.inventories.calls import CallError
from advisor.inventories.reading import Reading
from advisor.service import Advisor
from profiler.observed import NetworkSettings
from tests.api import cli_runs
from tests.servers.certificates import certified


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def source(pool: Pool) -> Iterator[Xapi]:
    with serving(pool) as url:
        yield Xapi(open_session=lambda: XapiSession(XapiAccount(url, USER, PASSWORD)))


def _one(reading: Reading, name: str) -> dict[str, Any]:
    return next(dict(one) for one in (*reading.hosts, *reading.instances) if one["id"] == name)


def test_hosts_and_vms_become_facts(source: Xapi, pool: Pool) -> None:
    reading = source.read()
    assert (reading.complete, reading.left_out) == (True, ())
    assert [one["id"] for one in reading.instances] == ["vm1", "vm2"]
    one, other, web, free = (_one(reading, name) for name in ("xen1", "xen2", "vm1", "vm2"))
    assert (one["kind"], one["pcpus"], one["memory_mb"], one["cpu_mhz"]) == ("xen", 16, 65536, 2394.454)
    assert (one["nic_mbit"], one["enabled"], other["enabled"]) == (10_000, True, False)
    assert one["labels"]["product"] == "XCP-ng 8.3.0"
    assert (web["host"], web["vcpus"], web["memory_mb"]) == ("xen1", 2, 4096)
    assert (web["settings"]["cap_percent"], web["settings"]["weight"]) == (150, 512)
    assert web["settings"]["network"] == NetworkSettings("dedicated", 100.0)
    assert str(web["settings"]["pinning"]) == "0:0-3|1:0-3"
    assert {"name": "vm1", "tag.web": "true", "uuid": vm(1)["uuid"]}.items() <= web["labels"].items()
    assert set(free["settings"].values()) == {None}
    assert pool.sessions == set()  # it logged out


def test_a_vm_moves_changes_stops_and_comes_back(source: Xapi, pool: Pool, advisor: Advisor) -> None:
    vms = pool.classes["VM"]
    advisor.inventory.follow(source.read())
    vms["OpaqueRef:v1"] |= {"resident_on": "OpaqueRef:h2", "VCPUs_at_startup": "4", "name_label": "renamed"}
    advisor.inventory.follow(source.read())
    there = {one.labels["uuid"]: one for one in advisor.cloud.inventory().instances}
    moved = there[str(vm(1)["uuid"])]
    assert (len(there), moved.host, moved.vcpus, moved.labels["name"]) == (2, "xen2", 4, "renamed")
    vms["OpaqueRef:v2"] |= {"power_state": "Halted", "resident_on": NOWHERE}
    vms["OpaqueRef:v3"] |= {"power_state": "Running", "resident_on": "OpaqueRef:h1"}
    advisor.inventory.follow(source.read())
    names = {one.labels["name"]: one.host for one in advisor.cloud.inventory().instances}
    assert names == {"renamed": "xen2", "vm3": "xen1"}


def test_a_host_that_is_not_live_stays_with_its_vms(source: Xapi, pool: Pool, advisor: Advisor) -> None:
    advisor.inventory.follow(source.read())
    pool.classes["host_metrics"]["OpaqueRef:hm2"]["live"] = False
    news = advisor.inventory.follow(source.read())
    assert any("host Xen 2: it is not live" in sentence for sentence in news.left_out)
    found = advisor.cloud.inventory()
    assert {one.id for one in found.hosts} == {"xen1", "xen2"}
    assert {one.id for one in found.instances} == {"vm1", "vm2"}


def test_two_vms_of_one_name_stay_two(source: Xapi, pool: Pool) -> None:
    pool.classes["VM"]["OpaqueRef:v5"] = vm(5, name_label="vm1")
    assert {one["id"] for one in source.read().instances} == {vm(1)["uuid"], vm(5)["uuid"], "vm2"}


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (["RBAC_PERMISSION_DENIED", "host.get_all_records", "…"], "refused", "RBAC_PERMISSION_DENIED"),
        (["INTERNAL_ERROR", "it\nbroke"], "failed", "INTERNAL_ERROR itbroke"),
    ],
)
def test_what_is_refused_is_reported_and_nothing_is_gone(
    source: Xapi, pool: Pool, error: list[str], state: str, words: str
) -> None:
    pool.refuses["host.get_all_records"] = error
    reading = source.read()
    assert not reading.every_instance
    part = next(one for one in reading.parts if one.state != "read")
    assert (part.name, part.state) == ("host", state)
    assert words in part.reason


def test_without_links_all_else_is_reported(source: Xapi, pool: Pool) -> None:
    pool.refuses["PIF.get_all_records"] = ["RBAC_PERMISSION_DENIED"]
    reading = source.read()
    assert not reading.complete
    assert "nic_mbit" not in _one(reading, "xen1")
    assert len(reading.instances) == 2


def test_a_wrong_password_is_refused_and_a_member_names_the_coordinator(pool: Pool) -> None:
    with serving(pool) as url:
        (part,) = Xapi(open_session=lambda: XapiSession(XapiAccount(url, USER, "wrong"))).read().parts
        assert (part.state, part.name) == ("refused", "connection")
        pool.refuses["session.login_with_password"] = ["HOST_IS_SLAVE", "192.0.2.7"]
        (part,) = Xapi(open_session=lambda: XapiSession(XapiAccount(url, USER, PASSWORD))).read().parts
    assert "this is no coordinator of a pool; ask 192.0.2.7" in part.reason


BOMB = b"""<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>
<methodResponse><params><param><value><string>&b;</string></value></param></params></methodResponse>"""


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", BOMB, b"<methodResponse><params/></methodResponse>"])
def test_what_is_no_answer_of_xapi_is_one_sentence(source: Xapi, pool: Pool, body: bytes) -> None:
    pool.raw["VM.get_all_records"] = body
    part = next(one for one in source.read().parts if one.name == "VM")
    assert (part.state, part.reason) == ("failed", "VM.get_all_records: HTTP 200 and no answer of XAPI's")


def test_a_server_is_known_by_its_fingerprint_or_its_ca_and_by_nothing_less(pool: Pool, tmp_path: Path) -> None:
    context, pem, fingerprint = certified(tmp_path)
    with serving(pool, context) as url:
        for known in ({"fingerprint": fingerprint}, {"ca_file": pem}):
            with XapiSession(XapiAccount(url, USER, PASSWORD, **known)) as session:
                assert len(session.records("host")) == 2
        with pytest.raises(CallError, match="no answer of 127"), XapiSession(XapiAccount(url, USER, PASSWORD)):
            pass
        wrong = XapiAccount(url, USER, PASSWORD, fingerprint="0" * 64)
        with pytest.raises(CallError, match="no answer of 127"), XapiSession(wrong):
            pass


def test_sync_reads_a_pool(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with serving(pool) as url:
        for name, value in (("HOST", url), ("USER", USER), ("PASSWORD", PASSWORD)):
            monkeypatch.setenv(f"XENSERVER_{name}", value)
        done = cli_runs.run("sync", "xapi", "--database", f"sqlite:///{tmp_path}/db.sqlite3")
    assert done.exit_code == 0, done.output
    assert "Put 2 hosts and 2 instances that are new or changed" in done.stdout


@given(
    st.dictionaries(
        st.sampled_from(["uuid", "name_label", "VCPUs_at_startup", "VCPUs_params", "memory_dynamic_max", "tags"]),
        st.one_of(st.none(), st.text(max_size=5), st.integers(), st.lists(st.text(max_size=3)), st.just({})),
    )
)
def test_whatever_a_record_holds_nothing_is_raised_and_no_instance_is_lost(changes: dict[str, Any]) -> None:
    pool = Pool()
    pool.classes["VM"]["OpaqueRef:v1"] |= changes
    without_wire: Any = nullcontext(SimpleNamespace(records=pool.classes.__getitem__))
    reading = Xapi(open_session=lambda: without_wire).read()
    assert len(reading.instances) + len(reading.unclear) == 2
