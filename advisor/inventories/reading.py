"""What another system says of hosts and instances, and how each part of reading it went; values only."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from advisor.render.change import DEFAULT_SHARES, DEFAULT_V2_WEIGHT, V2_WEIGHT_RANGE
from profiler.observed import DEFAULT_WEIGHT, MAX_WEIGHT

# Numbers and labels as other systems write them.

MOST_CPUS = 8192  # of a host or an instance


def as_number(value: object, name: str, *, least: float = 0.0) -> float:
    """A number that may be written as text; ValueError where it is none from `least` on."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number < math.inf:
        raise ValueError(f"its {name} {str(value)[:60]!r} is not a number{f' from {least:g} on' if least else ''}")
    return number


def as_cpus(value: object, name: str) -> int:
    """A whole number of CPUs; ValueError where it is none."""
    number = as_number(value, name)
    if not 1 <= number <= MOST_CPUS or number != int(number):
        raise ValueError(f"its {name} {str(value)[:60]!r} is not a number of CPUs")
    return int(number)


def whole_cpus(value: object, name: str) -> int:
    """The CPUs that an amount such as 0.5 or 1.5 takes at once; ValueError where it is no amount above 0.

    Sums of thousandths are a little off a whole number, which is no CPU more.
    """
    return as_cpus(max(1, math.ceil(round(as_number(value, name, least=1e-6), 6))), name)


def clean_labels(labels: Mapping[str, object]) -> dict[str, str]:
    """The text, without what breaks a line."""
    clean = {
        name: "".join(char for char in str(value) if char.isprintable())[:255]
        for name, value in labels.items()
        if value and name.isprintable() and len(name) <= 100
    }
    return {name: value for name, value in clean.items() if value}


# Fields of a Host or an Instance, its `id` always among them, that the source knows; what it does not say stays as it
# is. `labels` and `settings` are mappings of which the same holds.
Facts = Mapping[str, Any]
Row = TypeVar("Row")  # one object as the source reports it
STOPPED_LOAD = 0.001  # of an instance that holds its place and does nothing; an Instance cannot have none


@dataclass(frozen=True, slots=True)
class CpuShares:
    """A weight as libvirt hands it on unchanged, in the units of the host's control groups (formatdomain, shares).

    In `settings` it stands for the weight until the host is known.
    """

    value: float

    def weight(self, version: int | None) -> int | None:
        """On Xen's scale: cpu.shares of version 1, cpu.weight of version 2; None where the host cannot have it.

        Where the version is not known, cpu.weight as long as that goes so far: what is above is for version 1 only.
        """
        is_weight = self.value <= V2_WEIGHT_RANGE[1]
        if version == 2 and not is_weight:
            return None
        default = DEFAULT_V2_WEIGHT if version == 2 or (version is None and is_weight) else DEFAULT_SHARES
        return min(max(1, round(self.value * DEFAULT_WEIGHT / default)), MAX_WEIGHT)


@dataclass(frozen=True, slots=True)
class Part:
    """One listing of a read: `rows` it gave, or the `reason` why it gave none or not all.

    `refused`: the account may not see it; `failed`: the source did not answer as it should.
    """

    name: str
    state: Literal["read", "refused", "failed"]
    rows: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One read of `source`, whose hosts and instances carry that name in their label `source`.

    `every_host`, `every_instance`: whether what carries the label and is not reported is gone; `gone` are instances
    that surely are, `unclear` are some that are there although nothing is reported of them. `own_labels` are the names
    of labels that the source keeps, one ending in "." with all that begin so. `left_out` says in sentences what was not
    taken. `covers`: where not None, only instances that are stored on these hosts can be absent. An instance with the
    label `uuid` is known again by it, whatever its id is in the inventory; `unclear` may name UUIDs, too.

    `partial`: it reports what changed since the last one, by the ids of the inventory; nothing else need be looked at.
    `gone_hosts` are hosts that surely are; `heard` are hosts that are there, of which nothing need be new.
    """

    source: str
    parts: tuple[Part, ...]
    hosts: tuple[Facts, ...] = ()
    instances: tuple[Facts, ...] = ()
    every_host: bool = False
    every_instance: bool = False
    gone: frozenset[str] = frozenset()
    unclear: frozenset[str] = frozenset()
    own_labels: frozenset[str] = field(default_factory=frozenset)
    left_out: tuple[str, ...] = ()
    covers: frozenset[str] | None = None
    partial: bool = False
    gone_hosts: frozenset[str] = frozenset()
    heard: frozenset[str] = frozenset()

    @property
    def complete(self) -> bool:
        """Whether every part was read."""
        return all(part.state == "read" for part in self.parts)


def taken(
    rows: Mapping[str, Row],
    facts: Callable[[str, Row], Facts],
    left_out: list[str],
    called: Callable[[str, Row], object],
) -> dict[str, Facts]:
    """The facts of the rows that make sense, by key; for each other row a sentence goes to `left_out`, which begins
    with what the row is `called`."""
    facts_by_key: dict[str, Facts] = {}
    for key, row in rows.items():
        try:
            facts_by_key[key] = facts(key, row)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            reason = f"no {error.args[0]}" if isinstance(error, KeyError) else error
            left_out.append(" ".join(f"{called(key, row)}: {reason}".split())[:300])
    return facts_by_key


class InventorySource(Protocol):
    """Another system that is read again and again; it remembers what it needs to read only what is new."""

    def read(self) -> Reading:
        """Read it once; never raises for what the other side does."""
        ...


class WatchedSource(InventorySource, Protocol):
    """One that also reports changes by itself."""

    def watch(self, stop: threading.Event) -> Iterator[Reading]:
        """A whole reading first, then what is new at once, and now and then that the hosts are there; until `stop`."""
        ...

    def again(self) -> None:
        """The last reading of a watch could not be written: the next one is whole."""
        ...
