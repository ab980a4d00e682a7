"""The question on the page: what stands in the address bar → a placement request, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from advisor.domain import OBJECTIVES, Instance, Objective, PlacementRequest
from advisor.errors import InvalidInput
from api.web import one_line, typed

DEFAULTS: Mapping[str, str] = {
    "ask": "",
    "instance": "",
    "id": "new-instance",
    "like": "",
    "workload": "",
    "vcpus": "2",
    "memory_mb": "2048",
    "min_throughput_ratio": "",
    "max_latency_ratio": "",
    "max_time_short": "",
    "exclusive": "no",
    "service": "throughput",
    "objective": "worst",
}
_RANGES = {
    "vcpus": (1, 4096),
    "memory_mb": (0, 1e9),
    "min_throughput_ratio": (0.01, 1),
    "max_latency_ratio": (1, 1e6),
    "max_time_short": (0, 0.999),
}
_LIMITS = ("min_throughput_ratio", "max_latency_ratio", "max_time_short")
_LONGEST = 256  # characters of a field: one more than any name has, so that what is cut off is no name
SHOWN = 10  # candidates on the page; the API gives more


@dataclass(slots=True)
class Form:
    """The fields as typed, and what is wrong with each; `asked` says whether there is a question at all."""

    values: dict[str, str]
    asked: bool
    errors: dict[str, str] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)  # what of its size was said

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Form:
        """Take the known fields from a query; an empty query is the page before the first question.

        InvalidInput on an objective that there is none of: no list on the page offers it.
        """
        given = {name: query[name].strip()[:_LONGEST] for name in DEFAULTS if name in query}
        if given.get("objective", DEFAULTS["objective"]) not in OBJECTIVES:
            message = f"objective {given['objective'][:40]!r} is none of {', '.join(OBJECTIVES)}"
            raise InvalidInput(message, field="objective")
        asked, sized = bool(given.get("instance") or given.get("id")), {"vcpus", "memory_mb"} & given.keys()
        return cls(values={**DEFAULTS, **given}, asked=asked, sized=sized)

    def take_line(self, exists: Callable[[str], bool]) -> None:
        """Fill in what was typed in one line, if anything was."""
        if not self.values["ask"]:
            return
        try:
            found = one_line.read(self.values["ask"], exists)
        except ValueError as error:
            self.errors["ask"] = str(error)
            return
        if "like" in found and not exists(found["like"]):
            self.errors["ask"] = f"there is no instance {found['like']!r} to be like"
            return
        self.values |= found
        self.sized = {"vcpus", "memory_mb"} & found.keys()
        self.asked = True

    @property
    def existing(self) -> str:
        """The instance of the inventory that is asked about; empty = a new one."""
        return self.values["instance"]

    def new_instance(self) -> Instance | None:
        """The new instance that was typed in; None when something is wrong, which `errors` then says."""
        vcpus = self._number("vcpus", whole=True)
        memory = self._number("memory_mb")
        limits = {name: self._number(name) if self.values[name] else None for name in _LIMITS}
        self._check("id", typed.name)
        if self.values["workload"]:
            self._check("workload", typed.title)
        if self.values["service"] not in {"latency", "throughput"}:
            self.errors["service"] = "is neither latency nor throughput"
        if self.values["exclusive"] not in {"yes", "no"}:
            self.errors["exclusive"] = "is neither yes nor no"
        if self.errors or vcpus is None or memory is None:
            return None
        try:
            return Instance(
                id=self.values["id"],
                vcpus=int(vcpus),
                memory_mb=memory,
                workload=self.values["workload"] or None,
                service="latency" if self.values["service"] == "latency" else "throughput",
                min_throughput_ratio=limits["min_throughput_ratio"],
                max_latency_ratio=limits["max_latency_ratio"],
                max_time_short=limits["max_time_short"],
                exclusive=self.values["exclusive"] == "yes",
            )
        except ValueError as error:
            self.errors["id"] = str(error)
            return None

    def request(self, instance: Instance, *, hosts: tuple[str, ...] | None = None) -> PlacementRequest:
        """The question; a dry run, because looking must not reserve anything."""
        return PlacementRequest(
            instance=instance,
            hosts=hosts,
            objective=self.objective,
            limit=SHOWN,
            explain=True,
            commands=True,
            dry_run=True,
        )

    @property
    def objective(self) -> Objective:
        """The objective that was chosen."""
        return next(known for known in OBJECTIVES if known == self.values["objective"])

    def blame(self, error: InvalidInput) -> None:
        """Put the advisor's refusal beside the field it speaks of; an instance of the inventory has one field only."""
        name = "instance" if self.existing else (error.field or "").rpartition(".")[2]
        self.errors[name if name in DEFAULTS else "id"] = error.message

    def _number(self, name: str, *, whole: bool = False) -> float | None:
        try:
            return typed.number(self.values[name], *_RANGES[name], whole=whole)
        except ValueError as error:
            self.errors[name] = str(error)
            return None

    def _check(self, name: str, check: Callable[[str], str]) -> None:
        try:
            check(self.values[name])
        except ValueError as error:
            self.errors[name] = str(error)
