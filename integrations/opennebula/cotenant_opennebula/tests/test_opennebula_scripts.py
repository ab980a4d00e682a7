"""The scripts `place` and `optimize` beside a real service, a slow one, a broken one and none."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import bridge
import pytest
import uvicorn
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.examples import examples
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.local_http import QuietHandler, on_loopback

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1]

FEW = bounds(
    max_examples=examples(60), deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
TIMEOUT_S = 1.0  # where nothing comes
PATIENCE_S = 20.0  # where an answer comes, beside other work late
VM = """<VM><ID>{id}</ID><UID>0</UID><NAME>vm-{id}</NAME><STATE>{state}</STATE><LCM_STATE>{lcm}</LCM_STATE>
<TEMPLATE><CPU><![CDATA[1]]></CPU><VCPU><![CDATA[2]]></VCPU><MEMORY><![CDATA[{memory}]]></MEMORY></TEMPLATE>
<USER_TEMPLATE><COTENANT_WORKLOAD><![CDATA[{workload}]]></COTENANT_WORKLOAD><LOGO>x</LOGO></USER_TEMPLATE>
<HISTORY_RECORDS>{history}</HISTORY_RECORDS></VM>"""
HISTORY = "<HISTORY><OID>1</OID><SEQ>0</SEQ><HID>{host}</HID><DS_ID>{datastore}</DS_ID></HISTORY>"
HOST = """<HOST><ID>{id}</ID><NAME>node{id}</NAME><STATE>2</STATE>
<HOST_SHARE><MAX_MEM>{memory}</MAX_MEM><MEM_USAGE>0</MEM_USAGE><MAX_CPU>200</MAX_CPU></HOST_SHARE></HOST>"""
WANTED = """<VM><ID>{id}</ID><HOSTS>{hosts}</HOSTS><NIC><ID>0</ID><VNETS><ID>1</ID></VNETS></NIC>
<DATASTORES><ID>{datastore}</ID></DATASTORES></VM>"""


@dataclass(frozen=True)
class Machine:
    """A virtual machine as a document describes it; `host` None = pending."""

    id: int
    workload: str = "busy"
    host: int | None = None
    memory_mb: int = 1024


def document(*machines: Machine, hosts: tuple[int, ...] = (3, 4, 5), memory_mb: int = 8192) -> str:
    """What OpenNebula writes on standard input (SchedulerManagerDriver.cc, scheduler_driver_action.xsd)."""
    vms = "".join(
        VM.format(
            id=one.id, workload=one.workload, memory=one.memory_mb,
            state=1 if one.host is None else 3, lcm=0 if one.host is None else 3,
            history="" if one.host is None else HISTORY.format(host=one.host, datastore=100 + one.host),
        )
        for one in machines
    )  # fmt: skip
    pool = "".join(HOST.format(id=number, memory=memory_mb * 1024) for number in hosts)
    ids = "".join(f"<ID>{number}</ID>" for number in hosts)
    wanted = "".join(WANTED.format(id=one.id, hosts=ids, datastore=0) for one in machines)
    text = (
        f"<SCHEDULER_DRIVER_ACTION><VM_POOL>{vms}</VM_POOL><HOST_POOL>{pool}</HOST_POOL><DATASTORE_POOL/><VNET_POOL/>"
        f"<VM_GROUP_POOL/><CLUSTER_POOL/><REQUIREMENTS>{wanted}</REQUIREMENTS></SCHEDULER_DRIVER_ACTION>"
    )
    return base64.b64encode(text.encode()).decode()


@dataclass(frozen=True)
class Scripts:
    """The scripts with settings of their own."""

    folder: Path
    url: str

    def run(self, name: str, text: str, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
        lines = {"url": self.url, "timeout_s": PATIENCE_S, "placer": HERE / "own_placer.py"} | settings
        conf = self.folder / "cotenant.conf"
        conf.write_text("[cotenant]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items()), "utf-8")
        environment = {**os.environ, "COTENANT_OPENNEBULA_CONF": str(conf), "COTENANT_TEST_SEEN": str(self.seen)}
        return subprocess.run(
            [sys.executable, "-S", str(SCRIPTS / name), *arguments],  # they need nothing beside the standard library
            input=text, text=True, capture_output=True, check=False, env=environment, timeout=60,
        )  # fmt: skip

    @property
    def seen(self) -> Path:
        return self.folder / "seen"

    def documents(self) -> list[str]:
        """What the own placer was given, in order."""
        return self.seen.read_text("ascii").split()


def actions(done: subprocess.CompletedProcess[str]) -> tuple[str | None, list[dict[str, str | None]]]:
    """The plan's id and its actions; every element that Plan.cc requires is there."""
    plan = ElementTree.fromstring(done.stdout)
    assert plan.tag == "PLAN"
    found = [{one.tag: one.text for one in action} for action in plan.iterfind("ACTION")]
    assert all({"VM_ID", "OPERATION", "HOST_ID", "DS_ID"} <= set(one) for one in found)
    return plan.findtext("ID"), found


