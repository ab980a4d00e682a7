"""The fields of the forms for plans: which each kind of question has, with their defaults and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from advisor.domain import PLAN_KINDS, DeclaredField, PlanKind, PlanRequest, fields_of

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


_SHAPES: Mapping[type, Shape] = {int: "whole", float: "number", str: "text"}
MIX_ROWS = 3
_MIX: Mapping[str, FormField] = {
    f"{name}_{row}": field
    for row in range(1, MIX_ROWS + 1)
    for name, field in {
        "count": FormField("How many", "whole", "1" if row == 1 else "", 0, 1000),
        "workload": FormField("Workload", "text", listed="workloads"),
        "vcpus": FormField("vCPUs", "whole", "2", 1, 4096),
        "memory_mb": FormField("Memory, MB", "number", "2048", 0, 1e9),
        "ratio": FormField("Must keep at least", "number", "", 0.01, 1),
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
    for name, field in fields_of(question).items():
        if field.parts:
            yield from _all(field.kind, path=f"{name}.", kinds=field.declared.kinds)
        elif field.declared.label:
            yield path + name, replace(field, declared=replace(field.declared, kinds=kinds or field.declared.kinds))


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
    "consolidate": ("Consolidate", "How few hosts would do, with every ratio kept?"),
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
