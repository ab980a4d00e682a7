"""The question on the first page, typed in fields or in one line → a placement request, or what is wrong with it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.domain import OBJECTIVES, Find, Instance, Objective, PlacementRequest, fields_of
from advisor.errors import InvalidInput
from api.schemas.base import TEXT_PATTERN
from api.schemas.placements import NewInstance
from profiler.observed import check_id

# What people type into a field of a form → a value, or a ValueError that says what is wrong with it.


def typed_number(text: str, low: float, high: float, *, whole: bool = False, apart: float | None = None) -> float:
    """A number from `low` to `high` that is not `apart`, an end of that range; a comma is a decimal point, too."""
    text = text.replace(",", ".")
    try:
        value = float(int(text)) if whole else float(text)
    except (ValueError, OverflowError):
        value = math.nan
    if not low <= value <= high or value == apart:
        without = "" if apart is None else f" without {apart:g}"
        raise ValueError(f"is not a {'whole ' if whole else ''}number from {low:g} to {high:.15g}{without}")
    return value


def typed_name(text: str) -> str:
    """An id, such as a host's."""
    try:
        check_id(text, "name")
    except ValueError:
        raise ValueError("is not 1–255 letters, digits or . _ : -") from None
    return text


def typed_title(text: str) -> str:
    """A name that may have blanks and letters of any language, such as a workload's."""
    if not 1 <= len(text) <= 255 or not re.fullmatch(TEXT_PATTERN, text):
        raise ValueError("is not 1–255 characters without control characters")
    return text


# A question typed in one line: the name of an instance, or a new one such as "8 vCPUs, 16 GB, like db-142".

_NUMBER = r"(?P<number>\d{1,9}(?:[.]\d{1,6})?)"
_MB = {"m": 1, "g": 1024, "t": 1024 * 1024}
_BETWEEN = re.compile(r"(?:[\s,;]+|and\b)+")
_PARTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("vcpus", re.compile(rf"{_NUMBER}\s*(?:v?cpus?|cores?)\b", re.IGNORECASE)),
    ("memory_mb", re.compile(rf"{_NUMBER}\s*(?P<unit>[mgt])(?:i?b)?\b", re.IGNORECASE)),
    ("like", re.compile(r"(?:like|as)\s+(?:\"(?P<quoted>[^\"]{1,255})\"|(?P<name>[^\s,;]{1,255}))", re.IGNORECASE)),
    ("id", re.compile(r"(?:named?|called)\s+(?P<name>[^\s,;]{1,255})", re.IGNORECASE)),
    (
        "min_throughput_ratio",
        re.compile(rf"(?:keeps?(?:\s+at least)?|at least)\s+{_NUMBER}(?P<percent>\s*%)?", re.IGNORECASE),
    ),
    ("max_time_short", re.compile(rf"short\s+(?:at most\s+)?{_NUMBER}(?P<percent>\s*%)?", re.IGNORECASE)),
    ("service", re.compile(r"(?P<name>latency|throughput)\b", re.IGNORECASE)),
    ("exclusive", re.compile(r"(?P<name>alone|exclusive)\b", re.IGNORECASE)),
)
_LONG_NAME = re.compile(r"(?:like|as)\s+(?P<name>[^\s,;\"][^,;\"]{0,253}[^\s,;\"])\s*(?=[,;]|\Z)", re.IGNORECASE)
LINE_EXAMPLE = "8 vCPUs, 16 GB, like db-142"


def read_line(text: str, known: Callable[[str], str | None]) -> dict[str, str]:
    """Fields of the form that the line fills; `known` gives the id of an instance by a name, None = there is none.

    A name with blanks stands in double quotes, or ends at a comma. ValueError says which part is not understood.
    """
    text = text.strip()
    instance = known(text)
    if instance is not None:
        return {"instance": instance}
    fields: dict[str, str] = {}
    at = _skip(text, 0)
    for name, match in _parts(text, known):
        fields[name], at = _value(name, match), _skip(text, match.end())
        if name == "like":
            other = known(fields[name])
            if other is None:
                raise ValueError(f"there is no instance {fields[name]!r} to be like")
            fields[name] = other
    if at < len(text):
        raise ValueError(_complaint(text, text[at:].split(",")[0][:60]))
    return fields


