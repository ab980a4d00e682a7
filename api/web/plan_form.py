"""The forms for plans: fields of each kind of question, and what was typed → a PlanRequest, or what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from advisor.domain import (
    PLACING_KINDS,
    PLAN_KINDS,
    DeclaredField,
    Growth,
    Host,
    Instance,
    PlanKind,
    PlanRequest,
    WhatIf,
    fields_of,
)
from advisor.errors import InvalidInput, NotFound
from api.web.form import FIELDS as INSTANCE
from api.web.form import typed_name, typed_number, typed_title

# The fields of the forms for plans: which each kind of question has, with their defaults and limits.

Shape = Literal["number", "whole", "names", "choice", "text", "check"]


@dataclass(frozen=True, slots=True)
class FormField:
    """One field: its label, what may be typed and its default; `must` = it may not be empty.

    Numbers lie from `low` to `high`; `names` are ids, separated by blanks or commas; `choices` are values with texts.
    """

    label: str
    shape: Shape
    default: str = ""
    low: float = 0
    high: float = 1e9
    choices: tuple[tuple[str, str], ...] = ()
    help: str = ""
    must: bool = False
    listed: str = ""  # the kind of names that the browser offers a list of
    apart: float | None = None  # the end of the range of a number that is refused


def _of_instance(name: str, label: str, default: str = "") -> FormField:
    """A number of an instance, with the limits that REST has."""
    typed = INSTANCE[name]
    return FormField(
        label, "whole" if typed.kind == "integer" else "number", default, typed.low, typed.high, apart=typed.apart
    )


_SHAPES: Mapping[type, Shape] = {int: "whole", float: "number", str: "text"}
MIX_ROWS = 3
_MIX: Mapping[str, FormField] = {
    f"{name}_{row}": field
    for row in range(1, MIX_ROWS + 1)
    for name, field in {
        "count": FormField("How many", "whole", "1" if row == 1 else "", 0, 1000),
        "workload": FormField("Workload", "text", listed="workloads"),
        "vcpus": _of_instance("vcpus", "vCPUs", "2"),
        "memory_mb": _of_instance("memory_mb", "Memory, MB", "2048"),
        "ratio": _of_instance("min_throughput_ratio", "Must keep at least"),
    }.items()
}


def _declared(field: DeclaredField) -> FormField:
    """The form's field for one that the question declares."""
    declared = field.declared
    text = f"{declared.text[:1].lower()}{declared.text[1:]}" + (f"; empty = {declared.unset}" if declared.unset else "")
    if field.choices:
        shape: Shape = "choice"
        text = declared.text
    elif field.kind is bool:
        return FormField(declared.label, "check", "yes" if field.default else "")
    else:
        shape = "names" if field.lists else _SHAPES[field.kind]
    default = field.default
    return FormField(
        declared.label,
        shape,
        f"{default:.15g}" if shape in {"number", "whole"} and default is not None else default or "",
        0 if declared.low is None else declared.low,
        1e9 if declared.high is None else declared.high,
        choices=((("", declared.unset),) if field.optional and declared.words else ()) + declared.words,
        help=text,
        must=declared.needed is True,
        listed=declared.names,
    )


_APART: Mapping[str, FormField] = {
    **_MIX,
    "prefix": FormField("Their names begin with", "text", "new"),
    "like": FormField("Add hosts like", "text", listed="hosts"),
    "add": FormField("How many hosts", "whole", "1", 0, 1000),
    "change": FormField("Hosts that change", "names", listed="hosts"),
    "pcpus": FormField("Their pCPUs then", "whole", "", 1, 4096),
    "host_memory_mb": FormField("Their memory then, MB", "number", "", 1, 1e9),
}


def _all(question: type, *, path: str = "", kinds: tuple[str, ...] = ()) -> Iterator[tuple[str, DeclaredField]]:
    """The declared fields that are on the form by their paths, those of questions within the question in its place."""
    for name, one in fields_of(question).items():
        if one.parts:
            yield from _all(one.kind, path=f"{name}.", kinds=one.declared.kinds)
        elif one.declared.label:
            yield path + name, replace(one, declared=replace(one.declared, kinds=kinds or one.declared.kinds))


# The form calls a field as the question does, without the question that it is part of.
PATHS: Mapping[str, str] = {field.name: path for path, field in _all(PlanRequest)}
DECLARED: Mapping[str, DeclaredField] = {field.name: field for _, field in _all(PlanRequest)}
FIELDS: Mapping[str, FormField] = {**_APART, **{name: _declared(field) for name, field in DECLARED.items()}}

