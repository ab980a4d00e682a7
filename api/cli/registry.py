"""`cotenant models`: the registry of learned models, their cards and the quality of their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from advisor.domain import Activation, ModelCard, QualityGroup, QualityReport, WindowGroup
from advisor.errors import NotFound, RefusedByGate
from api.cli.asking import Cloud, ServerOrDatabase, TokenFile, asked_cloud
from api.cli.lazy import FAILED
from api.cli.options import AsJson, Database
from api.cli.output import clean, figure, print_json, print_table, say
from api.rows import figures, is_section, origins
from api.schemas.quality import ModelOut

# How a model's card and the gate's verdict are printed: training data, figures, sentences, libraries, history.

ABOVE = ("version", "origin")  # of a card, that stand above it already
DIGEST = 12  # characters of a fingerprint that are shown; --json has all


def print_model(model: ModelOut) -> None:
    """Everything that is known of a model, in sections."""
    plain = [("version", model.version), ("status", model.status), ("origin", model.origin)]
    mix = origins(model.card.get("datasets"))
    if mix:
        plain.append(("rows by origin", mix))
    rest = {name: value for name, value in model.card.items() if name not in ABOVE and not is_section(name, value)}
    print_table(("", ""), [*plain, *_flat(rest)])
    if is_section("datasets", model.card.get("datasets")):
        _print_rows("trained on", [_dataset(card) for card in model.card["datasets"]])
    if is_section("figures", model.card.get("figures")):
        _print_rows("held out, as judged at the training", figures(model.card["figures"]))
    if model.verdict is not None:
        say()
        print_verdict(model.verdict)
    if is_section("libraries", model.card.get("libraries")):
        say()
        say("libraries: " + ", ".join(f"{name} {number}" for name, number in model.card["libraries"].items()))
    if model.history:
        say()
        print_history(model.history)


def print_verdict(verdict: Mapping[str, Any]) -> None:
    """The gate's verdict, a sentence a line."""
    beside = f"the analytic model and {verdict['against']}" if verdict.get("against") else "the analytic model"
    say(f"The gate {'passes' if verdict['passed'] else 'refuses'} it, compared with {beside}:")
    for sentence in verdict["reasons"]:
        say(f"  {sentence}")


def print_history(history: Sequence[Activation]) -> None:
    """Who answered when."""
    rows = [(f"{change.at:%Y-%m-%d %H:%M:%S}", change.before, change.after, change.cause) for change in history]
    print_table(("at (UTC)", "before", "after", "by"), rows)


def _dataset(card: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value)[:DIGEST] if name == "sha256" else value for name, value in card.items()}


def _print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """A table whose columns are whatever the rows bring, but for what is deeper than a cell."""
    columns = list(dict.fromkeys(name for row in rows for name, value in row.items() if not isinstance(value, Mapping)))
    numbers = [at for at, name in enumerate(columns) if all(isinstance(row.get(name, 0), int | float) for row in rows)]
    say()
    say(f"{title}:")
    print_table(columns, [[figure(row.get(name)) for name in columns] for row in rows], right=numbers)


def _flat(card: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in card.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list) and not any(isinstance(item, Mapping | list) for item in value):
            rows.append((f"{prefix}{name}", ", ".join(clean(item) for item in value)))
        else:
            rows.append((f"{prefix}{name}", figure(value)))
    return rows


# `cotenant models quality`: how a model's predictions held against what was observed.

QUALITY_COLUMNS = (
    "role",
    "target",
    "of",
    "rows",
    "scenes",
    "in 90 % interval",
    "error",
    "bias",
    "outside",
    "widen",
    "drift",
)
MOST = 100_000  # models that a list shows
OF_WINDOWS = (
    "windows", "asked", "of", "known as", "rows", "number", "in 90 % interval", "error", "bias", "90 % at", "widen",
)  # fmt: skip


