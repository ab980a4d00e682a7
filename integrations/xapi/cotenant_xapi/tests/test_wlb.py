"""XAPI's Workload Balancing: read as XAPI reads it, a VM that starts holds its host, any bytes have an answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest
from cotenant_xapi import soap
from cotenant_xapi.wlb import ROUTES
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.errors import StorageUnavailable
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client, bent_client, failing
from tests.conversations.playing import play, silent
from tests.examples import examples

FEW = bounds(
    max_examples=examples(40), deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
PATH = "/Citrix.Dwm.WorkloadBalance/Service"
POOL = "26d0fc83-64e4-5e8a-1a0d-7a5a0f1c9b11"
Leaves = dict[str, str]


@dataclass(frozen=True)
class RefusedError(Exception):
    """What XAPI raises as WLB_INTERNAL_ERROR."""

    code: str
    message: str


@dataclass(frozen=True)
class Xapi:
    """Asks and reads as ocaml/xapi/workload_balancing.ml does: names without namespaces, blanks between elements
    dropped, an element that holds text only is a leaf, ResultCode missing means 0."""

    client: Client

    def ask(self, method: str, **parameters: str) -> ElementTree.Element:
        given = "\n".join(f"<{name}>{escape(value)}</{name}>" for name, value in parameters.items())
        body = f"""<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/">
  <s:Body>
    <{method} xmlns="http://schemas.citrix.com/DWM">
      <request xmlns:i="http://www.w3.org/2001/XMLSchema-instance">
        <PoolUuid>{POOL}</PoolUuid>
{given}
      </request>
    </{method}>
  </s:Body>
