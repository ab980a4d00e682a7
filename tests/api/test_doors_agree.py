"""A question has the same fields, defaults and limits at every door: REST, the command and the page's form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError

from advisor import offline
from advisor.domain import (
    PLAN_KINDS,
    DeclaredField,
    Growth,
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    PlanKind,
    PlanRequest,
    WhatIf,
    fields_of,
    found_in,
)
from advisor.errors import AdvisorError, InvalidInput
from advisor.validation import check_declared, check_kinds
from api.cli import app
from api.cli.ask import OPTIONS, STANDARD
from api.cli.files import FileCloud
from api.cli.options import asked_of, option_of
from api.schemas.inventory import InstanceItem
from api.schemas.placements import BatchBody, GrowthBody, NewInstance, PlacementBody, PlanBody, WhatIfBody
from api.web.form import Form
from api.web.plan_form import FIELDS as FORM
from api.web.plan_form import KINDS, PlanForm
from profiler.observed import Pinning
from tests.api.api_client import Client
from tests.api.cli_runs import run
from tests.servers.fixtures import sqlite_with_cloud

OWN_OPTIONS = {"kind", "instances", "what_if"}  # a command reads files for them, or guesses the kind
APART = {"kind", "instances", "what_if.hosts"}  # on the page: the address, and rows and hosts of several fields each


def paths(question: type, begin: str = "") -> Iterator[tuple[str, DeclaredField]]:
    for name, each in fields_of(question).items():
        yield begin + name, each
        yield from paths(each.kind, f"{begin}{name}.") if each.parts else ()


FIELDS_OF_A_PLAN = dict(paths(PlanRequest))
NUMBERS = [path for path, each in FIELDS_OF_A_PLAN.items() if each.kind in (int, float)]


def option(path: str) -> Any:
    command: Any = typer.main.get_command(app)
    return next(each for each in command.load("plan").params if option_of(PlanRequest, path) in each.opts)


def body_with(path: str, value: Any) -> PlanBody:
    whole, _, part = path.rpartition(".")
    return PlanBody.model_validate({whole: {part: value}} if whole else {part: value})


def question_with(path: str, value: Any) -> PlanRequest:
    whole, _, part = path.rpartition(".")
    known: dict[str, Any] = {"growth": Growth(), "what_if": WhatIf()}
    inner = replace(known[whole], **{part: value}) if whole else None
    return replace(PlanRequest(), **({whole: inner} if whole else {part: value}))


def test_every_field_of_the_question_is_declared_and_every_declaration_has_its_field() -> None:
    for question in (PlanRequest, Growth, WhatIf):
        assert list(fields_of(question)) == [field.name for field in fields(question)]
    assert list(PlanBody.model_fields) == list(fields_of(PlanRequest))


@pytest.mark.parametrize("path", NUMBERS)
def test_every_door_has_the_same_limits(path: str) -> None:
    each = FIELDS_OF_A_PLAN[path]
    least, most = each.declared.low, each.declared.high
    assert least is not None
    assert most is not None
    beyond = 1 if each.kind is int else 0.001
    for value in (least, most):
        body_with(path, value)
        check_declared(question_with(path, value))
    for value in (least - beyond, most + (max(1, int(most) // 1000) if each.kind is int else most / 1000)):
        with pytest.raises(ValidationError):
            body_with(path, value)
        with pytest.raises(InvalidInput) as refused:
            check_declared(question_with(path, value))
        assert refused.value.field == path
    typed = FORM[each.name]
    assert (typed.low, typed.high) == (least, most)
    if not path.startswith("what_if."):  # a command reads it from a file
        asked = option(path)
        assert (asked.min, asked.max) == (least, most)


@pytest.mark.parametrize("path", ["what_if.cpu_overcommit", "what_if.memory_overcommit"])
def test_a_file_with_an_imagined_cloud_has_the_same_limits(path: str, tmp_path: Path) -> None:
    declared, file = FIELDS_OF_A_PLAN[path].declared, tmp_path / "imagined.yaml"
    name = path.rpartition(".")[2]
    for value in (declared.low, declared.high):
        file.write_text(f"{name}: {value:.15g}")
        assert getattr(offline.load_what_if(file), name) == value
    for value in (0.009, 1000.1):
        file.write_text(f"{name}: {value}")
        with pytest.raises(InvalidInput):
            offline.load_what_if(file)


@pytest.mark.parametrize("path", FIELDS_OF_A_PLAN)
def test_every_field_is_in_rest_an_option_and_on_the_page(path: str) -> None:
    whole, _, part = path.rpartition(".")
    bodies: dict[str, Any] = {"growth": GrowthBody, "what_if": WhatIfBody}
    assert part in bodies.get(whole, PlanBody).model_fields
    assert option(whole if whole == "what_if" else path) is not None or path == "growth"
    on_page = {field for _, _, sections in KINDS.values() for _, names in sections for field in names}
    assert path in APART or part in on_page or FIELDS_OF_A_PLAN[path].parts


@pytest.mark.parametrize(
    "wrong",
    [
        {"instance": {"id": "two words", "vcpus": 1}},
        {"instance": {"id": "n", "vcpus": 0, "memory_mb": -1}, "limit": 0},
        {"instance": {"id": "n", "vcpus": 1, "like": "unknown"}},
        {"instance": {"id": "unknown"}},
    ],
)
def test_a_file_refuses_in_the_words_of_a_service(wrong: dict[str, Any], client: Client) -> None:
    said = client.ask("POST", "/v1/placements", json=wrong | {"dry_run": True})
    with pytest.raises(AdvisorError) as refused:
        FileCloud(Inventory(), None).place(wrong, PlacementRequest(Instance("n")))
    assert said.status_code == 422
    assert (refused.value.message, refused.value.field) == (said.json()["detail"], said.json()["field"])


def test_every_door_has_the_same_defaults() -> None:
    assert PlanBody().to_domain() == PlanRequest()
    assert GrowthBody().to_domain() == Growth()
    assert WhatIfBody().to_domain() == WhatIf()
    given = {path: option(path).default for path in FIELDS_OF_A_PLAN if path.partition(".")[0] not in OWN_OPTIONS}
    given.pop("growth")
    assert PlanRequest(**asked_of(PlanRequest, given)) == PlanRequest()


@pytest.mark.parametrize("kind", PLAN_KINDS)
def test_a_form_on_which_nothing_is_typed_asks_with_the_defaults(kind: PlanKind) -> None:
    needed = {"empty": "h1"} if kind == "evacuate" else {}
    asked = PlanForm.read({"kind": kind, **needed}, sent=False).request(lambda name: Host(name, "kvm", 4, 1024))
    assert asked is not None
    for name, each in fields_of(PlanRequest).items():
        if name not in {"kind", "instances", "empty", "what_if"}:
            assert getattr(asked, name) == each.default


@pytest.mark.parametrize("path", [path for path, each in FIELDS_OF_A_PLAN.items() if each.choices])
def test_every_choice_has_words(path: str) -> None:
    each = FIELDS_OF_A_PLAN[path]
    assert path == "kind" or {value for value, _ in each.declared.words} == set(each.choices)


@pytest.mark.parametrize("name", [name for name, each in fields_of(PlanRequest).items() if each.declared.only])
def test_a_field_of_some_kinds_is_refused_for_the_others(name: str) -> None:
    given: dict[str, Any] = {
        "instances": (Instance("n", 1),), "empty": ("h1",), "movable": ("a",), "max_moves": 3, "growth": Growth(1),
        "spare_hosts": 1, "spare_label": "rack", "what_if": WhatIf(remove=("h1",)), "then": "admit",
        "allow": "lift_cap",
    }  # fmt: skip
    declared = fields_of(PlanRequest)[name]
    if name not in given:  # a number within its limits that is not the default
        assert declared.kind in {int, float}, f"give the test a value of {name}, which is no number"
        low = declared.declared.low or 0
        given[name] = declared.kind(low + 1 if low == declared.default else low)
    for kind in PLAN_KINDS:
        others = {other: given[other] for other, each in fields_of(PlanRequest).items() if each.declared.needed}
        needed = {other: value for other, value in others.items() if fields_of(PlanRequest)[other].matters_for(kind)}
        request = PlanRequest(kind, **{**needed, name: given[name]})
        if fields_of(PlanRequest)[name].matters_for(kind):
            check_kinds(request, kind)
        else:
            with pytest.raises(InvalidInput, match=name):
                check_kinds(request, kind)


def test_a_placement_has_the_same_limits_and_defaults_at_every_door() -> None:
    body = PlacementBody.model_validate({"instance": {"id": "n", "vcpus": 1}})
    assert body.to_domain() == PlacementRequest(Instance("n", 1))
    declared = fields_of(PlacementRequest)
    assert list(PlacementBody.model_fields) == list(declared)
    assert set(BatchBody.model_fields) - {"instances", "order", "time_limit_s"} < set(declared)
    command: Any = typer.main.get_command(app)
    options = {parameter.name: parameter for parameter in command.load("where").params}
    for name in OPTIONS:
        assert options[name].default == STANDARD.get(name, declared[name].default)
    limit = declared["limit"].declared
    assert (options["limit"].min, options["limit"].max) == (limit.low, limit.high)
    for value in (0, 1001):
        with pytest.raises(ValidationError):
            PlacementBody.model_validate({"instance": {"id": "n", "vcpus": 1}, "limit": value})
        with pytest.raises(InvalidInput):
            check_declared(PlacementRequest(Instance("n", 1), limit=value))


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("vcpus", (1, 4096), (0, 4097)),
        ("memory_mb", (0, 1e15), (-1, 2e15)),
        ("min_throughput_ratio", (0.001, 1), (0, 1.001)),
        ("max_latency_ratio", (1, 1e6), (0.999, 1_000_001)),
        ("max_time_short", (0, 0.999), (-0.001, 1)),
    ],
)
def test_the_first_page_takes_of_an_instance_what_rest_takes(
    name: str, taken: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    for value in (*taken, *refused):
        form = Form.read({"id": "n", name: f"{value:.15g}"})
        typed = form.new_instance(found_in(()))
        try:
            body = NewInstance.model_validate({"id": "n", "vcpus": 2, "memory_mb": 2048, name: value})
        except ValidationError:
            assert (typed, set(form.errors), value in refused) == (None, {name}, True)
        else:
            assert (typed, value in taken) == (body.to_domain(found_in(()))[0], True)


def test_an_instance_is_written_over_rest_as_in_files() -> None:
    body = {"id": "a", "vcpus": 2, "pinning": "0:4-5|1:6", "cpu_percent": 130}
    over_rest = InstanceItem.model_validate(body).as_domain()
    assert over_rest.settings.pinning == Pinning(((4, 5), (6,)))
    assert over_rest.demand["cpu"].mean == 1.3
    placed = PlacementBody.model_validate({"instance": {**body, "id": "new"}}).to_domain().instance
    assert (placed.settings.pinning, placed.demand["cpu"].mean) == (over_rest.settings.pinning, 1.3)
    assert "cpu_percent" not in InstanceItem.of(over_rest).model_dump(mode="json")


@pytest.mark.parametrize("wrong", [{"pinning": "0:x"}, {"pinning": "4-5"}, {"cpu_percent": 50, "demand": {"cpu": 1}}])
def test_what_files_refuse_rest_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InstanceItem.model_validate({"id": "a", **wrong})


@pytest.mark.parametrize("command", ["plan", "report"])
def test_a_path_that_ends_in_html_is_one_file(command: str, tmp_path: Path) -> None:
    page = tmp_path / "cloud.html"
    given = ("--kind", "rebalance", "--report", page) if command == "plan" else ("--out", page)
    reported = run(command, Path(__file__).parent / "cloud.yaml", *given, "--time-limit", "5")
    assert reported.exit_code == 0, reported.output
    assert page.read_text("utf-8").startswith("<!")
    assert [path.name for path in tmp_path.iterdir()] == ["cloud.html"]
    assert str(page) in reported.stdout


def test_an_imagined_cloud_in_which_nothing_differs_needs_a_question(tmp_path: Path) -> None:
    imagined = tmp_path / "imagined.yaml"
    imagined.write_text("cpu_overcommit: 8")
    cloud = Path(__file__).parent / "cloud.yaml"
    refused = run("plan", cloud, "--what-if", imagined)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "--then" in refused.stderr
    imagined.write_text("remove: [h3]")
    assert run("plan", cloud, "--what-if", imagined, "--time-limit", "5").exit_code == 0


def test_a_database_that_holds_something_is_replaced_by_an_option_that_is_named(tmp_path: Path) -> None:
    database = sqlite_with_cloud(tmp_path / "c.sqlite3", Path(__file__).parent / "cloud.yaml")
    assert run("db", "backup", tmp_path / "b.gz", "--database", database).exit_code == 0
    refused = run("db", "restore", tmp_path / "b.gz", "--database", database)
    assert refused.exit_code != 0
    assert "--replace" in refused.stderr
