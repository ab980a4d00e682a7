"""Questions to a cloud in a file: the application in memory takes the bodies that a service takes, without HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ValidationError

from advisor import offline
from advisor.domain import (
    Host,
    Instance,
    Inventory,
    PlacementRequest,
    Plan,
    PlanRequest,
    Recommendation,
    Scene,
    SceneEffects,
    asked_about,
    changed,
    found_in,
    known_as,
)
from advisor.errors import InvalidInput
from advisor.validation import the_one
from api.cli.asking import Service, asked_service
from api.cli.options import settings

if TYPE_CHECKING:
    from advisor.deadline import Progress


@dataclass(frozen=True, slots=True)
class FileCloud:
    """A cloud in a file: the application in memory, asked as a service is, without HTTP between."""

    cloud: Inventory
    model: Path | None

    def inventory(self) -> Inventory:
        """All of it."""
        return self.cloud

    def find(self, name: str) -> Instance:
        """The instance of this id; NotFound where the file has none such."""
        return found_in(self.cloud.instances)(name)

    def id_of(self, what: Literal["hosts", "instances"], name: str) -> str:
        """The id of the host or instance with this id or name, else the name itself, which the answer then says."""
        there: Sequence[Host] | Sequence[Instance] = self.cloud.hosts if what == "hosts" else self.cloud.instances
        ids = known_as(there, name)
        return the_one(ids, what.removesuffix("s"), name) if ids else name

    def stands(self, described: Instance, given: Mapping[str, Any], *, like: bool) -> tuple[Self, Mapping[str, Any]]:
        """The cloud with the instance where a question says that it is, and what else the question says of it."""
        name = described.id
        if described.host is None:
            return self, given
        others = tuple(other for other in self.cloud.instances if other.id != name)
        is_known = len(others) < len(self.cloud.instances)
        there = changed(self.find(name), given) if is_known else asked_about(name, given, self.find, vcpus=like or None)
        return replace(self, cloud=replace(self.cloud, instances=(*others, there))), {}

    def place(self, body: Mapping[str, Any], _: PlacementRequest) -> Recommendation:
        """As `Service.place`; InvalidInput where the body is refused."""
        from api.schemas.base import in_words
        from api.schemas.placements import PlacementBody

        try:
            question = PlacementBody.model_validate(body).to_domain(self.find)
        except ValidationError as error:
            first, *others = error.errors(include_url=False)
            field = ".".join(str(step) for step in first["loc"])
            more = f" (and {len(others)} more)" if others else ""
            raise InvalidInput(f"{field}: {in_words(first)}{more}", field=field) from error
        return offline.where(self.cloud, question, model=self.model, settings=settings())

    def plan(self, request: PlanRequest, progress: Progress | None = None) -> Plan:
        """As `Service.plan`."""
        return offline.plan(self.cloud, request, model=self.model, settings=settings(), progress=progress)

    def predict(self, scene: Scene) -> SceneEffects:
        """As `Service.predict`."""
        return offline.predict(scene, model=self.model, settings=settings())


def asked_questions(
    server: str | None, token_file: Path | None, file: Path | None, *, model: Path | None, patience_s: float = 0.0
) -> Service | FileCloud:
    """The service or the file to ask; InvalidInput where both or neither were given, or a model for a service."""
    service = asked_service(server, token_file, file, model=model, patience_s=patience_s)
    if service is not None or file is None:
        return service or FileCloud(Inventory(), model)
    return FileCloud(offline.load_inventory(file), model)
