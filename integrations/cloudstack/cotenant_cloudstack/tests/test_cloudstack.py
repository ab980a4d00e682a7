"""CloudStack: signed calls, pages, what hosts and machines become, and what is said where something is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from cotenant_cloudstack.calls import Account, Api, account, signature, signed
from cotenant_cloudstack.source import CloudStack
from cotenant_cloudstack.tests.cloudstack_server import (
    C1,
    H1,
    H2,
    H3,
    KEY,
    SECRET,
    SHAPED,
    Cloud,
    host,
    machine,
    offering,
    serving,
)

from advisor.inventories.reading import Reading
from advisor.inventories.systems import open_source
from advisor.service import Advisor
from profiler.observed import NetworkSettings
from tests.servers.running import free_port

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud()


@pytest.fixture
def source(cloud: Cloud) -> Iterator[CloudStack]:
    with serving(cloud) as endpoint:
        yield CloudStack(open_api=lambda: Api(Account(endpoint, KEY, SECRET)))


def _states(reading: Reading) -> dict[str, str]:
    return {part.name: part.state for part in reading.parts}


def _one(facts: tuple[Any, ...], name: str) -> dict[str, Any]:
    return next(dict(one) for one in facts if one["id"] == name)


def test_the_signature_is_that_of_the_developer_s_guide() -> None:
    """Key, secret and result of the guide's own example, "How to sign an API call with Python"."""
    key = "plgWJfZK4gyS3mOMTVmjUVg-X-jlWlnfaUJ9GAbBbf9EdM-kAYMmAiLqzzq1ElZLYq_u38zCm0bewzGUdP66mg"
    secret = "VDaACYb0LV9eNjTetIOElcVQkvJck_J_QljX_FcHRj87ZKiy0z0ty0ZsYBkoXkY9b7eq1EhwJaw7FF3akA3KBQ"
    parameters = {"response": "json", "command": "listUsers", "apiKey": key}
    assert signature(parameters, secret) == "TTpdDq/7j/J58XCRHomKoQXEQds="


def test_a_signed_call_can_be_repeated_for_minutes_only() -> None:
    given = signed({"command": "listUsers"}, Account("https://x", KEY, SECRET), NOW)
    assert (given["signatureVersion"], given["expires"]) == ("3", "2026-01-02T03:14:05+0000")
    assert SECRET not in str(given)


def test_the_server_accepts_what_was_signed_and_refuses_a_wrong_secret(cloud: Cloud) -> None:
    with serving(cloud) as endpoint:
        right, wrong = (
            CloudStack(open_api=lambda secret=secret: Api(Account(endpoint, KEY, secret))).read()  # type: ignore[misc]
            for secret in (SECRET, "wrong")
        )
    assert right.complete
    assert all(form["apiKey"] == KEY for form in cloud.asked)
    assert set(_states(wrong).values()) == {"refused"}
    assert (wrong.hosts, wrong.every_host, wrong.every_instance) == ((), False, False)


def test_plain_http_is_taken_to_this_machine() -> None:
    endpoint = "http://127.0.0.1:8080/client/api"
    environment = {"CLOUDSTACK_ENDPOINT": endpoint, "CLOUDSTACK_KEY": "k", "CLOUDSTACK_SECRET": "s"}
    assert account(None, environment) == Account(endpoint, "k", "s")


def test_an_account_that_lacks_something_is_a_failed_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "KEY", "SECRET"):
        monkeypatch.delenv(f"CLOUDSTACK_{name}", raising=False)
    (part,) = open_source("cloudstack").read().parts
    assert (part.state, "CLOUDSTACK_ENDPOINT" in part.reason) == ("failed", True)


def test_hosts_become_hosts_and_machines_instances(source: CloudStack) -> None:
    reading = source.read()
    facts = _one(reading.hosts, H1)
    assert (facts["kind"], facts["pcpus"], facts["cpu_mhz"], facts["memory_mb"]) == ("kvm", 32, 2600.0, 131072.0)
    assert (facts["cpu_overcommit"], facts["enabled"]) == (2.0, True)
    assert facts["memory_overcommit"] == pytest.approx(1.0)
    labels = facts["labels"]
    assert (labels["cluster"], labels["zone"], labels["name"], labels["render"]) == (C1, "z1", "kvm-1", "cloudstack")
    assert (labels["tag.ssd"], labels["tag.gold"]) == ("true", "true")
    facts = _one(reading.instances, machine(1)["id"])
    assert (facts["host"], facts["vcpus"], facts["memory_mb"], facts["settings"]) == (H1, 2, 2048.0, {})
    assert facts["labels"]["domain"] == "i-2-1-VM"


def test_a_host_that_tells_no_clock_rate_is_taken_without_it(source: CloudStack, cloud: Cloud) -> None:
    del cloud.host[0]["cpuspeed"]
    facts = _one(source.read().hosts, H1)
    assert (facts["pcpus"], facts.keys() & {"cpu_mhz", "cpu_overcommit"}) == (32, set())


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"state": "Down"}, "its agent is Down"),
        ({"resourcestate": "PrepareForMaintenance"}, "it is PrepareForMaintenance"),
    ],
)
def test_a_host_that_takes_nothing_is_disabled_with_the_reason(
    source: CloudStack, cloud: Cloud, state: dict[str, str], reason: str
) -> None:
    cloud.host[0] |= state
    facts = _one(source.read().hosts, H1)
    assert (facts["enabled"], facts["labels"]["disabled_reason"]) == (False, reason)