def unfinished_line(text: str) -> tuple[set[str], int]:
    """Of the line up to the cursor: the fields that are complete, and where the part at the cursor begins."""
    parts = list(_parts(text))
    if parts and parts[-1][1].end() == len(text):
        start = parts.pop()[1].start()
        return {name for name, _ in parts}, start
    at = _skip(text, parts[-1][1].end() if parts else 0)
    mark = max(text.rfind(",", at), text.rfind(";", at)) + 1  # a part that is not understood ends there, too
    return {name for name, _ in parts}, _skip(text, max(at, mark))


def _parts(text: str, known: Callable[[str], object] = lambda _: None) -> Iterator[tuple[str, re.Match[str]]]:
    """Each part with the field that it fills, up to the first that is not understood; a name with blanks counts where
    it is `known`."""
    at = _skip(text, 0)
    while at < len(text):
        long = _LONG_NAME.match(text, at)
        if long and known(long["name"]) is not None:
            part: tuple[str, re.Match[str]] | None = ("like", long)
        else:
            part = next(((name, match) for name, pattern in _PARTS if (match := pattern.match(text, at))), None)
        if part is None:
            return
        yield part
        at = _skip(text, part[1].end())


def _skip(text: str, at: int) -> int:
    """Where the next part begins."""
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _value(name: str, match: re.Match[str]) -> str:
    parts = match.groupdict()
    if name == "memory_mb":
        return f"{float(parts['number']) * _MB[parts['unit'].lower()]:.12g}"
    if name in {"min_throughput_ratio", "max_time_short"} and parts["percent"]:
        return f"{float(parts['number']) / 100:g}"
    if name == "exclusive":
        return "yes"
    if name == "service":
        return parts["name"].lower()
    return parts.get("number") or parts.get("quoted") or parts["name"]


def _complaint(text: str, rest: str) -> str:
    if rest == text and " " not in text:
        return f"there is no instance {rest!r}: for a new one give its size, as in {LINE_EXAMPLE!r}"
    return f"cannot read {rest!r}: write it as in {LINE_EXAMPLE!r}"


# Each field of a new instance as REST takes it: what may be typed is read off `NewInstance`.


@dataclass(frozen=True, slots=True)
class TypedField:
    """A field as it is typed: a number, a choice, or a name."""

    label: str
    title: str
    kind: Literal["number", "integer", "choice", "name"]
    default: str
    choices: tuple[tuple[str, str], ...] = ()
    low: float = -math.inf
    high: float = math.inf
    apart: float | None = None  # the end of that range that REST excludes

    def read(self, text: str) -> Any:
        """The value as REST takes it; ValueError says what is wrong."""
        if self.kind == "choice":
            if text not in (known := [value for value, _ in self.choices]):
                raise ValueError(f"is neither {' nor '.join(known)}")
            return {"yes": True, "no": False}.get(text, text)
        if self.kind == "name":
            return text
        value = typed_number(text, self.low, self.high, whole=self.kind == "integer", apart=self.apart)
        return int(value) if self.kind == "integer" else value


# Labels of the page, in its order; what a field means, its limits and its values are declared in the body of REST.
_LABELS = {
    "id": "Name",
    "like": "Like",
    "vcpus": "vCPUs",
    "memory_mb": "Memory, MB",
    "min_throughput_ratio": "Relative throughput at least, 0–1",
    "service": "Sensitive to",
    "max_latency_ratio": "Highest latency, ×",
    "max_time_short": "Contended at most, 0–1",
    "exclusive": "Its host",
    "workload": "Workload",
}
_TYPED_ALREADY = {"id": "new-instance", "vcpus": "2", "memory_mb": "2048"}
_YES_OR_NO = (("no", "shared"), ("yes", "for itself"))


