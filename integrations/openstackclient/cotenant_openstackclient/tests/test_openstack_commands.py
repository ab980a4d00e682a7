"""The real `openstack` with the plug-in asks a real service, where an environment has python-openstackclient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant_client import Client
from cotenant_client.schemas import HostItem, InstanceItem
from tests.servers.running import free_port
from tests.servers.service import Service

ROOT = Path(__file__).resolve().parents[3]
OPENSTACK = Path(os.environ.get("COTENANT_TEST_OPENSTACKCLIENT", ROOT / "var/openstack-lab/venv/bin/openstack"))
HOSTS: list[HostItem] = [{"id": f"h{at}", "kind": "kvm", "pcpus": 8, "memory_mb": 65_536} for at in range(3)]
CROWD: list[InstanceItem] = [
    {"id": f"vm-{at}", "vcpus": 4, "memory_mb": 4096, "host": "h0", "demand": {"cpu": {"mean": 3.0}}} for at in range(6)
]
Run = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.skipif(
    not OPENSTACK.exists(),
    reason="COTENANT_TEST_OPENSTACKCLIENT names no `openstack`, and make test-openstack made none",
)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client and the plug-in, installed with their entry points."""
    folder = tmp_path_factory.mktemp("plugin")
    argv = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps")
    paths = [str(ROOT / one) for one in ("packaging/client", "integrations/openstackclient")]
    subprocess.run((*argv, "--no-build-isolation", "--target", str(folder), *paths), check=True)
    return folder


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("service")
    started = Service(f"sqlite:///{folder / 'c.sqlite3'}", folder, forked=True).start()
    with Client(started.url) as client:
        client.put_inventory(hosts=HOSTS, instances=CROWD)
    yield started
    started.running.stop()


@pytest.fixture
def run(plugin: Path, service: Service, tmp_path: Path) -> Run:
    """`openstack WORDS` without Keystone."""

    def command(*words: str, url: str = service.url) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(plugin)}
        env |= {"OS_AUTH_TYPE": "none", "OS_ENDPOINT": url}
        argv = (str(OPENSTACK), *words)
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)

    return command


def reported(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_is_made_listed_shown_and_its_steps_listed(run: Run) -> None:
    made = reported(run("cotenant", "plan", "create", "--max-moves", "2", "-f", "json"))
    assert (made["kind"], made["steps"]) == ("rebalance", 2)
    assert made["below_after"] < made["below_before"]
    assert reported(run("cotenant", "plan", "show", made["id"], "-f", "json")) == made
    assert made["id"] in [
        one["ID"] for one in reported(run("cotenant", "plan", "list", "--kind", "rebalance", "-f", "json"))
    ]
    assert reported(run("cotenant", "plan", "list", "--kind", "evacuate", "-f", "json")) == []
    steps = reported(run("cotenant", "plan", "step", "list", made["id"], "-f", "json"))
    assert [(one["Action"], one["Source"]) for one in steps] == [("move", "h0")] * 2
    assert {one["Destination"] for one in steps} <= {"h1", "h2"}


def test_candidates_are_listed_best_first_and_none_is_held(run: Run, service: Service) -> None:
    found = reported(run("cotenant", "candidate", "list", "--vcpus", "4", "--ram", "4096", "-f", "json"))
    assert [one["Rank"] for one in found] == [1, 2, 3]
    assert found[-1]["Host"] == "h0"
    assert found[-1]["Worst neighbour"]
    only = reported(run("cotenant", "candidate", "list", "--vcpus", "4", "--ram", "4096", "--host", "h0", "-f", "json"))
    assert [one["Host"] for one in only] == ["h0"]
    with Client(service.url) as client:
        assert {one["id"] for one in client.instances()} == {one["id"] for one in CROWD}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("candidate", "list", "--vcpus", "400", "--ram", "4096"), "no host can take it: h0: "),
        (("candidate", "list", "--vcpus", "4"), "name a --flavor, or --vcpus and --ram"),
        (("plan", "show", "nothing"), "nothing"),
        (("plan", "create", "--kind", "evacuate"), "needs the hosts that are to be emptied"),
    ],
)
def test_what_cannot_be_answered_is_reported_in_a_sentence(run: Run, words: tuple[str, ...], message: str) -> None:
    done = run("cotenant", *words)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_that_is_away_is_reported_with_its_url(run: Run) -> None:
    done = run("cotenant", "plan", "list", url=f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1
    assert "cannot be asked: nothing listens there" in done.stderr


def test_help_says_what_each_command_does(run: Run) -> None:
    done = run("help", "cotenant", "plan", "create")
    assert "Make a plan; nothing is carried out" in done.stdout
