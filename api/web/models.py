"""The models: what is known of each, how well it held and which one answers; and changes of that, confirmed first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from advisor.domain import ModelCard
from advisor.errors import AdvisorError, BrokenArtifact, Conflict, RefusedByGate
from advisor.service import ModelRegistry, OutcomeService
from api.html.render import page, see_other
from api.routes.common import ModelDep, OutcomeDep, PathId
from api.rows import figures, is_section, origins
from api.web.signing import Posted

Change = Literal["activate", "shadow", "rollback"]
_SHOWN = ("figures", "datasets", "libraries", "version", "origin", "created_at")  # of a card, in places of their own


def listing(request: Request, models: ModelDep, outcomes: OutcomeDep) -> HTMLResponse:
    """Every registered model with its figures, its verdict and, where it is in use, how it held."""
    rows = [
        {"model": model, "error": _error(model), "quality": _quality(outcomes, model)} for model in models.listing()
    ]
    history = models.history()[::-1][:20]
    return page(request, "models.html", rows=rows, history=history)


def show(request: Request, version: PathId, models: ModelDep, outcomes: OutcomeDep) -> HTMLResponse:
    """One model: figures, training data, verdict, quality, history."""
    model = models.get(version)
    card = model.card
    return page(
        request,
        "model.html",
        model=model,
        figures=figures(card["figures"]) if is_section("figures", card.get("figures")) else [],
        datasets=card["datasets"] if is_section("datasets", card.get("datasets")) else [],
        libraries=card["libraries"] if is_section("libraries", card.get("libraries")) else {},
        origins=origins(card.get("datasets")),
        rest=[(name, _plain(value)) for name, value in card.items() if name not in _SHOWN],
        quality=outcomes.quality(version),
        history=models.history(version)[::-1],
    )


def confirm(request: Request, version: PathId, models: ModelDep, change: Change = "activate") -> HTMLResponse:
    """What a change would mean, and the button that makes it."""
    return _confirm(request, models, version, change)


def activate(request: Request, version: PathId, models: ModelDep, form: Posted) -> Response:
    """Let it answer from now on; `force` overrules the gate."""
    try:
        models.activate(version, force=form.get("force") == "yes")
    except (RefusedByGate, BrokenArtifact, Conflict) as error:
        return _confirm(request, models, version, "activate", error)
    return see_other("/models")


def shadow(request: Request, version: PathId, models: ModelDep, form: Posted) -> Response:  # noqa: ARG001 - checked
    """Let it be scored beside the one that answers."""
    try:
        models.shadow(version)
    except (BrokenArtifact, Conflict) as error:
        return _confirm(request, models, version, "shadow", error)
    return see_other("/models")


def roll_back(request: Request, version: PathId, models: ModelDep, form: Posted) -> Response:  # noqa: ARG001
    """Let the model before `version` answer again; `version` must be the one that answers now."""
    models.get(version)  # 404 for an unknown one
    try:
        models.roll_back(version)
    except (BrokenArtifact, Conflict) as error:
        return _confirm(request, models, version, "rollback", error)
    return see_other("/models")


def _confirm(
    request: Request, models: ModelRegistry, version: str, change: Change, error: AdvisorError | None = None
) -> HTMLResponse:
    by_status = {model.status: model for model in models.listing()}
    return page(
        request,
        "model_confirm.html",
        status=409 if error else 200,
        model=models.get(version),
        active=by_status.get("active"),
        shadow=by_status.get("shadow"),
        change=change,
        error=error,
        refused=isinstance(error, RefusedByGate),
    )


def _error(model: ModelCard) -> Mapping[str, Any] | None:
    """The figures of throughput on unseen workloads, else of the first protocol; None without figures."""
    rows = figures(model.card["figures"]) if is_section("figures", model.card.get("figures")) else []
    return min(
        rows, key=lambda row: (row["target"] != "throughput", row["protocol"] != "unseen_workload"), default=None
    )


def _quality(outcomes: OutcomeService, model: ModelCard) -> str | None:
    """How well it held, for the models whose predictions are compared with outcomes."""
    return outcomes.quality(model.version).status if model.status in {"active", "shadow"} else None


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(inner) for inner in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)