def test_a_hypervisor_that_is_not_modelled_is_left_out_and_said(source: CloudStack, cloud: Cloud) -> None:
    cloud.host.append(host("esx", "e-1", hypervisor="VMware"))
    reading = source.read()
    assert len(reading.hosts) == 3
    assert reading.left_out == ("esx: its hypervisor is VMware, which Cotenant does not model",)
    assert not reading.every_host


def test_a_stopped_machine_is_nowhere_and_a_destroyed_one_is_gone(source: CloudStack, cloud: Cloud) -> None:
    cloud.virtualmachine = [machine(1, on=None), machine(2, state="Destroyed")]
    reading = source.read()
    assert [one["host"] for one in reading.instances] == [None]
    assert reading.gone == {machine(2)["id"]}


def test_what_an_offering_limits_is_a_setting(source: CloudStack, cloud: Cloud) -> None:
    cloud.serviceoffering.append(
        offering(SHAPED, limitcpuuse=True, networkrate=200, serviceofferingdetails={"cotenant.service": "latency"})
    )
    cloud.virtualmachine = [machine(1, serviceofferingid=SHAPED)]
    (facts,) = source.read().instances
    assert facts["settings"] == {"cap_percent": 100.0, "network": NetworkSettings("dedicated", 200.0)}
    assert facts["service"] == "latency"


def test_a_tag_says_what_a_machine_runs_and_nothing_else(source: CloudStack, cloud: Cloud) -> None:
    tags = [{"key": "cotenant.workload", "value": "web-1k"}, {"key": "cotenant.service", "value": "latency"}]
    cloud.virtualmachine = [machine(1, tags=tags)]
    (facts,) = source.read().instances
    assert (facts["workload"], facts.get("service")) == ("web-1k", None)


def test_all_pages_are_read_and_machines_of_projects_too(source: CloudStack, cloud: Cloud) -> None:
    cloud.page = 2
    cloud.virtualmachine = [machine(number) for number in range(5)]
    cloud.of_projects = [machine(9), machine(1)]
    reading = source.read()
    assert len(reading.instances) == 6
    rows = {part.name: part.rows for part in reading.parts}
    names = ("hosts", "offerings", "machines", "machines of projects", "volumes", "storage pools")
    assert [rows[name] for name in names] == [3, 1, 5, 2, 3, 1]


def test_an_empty_cloud_is_read(source: CloudStack, cloud: Cloud) -> None:
    cloud.host, cloud.virtualmachine, cloud.serviceoffering = [], [], []
    reading = source.read()
    assert (reading.complete, reading.every_host, reading.hosts, reading.instances) == (True, True, (), ())


def test_what_the_account_may_not_see_is_refused_and_the_rest_is_read(source: CloudStack, cloud: Cloud) -> None:
    cloud.refused["listHosts"] = 432
    reading = source.read()
    states = _states(reading)
    assert (states.pop("hosts"), set(states.values())) == ("refused", {"read"})
    assert (reading.every_host, reading.every_instance, len(reading.instances)) == (False, True, 3)
    assert "no listHosts" in reading.parts[0].reason


@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"[]", b"{}", b'{"listhostsresponse": 5}', b'{"listhostsresponse": {"host": 5}}',
            b'{"listhostsresponse": {"host": [5]}}', b'{"listhostsresponse": {"count": "x", "host": []}}',
            b'{"listhostsresponse": {"count": "x", "host": [{}]}}', b'{"listhostsresponse": {"errorcode": "y"}}'],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_failed_part(source: CloudStack, cloud: Cloud, raw: bytes) -> None:
    cloud.raw["listHosts"] = raw
    reading = source.read()
    assert (_states(reading)["hosts"], _states(reading)["machines"]) == ("failed", "read")
    assert (reading.hosts, reading.every_host) == ((), False)


def test_who_does_not_answer_is_named_with_the_reason_and_without_the_secret() -> None:
    port = free_port()
    reading = CloudStack(open_api=lambda: Api(Account(f"http://127.0.0.1:{port}/client/api", KEY, SECRET))).read()
    assert reading.parts[0].reason == f"listHosts: no answer of 127.0.0.1:{port}: Connection refused"
    assert set(_states(reading).values()) == {"failed"}
    assert SECRET not in str(reading)
    assert KEY not in str(reading)


@pytest.mark.parametrize("wrong", [{"cpunumber": None}, {"cpunumber": "many"}, {"memory": {}}, {"tags": 5}])
def test_a_row_that_makes_no_sense_is_left_out_and_kept_as_it_was(
    source: CloudStack, cloud: Cloud, wrong: dict[str, Any]
) -> None:
    cloud.virtualmachine[0] |= wrong
    reading = source.read()
    assert (len(reading.instances), len(reading.left_out)) == (2, 1)
    assert reading.unclear == {cloud.virtualmachine[0]["id"]}


def test_a_cloud_is_followed_into_the_inventory(source: CloudStack, cloud: Cloud, advisor: Advisor) -> None:
    advisor.inventory.follow(source.read(), dry_run=False)
    assert {one.id for one in advisor.cloud.inventory().hosts} == {H1, H2, H3}
    assert {one.host for one in advisor.cloud.inventory().instances} == {H1}
    cloud.virtualmachine = [machine(0, on=H2)]
    advisor.inventory.follow(source.read(), dry_run=False)
    assert [(one.id, one.host) for one in advisor.cloud.inventory().instances] == [(machine(0)["id"], H2)]
