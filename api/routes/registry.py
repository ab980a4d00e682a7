"""The registry of learned models: list, show, register, activate."""

from __future__ import annotations

from advisor.errors import InvalidInput, NotFound
from api.routes.common import AdvisorDep, PathId, SettingsDep
from api.schemas.pages import PageOut
from api.schemas.registry import ModelBody, ModelOut


def listing(advisor: AdvisorDep) -> PageOut[ModelOut]:
    """All registered models."""
    return PageOut(items=[ModelOut.of(model) for model in advisor.models()])


def get(version: PathId, advisor: AdvisorDep) -> ModelOut:
    """One registered model with its card."""
    return ModelOut.of(advisor.model(version))


def register(body: ModelBody, advisor: AdvisorDep, settings: SettingsDep) -> ModelOut:
    """Register an artifact that lies in the service's model directory; it becomes a candidate, not yet active."""
    if set(body.version) == {"."}:  # the only ids that would leave the directory
        raise InvalidInput("is not the name of a folder", field="version")
    artifact = settings.model_dir / body.version
    if not artifact.is_dir():
        raise NotFound(f"no artifact {body.version} in the service's model directory", field="version")
    return ModelOut.of(advisor.register_model(artifact))


def activate(version: PathId, advisor: AdvisorDep) -> ModelOut:
    """Make a registered model the one that answers; `prior` stands for the queueing prior alone."""
    return ModelOut.of(advisor.activate_model(version))
