"""The question for a plan as typed → a PlanRequest, or what is wrong with each field."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from advisor.domain import (
    OBJECTIVES,
    PINNING_POLICIES,
    PLAN_FOR,
    PLAN_KINDS,
    Growth,
    Host,
    Instance,
    PlanKind,
    PlanRequest,
    WhatIf,
)
from advisor.errors import InvalidInput, NotFound
from api.web import typed
from api.web.plan_fields import FIELDS, KINDS, MIX_ROWS, FormField

Choice = TypeVar("Choice", bound=str)
_LONGEST = 20_000  # characters in one field: a thousand hosts by name
# The form's names of fields that the advisor calls otherwise.
_FORM_NAMES = {
    "instances": "count_1", "growth": "per_month", "growth.months": "months",
    "growth.uncertain_percent": "uncertain_percent",
    "what_if": "like", "what_if.hosts": "like", "what_if.remove": "remove",
    "what_if.model": "model", "what_if.pinning": "pinning",
    "what_if.cpu_overcommit": "cpu_overcommit", "what_if.memory_overcommit": "memory_overcommit",
}  # fmt: skip


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
        instances = self._mix(numbers) if asked in {"admit", "capacity"} else ()
        imagined = self._imagined(numbers, names, host) if self.kind == "what_if" else None
        if self.errors:
            return None
        standard = PlanRequest()
        return PlanRequest(
            kind=self.kind,
            instances=instances,
            empty=names.get("empty", ()),
            hosts=names.get("hosts") or None,
            movable=names.get("movable") or None,
            objective=_one_of(OBJECTIVES, self.values.get("objective")) or standard.objective,
            plan_for=_one_of(PLAN_FOR, self.values.get("plan_for")) or standard.plan_for,
            keep_ratio=_or(numbers.get("keep_ratio"), standard.keep_ratio),
            max_moves=_whole(numbers.get("max_moves")),
            move_gain=_or(numbers.get("move_gain"), standard.move_gain),
            at_once=int(_or(numbers.get("at_once"), standard.at_once)),
            at_once_per_host=int(_or(numbers.get("at_once_per_host"), standard.at_once_per_host)),
            at_once_per_rack=_whole(numbers.get("at_once_per_rack")),
            rack_label=self.values.get("rack_label") or standard.rack_label,
            migration_mbit=numbers.get("migration_mbit"),
            rack_mbit=numbers.get("rack_mbit"),
            growth=self._growth(numbers),
            spare_hosts=int(_or(numbers.get("spare_hosts"), 0)),
            spare_label=self.values.get("spare_label") or None,
            what_if=imagined,
            then=_one_of(PLAN_KINDS, self.values.get("then")),
            commands=self.values["commands"] == "yes",
            time_limit_s=_or(numbers.get("time_limit_s"), standard.time_limit_s),
            seed=int(_or(numbers.get("seed"), standard.seed)),
        )

    def blame(self, error: InvalidInput) -> None:
        """Put the advisor's refusal beside the field that it speaks of, else on top."""
        name = _FORM_NAMES.get(error.field or "", error.field or "")
        self.errors[name if name in self.values else ""] = error.message

    def _mix(self, numbers: Mapping[str, float | None]) -> tuple[Instance, ...]:
        instances: list[Instance] = []
        prefix = self._id("prefix") or "new"
        for row in range(1, MIX_ROWS + 1):
            begin = f"{prefix}-" if row == 1 else f"{prefix}-{row}-"
            instances += self._alike(row, begin, int(numbers[f"count_{row}"] or 0), numbers)
        if not instances and not self.errors:
            self.errors["count_1"] = "is empty or 0 in every row: say how many instances there are"
        return tuple(instances)

    def _alike(self, row: int, begin: str, count: int, numbers: Mapping[str, float | None]) -> list[Instance]:
        if not count:
            return []
        try:
            first = Instance(
                id=f"{begin}{count}",  # the longest of their names
                vcpus=int(numbers[f"vcpus_{row}"] or 1),
                memory_mb=numbers[f"memory_mb_{row}"] or 0.0,
                workload=self._id(f"workload_{row}", typed.title),
                min_throughput_ratio=numbers[f"ratio_{row}"],
            )
        except ValueError as error:
            self.errors["prefix" if "prefix" in self.values else f"count_{row}"] = str(error)
            return []
        return [replace(first, id=f"{begin}{number}") for number in range(1, count + 1)]

    def _growth(self, numbers: Mapping[str, float | None]) -> Growth | None:
        per_month, load = numbers.get("per_month"), numbers.get("load_percent")
        if not per_month and not load:
            return None
        months = int(_or(numbers.get("months"), Growth().months))
        return Growth(_or(per_month, 0), _or(load, 0), months, _or(numbers.get("uncertain_percent"), 0))

    def _imagined(
        self, numbers: Mapping[str, float | None], names: Mapping[str, tuple[str, ...]], host: Callable[[str], Host]
    ) -> WhatIf:
        hosts: list[Host] = []
        like = self._id("like")
        model_host = self._look_up("like", like, host) if like else None
        if model_host:
            added = range(1, int(_or(numbers["add"], 1)) + 1)
            hosts += [self._changed("like", model_host, id=f"{like}-more-{number}") for number in added]
        for name in names["change"]:
            former = self._look_up("change", name, host)
            if former:
                pcpus = _whole(numbers["pcpus"]) or former.pcpus
                memory = numbers["host_memory_mb"] or former.memory_mb
                anew: dict[str, Any] = {} if pcpus == former.pcpus else {"numa": (), "cpu_ids": (), "isolated_cpus": ()}
                hosts.append(self._changed("pcpus", former, pcpus=pcpus, memory_mb=memory, **anew))
        return WhatIf(
            hosts=tuple(hosts),
            remove=names["remove"],
            cpu_overcommit=numbers["cpu_overcommit"],
            memory_overcommit=numbers["memory_overcommit"],
            pinning=_one_of(PINNING_POLICIES, self.values["pinning"]) or "as_it_is",
            model=self._id("model"),
        )

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

    def _id(self, name: str, check: Callable[[str], str] = typed.name) -> str | None:
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
                typed.name(listed_id)
            except ValueError as error:
                self.errors[name] = f"{listed_id[:60]!r} {error}"
        return ids

    def _number(self, name: str) -> float | None:
        field: FormField = FIELDS[name]
        text = self.values[name] or ("" if name.startswith("count_") else field.default)  # an empty count is none
        if not text:
            return None
        try:
            return typed.number(text, field.low, field.high, whole=field.shape == "whole")
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


def _or(value: float | None, standard: float) -> float:
    return standard if value is None else value


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
