"""The provider for Terraform and OpenTofu asks a real service: its own tests, and the example as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, WorkloadProfile
from advisor.service import Advisor
from advisor.settings import Settings
from api.schemas.placements import BatchBody, ConstraintsBody, NewInstance
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.service import Service

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "integrations" / "terraform"
BUILT = ROOT / "build" / "terraform"
TOKEN = f"cot_{'0123456789abcdef'}_{'x' * 43}"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that asks for a token. h1 is free, h2 nearly full by `resident`, h3 takes none, h4 is small."""
    if os.environ.get("COTENANT_TEST_TERRAFORM") != "1":
        pytest.skip("builds Go for minutes; make terraform-provider asks for it")
    folder = tmp_path_factory.mktemp("service")
    settings = Settings(database=sqlite_with_tables(folder / "db.sqlite3"), state_dir=folder)
    hosts = (
        Host("h1", "kvm", 8, 8192.0),
        Host("h2", "kvm", 8, 8192.0),
        Host("h3", "kvm", 8, 8192.0, enabled=False),
        Host("h4", "lxc", 2, 8192.0, labels={"rack": "b"}),
    )
    residents = (
        Instance("resident", vcpus=1, memory_mb=6144.0, host="h2"),
        Instance("busy", vcpus=1, memory_mb=512.0, host="h4", workload="batch"),
    )
    with Advisor(settings) as advisor:
        workloads = (WorkloadProfile("batch", {"cpu": 100.0}),)
        advisor.inventory.put(Inventory(hosts, residents, workloads), mode="replace", generation=None)
        advisor.access.tokens.accept(TOKEN, "terraform", "read")
    service = Service(settings.database, folder).start()
    yield service
    service.kill()


@pytest.fixture(scope="module")
def tofu() -> str:
    """OpenTofu or Terraform."""
    for name in ("tofu", "terraform"):
        if program := shutil.which(name, path=f"{ROOT / 'var' / 'tools' / 'usr' / 'bin'}:{os.environ['PATH']}"):
            return program
    pytest.skip("there is no tofu: make terraform-provider builds it with Go")


def run(*words: str | Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The program, with nothing of the user's own configuration of Terraform."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TF_", "COTENANT_"))}
    return subprocess.run(
        words, cwd=folder, env={**kept, **more}, capture_output=True, text=True, timeout=900, check=False
    )


@pytest.mark.timeout(1000)  # Go compiles for minutes on a busy machine
def test_the_provider_s_own_tests_pass_against_a_real_service(cloud: Service, tofu: str, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no go")
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    more = {
        "TF_ACC": "1",
        "TF_ACC_TERRAFORM_PATH": tofu,
        "TF_ACC_PROVIDER_HOST": "registry.opentofu.org" if Path(tofu).name == "tofu" else "registry.terraform.io",
        "COTENANT_TEST_URL": cloud.url,
        "COTENANT_TEST_TOKEN_FILE": str(file),
        "GOFLAGS": "-p=2",
        "CGO_ENABLED": "0",
    }
    done = run(go, "test", "-count=1", "-v", "./...", folder=SOURCE, **more)
    reported = done.stdout + done.stderr
    written = set(re.findall(r"func (Test\w+)", "".join(one.read_text() for one in SOURCE.glob("provider/*_test.go"))))
    assert done.returncode == 0, reported
    assert set(re.findall(r"--- PASS: (\w+)", done.stdout)) == written, reported


def test_the_example_places_two_instances_apart_by_the_built_provider(
    cloud: Service, tofu: str, tmp_path: Path
) -> None:
    if not (BUILT / "terraform-provider-cotenant").exists():
        pytest.skip("make terraform-provider builds it")
    text = (SOURCE / "example" / "main.tf").read_text()
    (tmp_path / "main.tf").write_text(text.replace("web-1k", "batch").replace("4096", "4608"))
    configuration = tmp_path / "tofurc"
    overrides = f'dev_overrides {{ "cotenant/cotenant" = {json.dumps(str(BUILT))} }}'
    configuration.write_text(f"provider_installation {{\n  {overrides}\n  direct {{}}\n}}\n")
    more = {
        "TF_CLI_CONFIG_FILE": str(configuration),
        "COTENANT_SERVER": cloud.url,
        "COTENANT_TOKEN": TOKEN,
        "CHECKPOINT_DISABLE": "1",
    }
    applied = run(tofu, "apply", "-auto-approve", "-no-color", folder=tmp_path, **more)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert _hosts(tofu, tmp_path, more) == {"web-1": "h1", "web-2": "h4"}
    state = (tmp_path / "terraform.tfstate").read_text()
    assert TOKEN not in state + applied.stdout + applied.stderr


def test_every_field_of_a_batch_is_an_argument() -> None:
    """Those of blocks by the generated types, and those beside them by the provider's own; no Go is needed.

    The framework refuses types whose tags differ from the provider's schema, in each of the tests above.
    """
    generated = (SOURCE / "rest" / "rest.gen.go").read_text()
    unsaid = {"profile", "pinning", "isolation", "demand"}
    assert _tags(generated, "NewInstance") == set(NewInstance.model_fields) - unsaid
    assert _tags(generated, "ConstraintsBody") == set(ConstraintsBody.model_fields)
    arguments = _tags((SOURCE / "provider" / "placements.go").read_text(), "model") - {"placements"}
    assert arguments == {"instance", *BatchBody.model_fields} - {"instances", "explain", "dry_run"}


def _tags(source: str, name: str) -> set[str]:
    """Terraform's names of the fields of this Go struct."""
    struct = re.search(rf"^type {name} struct {{\n(.*?)^}}", source, re.MULTILINE | re.DOTALL)
    assert struct is not None
    return set(re.findall(r'tfsdk:"(\w+)"', struct[1]))


def _hosts(tofu: str, folder: Path, more: Mapping[str, str]) -> object:
    return json.loads(run(tofu, "output", "-json", "hosts", folder=folder, **more).stdout)
