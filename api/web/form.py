"""The question on the first page: the query of an address → a placement request, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from advisor.domain import OBJECTIVES, Instance, Objective, PlacementRequest, fields_of
from advisor.errors import InvalidInput
from api.web import one_line, typed

_OBJECTIVE = fields_of(PlacementRequest)["objective"]
OBJECTIVE_WORDS: Mapping[str, str] = dict(_OBJECTIVE.declared.words)
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
    "objective": _OBJECTIVE.default,
}
_RANGES = {
    "vcpus": (1, 4096),
    "memory_mb": (0, 1e9),
    "min_throughput_ratio": (0.01, 1),
    "max_latency_ratio": (1, 1e6),
    "max_time_short": (0, 0.999),
}
_LIMITS = ("min_throughput_ratio", "max_latency_ratio", "max_time_short")
_LONGEST = 256  # characters of a field: one more than any name has, so that a longer one is refused, not shortened
SHOWN = 10  # candidates on the page; the API gives more


@dataclass(slots=True)
class Form:
    """The fields as typed, and what is wrong with each; `asked` = there is a question."""

    values: dict[str, str]
    asked: bool
    errors: dict[str, str] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)  # fields of its size that were typed

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Form:
        """Take the known fields from a query; an empty query is the page before the first question.

        InvalidInput on an unknown objective, which no list on the page offers.
        """
        fields = {name: query[name].strip()[:_LONGEST] for name in DEFAULTS if name in query}
        if fields.get("objective", DEFAULTS["objective"]) not in OBJECTIVES:
            message = f"objective {fields['objective'][:40]!r} is none of {', '.join(OBJECTIVES)}"
            raise InvalidInput(message, field="objective")
        asked, sized = bool(fields.get("instance") or fields.get("id")), {"vcpus", "memory_mb"} & fields.keys()
        return cls(values={**DEFAULTS, **fields}, asked=asked, sized=sized)

    def take_line(self, known: Callable[[str], str | None]) -> None:
        """Fill in what was typed in one line, if anything was."""
        if not self.values["ask"]:
            return
        try:
            fields = one_line.read(self.values["ask"], known)
        except ValueError as error:
            self.errors["ask"] = str(error)
            return
        self.values |= fields
        self.sized = {"vcpus", "memory_mb"} & fields.keys()
        self.asked = True

    @property
    def existing(self) -> str:
        """The instance of the inventory that is asked about; empty = a new one."""
        return self.values["instance"]

    def new_instance(self) -> Instance | None:
        """The new instance that was typed; None where something is wrong, which `errors` then says."""
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
        """The question, as a dry run: looking at a page must hold nothing."""
        return PlacementRequest(
            instance=instance,
            hosts=hosts,
            objective=self.objective,
            limit=SHOWN,
            explain=True,
            commands=True,
            dry_run=True,
            tune=True,
        )

    @property
    def objective(self) -> Objective:
        """The objective that was chosen."""
        return next(known for known in OBJECTIVES if known == self.values["objective"])

    def blame(self, error: InvalidInput) -> None:
        """Put the advisor's refusal beside its field; a question about an instance of the inventory has only one."""
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
