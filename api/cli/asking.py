"""What commands ask: a running service (`--server`, its token), a database or a file, by the same bodies.

What went wrong is one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from advisor.domain import codec, spoken
from advisor.errors import AdvisorError, InvalidInput, NotFound
from advisor.validation import the_one
from profiler.observed import check_id

if TYPE_CHECKING:  # httpx takes 0.1 s to load, which questions on files do without
    from advisor.deadline import Progress
    from advisor.domain import (
        Instance,
        Inventory,
        PlacementRequest,
        Plan,
        PlanRequest,
        Recommendation,
        Scene,
        SceneEffects,
    )
    from advisor.service import Advisor
    from cotenant_client import Client

T = TypeVar("T")

SERVER = "COTENANT_SERVER"
_SILENCE_S, _DEADLINE_S = 10.0, 30.0
_TRIES = 3  # people wait for a command: half a second, and then a sentence
Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Ask this running service instead of a file.", show_default="COTENANT_SERVER, else the file"
    ),
]
ServerOrDatabase = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask this running service instead of a database.",
        show_default="COTENANT_SERVER, else the database",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="File with the token for --server, mode 640 or less.",
        show_default="COTENANT_TOKEN, if set",
    ),
]


class ServiceFailed(AdvisorError):  # noqa: N818 - reads as what it says at the raise
    """The service that was asked does not answer, or not as Cotenant does; only commands raise it."""


@dataclass(frozen=True, slots=True)
class Service:
    """A running service."""

    url: str
    client: Client

    @classmethod
    def of(cls, url: str, token_file: Path | None, *, patience_s: float = 0.0) -> Service:
        """The service at a base URL; InvalidInput where URL or token cannot be used.

        An answer may take `patience_s` longer than most do.
        """
        from cotenant_client import Client

        try:
            client = Client(
                url,
                token_file=token_file,
                timeout_s=_SILENCE_S + patience_s,
                deadline_s=_DEADLINE_S + patience_s,
                tries=_TRIES,
                user_agent=f"cotenant/{version('cotenant')}",
            )
        except ValueError as error:
            raise InvalidInput(str(error), field="server") from error
        return cls(url, client)

    def get(self, *steps: str, **query: str) -> Any:
        """The JSON at a path with these parameters; NotFound, InvalidInput as it says, else ServiceFailed."""
        from cotenant_client import path_of

        with self._our_errors():
            return self.client.get(path_of("v1", *steps), **query)

    def named(self, what: Literal["hosts", "instances"], name: str) -> Any:
        """The host or instance of this id, else of this name; NotFound, or InvalidInput where several have it."""
        with suppress(NotFound):
            if _is_id(name):
                return self.get(what, name)
        label = {"q": spoken(name)} if what == "instances" else {"label": f"name={name}"}
        with self._our_errors():
            there = list(self.client.every_item(f"/v1/{what}", **label))
        with self.read_as(what):
            known = {item["id"]: item for item in there if spoken(item["labels"].get("name", "")) == spoken(name)}
        return known[the_one(sorted(known), what.removesuffix("s"), name)]

    def id_of(self, what: Literal["hosts", "instances"], name: str) -> str:
        """The id of what `named` finds; the name itself where it finds nothing, which the answer then says."""
        try:
            return str(self.named(what, name)["id"])
        except NotFound:
            return name

    def all_of(self, what: str, **query: str) -> Iterator[Any]:
        """Each item of a list that the service gives in pages; errors as of `get`."""
        with self._our_errors():
            yield from self.client.every_item(f"/v1/{what}", **query)

    def post(self, *steps: str, body: Any) -> Any:
        """The JSON answer to a JSON body."""
        changes_nothing = steps == ("predictions",) or body.get("dry_run") is True
        with self._our_errors():
            return self.client.post("/".join(["", "v1", *steps]), body, repeatable=changes_nothing)

    def send(self, method: Literal["POST", "PUT", "DELETE"], *steps: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a change; None where it has none."""
        from cotenant_client import path_of

        path = path_of("v1", *steps)
        with self._our_errors():
            if method == "DELETE":
                return self.client.delete(path)
            return self.client.put(path, body) if method == "PUT" else self.client.post(path, body)

    def inventory(self) -> Inventory:
        """Hosts, instances and workloads that it knows; errors as of `get`, ServiceFailed for nonsense."""
        from advisor.domain import Inventory
        from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem

        with self.read_as("inventory"):
            return Inventory(
                hosts=tuple(HostItem.model_validate(item).as_domain() for item in self.all_of("hosts")),
                instances=tuple(InstanceItem.model_validate(item).as_domain() for item in self.all_of("instances")),
                workloads=tuple(WorkloadItem.model_validate(item).as_domain() for item in self.all_of("workloads")),
            )

    def find(self, name: str) -> Instance:
        """The instance of this id; NotFound where it has none such."""
        from api.schemas.inventory import InstanceItem

        with self.read_as("instance"):
            return InstanceItem.model_validate(self.get("instances", name)).as_domain()

    def place(self, body: Mapping[str, Any], request: PlacementRequest) -> Recommendation:
        """The answer to a body of `POST /v1/placements`, as far as it is known here the `request`."""
        from advisor.domain import recommendation_from_json

        with self.read_as("recommendation"):
            return recommendation_from_json(self.post("placements", body=body), request)

    def plan(self, request: PlanRequest, _: Progress | None = None) -> Plan:
        """The answer to a question about the whole cloud; a service says nothing of its progress."""
        from advisor.domain import plan_from_json
        from api.schemas.placements import PlanBody

        body = PlanBody.of(request).model_dump(mode="json")
        with self.read_as("plan"):
            return plan_from_json(self.post("plans", body=body), request)

    def predict(self, scene: Scene) -> SceneEffects:
        """What instances on a host do to each other."""
        from advisor.domain import scene_effects_from_json
        from api.schemas.inventory import HostItem, InstanceItem, WorkloadItem

        body = {
            "host": HostItem.of(scene.host).model_dump(mode="json", exclude_none=True),
            "instances": [InstanceItem.of(one).model_dump(mode="json", exclude_none=True) for one in scene.instances],
            "workloads": [WorkloadItem.of(workload).model_dump(mode="json") for workload in scene.workloads],
        }
        with self.read_as("prediction"):
            return scene_effects_from_json(self.post("predictions", body=body))

    @contextmanager
    def read_as(self, what: str) -> Iterator[None]:
        """Read what it answered, in the body of `with`; ServiceFailed where that is no such thing."""
        try:
            yield
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ServiceFailed(f"{self.url} answers with something that is no {what}") from error

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        """Those of the client as those that commands know."""
        import cotenant_client as client

        try:
            yield
        except client.NotFound as error:
            raise NotFound(str(error)) from error
        except client.InvalidInput as error:
            raise InvalidInput(str(error), field=error.field) from error
        except client.CotenantError as error:
            refused = f"{self.url} refuses with {error.status}: {error}" if error.problem else str(error)
            raise ServiceFailed(refused) from error


