"""What the instances of this cloud whose demand is known teach about the others: classes, kept as instances change."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from models.data.demand_classes import (
    ENOUGH,
    LOG_UNIT,
    Hours,
    LogSums,
    Trait,
    centre_of,
    drawn,
    from_class,
    hours_of,
    log_of,
    traits,
    with_day_of,
)
from profiler.demand import Demand, DemandOrigin, Resource
from profiler.observed import Instance

KNOWN: frozenset[DemandOrigin] = frozenset({"given", "history", "measured", "trace"})  # says something of itself
SEEN: frozenset[DemandOrigin] = frozenset({"history", "measured"})
WEEK = 2016  # windows, from which on the days of an instance speak for themselves
LEAST_KNOWN = 3  # instances: fewer of them say nothing of the others
FULL_LOAD = 1.0
MOST_TRIED = 2_000  # instances: 20 ms
WHOLE_CLOUD: Trait = ("", "")


@dataclass(frozen=True, slots=True)
class Taught:
    """What one instance teaches: the logarithm of its mean, its traits, its day where that is known, and whether its
    mean is that of whole days."""

    log: int
    traits: tuple[Trait, ...]
    hours: Hours = ()
    whole: bool = True

    def left_out(self, trait: Trait, of: LogSums) -> LogSums:
        """The sums of a trait without this instance, where they count it."""
        return of.plus(self.log, -1, self.hours) if trait in (WHOLE_CLOUD, *self.traits) else of


@dataclass(frozen=True, slots=True)
class ClassAccuracy:
    """How well classes estimate the demand of known instances, each from all others (leave-one-out).

    `factor` is by how much they are off, up or down: exp of the root mean square of the logarithm; `without` the same
    for one figure for all machines of public traces. Nine in ten of the means that `demand_of` estimates were within
    the factor `nine_in_ten`, up or down. `n` is the number of instances.
    """

    n: int
    factor: float
    without: float
    nine_in_ten: float


@dataclass(frozen=True)
class CloudClasses:
    """Sums of those whose CPU demand is known, of all together and by each trait; values never change.

    `whole` are of those that were seen for a whole day. Once enough were, the others are left out: what came in the
    evening knows nothing of the morning.
    """

    sums: Mapping[Trait, LogSums]
    whole: Mapping[Trait, LogSums]
    known: Mapping[str, Taught]

    @classmethod
    def of(cls, instances: Iterable[Instance]) -> CloudClasses:
        """The classes of these instances."""
        return cls({}, {}, {}).changed({one.id: one for one in instances})

    def changed(self, instances: Mapping[str, Instance | None]) -> CloudClasses:
        """The classes after these were put, None = deleted; itself where nothing that counts has changed."""
        news = {name: _taught_by(one) for name, one in instances.items()}
        news = {name: row for name, row in news.items() if self.known.get(name) != row}
        if not news:
            return self
        sums, whole, known = dict(self.sums), dict(self.whole), dict(self.known)
        for name, row in news.items():
            former = known.pop(name, None)
            for one, times in ((former, -1), (row, 1)):
                if one is not None:
                    _count(sums, one, times)
                if one is not None and one.whole:
                    _count(whole, one, times)
            if row is not None:
                known[name] = row
        return CloudClasses(sums, whole, known)

    @cached_property
    def _teach(self) -> Mapping[Trait, LogSums]:
        """The sums that demands are taken from: `whole` where enough were seen for a whole day, else all."""
        return self.whole if self.whole.get(WHOLE_CLOUD, LogSums()).n >= LEAST_KNOWN else self.sums

    def _own(self, name: str) -> Taught | None:
        """What an instance itself adds to the sums of `_teach`."""
        own = self.known.get(name)
        return own if own is not None and (own.whole or self._teach is self.sums) else None

    @property
    def speaks(self) -> bool:
        """Whether enough instances are known to say anything of the others."""
        return len(self.known) >= LEAST_KNOWN

    def knows(self, name: str, value: str) -> bool:
        """Whether any known instance has this trait."""
        return (name, value) in self._teach

    def demand_of(self, instance: Instance) -> Demand | None:
        """CPU demand of an instance of which nothing is known; None where too little is known of all."""
        if not self.speaks:
            return None
        return from_class(instance.vcpus, self.levels(instance))

    def basis(self, instance: Instance) -> tuple[tuple[Trait, int], ...]:
        """What `demand_of` goes by: traits with the number of known instances that share each, the narrowest last."""
        every = (WHOLE_CLOUD, *traits(instance))
        return tuple((trait, self._teach[trait].n) for trait in every if trait in self._teach)

    @cached_property
    def accuracy(self) -> ClassAccuracy | None:
        """How well the classes estimate the known instances, or MOST_TRIED of them; None where too few are known."""
        if not self.speaks:
            return None
        plain = centre_of(())[0]
        squares, off = [0.0, 0.0], []
        teachers = sorted(name for name in self.known if self._own(name) is not None)
        tried = teachers[:: -(-len(teachers) // MOST_TRIED)]
        for one in (self.known[name] for name in tried):
            own = one.log * LOG_UNIT
            levels = [one.left_out(trait, self._teach[trait]) for trait in (WHOLE_CLOUD, *one.traits)]
            off.append(abs(math.log(from_class(1, levels).mean) - own))
            squares[0] += (centre_of(levels)[0] - own) ** 2
            squares[1] += (plain - own) ** 2
        factor, without = (math.exp(math.sqrt(total / len(tried))) for total in squares)
        nine_in_ten = math.exp(sorted(off)[math.ceil(0.9 * len(off)) - 1])
        return ClassAccuracy(len(tried), factor, without, nine_in_ten)

    def levels(self, instance: Instance) -> list[LogSums]:
        """What the others teach about an instance, from wide to narrow; nothing where too few of them are known."""
        own, nothing = self._own(instance.id), LogSums()
        if self._teach.get(WHOLE_CLOUD, nothing).n - (own is not None) < LEAST_KNOWN:
            return []
        found = [(trait, self._teach.get(trait, nothing)) for trait in (WHOLE_CLOUD, *traits(instance))]
        return [one if own is None else own.left_out(trait, one) for trait, one in found]


def completed(instance: Instance, classes: CloudClasses, profiled: Collection[str]) -> Instance:
    """The instance with the demand of its class where nothing is known of its own, drawn towards it where no whole day
    of that was measured, and with the class's day as far as its own was not seen for a week; else as it is.

    A load that is not 1 says something of its demand, too, and so does a workload with a profile (`profiled`: names).
    """
    seen = instance.demand.get("cpu")
    if seen is not None and (seen.origin not in SEEN or (seen.windows >= WEEK and seen.hours)):
        return instance
    others: dict[Resource, Demand] = {name: one for name, one in instance.demand.items() if name != "cpu"}
    if seen is not None and seen.windows >= ENOUGH and not seen.seen_hours:
        with_hours = with_day_of(seen, classes.levels(instance))
        return instance if with_hours is seen else replace(instance, demand={**others, "cpu": with_hours})
    if instance.workload in profiled and (seen is None or seen.windows < ENOUGH):  # minutes do not beat it
        return instance if seen is None else replace(instance, demand=others)
    if seen is not None:
        return replace(instance, demand={**others, "cpu": drawn(seen, instance.vcpus, classes.levels(instance))})
    if not classes.speaks or instance.load != FULL_LOAD:
        return instance
    demand = classes.demand_of(instance)
    return instance if demand is None else replace(instance, demand={**others, "cpu": demand})


def _taught_by(instance: Instance | None) -> Taught | None:
    """What an instance teaches, None = nothing."""
    demand = instance.demand.get("cpu") if instance is not None else None
    if instance is None or demand is None or demand.origin not in KNOWN:
        return None
    return Taught(log_of(demand.mean, instance.vcpus), traits(instance), hours_of(demand), not any(demand.seen_hours))


def _count(sums: dict[Trait, LogSums], row: Taught, times: int) -> None:
    for trait in (WHOLE_CLOUD, *row.traits):
        total = sums.get(trait, LogSums()).plus(row.log, times, row.hours)
        if total.n:
            sums[trait] = total
        else:
            sums.pop(trait, None)
