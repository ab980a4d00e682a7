"""What commands print with --json is as the schemas say that `cotenant schema` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from api.cli.schema import shapes
from tests.api.cli_runs import run

CLOUD = str(Path(__file__).parent / "cloud.yaml")
NEW = "[{id: new, vcpus: 2, memory_mb: 512}]"
SCENE = """host: {id: h1, kind: kvm, pcpus: 2, memory_mb: 4096}
instances: [{id: a, vcpus: 2}, {id: b, vcpus: 1}]
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COTENANT_DATABASE", "sqlite:///state.sqlite")
    Path("new.yaml").write_text(NEW, encoding="utf-8")
    Path("scene.yaml").write_text(SCENE, encoding="utf-8")


def schema_of(command: str) -> Any:
    result = run("schema", *command.split())
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("where", (CLOUD, "--instance", "new.yaml", "--explain", "--commands")),
        ("predict", ("scene.yaml",)),
        ("plan", (CLOUD, "--add", "new.yaml")),
        ("plan", (CLOUD, "--growth", "1", "--months", "2", "--add", "new.yaml")),
        ("plan", (CLOUD, "--empty", "h3")),
        ("plans list", ()),
        ("worth", ()),
        ("doctor", ()),
        ("audit", ()),
        ("models list", ()),
        ("models show", ("prior",)),
        ("models history", ()),
        ("models quality", ("prior",)),
    ],
)
def test_what_a_command_prints_is_as_its_schema_says(command: str, arguments: tuple[str, ...]) -> None:
    assert run("sync", CLOUD).exit_code == 0
    result = run(*command.split(), *arguments, "--json")
    assert result.stdout, result.output
    jsonschema_rs.validate(schema_of(command), json.loads(result.stdout))


def test_a_schema_refuses_what_no_command_prints() -> None:
    for command in shapes():
        with pytest.raises(jsonschema_rs.ValidationError):
            jsonschema_rs.validate(schema_of(command), {"id": 7})


def test_every_command_with_a_schema_is_listed_and_another_one_is_refused_with_all_of_them() -> None:
    assert run("schema").stdout.splitlines() == list(shapes())
    result = run("schema", "serve")
    assert result.exit_code == 2
    assert all(name in result.output for name in ("where", "plans list"))
