"""A service that answers, with a trained model, loads no library that only trainings need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models.made_models import fitted

# each takes up to a second to import, and openstacksdk fails where a user has no home
OF_CLOUDS = {
    "openstack",
    "kubernetes",
    "libvirt",
    "proxmoxer",
    "XenAPI",
    "keystoneauth1",
}
HEAVY = {"lightgbm", "sklearn", "scipy.stats", "pandas", "matplotlib"}
BODY: dict[str, Any] = {"instance": {"id": "new", "vcpus": 2, "memory_mb": 1024, "workload": "w0"}}
ASKED: list[tuple[str, str, Any]] = [
    ("PUT", "/v1/inventory", {
        "mode": "replace",
        "hosts": [{"id": f"h{at}", "kind": "kvm", "pcpus": 8, "memory_mb": 65_536} for at in range(70)],
        "instances": [
            {"id": f"i{at}", "vcpus": 4, "memory_mb": 1024, "host": f"h{at % 70}", "demand": {"cpu": {"mean": at / 60}}}
            for at in range(1, 140)
        ],
        "workloads": [{"name": "w0", "metrics": {"cpu": 80.0, "execution": 900.0, "block": 10.0}}],
    }),
    ("POST", "/v1/placements", BODY | {"dry_run": True}),
    ("POST", "/v1/placements", {"instance": BODY["instance"] | {"service": "latency", "max_latency_ratio": 3.0}}),
    ("POST", "/v1/placements:batch", {"instances": [BODY["instance"]], "dry_run": True}),
    ("POST", "/v1/predictions", {
        "host": {"id": "h", "kind": "kvm", "pcpus": 2, "memory_mb": 4096},
        "instances": [{"id": "a", "vcpus": 2, "memory_mb": 1024}, {"id": "b", "vcpus": 2, "memory_mb": 1024}],
    }),
    ("GET", "/", None),
    ("GET", "/hosts/h1", None),
]  # fmt: skip
PROGRAM = """
import json, sys
from pathlib import Path
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from tests.api.api_client import Client

model, folder, asked = sys.argv[1:]
settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=Path(folder))
with Advisor(settings) as advisor:
    advisor.models.activate(advisor.models.register(Path(model)).version, force=True)
    advisor.warm_up()
    client, answers = Client(create_app(advisor, settings)), []
    for method, path, body in json.loads(asked):
        response = client.ask(method, path, **({} if body is None else {"json": body}))
        answers.append([path, response.status_code, response.text[:400]])
    placed = client.ask("POST", "/v1/placements", json=json.loads(asked)[1][2]).json()
modules = sorted(sys.modules)
from threadpoolctl import threadpool_info
blas = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
print(json.dumps({"answers": answers, "model": placed["model_version"], "modules": modules, "blas": blas}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("served")
    argv = [sys.executable, "-c", PROGRAM, str(fitted()), str(folder), json.dumps(ASKED)]
    many = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "4")
    environment = os.environ | many | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_no_question_makes_a_service_load_what_only_trainings_need(found: dict[str, Any]) -> None:
    assert [one for one in found["answers"] if one[1] not in {200, 201, 204}] == []
    assert found["model"].startswith("m-")
    loaded = set(found["modules"])
    assert "models.learning.artifact" in loaded
    assert HEAVY & loaded == set()


def test_a_service_that_follows_no_cloud_loads_no_library_of_one(found: dict[str, Any]) -> None:
    assert OF_CLOUDS & set(found["modules"]) == set()


def test_a_service_starts_without_scipy_and_without_clients_of_clouds() -> None:
    program = "import sys, api.serving; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert (OF_CLOUDS | {"scipy", "requests", "pydoc"}) & set(done.stdout.split()) == set()


def test_a_service_multiplies_matrices_in_the_thread_that_asks(found: dict[str, Any]) -> None:
    assert set(found["blas"]) == {1}