def _fields() -> Iterator[tuple[str, TypedField]]:
    body = NewInstance.model_json_schema()["properties"]
    for name, label in _LABELS.items():
        schema = {**body[name], **next(iter(body[name].get("anyOf", ())), {})}
        title = schema["description"].partition("; null")[0]
        about: dict[str, Any] = {"label": label, "title": f"{title[:1].upper()}{title[1:]}"}
        default = _TYPED_ALREADY.get(name, "" if schema.get("default") is None else str(schema["default"]))
        if schema["type"] == "boolean":
            yield name, TypedField(**about, kind="choice", default="no", choices=_YES_OR_NO)
        elif "enum" in schema:
            choices = tuple((value, value) for value in schema["enum"])
            yield name, TypedField(**about, kind="choice", default=default, choices=choices)
        elif schema["type"] == "string":
            yield name, TypedField(**about, kind="name", default=default)
        else:
            low = schema.get("exclusiveMinimum", schema.get("minimum", -math.inf))
            high = schema.get("exclusiveMaximum", schema.get("maximum", math.inf))
            apart = schema.get("exclusiveMinimum", schema.get("exclusiveMaximum"))
            yield name, TypedField(**about, kind=schema["type"], default=default, low=low, high=high, apart=apart)


FIELDS: Mapping[str, TypedField] = dict(_fields())
_OBJECTIVE = fields_of(PlacementRequest)["objective"]
OBJECTIVE_WORDS: Mapping[str, str] = dict(_OBJECTIVE.declared.words)
DEFAULTS: Mapping[str, str] = {
    "ask": "",
    "instance": "",
    **{name: each.default for name, each in FIELDS.items()},
    "objective": _OBJECTIVE.default,
}
_SIZE = {"vcpus", "memory_mb"}
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
        asked, sized = bool(fields.get("instance") or fields.get("id")), _SIZE & fields.keys()
        return cls(values={**DEFAULTS, **fields}, asked=asked, sized=sized)

    def take_line(self, known: Callable[[str], str | None]) -> None:
        """Fill in what was typed in one line, if anything was."""
        if not self.values["ask"]:
            return
        try:
            fields = read_line(self.values["ask"], known)
        except ValueError as error:
            self.errors["ask"] = str(error)
            return
        self.values |= fields
        self.sized = _SIZE & fields.keys()
        self.asked = True

    @property
    def existing(self) -> str:
        """The instance of the inventory that is asked about; empty = a new one."""
        return self.values["instance"]

    def new_instance(self, find: Find) -> Instance | None:
        """The new instance that was typed, as REST understands it; None where something is wrong, which `errors` then
        says. `find` looks up one of the inventory."""
        given = {name: value for name in FIELDS if (value := self._typed(name)) is not None}
        for name, check in (("id", typed_name), ("workload", typed_title)):
            if name in given or name == "id":
                self._check(name, check)
        if self.errors:
            return None
        try:
            instance, _ = NewInstance.model_validate(given).to_domain(find)
        except InvalidInput as error:
            self.blame(error)
            return None
        return instance

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

    def _typed(self, name: str) -> Any:
        """The value of a field; None = nothing was typed, and where it is like another instance, that one's counts."""
        text, default = self.values[name], DEFAULTS[name]
        if self.values["like"] and name not in self.sized | {"id"} and text == default:
            return None
        if not text and not default:
            return None
        try:
            return FIELDS[name].read(text)
        except ValueError as error:
            self.errors[name] = str(error)
            return None

    def _check(self, name: str, check: Callable[[str], str]) -> None:
        try:
            check(self.values[name])
        except ValueError as error:
            self.errors[name] = str(error)
