"""Options of commands, those of declared questions among them, and what each sets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from pydantic import ValidationError

from advisor.domain import Host, Instance, Inventory, Objective, PlanRequest, field_at, fields_of, known_as
from advisor.errors import InvalidInput, own_words
from advisor.settings import Settings
from advisor.validation import the_one

# Options of commands that are made from what the domain declares of a question: names, limits, defaults, help.

NOTHING: Mapping[str, Any] = MappingProxyType({})  # the default of a parameter that options fill


@dataclass(frozen=True, slots=True)
class Options:
    """Stands in the annotation of a parameter: it becomes an option for each of these fields of a question.

    What was given for them is then the parameter's value, by field. Without names these are all fields but `apart`.
    `standard` holds the defaults that are not those of the question.
    """

    question: type
    names: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    standard: Mapping[str, Any] = field(default_factory=dict)

    def paths(self) -> Iterator[str]:
        """The paths of the fields, those of questions within the question in its place."""
        for name in self.names or fields_of(self.question):
            parts = fields_of(self.question)[name].parts
            if name not in self.apart:
                yield from (f"{name}.{part}" for part in parts) if parts else (name,)


def option_of(question: type, path: str) -> str:
    """The option that gives a field, such as --time-limit; "" where no such field is declared."""
    found = field_at(question, path)
    return f"--{found.declared.option or found.name.replace('_', '-')}" if found else ""


def by_option(question: type, error: InvalidInput) -> InvalidInput:
    """The same refusal with the option that the field is given by."""
    path = error.field or ""
    option = option_of(question, path) or option_of(question, path.partition(".")[0])
    return InvalidInput(f"{option}: {error.message}", field=path) if option else error


def declared_option(question: type, path: str, *, is_on: bool = False, **more: Any) -> Any:
    """The option of one field, where a command has it beside others of its own; a flag that `is_on` unless the option
    says otherwise can be switched off."""
    found = field_at(question, path)
    if found is None:
        raise TypeError(f"{question.__name__} declares no field {path}")
    declared = found.declared
    text = declared.meaning
    if "." in path:
        more.setdefault("show_default", f"{found.default:.15g}")
    elif declared.unset:
        more.setdefault("show_default", declared.unset)
    if found.kind in (int, float):
        more |= {"min": declared.low, "max": declared.high}
    metavar = declared.metavar or ("A,B" if found.lists else None)
    option = option_of(question, path)
    name = f"{option}/--no-{option.removeprefix('--')}" if is_on else option
    return typer.Option(name, metavar=metavar, help=f"{text[:1].upper()}{text[1:]}.", **more)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: parameters annotated with `Options` become the options that these stand for."""
    spread: dict[str, Options] = {}
    parameters: list[inspect.Parameter] = []
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        asked = next((extra for extra in get_args(hints[name]) if isinstance(extra, Options)), None)
        if asked is None:
            parameters.append(parameter.replace(annotation=hints[name]))
            continue
        spread[name] = asked
        parameters += [_parameter(asked.question, path, asked.standard) for path in asked.paths()]

    @wraps(command)
    def called(**given: Any) -> None:
        for name, asked in spread.items():
            given[name] = {path: given.pop(_parameter_name(path)) for path in asked.paths()}
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return called


def _parameter_name(path: str) -> str:
    return path.rpartition(".")[2]


def _parameter(question: type, path: str, standard: Mapping[str, Any]) -> inspect.Parameter:
    declared = field_at(question, path)
    assert declared is not None  # noqa: S101 - paths() gives declared fields
    optional = declared.optional or declared.lists or "." in path
    kind: Any = str if declared.lists else declared.kind
    kind = kind | None if optional else kind
    default = None if optional else standard.get(path, declared.default)
    return inspect.Parameter(
        _parameter_name(path),
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind, declared_option(question, path, is_on=default is True)],
    )


