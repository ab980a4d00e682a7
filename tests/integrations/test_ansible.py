"""The Ansible collection, run by a real ansible-playbook that asks a real service."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from api.schemas.placements import BatchBody, ConstraintsBody, NewInstance
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.local_http import QuietHandler, on_loopback
from tests.servers.service import Service

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "integrations" / "ansible"
PROGRAMS = ROOT / "var" / "ansible" / "bin"
READ, WRITE = f"cot_{'0' * 16}_{'r' * 43}", f"cot_{'1' * 16}_{'w' * 43}"


@pytest.fixture(scope="module")
def cloud(folder: Path) -> Iterator[Service]:
    """A service that asks for a token. h1 and h2 are free, h3 takes none; each has room for one of the example."""
    settings = Settings(database=sqlite_with_tables(folder / "db.sqlite3"), state_dir=folder)
    hosts = (Host("h1", "kvm", 4, 6144.0), Host("h2", "kvm", 4, 6144.0), Host("h3", "kvm", 4, 6144.0, enabled=False))
    resident = Instance("resident", vcpus=1, memory_mb=512.0, host="h2", workload="web-1k")
    with Advisor(settings) as advisor:
        workloads = (WorkloadProfile("web-1k", {"cpu": 60.0}),)
        advisor.inventory.put(Inventory(hosts, (resident,), workloads), mode="replace", generation=None)
        advisor.access.tokens.accept(READ, "reader", "read")
        advisor.access.tokens.accept(WRITE, "writer", "write")
    service = Service(settings.database, folder).start()
    yield service
    service.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the collection, built and installed as a user does."""
    if not (PROGRAMS / "ansible-playbook").exists():
        pytest.skip("there is no ansible-core in var/ansible: make test-ansible")
    folder = tmp_path_factory.mktemp("ansible")
    built = run("ansible-galaxy", "collection", "build", SOURCE, "--output-path", folder, folder=folder)
    assert built.returncode == 0, built.stderr
    (archive,) = folder.glob("cotenant-cloud-*.tar.gz")
    words = ("install", "--offline", archive, "-p", folder / "collections")
    installed = run("ansible-galaxy", "collection", *words, folder=folder)
    assert installed.returncode == 0, installed.stderr
    return folder


