"""The plug-in of kube-scheduler asks a real service: its own test, written in Go, which holds what it is answered."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.service import Service

SOURCE = Path(__file__).parents[2] / "integrations" / "kubernetes" / "scheduler"
RECORDED = SOURCE / "plugin" / "testdata" / "advice.json"
TOKEN = f"cot_{'0123456789abcdef'}_{'x' * 43}"


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Service]:
    """A service that asks for tokens. One node is free, one full by `resident`, one takes none; twelve have one CPU."""
    settings = Settings(database=sqlite_with_tables(tmp_path / "db.sqlite3"), state_dir=tmp_path)
    hosts = (
        Host("h1", "kvm", 8, 8192.0),
        Host("h2", "kvm", 8, 8192.0),
        Host("h3", "kvm", 8, 8192.0, enabled=False),
        *(Host(f"n{number:02}", "kvm", 1, 8192.0) for number in range(12)),
    )
    resident = Instance("resident", vcpus=1, memory_mb=6144.0, host="h2")
    with Advisor(settings) as advisor:
        workloads = (WorkloadProfile("batch", {"cpu": 100.0}), WorkloadProfile("busy", {"cpu": 100.0, "block": 0.0}))
        advisor.inventory.put(Inventory(hosts, (resident,), workloads), mode="replace", generation=None)
        advisor.access.tokens.accept(TOKEN, "kube-scheduler", "write")
    service = Service(settings.database, tmp_path, forked=True).start()
    yield service
    service.kill()


@pytest.mark.timeout(1000)  # Go compiles for minutes on a busy machine
@pytest.mark.skipif(
    os.environ.get("COTENANT_TEST_KUBERNETES") != "1", reason="builds Go for minutes; make scheduler-plugin asks for it"
)
def test_the_plug_in_is_answered_by_a_real_service(cloud: Service, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    file = tmp_path / "token"
    file.write_text(TOKEN)
    more = {"COTENANT_TEST_URL": cloud.url, "COTENANT_TEST_TOKEN_FILE": str(file)}
    asked = [go, "test", "-count=1", "-v", "-run", "RealService", "./plugin"]
    environment = os.environ | more
    done = subprocess.run(asked, cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=900, check=False)
    passed = re.findall(r"--- PASS: (\w+)", done.stdout)
    assert passed == ["TestARealServiceAnswers", "TestABurstSpreadsOverTheNodesOfARealService"], (
        done.stdout + done.stderr
    )


def test_what_the_plug_in_s_tests_replay_is_what_the_service_answers(cloud: Service) -> None:
    pod = {
        "metadata": {
            "name": "web-a",
            "namespace": "prod",
            "uid": "a",
            "annotations": {"cotenant.io/workload": "batch"},
        },
        "spec": {"containers": [{"image": "nginx", "resources": {"requests": {"cpu": "500m", "memory": "4Gi"}}}]},
    }
    body = json.dumps({"Pod": pod, "NodeNames": ["h1", "h2", "h3"]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    request = urllib.request.Request(f"{cloud.url}/kubernetes/advice", body, headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer) == json.loads(RECORDED.read_text())