def hosts_of(done: subprocess.CompletedProcess[str]) -> dict[str | None, str | None]:
    return {one["VM_ID"]: one["HOST_ID"] for one in actions(done)[1]}


@pytest.fixture(scope="module")
def cotenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Advisor, str]]:
    """A real service on a free port: node 3 is crowded, 4 and 5 are empty."""
    state = tmp_path_factory.mktemp("cotenant")
    settings = Settings(database=sqlite_with_tables(state / "db.sqlite3"), state_dir=state)
    with Advisor(settings) as advisor:
        hosts = tuple(Host(f"node{n}", "kvm", 2, 8192.0, labels={"opennebula_id": str(n)}) for n in (3, 4, 5))
        there = tuple(Instance(f"one-{n}", 2, 1024.0, host="node3", workload="busy") for n in (10, 11, 12))
        busy = WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0})
        advisor.inventory.put(Inventory(hosts, there, (busy,)), mode="replace", generation=None)
        server = uvicorn.Server(
            uvicorn.Config(create_app(advisor, settings), port=0, log_level="error", lifespan="off")
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield advisor, f"http://127.0.0.1:{port}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def scripts(tmp_path: Path, cotenant: tuple[Advisor, str]) -> Scripts:
    return Scripts(tmp_path, cotenant[1])


@pytest.fixture
def alone(tmp_path: Path) -> Scripts:
    """Nothing listens there."""
    return Scripts(tmp_path, "http://127.0.0.1:9")


class _Says(QuietHandler):
    """Answers everything with the server's `said`, or never."""

    def do_POST(self) -> None:
        said: tuple[int, bytes] | None = self.server.said  # type: ignore[attr-defined]
        self.request_body()
        if said is None:
            for _ in range(100):  # a byte now and then keeps a socket's own time limit from ending it
                self.wfile.write(b"H")
                time.sleep(0.1)
            return
        status, body = said
        self.reply(status, body, {"Location": "http://127.0.0.1:9/"})


@pytest.fixture
def saying(tmp_path: Path) -> Iterator[Any]:
    """A service that says what a test has it say."""
    with on_loopback(_Says) as server:

        def says(said: tuple[int, bytes] | None) -> Scripts:
            server.said = said  # type: ignore[attr-defined]
            return Scripts(tmp_path, f"http://127.0.0.1:{server.server_port}")

        yield says


# place


def test_virtual_machines_go_where_cotenant_says_and_the_own_placer_does_the_rest(scripts: Scripts) -> None:
    done = scripts.run("place", document(Machine(32), Machine(33)))
    assert (done.returncode, done.stderr) == (0, "")
    plan, found = actions(done)
    assert plan == "-1"
    assert [(one["VM_ID"], one["OPERATION"], one["DS_ID"]) for one in found] == [
        ("32", "deploy", "0"),
        ("33", "deploy", "0"),
    ]
    assert sorted(str(host) for host in hosts_of(done).values()) == ["4", "5"], "the crowded one is left alone"


def test_only_allowed_hosts_are_named(scripts: Scripts) -> None:
    assert hosts_of(scripts.run("place", document(Machine(40), hosts=(3,)))) == {"40": "3"}


def test_what_the_document_says_beside_hosts_reaches_the_own_placer_unchanged(scripts: Scripts) -> None:
    text = document(Machine(41))
    scripts.run("place", text)
    (seen,) = scripts.documents()
    before, after = (ElementTree.fromstring(base64.b64decode(one)) for one in (text, seen))
    assert len(after.findall("REQUIREMENTS/VM/HOSTS/ID")) == 1
    for root in (before, after):
        root.find("REQUIREMENTS/VM/HOSTS").clear()  # type: ignore[union-attr]
    assert ElementTree.canonicalize(ElementTree.tostring(before)) == ElementTree.canonicalize(
        ElementTree.tostring(after)
    )


def test_without_the_service_the_own_placer_decides_on_the_document_as_it_came(alone: Scripts) -> None:
    text = document(Machine(32))
    done = alone.run("place", text)
    assert (done.returncode, hosts_of(done), alone.documents()) == (0, {"32": "5"}, [text])
    assert done.stderr.startswith("WARN: placing without Cotenant")


@pytest.mark.parametrize(
    "said",
    [
        (500, b"{}"), (401, b""), (302, b""), (200, b""), (200, b"<html>"), (200, b"[]"), (200, b'{"VMS": 5}'),
        (200, b'{"VMS": [5]}'), (200, b'{"VMS": [{"ID": 32, "HOST_ID": "3"}]}'),
        (200, b'{"VMS": [{"ID": 32, "HOST_ID": true}]}'), (200, b'{"VMS": [{"ID": [1], "HOST_ID": 3}]}'),
        (200, b"[" * 100_000), (200, b'{"VMS": [{"ID": NaN, "HOST_ID": 3}]}'),
    ],
    ids=lambda said: f"{said[0]} {said[1][:30].decode()}",
)  # fmt: skip
def test_an_answer_that_is_none_is_one_kind_of_error(saying: Any, said: tuple[int, bytes]) -> None:
    service = bridge.BridgeSettings(saying(said).url, token="", timeout_s=PATIENCE_S, placer="", most_moves=1)
    with pytest.raises(bridge.BridgeError):
        bridge.advice(service, "/opennebula/place", {"VMS": []})


def test_an_answer_that_is_none_leaves_it_to_the_own_placer(saying: Any) -> None:
    done = saying((200, b"[" * 100_000)).run("place", document(Machine(32)))
    assert (done.returncode, hosts_of(done)) == (0, {"32": "5"})
    assert "WARN: placing without Cotenant" in done.stderr


def test_a_host_that_was_not_offered_is_not_taken(saying: Any) -> None:
    done = saying((200, b'{"VMS": [{"ID": 32, "HOST_ID": 9}, {"ID": 99, "HOST_ID": 3}]}')).run(
        "place", document(Machine(32))
    )
    assert (done.returncode, hosts_of(done)) == (0, {"32": "5"})


@pytest.mark.measured
def test_a_service_that_drips_is_not_waited_for(saying: Any) -> None:
    began = time.monotonic()
    done = saying(None).run("place", document(Machine(32)), timeout_s=TIMEOUT_S)
    assert (done.returncode, hosts_of(done)) == (0, {"32": "5"})
    assert time.monotonic() - began < TIMEOUT_S + 8, "a hundred bytes would take ten seconds more"


def test_a_host_that_is_full_by_opennebula_s_books_is_given_up(saying: Any) -> None:
    says = json.dumps({"VMS": [{"ID": 1, "HOST_ID": 3}, {"ID": 2, "HOST_ID": 3}]}).encode()
    done = saying((200, says)).run("place", document(Machine(1), Machine(2), hosts=(3, 4), memory_mb=1500))
    assert hosts_of(done) == {"1": "3", "2": "4"}
    assert "not taken" in done.stderr


def test_without_an_own_placer_it_fails_so_that_opennebula_tries_again(scripts: Scripts) -> None:
    done = scripts.run("place", document(Machine(32)), placer="/nowhere/place")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ERROR: OpenNebula's own placer cannot be run" in done.stderr


def test_settings_that_cannot_be_read_are_said(scripts: Scripts) -> None:
    done = scripts.run("place", document(Machine(32)), timeout_s="soon")
    assert "cotenant.conf is not readable settings" in done.stderr


def test_a_token_is_sent_and_never_shown(saying: Any, tmp_path: Path) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("cot_geheim\n", "ascii")
    done = saying((401, b"cot_geheim")).run("place", document(Machine(32)), token_file=tmp_path / "token")
    assert "HTTP 401" in done.stderr
    assert "geheim" not in done.stderr + done.stdout


def test_a_token_that_others_may_read_is_refused(saying: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("cot_geheim\n", "ascii")
    (tmp_path / "token").chmod(0o644)
    done = saying((401, b"")).run("place", document(Machine(32)), token_file=tmp_path / "token")
    assert "is refused because others may read or change it (mode 644); chmod 640 it" in done.stderr
    assert "geheim" not in done.stderr + done.stdout


def test_one_that_is_wrong_about_itself_leaves_the_others_their_advice(scripts: Scripts) -> None:
    """Node 3 is crowded, and it is the one that the own placer would take of the two."""
    wrong, right = document(Machine(60, workload="x" * 256), Machine(61), hosts=(4, 3)), {"61": "4"}
    done = scripts.run("place", wrong)
    assert (done.returncode, hosts_of(done).items() >= right.items()) == (0, True)
    (line,) = done.stderr.splitlines()
    assert line.startswith("WARN: 60 is left to OpenNebula's own placer: COTENANT_WORKLOAD 'xxx")
    assert line.endswith("is not 1-255 printable characters")


def test_why_a_question_was_refused_is_in_the_log(saying: Any) -> None:
    problem = json.dumps({"status": 422, "detail": "VMS.0.ID is\nbelow 0"}).encode()
    done = saying((422, problem)).run("place", document(Machine(32)))
    assert done.stderr == "WARN: placing without Cotenant: Cotenant answered with HTTP 422: VMS.0.ID is below 0\n"


# optimize


def test_who_gains_moves_and_keeps_its_datastore(scripts: Scripts) -> None:
    done = scripts.run("optimize", document(*(Machine(n, host=3) for n in (10, 11, 12))), "7")
    plan, found = actions(done)
    assert (done.returncode, done.stderr, plan) == (0, "", "7")
    (action,) = found
    assert (action["OPERATION"], action["DS_ID"], action["HOST_ID"] in {"4", "5"}) == ("migrate", "103", True)


def test_nothing_moves_on_a_host_that_suits_all(scripts: Scripts) -> None:
    assert actions(scripts.run("optimize", document(Machine(50, host=4)), "7")) == ("7", [])


@pytest.mark.parametrize("said", [(500, b""), (200, b"{}"), None])
def test_without_an_answer_nothing_moves(saying: Any, said: tuple[int, bytes] | None) -> None:
    done = saying(said).run("optimize", document(Machine(10, host=3)), "7", timeout_s=TIMEOUT_S)
    assert (done.returncode, actions(done)) == (0, ("7", []))
    assert "WARN: no move without Cotenant" in done.stderr


def test_a_move_to_where_it_is_or_may_not_go_is_none(saying: Any) -> None:
    says = b'{"VMS": [{"ID": 10, "HOST_ID": 3}, {"ID": 11, "HOST_ID": 9}]}'
    assert actions(saying((200, says)).run("optimize", document(Machine(10, host=3), Machine(11, host=3)), "7")) == (
        "7",
        [],
    )


def test_pending_machines_are_not_moved(saying: Any) -> None:
    assert (
        actions(saying((200, b'{"VMS": [{"ID": 10, "HOST_ID": 4}]}')).run("optimize", document(Machine(10)), "7"))[1]
        == []
    )


@pytest.mark.parametrize("arguments", [(), ("x",), ("1", "2")])
def test_without_a_cluster_it_says_how_it_is_used(alone: Scripts, arguments: tuple[str, ...]) -> None:
    done = alone.run("optimize", "", *arguments)
    assert (done.returncode, "usage" in done.stderr) == (2, True)


# bytes


@FEW
@given(st.text(max_size=80) | st.binary(max_size=200).map(lambda raw: base64.b64encode(raw).decode()))
def test_any_input_is_a_document_or_refused(text: str) -> None:
    with pytest.raises(bridge.BridgeError):
        bridge.read_document(text)


TAGS = st.sampled_from(["VM", "ID", "HOSTS", "TEMPLATE", "CPU", "MEMORY", "VM_POOL", "REQUIREMENTS", "HISTORY", "HID"])
TREES = st.recursive(
    st.tuples(TAGS, st.sampled_from(["", "3", "x", "-1", "1e999", "nan"])),
    lambda inner: st.tuples(TAGS, st.lists(inner, max_size=3)),
    max_leaves=15,
)


@FEW
@given(st.lists(TREES, max_size=4))
def test_any_document_is_read_or_warned_about(trees: list[Any]) -> None:
    def build(parent: ElementTree.Element, tree: Any) -> None:
        tag, inside = tree
        element = ElementTree.SubElement(parent, tag)
        if isinstance(inside, str):
            element.text = inside
        else:
            for one in inside:
                build(element, one)

    root = ElementTree.Element("SCHEDULER_DRIVER_ACTION")
    for tree in trees:
        build(root, tree)
    found = bridge.virtual_machines(bridge.read_document(bridge.write_document(root)))
    assert all(isinstance(one.id, int) for one in found)


def test_entities_are_refused() -> None:
    text = '<!DOCTYPE a [<!ENTITY b "c">]><SCHEDULER_DRIVER_ACTION>&b;</SCHEDULER_DRIVER_ACTION>'
    with pytest.raises(bridge.BridgeError, match="entities"):
        bridge.read_document(base64.b64encode(text.encode()).decode())
