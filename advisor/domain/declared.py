"""What is declared of a field of a question, once: REST, commands, pages and the reference are made from it."""

from __future__ import annotations

import types
from collections.abc import Hashable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, cached_property
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Declared:
    """Beside type and default: what a field is, in lower case and without a full stop, and what it may be.

    A number lies from `low` to `high`, a text has at most `longest` characters, a tuple at least `low` items. `unset`
    is what None means, `words` what each value of a Literal means. `kinds` are the kinds of plan in which the field
    matters, () = all; where `only` is set, any other kind refuses it, and where `needed` is set, each of these kinds
    refuses to go without, or those that it names. On pages the field is called `label` and stands under the heading
    `section`; "" = it is no field there. A command calls it `option` ("" = as the field) and its value `metavar`.
    `names` says of which things a text or a tuple of texts names some.
    """

    text: str
    low: float | None = None
    high: float | None = None
    longest: int = 255
    unset: str = ""
    words: tuple[tuple[str, str], ...] = ()
    kinds: tuple[str, ...] = ()
    only: bool = False
    needed: bool | tuple[str, ...] = False
    label: str = ""
    section: str = ""
    option: str = ""
    metavar: str | None = None
    names: Literal["hosts", "instances", "models", ""] = ""

    @property
    def needed_for(self) -> tuple[str, ...]:
        """The kinds of plan that refuse to go without it."""
        if isinstance(self.needed, tuple):
            return self.needed
        return self.kinds if self.needed else ()

    @property
    def meaning(self) -> str:
        """What the field is, with its values and the kinds that alone take it."""
        kinds = f" ({', '.join(self.kinds)})" if self.only else ""
        words = "; ".join(f"{value}: {word}" for value, word in self.words)
        return f"{self.text}{kinds}{'; ' if words else ''}{words}"


@dataclass(frozen=True)  # without slots: what its type says is found once, and asked for in every question
class DeclaredField:
    """A field of a question: `kind` is its type without None, `optional` says whether it may be None."""

    name: str
    kind: Any
    optional: bool
    default: Any
    declared: Declared

    @cached_property
    def choices(self) -> tuple[str, ...]:
        """The values of a Literal; () for every other type."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @cached_property
    def lists(self) -> bool:
        """Whether it is a tuple."""
        return get_origin(self.kind) is tuple

    @cached_property
    def parts(self) -> Mapping[str, DeclaredField]:
        """The fields of a question within the question; {} where it is none."""
        return fields_of(self.kind) if is_dataclass(self.kind) and isinstance(self.kind, type) else {}

    def matters_for(self, *kinds: str) -> bool:
        """Whether one of these kinds of plan has the field."""
        return not self.declared.kinds or any(kind in self.declared.kinds for kind in kinds)


def fields_of(question: type) -> Mapping[str, DeclaredField]:
    """The declared fields of a dataclass in their order."""
    return _fields_of(cast(Hashable, question))


@cache
def _fields_of(question: Any) -> Mapping[str, DeclaredField]:
    hints = get_type_hints(question, include_extras=True)
    found: dict[str, DeclaredField] = {}
    for each in fields(question):
        kind, *extras = get_args(hints[each.name]) if get_origin(hints[each.name]) is Annotated else (None,)
        declared = next((extra for extra in extras if isinstance(extra, Declared)), None)
        if declared is None:
            continue
        optional = get_origin(kind) in {Union, types.UnionType}
        if optional:
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        found[each.name] = DeclaredField(each.name, kind, optional, default, declared)
    return found


def field_at(question: type, path: str) -> DeclaredField | None:
    """The field at a path such as growth.months; None where none is declared."""
    name, _, rest = path.partition(".")
    found = fields_of(question).get(name)
    if found is None or not rest:
        return found
    return found.parts.get(rest)
