"""Every command that takes --json has a schema, and prints what its schema says; wrong words are refused in a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from api.cli import ON_THIS_MACHINE
from api.cli.lazy import WRONG_USAGE
from api.cli.schema import shapes
from docs.site.commands import Parameter, commands
from tests.api.cli_runs import run, strict_schema
from tests.servers.fixtures import sqlite_with_cloud

pytestmark = pytest.mark.usefixtures("_empty_folder")

CLOUD = str(Path(__file__).parent / "cloud.yaml")
PAPERS = str(Path(__file__).parents[2] / "datasets" / "papers")
FILES = {
    "new.yaml": "[{id: new, vcpus: 2, memory_mb: 512}]",
    "scene.yaml": "{host: {id: h1, kind: kvm, pcpus: 2, memory_mb: 4096},"
    " instances: [{id: a, vcpus: 2}, {id: b, vcpus: 1}]}",
    "trace.csv": "instance,time_s,cpu_percent,vcpus\n" + "".join(f"a,{300 * step},50,1\n" for step in range(12)),
}
BOUNDS = r"(From|At least|At most) [0-9]"  # what the help says of a number
PRINTED = (
    ("demo", ()),
    ("where", (CLOUD, "--instance", "new.yaml", "--explain", "--commands")),
    ("where", (CLOUD, "--instance", "mystery", "--hosts", "h5")),
    ("predict", ("scene.yaml",)),
    ("plan", (CLOUD, "--add", "new.yaml", "--undo", "--commands")),
    ("plan", (CLOUD, "--growth", "1", "--months", "2", "--add", "new.yaml")),
    ("plan", (CLOUD, "--empty", "h3")),
    ("plan", (CLOUD, "--kind", "right_size", "--plan-for", "hours")),
    ("report", (CLOUD, "--out", "reports")),
    ("tune", (CLOUD, "--all")),
    ("worth", ()),
    ("score", ()),
    ("probe-plan", (CLOUD, "--budget", "5m", "--campaign", "next.yaml")),
    ("replay", ("trace.csv", "--policies", "first-fit,lower-bound", "--seeds", "2")),
    ("slowing", ("h1",)),
    ("obtained", ("shop-3",)),
    ("evaluate", ("--dataset", PAPERS, "--protocol", "unseen_pair", "--protocol", "pairs_to_n", "--models", "ones")),
    ("sync", (CLOUD,)),
    ("sync", (CLOUD, "--dry-run")),
    ("doctor", ()),
    ("audit", ()),
    ("changes list", ()),
    ("freeze", ("night",)),
    ("plans list", ()),
    ("models list", ()),
    ("models show", ("analytic",)),
    ("models gate", ("analytic",)),
    ("models activate", ("analytic",)),
    ("models shadow", ("analytic",)),
    ("models history", ()),
    ("models quality", ("analytic",)),
    ("db upgrade", ()),
    ("db prune", ()),
    ("db backup", ("all.backup",)),
    ("token create", ("--name", "a")),
    ("token list", ()),
)
# What else `run` holds against its schema: these need agents, a registered model, a plan or another system.
ELSEWHERE = {
    "apply": "test_cli_apply.py",
    "changes approve": "test_cli_apply.py",
    "changes show": "test_cli_apply.py",
    "db restore": "test_cli_database.py",
    "history": "../advisor/short_history.py",
    "maintenance": "test_cli_maintenance.py",
    "migrate": "../../integrations/kubernetes/cotenant_kubernetes/tests/test_cli_migrate.py",
    "models rollback": "test_cli_registry.py",
    "plans show": "test_cli_plan.py",
    "profile": "test_cli_profile.py",
    "snapshot": "test_cli_snapshot.py",
    "token revoke": "test_cli_tokens.py",
    "train": "test_cli_state.py",
}


@pytest.fixture(autouse=True)
def _files(_empty_folder: None) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")


OPTIONS = {
    command.name.removeprefix("cotenant "): command.parameters
    for command in commands()
    if command.name.startswith("cotenant ")
}


def test_every_command_that_takes_json_has_a_schema() -> None:
    takes_json = {name for name, options in OPTIONS.items() if any(option.name == "--json" for option in options)}
    assert takes_json == set(shapes())


def test_every_command_asks_a_service_or_says_why_it_does_not() -> None:
    takes_server = {name for name, options in OPTIONS.items() if any(option.name == "--server" for option in options)}
    without = {name if name in ON_THIS_MACHINE else name.split()[0] for name in OPTIONS.keys() - takes_server}
    assert without == set(ON_THIS_MACHINE)
    assert not {word for name in takes_server for word in (name, name.split()[0])} & set(ON_THIS_MACHINE)
    assert all(len(reason) > 10 for reason in ON_THIS_MACHINE.values())


@pytest.mark.parametrize(
    ("command", "arguments"),
    PRINTED,
    ids=[" ".join((command, *(word for word in words if word.startswith("--")))) for command, words in PRINTED],
)
def test_what_a_command_prints_is_as_its_schema_says(
    command: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {0})  # a replay does without further processes
    Path("var").mkdir()  # where commands look for a database
    sqlite_with_cloud(Path("var/cotenant.sqlite3"), Path(CLOUD))
    result = run(*command.split(), *arguments, "--json")
    assert result.stdout, result.output


def test_no_schema_is_left_untried() -> None:
    assert {command for command, _ in PRINTED} | set(ELSEWHERE) == set(shapes())
    for command, where in ELSEWHERE.items():
        text = (Path(__file__).parent / where).read_text(encoding="utf-8")
        assert "--json" in text and "cli_runs" in text, command


@pytest.mark.parametrize("command", shapes())
def test_a_schema_refuses_what_no_command_prints(command: str) -> None:
    assert not strict_schema(command).is_valid({"id": 7})
    printed = json.loads(run("schema", *command.split()).stdout)
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(printed, {"id": 7})


def test_every_command_with_a_schema_is_listed_and_another_one_is_refused_with_all_of_them() -> None:
    assert run("schema").stdout.splitlines() == list(shapes())
    result = run("schema", "serve")
    assert result.exit_code == WRONG_USAGE
    assert all(name in result.output for name in ("where", "plans list"))


def needed(name: str) -> Iterator[str]:
    """Words for whatever a command cannot do without; none of them is there."""
    for option in OPTIONS[name]:
        if option.default == "**required**":
            yield from (option.name, "nothing") if option.name.startswith("-") else ("nothing",)


def is_checked(option: Parameter) -> bool:
    """Whether an option takes a number, or one of some words."""
    return option.name.startswith("--") and bool("|" in option.value or re.search(BOUNDS, option.help))


@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option.name) for name, options in OPTIONS.items() for option in options if is_checked(option)],
)
def test_a_wrong_word_is_refused_in_one_sentence_that_names_its_option(name: str, option: str) -> None:
    result = run(*name.split(), *needed(name), option, "wrong")
    assert (result.exit_code, result.stdout) == (WRONG_USAGE, "")
    sentence = result.stderr.splitlines()[-1]
    assert sentence.startswith((f"Error: Invalid value for '{option}': ", "cotenant: "))
    assert "Value error" not in result.stderr


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_no_command_knows_is_wrong_usage(name: str) -> None:
    result = run(*name.split(), *needed(name), "--no-such-option")
    assert (result.exit_code, result.stdout) == (WRONG_USAGE, "")
    assert result.stderr.splitlines()[-1].startswith("Error: No such option")