def quality(
    version: Annotated[
        str | None, typer.Argument(help="A version from the list.", show_default="the one that answers")
    ] = None,
    last: Annotated[
        int | None,
        typer.Option(
            min=20, max=10_000, metavar="N", help="Maximum number of observed rows per group.", show_default="200"
        ),
    ] = None,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Predicted against observed: coverage, error and drift of a model.

    Per platform and workload, of what was reported to POST /v1/colocations and POST /v1/placements/{placement}/outcome;
    and of windows that agents measured, by kind of host and by what was known of the instances.
    """
    with asked_cloud(server, token_file, database) as cloud:
        named = version if version is not None or cloud.service is None else answering(cloud)
        shown = cloud.ask(
            QualityReport,
            lambda advisor: advisor.outcomes.quality(named, window=last),
            *("models", named or "", "quality"),
            last=None if last is None else str(last),
        )
    if as_json:
        print_json(shown)
        return
    say(f"Model {shown.version}, the last {shown.last} observations of each group:")
    for sentence in shown.verdict:
        say(f"  {sentence}")
    if shown.groups:
        say()
        print_table(QUALITY_COLUMNS, [_quality_cells(group) for group in shown.groups], right=range(3, 10))
    if shown.windows:
        say()
        say("Predictions compared with windows that agents measured:")
        print_table(OF_WINDOWS, [_of_windows(group) for group in shown.windows], right=range(4, 11))
    for other in shown.beside:
        say(f"{other.text}")


def answering(cloud: Cloud) -> str:
    """The version of the model that answers."""
    listed = cloud.every(ModelOut, lambda advisor: map(ModelOut.of, advisor.models.listing()), "models", most=MOST)
    return next(model.version for model in listed if model.status == "active")


def _quality_cells(group: QualityGroup) -> list[str]:
    figures = group.figures
    share = f"{figures.coverage:.0%} ({figures.coverage_low:.0%}-{figures.coverage_high:.0%})"
    return [
        group.role,
        group.target,
        "all" if group.scope == "all" else f"{group.scope} {group.name or 'unknown'}",
        str(figures.rows),
        str(figures.scenes),
        share,
        f"{figures.error:.3f}",
        f"{figures.bias:+.3f}",
        f"{figures.outside:.0%}",
        "" if group.widening is None else f"x {group.widening:.2f}",
        ", ".join(f"{alarm.kind} since {alarm.since:%Y-%m-%d %H:%M}" for alarm in group.alarms),
    ]


def _of_windows(group: WindowGroup) -> list[str]:
    return [
        "contended" if group.contended else "calm",
        "before" if group.question == "forecast" else "with its demand",
        group.platform,
        group.level or "all",
        str(group.rows),
        str(group.scenes),
        f"{group.coverage:.0%} ({group.coverage_low:.0%}-{group.coverage_high:.0%})",
        f"{group.error:.3f}",
        f"{group.bias:+.3f}",
        f"x {group.scaled:.2f}",
        "" if group.widening is None else f"x {group.widening:.2f}",
    ]


Version = Annotated[str, typer.Argument(help="A version from the list.")]

models = typer.Typer(
    help="The registry of learned models: list, judge, activate, roll back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@models.command("list")
def list_models(
    database: Database = None, as_json: AsJson = False, server: ServerOrDatabase = None, token_file: TokenFile = None
) -> None:
    """List every registered model."""
    with asked_cloud(server, token_file, database) as cloud:
        cards = _listed(cloud)
    if as_json:
        print_json(cards)
    else:
        rows = [(card.version, card.status, _gate(card), _created(card), card.origin) for card in cards]
        print_table(("version", "status", "gate", "created (UTC)", "origin"), rows)


@models.command("show")
def show_model(
    version: Version,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Show one model: card, training data, figures, the gate's verdict, when it answered."""
    with asked_cloud(server, token_file, database) as cloud:
        model = _shown(cloud, version)
    if as_json:
        print_json(model)
    else:
        print_model(model)


@models.command("gate")
def judge_model(
    version: Version,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Compare a model with the analytic and the active one on held-out rows; exit code 1 where the gate refuses it."""
    with asked_cloud(server, token_file, database) as cloud:
        model = cloud.ask(
            ModelOut,
            lambda advisor: ModelOut.of(advisor.models.judge(version)),
            *("models", version, "gate"),
            method="POST",
        )
    verdict = model.verdict
    if as_json:
        print_json(model)
    elif verdict is None:
        say("The analytic model needs no gate: models are compared with it.")
    else:
        print_verdict(verdict)
    if verdict is not None and not verdict["passed"]:
        raise typer.Exit(FAILED)


@models.command("activate")
def activate_model(
    version: Annotated[str, typer.Argument(help="A version from the list, or analytic for the analytic model alone.")],
    force: Annotated[bool, typer.Option("--force", help="Activate it although the gate refuses it.")] = False,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Activate a model.

    The gate judges it first, against the model that answers now. One that lies in the state folder and is not
    registered yet is registered.
    """
    with asked_cloud(server, token_file, database) as cloud:
        try:
            _shown(cloud, version)
        except NotFound as unknown:
            if Path(version).name != version:
                raise
            try:
                cloud.ask(
                    ModelOut,
                    lambda advisor: ModelOut.of(advisor.models.register_named(version)),
                    "models",
                    method="POST",
                    body={"version": version},
                )
            except NotFound:
                raise unknown from None
        try:
            active = cloud.ask(
                ModelOut,
                lambda advisor: ModelOut.of(advisor.models.activate(version, force=force)),
                *("models", version, "activate"),
                method="POST",
                body={"force": force},
            )
        except RefusedByGate as error:
            raise RefusedByGate(error.message.replace("activate by force", "activate it with --force")) from error
    _say_active(active, as_json=as_json)


@models.command("rollback")
def roll_back_model(
    database: Database = None, as_json: AsJson = False, server: ServerOrDatabase = None, token_file: TokenFile = None
) -> None:
    """Activate the previous model again."""
    with asked_cloud(server, token_file, database) as cloud:
        active = cloud.ask(
            ModelOut, lambda advisor: ModelOut.of(advisor.models.roll_back()), "models", "rollback", method="POST"
        )
    _say_active(active, as_json=as_json)


@models.command("shadow")
def shadow_model(
    version: Annotated[str, typer.Argument(help="A version from the list, or analytic for none.")],
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Score a model beside the active one on every observed outcome; it answers no question."""
    with asked_cloud(server, token_file, database) as cloud:
        model = cloud.ask(
            ModelOut,
            lambda advisor: ModelOut.of(advisor.models.shadow(version)),
            *("models", version, "shadow"),
            method="POST",
        )
    if as_json:
        print_json(model)
    elif model.status == "shadow":
        say(f"Model {model.version} is scored beside the active one from now on.")
    else:
        say("No learned model is scored beside the active one from now on.")


@models.command("history")
def show_history(
    database: Database = None, as_json: AsJson = False, server: ServerOrDatabase = None, token_file: TokenFile = None
) -> None:
    """Show which model was active when, and what changed that."""
    with asked_cloud(server, token_file, database) as cloud:
        changes = cloud.every(Activation, lambda advisor: advisor.models.history(), "activations", most=MOST)
    if as_json:
        print_json(changes)
    elif changes:
        print_history(changes)
    else:
        say("No learned model has ever been activated here.")


models.command("quality")(quality)


def _listed(cloud: Cloud) -> list[ModelOut]:
    return cloud.every(ModelOut, lambda advisor: map(ModelOut.of, advisor.models.listing()), "models", most=MOST)


def _shown(cloud: Cloud, version: str) -> ModelOut:
    return cloud.ask(ModelOut, lambda advisor: ModelOut.asked(advisor.models, version), "models", version)


def _say_active(model: ModelCard, *, as_json: bool) -> None:
    if as_json:
        print_json(model)
    else:
        say(f"Model {model.version} is active now.")


def _gate(model: ModelCard) -> str:
    if model.verdict is None:
        return ""
    return "passed" if model.verdict["passed"] else "refused"


def _created(model: ModelCard) -> str:
    return f"{model.created_at:%Y-%m-%d %H:%M}" if model.card.get("trained", True) else "built in"