</s:Envelope>"""
        headers = {
            "SOAPAction": f'"http://schemas.citrix.com/DWM/IWorkloadBalance/{method}"',
            "Content-Type": "text/xml; charset=utf-8",
            "Authorization": "Basic dXNlcjpzZWNyZXQ=",
        }
        answer = self.client.ask("POST", PATH, content=body.encode(), headers=headers)
        assert answer.status_code == 200, "XAPI takes everything else for a wrong password"
        inner = _descend(ElementTree.fromstring(answer.content), "Body", f"{method}Response", f"{method}Result")
        code = _leaf(inner, "ResultCode", "0")
        if code != "0":
            raise RefusedError(code, _leaf(inner, "ErrorMessage", ""))
        return inner

    def vm_recommendations(self, vm: str, live_hosts: int) -> dict[str, list[str]]:
        """VM.retrieve_wlb_recommendations: by host [stars, id] or ["0.0", id, reason]."""
        found = {}
        children = list(_descend(self.ask("VMGetRecommendations", VmUuid=vm), "Recommendations"))
        assert len(children) == live_hosts, "XAPI refuses another number than that of its live hosts"
        for one in children:
            said = _leaves(one)
            number = said["RecommendationId"]
            float(number)
            if "Stars" in said:
                assert 0.0 <= float(said["Stars"]) <= 5.0
                found[said["HostUuid"]] = [said["Stars"], number]
            else:
                found[said["HostUuid"]] = ["0.0", number, said["ZeroScoreReason"]]
        return found

    def evacuation(self, host: str) -> dict[str, str]:
        """host.retrieve_wlb_evacuate_recommendations: VM -> host."""
        inner = self.ask("HostGetRecommendations", HostUuid=host)
        if not len(inner) or [_name(one) for one in inner] == ["CanPlaceAllVMs"]:
            return {}
        rows = [_leaves(one) for one in _descend(inner, "Recommendations")]
        assert all(float(row["RecommendationId"]) for row in rows)
        return {row["VmUuid"]: row["HostUuid"] for row in rows}

    def optimisation(self) -> dict[str, tuple[str, str, str]]:
        """pool.retrieve_wlb_recommendations: VM -> (from, to, why)."""
        inner = self.ask("GetOptimizationRecommendations")
        if not len(inner):
            return {}
        float(_leaf(inner, "OptimizationId", ""))
        rows = [_leaves(one) for one in _descend(inner, "Recommendations")]
        assert all(float(row["RecommendationId"]) for row in rows)
        return {row["VmToMoveUuid"]: (row["MoveFromHostUuid"], row["MoveToHostUuid"], row["Reason"]) for row in rows}


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _descend(element: ElementTree.Element, *names: str) -> ElementTree.Element:
    for name in names:
        assert not (element.text or "").strip()
        element = next(one for one in element if _name(one) == name)
    return element


def _leaf(element: ElementTree.Element, name: str, missing: str) -> str:
    return next((one.text or "" for one in element if _name(one) == name), missing)


def _leaves(element: ElementTree.Element) -> Leaves:
    assert not any(len(one) for one in element)
    return {_name(one): one.text or "" for one in element}


def _host(name: str, **labels: str) -> Host:
    return Host(name, "xen", 2, 8192.0, labels={"pool": POOL, **labels})


def _vm(name: str, host: str, **more: Any) -> Instance:
    return Instance(name, 2, 1024.0, host=host, workload="busy", labels={"uuid": f"uuid-of-{name}"}, **more)


@pytest.fixture
def pool(advisor: Advisor) -> Advisor:
    """Three hosts, a crowd on one of them; one more host belongs to another pool."""
    hosts = (_host("x1", uuid="u1"), _host("x2", uuid="u2"), _host("x3", uuid="u3"),
             Host("x4", "xen", 8, 65536.0, labels={"pool": "another"}))  # fmt: skip
    instances = tuple(_vm(f"v{number}", "x1") for number in range(3))
    busy = WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0})
    advisor.inventory.put(Inventory(hosts, instances, (busy,)), mode="replace", generation=None)
    return advisor


@pytest.fixture
def xapi(pool: Advisor, settings: Settings) -> Xapi:
    return Xapi(Client(create_app(pool, settings)))


def test_every_host_of_the_pool_has_stars_and_the_crowded_one_fewest(xapi: Xapi) -> None:
    rated = xapi.vm_recommendations("uuid-of-v0", live_hosts=3)
    assert set(rated) == {"u1", "u2", "u3"}
    assert float(rated["u2"][0]) == float(rated["u3"][0]) > float(rated["u1"][0])


def test_a_host_without_room_has_no_stars_and_a_reason(xapi: Xapi, pool: Advisor) -> None:
    pool.inventory.put_instance(Instance("huge", 2, 8000.0))
    pool.inventory.put_host(Host("x1", "xen", 2, 8192.0, enabled=False, labels={"pool": POOL, "uuid": "u1"}))
    rated = xapi.vm_recommendations("huge", live_hosts=3)
    assert rated["u1"][0::2] == ["0.0", "the host is disabled"]
    assert len(rated["u2"]) == 2


def test_a_vm_without_a_known_size_is_refused(xapi: Xapi) -> None:
    with pytest.raises(RefusedError, match="size is needed"):
        xapi.vm_recommendations("5c1f7e6a-0000-4d3b-9b0e-1a2b3c4d5e6f", live_hosts=3)


def test_vms_that_start_one_after_another_spread(xapi: Xapi, pool: Advisor) -> None:
    for number in range(4):
        pool.inventory.put_instance(Instance(f"new{number}", 2, 1024.0, workload="busy"))
    chosen = []
    for number in range(4):
        rated = xapi.vm_recommendations(f"new{number}", live_hosts=3)
        chosen.append(max(sorted(rated), key=lambda uuid: float(rated[uuid][0])))
    assert sorted(chosen) == ["u2", "u2", "u3", "u3"]


def test_asking_about_a_vm_that_runs_holds_nothing(xapi: Xapi, pool: Advisor) -> None:
    xapi.vm_recommendations("uuid-of-v0", live_hosts=3)
    assert pool.outcomes.page().items == ()


def test_a_host_is_emptied_with_each_counting_in_for_the_next(xapi: Xapi) -> None:
    moves = xapi.evacuation("u1")
    assert set(moves) == {"uuid-of-v0", "uuid-of-v1", "uuid-of-v2"}
    assert sorted(moves.values()) in (["u2", "u2", "u3"], ["u2", "u3", "u3"])


def test_an_empty_host_needs_no_moves(xapi: Xapi) -> None:
    assert xapi.evacuation("u2") == {}


def test_a_vm_that_fits_nowhere_is_left_out(xapi: Xapi, pool: Advisor) -> None:
    pool.inventory.put_instance(_vm("v0", "x1", min_throughput_ratio=0.9))
    pool.inventory.put_instance(Instance("large", 1, 8192.0, host="x2"))
    pool.inventory.put_instance(Instance("larger", 1, 8192.0, host="x3"))
    assert xapi.evacuation("u1") == {}
    (said,) = xapi.ask("HostGetRecommendations", HostUuid="u1")
    assert said.text == "false"


def test_a_crowd_is_asked_to_move_apart_and_then_nothing_more(xapi: Xapi, pool: Advisor) -> None:
    moves = xapi.optimisation()
    assert len(moves) == 1
    ((vm, (source, target, why)),) = moves.items()
    assert (source, "beyond uncertainty" in why) == ("u1", True)
    name = vm.removeprefix("uuid-of-")
    pool.inventory.put_instance(_vm(name, {"u2": "x2", "u3": "x3"}[target]))
    assert xapi.optimisation() == {}


def test_every_answer_has_one_entry_in_the_audit_log(xapi: Xapi, pool: Advisor) -> None:
    pool.inventory.put_instance(Instance("new", 1, 1024.0))
    before = len(pool.access.audit(limit=1000).items)
    xapi.vm_recommendations("uuid-of-v0", live_hosts=3)
    xapi.vm_recommendations("new", live_hosts=3)
    xapi.evacuation("u1")
    xapi.optimisation()
    found = [one.operation for one in pool.access.audit(limit=1000).items][::-1][before:]
    assert found == ["placement.look", "placement.answer", "moves.answer", "moves.answer"]


def test_storage_that_is_away_is_reported_in_words(pool: Advisor, settings: Settings) -> None:
    away = failing(StorageUnavailable("the database does not answer"))
    with pytest.raises(RefusedError) as error:
        Xapi(bent_client(pool, settings, placements={"scores": away})).vm_recommendations("v0", 3)
    assert error.value.message == "the database does not answer"


# bytes


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"<", b"\xff\xfe<", b'<?xml version="1.0" encoding="utf-7"?><a/>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
        b'<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;">]><a>&y;</a>',
        b"<a>" * 5000 + b"</a>" * 5000,
    ],
)  # fmt: skip
def test_bytes_that_are_no_envelope_are_refused(raw: bytes) -> None:
    with pytest.raises(soap.MalformedEnvelopeError):
        soap.read_call(raw)


@FEW
@given(st.binary(max_size=200))
def test_any_bytes_are_a_call_or_refused(raw: bytes) -> None:
    with pytest.raises(soap.MalformedEnvelopeError):
        soap.read_call(raw)


@FEW
@given(st.text(max_size=60), st.dictionaries(st.sampled_from(["A", "B"]), st.text(max_size=60), max_size=2))
def test_whatever_is_answered_can_be_read(value: str, row: Mapping[str, str]) -> None:
    raw = soap.answer("M", {"V": value}, {"R": [row]})
    found = _descend(ElementTree.fromstring(raw), "Body", "MResponse", "MResult")
    assert [_name(one) for one in found] == ["V", "R"]


@pytest.mark.hypothesis
def test_no_parameters_break_the_service(client: Client) -> None:
    methods = ["VMGetRecommendations", "HostGetRecommendations", "GetOptimizationRecommendations", "AddXenServer", "X"]
    plain = st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=30)

    @FEW
    @given(st.sampled_from(methods), st.dictionaries(st.sampled_from(["VmUuid", "HostUuid"]), plain, max_size=2))
    def ask(method: str, parameters: dict[str, str]) -> None:
        try:
            Xapi(client).ask(method, **parameters)
        except RefusedError as refused:
            assert refused.message

    ask()


# who may ask


def test_a_token_is_the_password_and_needs_scope_write(pool: Advisor, settings: Settings) -> None:
    scopes = {scope: pool.access.tokens.create(scope, scope, lasts=None)[1] for scope in ("read", "write")}
    client = Client(create_app(pool, settings))
    raw = (
        f'<Envelope xmlns="{soap.ENVELOPE}"><Body><VMGetRecommendations xmlns="{soap.DWM}"><request>'
        f"<PoolUuid>{POOL}</PoolUuid><VmUuid>v0</VmUuid></request></VMGetRecommendations></Body></Envelope>"
    )

    def status(password: str) -> int:
        headers = {
            "Content-Type": "text/xml",
            "Authorization": "Basic " + b64encode(f"any:{password}".encode()).decode(),
        }
        return client.ask("POST", PATH, content=raw.encode(), headers=headers).status_code

    assert (status(scopes["write"]), status(scopes["read"]), status("wrong")) == (200, 403, 401)


def test_the_conversation_of_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Path(__file__).with_name("wlb.yaml")
    play(file, tmp_path, monkeypatch)
    assert silent(ROUTES, [file]) == []


def test_the_question_is_described_as_xml(pool: Advisor, settings: Settings) -> None:
    asked = create_app(pool, settings).openapi()["paths"][PATH]["post"]
    assert set(asked["requestBody"]["content"]) == {"text/xml", "application/xml"}
    assert "408" in asked["responses"]