def run(program: str, *words: str | Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """A program of ansible-core, with nothing of the user's own configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "COTENANT_"))}
    own = {"ANSIBLE_HOME": str(folder / "home"), "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections")}
    environment = {**kept, **own, "ANSIBLE_LOCALHOST_WARNING": "0", "LC_ALL": "C.UTF-8", **more}
    asked = [str(PROGRAMS / program), *words]
    return subprocess.run(asked, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False)


def placed(folder: Path, url: str, *options: str, token: str = READ, **task: Any) -> dict[str, Any]:
    """What the module gives to a playbook of one task."""
    asked = {"cotenant.cloud.placement": {"url": url, **task}, "register": "advice", "ignore_errors": True}
    kept = {"content": "{{ advice | to_json }}", "dest": str(folder / "advice.json")}
    tasks = [asked, {"ansible.builtin.copy": kept, "check_mode": False}]
    (folder / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    done = run("ansible-playbook", *options, "play.yml", folder=folder, COTENANT_TOKEN=token)
    assert done.returncode == 0, done.stdout + done.stderr
    assert token not in done.stdout + done.stderr
    answer: dict[str, Any] = json.loads((folder / "advice.json").read_text())
    return answer


def an_instance(name: str = "web-1", **more: Any) -> dict[str, Any]:
    return {"id": name, "vcpus": 2, "memory_mb": 4096, **more}


def test_instances_of_one_task_count_for_each_other_and_nothing_is_held(cloud: Service, folder: Path) -> None:
    two = [an_instance("web-1"), an_instance("web-2", labels={"tier": 1, "public": True})]
    for _ in range(2):
        advice = placed(folder, cloud.url, instances=two, limit=3)
        assert sorted(advice["hosts"].values()) == ["h1", "h2"]
        assert advice["changed"] is False
        assert 0 < advice["placements"]["web-1"]["candidates"][0]["throughput_ratio"]["expected"] <= 1
        assert advice["placements"]["web-1"]["rejected"][0]["hosts"] == ["h3"]


def test_a_joint_order_finds_room_that_the_given_order_does_not(cloud: Service, folder: Path) -> None:
    asked = [an_instance("small", memory_mb=1024), an_instance("big", memory_mb=6000)]  # big fits on h1 alone
    given = placed(folder, cloud.url, instances=asked, allow_none=True)
    assert given["hosts"] == {"small": "h1"}
    joint = placed(folder, cloud.url, instances=asked, order="joint", time_limit_s=2)
    assert joint["hosts"] == {"small": "h2", "big": "h1"}


def test_no_host_fails_with_reasons_unless_that_is_allowed(cloud: Service, folder: Path) -> None:
    asked = [an_instance("web-1"), an_instance("huge", memory_mb=1e6)]
    refused = placed(folder, cloud.url, instances=asked)
    assert refused["failed"]
    assert refused["msg"].startswith("no host can take huge: needs 1000000 MB")
    allowed = placed(folder, cloud.url, instances=asked, allow_none=True)
    assert not allowed["failed"]
    assert list(allowed["hosts"]) == ["web-1"]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (
            {"instances": [an_instance(vcpu=2)]},
            "Unsupported parameters for (cotenant.cloud.placement) module: instances.vcpu",
        ),
        ({"instances": [an_instance(like="ghost")]}, "there is no instance ghost"),
        ({"instances": [an_instance(min_throughput_ratio=2)]}, "(input.invalid)"),
        ({"instances": [an_instance()], "order": "joint", "limit": 3}, "leave limit out"),
        ({"instances": [an_instance()], "hold": True}, "(auth.forbidden)"),
        ({"instances": [an_instance()], "token": "cot_unknown"}, "(auth.required)"),
        ({"instances": [an_instance()], "token": "two words"}, "holds blanks"),
        ({"instances": [an_instance()], "url": "http://cotenant.invalid"}, "the token is not sent to"),
        ({"instances": [an_instance()], "url": "cotenant.example"}, "url is no URL"),
    ],
)
def test_what_is_wrong_is_reported_in_a_sentence(cloud: Service, folder: Path, task: dict[str, Any], says: str) -> None:
    refused = placed(folder, **{"url": cloud.url, **task})
    assert refused["failed"]
    assert says in refused["msg"]


def test_a_token_file_that_others_may_read_is_refused(cloud: Service, folder: Path) -> None:
    file = folder / "token"
    file.write_text(READ + "\n")
    for mode, failed in ((0o640, False), (0o644, True), (0o660, True)):
        file.chmod(mode)
        answer = placed(folder, cloud.url, token="cot_not_this_one", instances=[an_instance()], token_file=str(file))
        assert answer["failed"] is failed, answer
        assert failed is ("chmod 640" in answer.get("msg", ""))


def test_a_hold_is_asked_again_with_one_key_while_the_service_is_busy(folder: Path) -> None:
    keys: list[str | None] = []

    class Busy(QuietHandler):
        def do_POST(self) -> None:
            self.request_body()
            keys.append(self.headers["Idempotency-Key"])
            answer = json.dumps({"answers": [{"candidates": [{"host": "h1"}], "rejected": []}]}).encode()
            self.reply(503 if len(keys) < 3 else 200, answer)

    with on_loopback(Busy) as server:
        advice = placed(folder, f"http://127.0.0.1:{server.server_port}", instances=[an_instance()], hold=True)
    assert advice["hosts"] == {"web-1": "h1"}
    assert keys[0]
    assert keys == [keys[0]] * 3


def test_the_example_places_two_hosts_apart_and_check_mode_holds_nothing(cloud: Service, folder: Path) -> None:
    example = SOURCE / "example"
    words = ("-i", example / "inventory.yml", example / "place.yml")
    asked = {"COTENANT_SERVER": cloud.url, "COTENANT_TOKEN": WRITE}
    checked = run("ansible-playbook", "--check", *words, folder=folder, **asked)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert not placed(folder, cloud.url, instances=[an_instance("next")])["failed"]
    done = run("ansible-playbook", *words, folder=folder, **asked)
    assert done.returncode == 0, done.stdout + done.stderr
    reported = re.findall(r"(web-\d) goes to (h\d)", done.stdout)
    assert sorted(name for name, _ in reported) == ["web-1", "web-2"]
    assert sorted(host for _, host in reported) == ["h1", "h2"]
    assert "no host can take next" in placed(folder, cloud.url, instances=[an_instance("next")])["msg"]


def test_ansible_doc_shows_the_documentation(folder: Path) -> None:
    done = run("ansible-doc", "--json", "cotenant.cloud.placement", folder=folder)
    assert done.returncode == 0, done.stderr
    doc = json.loads(done.stdout)["cotenant.cloud.placement"]
    assert set(doc["doc"]["options"]) == set(documentation()["options"])
    assert doc["return"]["hosts"]


def test_every_field_of_a_batch_is_an_option() -> None:
    options = documentation()["options"]
    instance = options["instances"]["suboptions"]
    assert set(instance) == set(NewInstance.model_fields) - {"profile", "pinning", "isolation", "demand"}
    assert set(options["constraints"]["suboptions"]) == set(ConstraintsBody.model_fields)
    assert set(BatchBody.model_fields) - {"explain", "dry_run"} < set(options)


def documentation() -> dict[str, Any]:
    """The module's own documentation, read without ansible-core."""
    tree = ast.parse((SOURCE / "plugins" / "modules" / "placement.py").read_text())
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    (text,) = (node.value for node in assigned if ast.unparse(node.targets[0]) == "DOCUMENTATION")
    read: dict[str, Any] = yaml.safe_load(ast.literal_eval(text))
    return read
