"""The registry of learned models: list, show, register, activate, roll back, shadow."""

from __future__ import annotations

from advisor.errors import InvalidInput, NotFound
from api.routes.common import AdvisorDep, Cursor, Limit, PathId, SettingsDep
from api.schemas.pages import PageOut
from api.schemas.registry import ActivateBody, ModelBody, ModelOut


def listing(advisor: AdvisorDep, cursor: Cursor = None, limit: Limit = 100) -> PageOut[ModelOut]:
    """All registered models, newest first, and last the queueing prior, in pages."""
    models = advisor.models()
    versions = [model.version for model in models]
    if cursor is not None and cursor not in versions:
        raise InvalidInput("cursor was not handed out by this list; leave it out to start over", field="cursor")
    start = 0 if cursor is None else versions.index(cursor) + 1
    end = start + limit
    last = versions[end - 1] if end < len(versions) else None
    return PageOut(items=[ModelOut.of(model) for model in models[start:end]], next_cursor=last)


def get(version: PathId, advisor: AdvisorDep) -> ModelOut:
    """One registered model with its card, the gate's verdict and when it answered."""
    return ModelOut.with_history(advisor.model(version), advisor.model_history(version))


def register(body: ModelBody, advisor: AdvisorDep, settings: SettingsDep) -> ModelOut:
    """Register an artifact that lies in the service's model directory; it becomes a candidate, not yet active.

    The gate judges it against the queueing prior and the active model.
    """
    artifact = settings.model_dir / body.version
    if not artifact.is_dir():
        raise NotFound(f"no artifact {body.version} in the service's model directory", field="version")
    return ModelOut.of(advisor.register_model(artifact))


def activate(version: PathId, advisor: AdvisorDep, body: ActivateBody | None = None) -> ModelOut:
    """Make a registered model the one that answers; `prior` stands for the queueing prior alone.

    The gate judges it anew, against the model that answers now; `force` overrules it.
    """
    return ModelOut.of(advisor.activate_model(version, force=body is not None and body.force))


def roll_back(advisor: AdvisorDep) -> ModelOut:
    """Let the model answer that did before the one that answers now."""
    return ModelOut.of(advisor.roll_back_model())


def shadow(version: PathId, advisor: AdvisorDep) -> ModelOut:
    """Let a registered model be scored beside the active one, in place of a former one; `prior` ends that."""
    return ModelOut.of(advisor.shadow_model(version))
