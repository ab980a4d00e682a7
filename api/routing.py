"""A route of the application, and those that packages add: the protocols of other schedulers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from fastapi import Response

from advisor import plug_ins
from api.auth import Needs
from api.http.lanes import LaneName


@dataclass(frozen=True, slots=True)
class Route:
    """One line of the list; `fails` are the statuses of its own problems, beside those that every route can have."""

    method: str
    path: str
    endpoint: Callable[..., Any]
    id: str  # the tag, or the whole id of the operation where module and function do not give it
    status: int = 200
    created: bool = False  # answers 201 too, when the thing is new
    fails: tuple[int, ...] = ()
    answers: type[Response] | None = None  # where the answer is not JSON
    described: Mapping[str, Any] | None = None  # the schema of such an answer in the description
    body: Mapping[str, Any] | None = None  # the description of a body that the endpoint reads by itself
    model: type | UnionType | None = None  # of an answer that the endpoint writes by itself
    lane: LaneName = "storage"  # the threads in which it runs
    scope: Needs | None = None  # what a token must allow, where that does not follow from the method
    hurried: bool = False  # kube-scheduler waits for the answer, see api.opinion
    reads: Collection[str] = ()  # query parameters that it reads by itself: a form shows them again

    @property
    def needs(self) -> Needs:
        """The scope that it needs: unless it says otherwise, read for GET and write for all other methods."""
        return self.scope or ("read" if self.method == "GET" else "write")

    @property
    def tag(self) -> str:
        """What the operation is about: the first part of its id."""
        return self.id.partition(".")[0]

    @property
    def operation_id(self) -> str:
        """By which generated clients call it: tag, module or package without `cotenant_`, function."""
        if "." in self.id:
            return self.id
        names = self.endpoint.__module__.split(".")
        offered_by = names[-1] if self.is_own else names[0].removeprefix("cotenant_")
        return f"{self.id}.{offered_by}.{self.endpoint.__name__}"

    @property
    def is_own(self) -> bool:
        """Whether the service's own distribution has it."""
        return self.endpoint.__module__.startswith("api.")


def protocols() -> tuple[Route, ...]:
    """Routes of the schedulers whose packages are installed, each a sequence of Route as an entry point of the group
    `cotenant.schedulers`. InvalidInput names a package that cannot be imported: a scheduler waits for its answers."""
    return tuple(
        route
        for name in plug_ins.names(plug_ins.SCHEDULERS)
        for route in plug_ins.load(plug_ins.SCHEDULERS, name, "the protocol of", "schedulers")
    )