# Of each kind its title, its question, and its fields under their headings.
Sections = tuple[tuple[str, tuple[str, ...]], ...]
_TITLES: Mapping[PlanKind, tuple[str, str]] = {
    "admit": ("Admit", "Can these instances be placed, and where?"),
    "rebalance": ("Rebalance", "Which few moves bring every instance within its limits?"),
    "evacuate": ("Evacuate", "How are these hosts emptied without harm?"),
    "repair": ("Repair", "Which moves make all rules hold again?"),
    "consolidate": ("Consolidate", "How few hosts are enough, with every limit kept?"),
    "capacity": ("Capacity", "How many more of this mix fit, and when is the cloud full?"),
    "what_if": ("What if", "What would another cloud do to every instance?"),
    "right_size": ("Right-size", "Which instances have more or less CPU than they use?"),
    "tune": ("Tune", "Which settings suit all instances of a host as it stands?"),
}
# The headings in their order, with the fields that only the form has and the kinds that have these.
_SECTIONS: Mapping[str, tuple[tuple[PlanKind, ...], tuple[str, ...]]] = {
    "Instances": (("admit", "capacity", "what_if"), tuple(_MIX)),
    "What is otherwise": (("what_if",), ("like", "add", "change", "pcpus", "host_memory_mb")),
    "Hosts": ((), ()),
    "Limits": ((), ()),
    "Growth": ((), ()),
    "Failover reserve": ((), ()),
    "Moves": ((), ()),
    "The search": ((), ()),
}


def _sections(kind: PlanKind) -> Iterator[tuple[str, tuple[str, ...]]]:
    for heading, (kinds, apart) in _SECTIONS.items():
        names = [*apart, *(("prefix",) if heading == "Instances" and kind == "admit" else ())] if kind in kinds else []
        names += [n for n, each in DECLARED.items() if each.declared.section == heading and each.matters_for(kind)]
        if names:
            yield heading, tuple(names)


KINDS: Mapping[PlanKind, tuple[str, str, Sections]] = {
    kind: (*_TITLES[kind], tuple(_sections(kind))) for kind in PLAN_KINDS
}


Choice = TypeVar("Choice", bound=str)
_OF_SINGLE_CPUS = ("numa", "siblings", "cpu_ids", "isolated_cpus")  # of a host; unknown where it gets another number
_LONGEST = 20_000  # characters in one field: a thousand hosts by name
# The form's names of what the advisor names otherwise than by a field of the form.
_FORM_NAMES = {"instances": "count_1", "what_if": "like", "what_if.hosts": "like", "growth": "instances_per_month"}