def asked_of(question: type, given: Mapping[str, Any], cloud: Inventory | None = None) -> dict[str, Any]:
    """What was given, by field of the question; names are looked up in a cloud, and what was not given is left out."""
    there: Mapping[str, Any] = {} if cloud is None else {"hosts": cloud.hosts, "instances": cloud.instances}
    asked: dict[str, Any] = {}
    for path, value in given.items():
        name, _, part = path.partition(".")
        each = fields_of(question)[name]
        if value is None:
            continue
        if part:
            asked.setdefault(name, {})[part] = value
        else:
            asked[name] = ids_of(option_of(question, path), value, there[each.declared.names]) if each.lists else value
    for name, parts in asked.items():
        if (each := fields_of(question)[name]).parts:
            try:
                asked[name] = each.kind.given(**parts)
            except InvalidInput as error:
                raise by_option(question, error) from error
    return {name: value for name, value in asked.items() if value is not None}


def written(question: Any, *, apart: Collection[str] = ()) -> dict[str, Any]:
    """The plain fields of a question as REST takes them."""
    values = {name: getattr(question, name) for name in fields_of(type(question)) if name not in apart}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def ids_of(option: str, given: str | None, there: Sequence[Host] | Sequence[Instance]) -> tuple[str, ...] | None:
    """The ids of the names in a list such as a,b; what has no such name stays as it is, for the answer to say so."""
    names = names_of(option, given)
    if names is None:
        return None
    what = "instance" if option == "--movable" else "host"
    known = [(name, known_as(there, name)) for name in names]
    return tuple(the_one(ids, what, name, option.strip("-")) if ids else name for name, ids in known)


def names_of(option: str, given: str | None) -> tuple[str, ...] | None:
    """The names of a list such as a,b, None = it was not given; InvalidInput when it names nothing."""
    if given is None:
        return None
    names = tuple(name.strip() for name in given.split(",") if name.strip())
    if not names:
        what = {"--movable": "instance", "--namespaces": "namespace"}.get(option, "host")
        raise InvalidInput(f"{option} names no {what}; write {option} a,b")
    return names


InventoryFile = Annotated[Path, typer.Argument(metavar="INVENTORY.yaml", help="Hosts, instances and workloads.")]
InventoryUnlessServer = Annotated[
    Path | None,
    typer.Argument(metavar="[INVENTORY.yaml]", help="Hosts, instances and workloads; left out with --server."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
CloudName = Annotated[
    str | None,
    typer.Option(
        "--cloud",
        metavar="NAME",
        help="Name of the cloud in clouds.yaml, of the context in the kubeconfig, or of the section in the file of "
        "accounts of another system.",
        show_default="what the environment says",
    ),
]
CaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With a system that takes it: PEM of the CA of its certificate."),
]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="SHA256", help="With a system that takes it: its certificate's fingerprint, in place of a check by CA."
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would change, and change nothing.")]
ModelDir = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        exists=True,
        file_okay=False,
        help="Model artifact that answers.",
        show_default="the newest in the state folder that the gate let pass, else the analytic model",
    ),
]
Database = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Database URL.", show_default="COTENANT_DATABASE, else sqlite:///var/cotenant.sqlite3"
    ),
]
ObjectiveName = Annotated[Objective, declared_option(PlanRequest, "objective")]
KeepRatio = Annotated[float, declared_option(PlanRequest, "keep_ratio")]
Seed = Annotated[int, declared_option(PlanRequest, "seed")]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Run on the workers of this Dask cluster, tcp://host:port; needs cotenant[cluster].",
        show_default="processes of this machine",
    ),
]
ReportOut = Annotated[
    Path | None,
    typer.Option(
        metavar="OUT", help="Write a report: OUT.html, or a folder with its data, too.", show_default="no report"
    ),
]


def settings(**options: Any) -> Settings:
    """The settings from environment and options; an option that was not given changes nothing."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "settings"
        source = f"--{name}" if name in given else f"COTENANT_{name.upper()}"
        raise InvalidInput(f"{source}: {own_words(first['msg'])}", field=name) from error