@dataclass(frozen=True, slots=True)
class Cloud:
    """What a command asks about state: a running service, or the application in memory on a database.

    Each question is asked once: `here` is the method of the application that the route of REST calls, and both give a
    value of the same type.
    """

    service: Service | None
    advisor: Advisor | None

    def ask(
        self,
        kind: type[T],
        here: Callable[[Advisor], T],
        /,
        *steps: str,
        method: Literal["GET", "POST", "PUT"] = "GET",
        body: Mapping[str, Any] | None = None,
        **query: str | None,
    ) -> T:
        """The answer at a path of REST; errors as of `Service.get`, ServiceFailed where it is no `kind`."""
        if self.service is None:
            return here(self.here)
        given = {name: value for name, value in query.items() if value is not None}
        sent = self.service.get(*steps, **given) if method == "GET" else self.service.send(method, *steps, body=body)
        return self._read(kind, sent)

    def every(
        self, kind: type[T], here: Callable[[Advisor], Iterable[T]], /, *steps: str, most: int, **query: str | None
    ) -> list[T]:
        """The first `most` items of a listing of REST; errors as of `ask`."""
        if self.service is None:
            return list(islice(here(self.here), most))
        given = {name: value for name, value in query.items() if value is not None}
        return [self._read(kind, item) for item in islice(self.service.all_of("/".join(steps), **given), most)]

    def delete(self, here: Callable[[Advisor], None], *steps: str) -> None:
        """Delete what is at a path of REST; errors as of `ask`."""
        if self.service is None:
            here(self.here)
        else:
            self.service.send("DELETE", *steps)

    def id_of(self, what: Literal["hosts", "instances"], name: str) -> str:
        """The id of the host or instance with this id or name; NotFound, or InvalidInput where several have it."""
        if self.service is not None:
            with self.service.read_as(what):
                return str(self.service.named(what, name)["id"])
        inventory = self.here.inventory
        return (inventory.find_host(name) if what == "hosts" else inventory.find_instance(name)).id

    @property
    def here(self) -> Advisor:
        """The application in memory; only where no service is asked."""
        if self.advisor is None:
            raise AssertionError("a service is asked")
        return self.advisor

    def _read(self, kind: type[T], sent: Any) -> T:
        if self.service is None:
            raise AssertionError("no service was asked")
        with self.service.read_as("answer"):
            return codec.decode(kind, sent)


def _is_id(name: str) -> bool:
    try:
        check_id(name)
    except ValueError:
        return False
    return True


def service_or_database(
    server: str | None, token_file: Path | None, database: str | None, *, patience_s: float = 0.0
) -> Service | None:
    """The service to ask, None = the database; InvalidInput where both were given."""
    if server is not None and database is not None:
        raise InvalidInput("--database and --server are two clouds; give one", field="database")
    url = server or (os.environ.get(SERVER) if database is None else None)
    if not url and token_file is not None:
        raise InvalidInput("--token-file goes with --server", field="token_file")
    return Service.of(url, token_file, patience_s=patience_s) if url else None


@contextmanager
def asked_cloud(
    server: str | None, token_file: Path | None, database: str | None, *, patience_s: float = 0.0
) -> Iterator[Cloud]:
    """The service or the database to ask, in the body of `with`; InvalidInput where both were given."""
    service = service_or_database(server, token_file, database, patience_s=patience_s)
    if service is not None:
        yield Cloud(service, None)
        return
    from advisor.service import Advisor
    from api.cli.options import settings

    with Advisor(settings(database=database)) as advisor:
        yield Cloud(None, advisor)


def asked_service(
    server: str | None, token_file: Path | None, file: Path | None, *, model: Path | None, patience_s: float = 0.0
) -> Service | None:
    """The service to ask, None = the file; InvalidInput where both or neither were given, or a model for a service."""
    url = server or (None if file is not None else os.environ.get(SERVER))
    if url is not None and file is not None:
        raise InvalidInput(f"{file} and --server are two clouds; give one", field="server")
    if url is None and file is None:
        raise InvalidInput(f"give an inventory file, or a service with --server or {SERVER}", field="inventory")
    if url is None and token_file is not None:
        raise InvalidInput("--token-file goes with --server", field="token_file")
    if url is not None and model is not None:
        raise InvalidInput("--model goes with a file; a service answers with its own", field="model")
    return None if url is None else Service.of(url, token_file, patience_s=patience_s)