@dataclass(slots=True)
class PlanForm:
    """The fields of one kind as typed, and what is wrong with each."""

    kind: PlanKind
    values: dict[str, str]
    errors: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, typed_values: Mapping[str, str], *, sent: bool) -> PlanForm:
        """From a form that was `sent`, or from an address that fills some of it in; without a kind it is admit.

        InvalidInput on an unknown kind, and on a field that a form of this kind does not have.
        """
        kind = _kind(typed_values.get("kind", "admit"))
        values = {name: FIELDS[name].default for name in cls._names(kind)}
        if sent and "commands" in values:
            values["commands"] = ""  # a box that is not ticked is not sent
        unknown = sorted(typed_values.keys() - values.keys() - {"kind"}) if sent else []
        if unknown:
            raise InvalidInput(f"a plan of kind {kind} has no field {unknown[0][:40]!r}", field=unknown[0][:40])
        values |= {name: typed_values[name].strip() for name in values if name in typed_values}
        form = cls(kind, values)
        for name, value in values.items():
            if len(value) > _LONGEST:  # a list of hosts that is cut off would be another question
                form.errors[name] = f"is longer than {_LONGEST:,} characters"
            offered = [choice for choice, _ in FIELDS[name].choices]
            if offered and value not in offered:
                form.errors[name] = f"{value[:40]!r} is none of {', '.join(filter(None, offered))}"
        return form

    @staticmethod
    def _names(kind: PlanKind) -> Iterable[str]:
        return [name for _, names in KINDS[kind][2] for name in names]

    def request(self, host: Callable[[str], Host]) -> PlanRequest | None:
        """The question; None where something is wrong, which `errors` then says. `host` looks a host up."""
        asked = self.values.get("then") or self.kind
        numbers = {name: self._number(name) for name in self.values if FIELDS[name].shape in {"number", "whole"}}
        names = {name: self._listed(name) for name in self.values if FIELDS[name].shape == "names"}
        values: dict[str, dict[str, Any]] = {"": {}, "growth": {}, "what_if": {}}
        for name in self.values:
            if name in DECLARED:
                value = numbers[name] if name in numbers else names[name] if name in names else self._text(name)
                whole, _, part = PATHS[name].rpartition(".")
                values[whole][part] = DECLARED[name].kind(value) if name in numbers and value is not None else value
        instances = self._mix(numbers) if asked in PLACING_KINDS else ()
        hosts = self._imagined_hosts(numbers, names, host) if self.kind == "what_if" else ()
        try:
            growth = Growth.given(**{part: value or None for part, value in values["growth"].items()})
        except InvalidInput as error:
            self.blame(error)
        if self.errors:
            return None
        return PlanRequest(
            kind=self.kind,
            instances=instances,
            growth=growth,
            what_if=WhatIf(hosts=hosts, **_typed(values["what_if"])) if self.kind == "what_if" else None,
            **_typed(values[""]),
        )

    def blame(self, error: InvalidInput) -> None:
        """Put the advisor's refusal beside the field that it speaks of, else on top."""
        name = _FORM_NAMES.get(error.field or "") or (error.field or "").rpartition(".")[2]
        self.errors[name if name in self.values else ""] = error.message

    def _mix(self, numbers: Mapping[str, float | None]) -> tuple[Instance, ...]:
        instances: list[Instance] = []
        prefix = self._id("prefix") or "new"
        for row in range(1, MIX_ROWS + 1):
            begin = f"{prefix}-" if row == 1 else f"{prefix}-{row}-"
            instances += self._alike(row, begin, int(numbers[f"count_{row}"] or 0), numbers)
        if not instances and not self.errors:
            self.errors["count_1"] = "is empty or 0 in every row: give the number of instances"
        return tuple(instances)

    def _alike(self, row: int, begin: str, count: int, numbers: Mapping[str, float | None]) -> list[Instance]:
        if not count:
            return []
        try:
            first = Instance(
                id=f"{begin}{count}",  # the longest of their names
                vcpus=int(numbers[f"vcpus_{row}"] or 1),
                memory_mb=numbers[f"memory_mb_{row}"] or 0.0,
                workload=self._id(f"workload_{row}", typed_title),
                min_throughput_ratio=numbers[f"ratio_{row}"],
            )
        except ValueError as error:
            self.errors["prefix" if "prefix" in self.values else f"count_{row}"] = str(error)
            return []
        return [replace(first, id=f"{begin}{number}") for number in range(1, count + 1)]

    def _imagined_hosts(
        self, numbers: Mapping[str, float | None], names: Mapping[str, tuple[str, ...]], host: Callable[[str], Host]
    ) -> tuple[Host, ...]:
        hosts: list[Host] = []
        like = self._id("like")
        model_host = self._look_up("like", like, host) if like else None
        if model_host:
            added = range(1, int(numbers["add"] or 0) + 1)
            hosts += [self._changed("like", model_host, id=f"{like}-more-{number}") for number in added]
        for name in names["change"]:
            former = self._look_up("change", name, host)
            if former:
                pcpus = int(numbers["pcpus"] or former.pcpus)
                memory = numbers["host_memory_mb"] or former.memory_mb
                anew: dict[str, Any] = {} if pcpus == former.pcpus else dict.fromkeys(_OF_SINGLE_CPUS, ())
                hosts.append(self._changed("pcpus", former, pcpus=pcpus, memory_mb=memory, **anew))
        return tuple(hosts)

    def _changed(self, name: str, host: Host, **changes: Any) -> Host:
        try:
            return replace(host, **changes)
        except ValueError as error:
            self.errors[name] = str(error)
            return host

    def _look_up(self, name: str, host_id: str, host: Callable[[str], Host]) -> Host | None:
        try:
            return host(host_id)
        except NotFound as error:
            self.errors[name] = error.message
            return None

    def _text(self, name: str) -> str | bool | None:
        """A text, a choice, or whether a box is ticked; None where nothing was typed."""
        field = DECLARED[name]
        if field.kind is bool:
            return self.values[name] == "yes"
        return self._id(name) if field.declared.names else self.values[name] or None

    def _id(self, name: str, check: Callable[[str], str] = typed_name) -> str | None:
        value = self.values.get(name, "")
        if not value:
            return None
        try:
            return check(value)
        except ValueError as error:
            self.errors[name] = str(error)
            return None

    def _listed(self, name: str) -> tuple[str, ...]:
        ids = tuple(dict.fromkeys(re.split(r"[\s,;]+", self.values[name].strip(" ,;")))) if self.values[name] else ()
        if not ids and FIELDS[name].must:
            self.errors[name] = "names nothing"
        for listed_id in ids:
            try:
                typed_name(listed_id)
            except ValueError as error:
                self.errors[name] = f"{listed_id[:60]!r} {error}"
        return ids

    def _number(self, name: str) -> float | None:
        field: FormField = FIELDS[name]
        text = self.values[name] or ("" if name.startswith("count_") else field.default)  # an empty count is none
        if not text:
            return None
        try:
            return typed_number(text, field.low, field.high, whole=field.shape == "whole", apart=field.apart)
        except ValueError as error:
            self.errors[name] = str(error)
            return None


def _kind(text: str) -> PlanKind:
    kind = _one_of(PLAN_KINDS, text)
    if kind is None:
        raise InvalidInput(f"kind {text[:40]!r} is none of {', '.join(PLAN_KINDS)}", field="kind")
    return kind


def _one_of(choices: Iterable[Choice], text: str | None) -> Choice | None:
    """The text as one of the choices' type; None where it is none of them."""
    return next((choice for choice in choices if choice == text), None)


def _typed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in which something stands; of all others the question has its own default."""
    return {name: value for name, value in values.items() if value not in (None, ())}
