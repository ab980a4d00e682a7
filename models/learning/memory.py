"""What is remembered of workloads that were measured before: residuals by name, shrunken by how often.

The trees know programs by what they ask for. Two that ask for the same may still suffer differently, and a pair that
was measured forty times is known better than any model knows it (empirical Bayes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch
from models.data.topology import cpu_overlap
from models.features.examples import STATED, Neighbour, alike

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

PENALTIES = (2.0, 8.0, 32.0)  # in rows: with penalty 2, the mean of ten rows is shrunken to 10/12
LEAST_SHRINK, MOST_SHRINK = 0.2, 20.0  # rows of a pair that count as much as knowing nothing of it
Stated = tuple[float | None, ...]
DOMAINS = ("near", "far")  # neighbours on the same CPUs, weighted by their overlap, and the rest of them


@dataclass(frozen=True, slots=True)
class Recalled:
    """Of rows, any shape: the correction of the log ratio by names, how familiar victim and neighbours are (0-1), and
    how many measured outcomes of exactly these instances there are."""

    effect: Floats
    familiar: Floats
    measured: Floats


@dataclass(frozen=True)  # without slots: tables are made when scenes first ask for them
class Memory:
    """Effects on log(ratio) by names such as `victim|near|web-1k`, `neighbour|far|cpu` and `pair|near|web-1k|cpu`, and
    under the same names how many measured rows each rests on. `shrink` is how many rows of a pair count as much as
    knowing nothing of it. On other hosts than `platforms`, as DATASET/PLATFORM, each with what was stated of its
    machine (models.features.examples.STATED, None = nothing), effects count `elsewhere` as much."""

    values: Mapping[str, float] = field(default_factory=dict)
    count: Mapping[str, float] = field(default_factory=dict)
    shrink: float = 1.0
    platforms: Mapping[str, Stated] = field(default_factory=dict)
    elsewhere: float = 0.0

    def of(
        self, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]], here: Bools | None = None
    ) -> Recalled:
        """What is remembered of rows, (R,); `here` (R,) says whose host is one of `platforms`, None = of all."""
        found = np.zeros((len(victims), 3))
        for row, (victim, around) in enumerate(zip(victims, neighbours, strict=True)):
            found[row] = self._one(victim, around)
        effect = found[:, 0] if here is None else found[:, 0] * np.where(here, 1.0, self.elsewhere)
        return Recalled(effect, found[:, 1], found[:, 2])

    def _one(self, victim: str, around: Sequence[Neighbour]) -> tuple[float, float, float]:
        effect, times, familiar = 0.0, [], [self._familiar("victim", victim)]
        for name, share in _terms(victim, around):
            effect += share * self.values.get(name, 0.0)
        for one in around:
            shares = zip(DOMAINS, (one.overlap, 1 - one.overlap), strict=True)
            pairs = (share * self.count.get(f"pair|{domain}|{victim}|{one.workload}", 0.0) for domain, share in shares)
            times.append(sum(pairs))
            familiar.append(self._familiar("neighbour", one.workload))
        return effect, min(familiar), min(times, default=0.0)

    def _familiar(self, role: str, workload: str) -> float:
        count = sum(self.count.get(f"{role}|{domain}|{workload}", 0.0) for domain in DOMAINS)
        return count / (count + 2.0)

    def of_scenes(self, scenes: SceneBatch, known: Bools) -> Recalled:
        """The same for whole scenes at once, (S, N) each. `known` (rows of the table,) are the workloads that look as
        they did in training; others have no name."""
        place = self._tables.place
        used = np.flatnonzero(known)
        index = np.zeros(len(known), dtype=np.int64)
        index[used] = [place.get(scenes.table.names[at], 0) for at in used.tolist()]
        row, tables = np.where(scenes.present, index[scenes.profile], 0), self._tables
        nothing = np.zeros(scenes.present.shape)
        if not row.any():
            return Recalled(nothing, nothing, nothing)
        others = scenes.present[:, None, :] & ~np.eye(scenes.slots, dtype=bool)[None]
        overlap = cpu_overlap(scenes)
        effect, times = nothing, np.zeros(others.shape)
        pair = row[:, :, None], row[:, None, :]
        for number, share in enumerate((overlap * others, (1 - overlap) * others)):
            around = np.stack([np.ones(row.shape), tables.neighbour[number][row]], axis=2)
            total, of_neighbours = np.moveaxis(share @ around, 2, 0)
            effect = effect + tables.victim[number][row] * total + of_neighbours
            effect = effect + (tables.pair[number][pair] * share).sum(axis=2)
            times += tables.times[number][pair] * share
        least = np.where(others, tables.familiar[1][row][:, None, :], 1.0).min(axis=2, initial=1.0)
        measured = np.where(others, times, np.inf).min(axis=2, initial=np.inf)
        here = self.on(scenes)[:, None]
        return Recalled(
            np.where(scenes.present, effect, 0.0) * np.where(here, 1.0, self.elsewhere),
            np.where(scenes.present, np.minimum(tables.familiar[0][row], least), 0.0),
            np.where(scenes.present & np.isfinite(measured), measured, 0.0),
        )

    @cached_property
    def _tables(self) -> _Tables:
        return _Tables.of(self)

    def on(self, scenes: SceneBatch) -> Bools:
        """Whether training saw a platform of this name, on a machine with the same features; (S,)."""
        stated, found = scenes.host_numbers[:, : len(STATED)], np.zeros(len(scenes), dtype=bool)
        for name, numbers in self.platforms.items():
            there = np.flatnonzero(scenes.platform == name.partition("/")[2])
            found[there] |= alike(stated[there], np.array(numbers, dtype=float))
        return found

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "values": dict(sorted(self.values.items())), "count": dict(sorted(self.count.items())),
            "shrink": self.shrink, "elsewhere": self.elsewhere,
            "platforms": {name: list(stated) for name, stated in self.platforms.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Memory:
        """Inverse of `to_json`; KeyError, TypeError, AttributeError or ValueError on anything else."""
        numbers = [{str(name): float(one) for name, one in value[part].items()} for part in ("values", "count")]
        platforms = {
            str(name): tuple(None if one is None else float(one) for one in stated)
            for name, stated in value["platforms"].items()
        }
        if any(len(stated) != len(STATED) for stated in platforms.values()):
            raise ValueError(f"what is stated of a platform are not {len(STATED)} numbers")
        made = cls(numbers[0], numbers[1], float(value["shrink"]), platforms, float(value["elsewhere"]))
        every = [*made.values.values(), *made.count.values(), made.shrink, made.elsewhere]
        if not np.isfinite(every).all() or not made.shrink > 0 or not 0 <= made.elsewhere <= 1:
            raise ValueError("an effect is not a finite number")
        return made

    @property
    def extremes(self) -> tuple[float, float]:
        """At least and at most what is remembered of a company of two; longer sums are clipped to it."""
        least = most = 0.0
        for role in (*_ROLES, "pair"):
            found = [one for name, one in self.values.items() if name.startswith(f"{role}|")]
            least, most = least + min(found, default=0.0), most + max(found, default=0.0)
        return min(least, 0.0), max(most, 0.0)


_ROLES = ("victim", "neighbour")


@dataclass(frozen=True, slots=True)
class _Tables:
    """A memory as arrays over its U names, with place 0 for what has none: `victim`, `neighbour` (2, U + 1) and `pair`
    (2, U + 1, U + 1) are effects by DOMAINS, `times` of each pair how often it was measured, `familiar` (2, U + 1) how
    well each name is known as _ROLES."""

    place: Mapping[str, int]
    victim: Floats
    neighbour: Floats
    pair: Floats
    times: Floats
    familiar: Floats

    @classmethod
    def of(cls, memory: Memory) -> _Tables:
        """The tables of all that a memory holds."""
        names = sorted({name for key in (*memory.values, *memory.count) for name in key.split("|")[2:]})
        place = {name: at for at, name in enumerate(names, start=1)}
        size = len(place) + 1
        single = {role: np.zeros((2, size)) for role in _ROLES}
        counted = {role: np.zeros(size) for role in _ROLES}
        both = {kind: np.zeros((2, size, size)) for kind in ("pair", "times")}
        for numbers, of_values in ((memory.values, True), (memory.count, False)):
            for key, value in numbers.items():
                role, domain, *who = key.split("|")
                at = tuple(place[name] for name in who)
                if role == "pair" and len(at) == 2:
                    both["pair" if of_values else "times"][(DOMAINS.index(domain), *at)] = value
                elif role in single and len(at) == 1 and of_values:
                    single[role][DOMAINS.index(domain), at[0]] = value
                elif role in single and len(at) == 1:
                    counted[role][at[0]] += value
        known = np.stack([counted[role] / (counted[role] + 2.0) for role in _ROLES])
        return cls(place, single["victim"], single["neighbour"], both["pair"], both["times"], known)


def _terms(victim: str, around: Sequence[Neighbour]) -> list[tuple[str, float]]:
    terms: list[tuple[str, float]] = []
    for domain in DOMAINS:
        shares = [(one.workload, one.overlap if domain == "near" else 1 - one.overlap) for one in around]
        total = sum(share for _, share in shares)
        if total > 0:
            terms.append((f"victim|{domain}|{victim}", total))
        for workload, share in shares:
            if share > 0:
                terms.append((f"neighbour|{domain}|{workload}", share))
                terms.append((f"pair|{domain}|{victim}|{workload}", share))
    return terms


@dataclass(frozen=True, slots=True)
class MemoryDesign:
    """Which names act on R rows, sparse: `main` (R, E) victims and neighbours, `pairs` (R, P)."""

    main: csr_matrix
    pairs: csr_matrix
    names: tuple[tuple[str, ...], tuple[str, ...]]

    @classmethod
    def of(cls, victims: Sequence[str], neighbours: Sequence[Sequence[Neighbour]]) -> MemoryDesign:
        """The design of rows with these victims and neighbours."""
        from scipy.sparse import csr_matrix  # which predictions do without

        numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        entries: tuple[list[tuple[int, int, float]], list[tuple[int, int, float]]] = ([], [])
        for row, (victim, around) in enumerate(zip(victims, neighbours, strict=True)):
            for name, share in _terms(victim, around):
                which = int(name.startswith("pair|"))
                entries[which].append((row, numbers[which].setdefault(name, len(numbers[which])), share))
        made = []
        for known, several in zip(numbers, entries, strict=True):
            table = np.array(several, dtype=float).reshape(-1, 3)
            at = (table[:, 0].astype(int), table[:, 1].astype(int))
            made.append(csr_matrix((table[:, 2], at), shape=(len(victims), len(known))))
        return cls(made[0], made[1], (tuple(numbers[0]), tuple(numbers[1])))

    def fit(
        self, residual: Floats, count: Floats, rows: Ints, penalty: float | None, shrink: float
    ) -> tuple[Floats, Floats]:
        """Effects of names (E,), None = none, then of pairs (P,), by ridge regression on these rows; `count` (R,) is
        how many measurements each row joins."""
        weight = np.sqrt(count[rows])
        main = np.zeros(len(self.names[0]))
        if penalty is not None:
            main = _ridge(self.main[rows], residual[rows], weight, penalty)
        return main, _ridge(self.pairs[rows], residual[rows] - self.main[rows] @ main, weight, shrink)


def _ridge(design: csr_matrix, residual: Floats, weight: Floats, penalty: float) -> Floats:
    from scipy.sparse import diags
    from scipy.sparse.linalg import lsqr

    if not design.shape[1] or not design.shape[0]:
        return np.zeros(design.shape[1])
    found = lsqr(diags(weight) @ design, weight * residual, damp=float(np.sqrt(penalty)), atol=1e-9, btol=1e-9)
    return np.asarray(found[0])


def shrink_of(residual: Floats, spread: Floats, count: Floats) -> float:
    """How many measurements of a pair count as much as knowing nothing of it: the variance of repeats over that of
    pairs. `spread` (R,) is the variance of the repeats that each row joins, nan = not repeated."""
    repeated = np.isfinite(spread) & (count > 1)
    if not repeated.any() or len(residual) < 2:
        return 1.0
    within = float(np.average(spread[repeated], weights=count[repeated] - 1))
    between = max(float(np.var(residual)) - within, 1e-6)
    return float(np.clip(within / between, LEAST_SHRINK, MOST_SHRINK))


def fit_memory(
    victims: Sequence[str],
    neighbours: Sequence[Sequence[Neighbour]],
    residual: Floats,
    spread: Floats,
    count: Floats,
    folds: Sequence[tuple[Ints, Ints]],
    base: Floats,
    platforms: Mapping[str, Stated],
    elsewhere: float,
) -> tuple[Memory, Floats]:
    """The memory of grouped rows, and what it would have said of each without that row's fold, 0 where that is nothing.

    `residual` (G,) is what is left of the log ratio when trees answer that never saw the row's pair; nan = no answer.
    `folds` leave out pairs. The penalty of names is the one with which left-out pairs are predicted best, or names have
    no effect of their own. `base` (G,) are the ratios that errors are relative to.
    """
    design = MemoryDesign.of(victims, neighbours)
    usable = np.isfinite(residual)
    shrink = shrink_of(residual[usable], spread[usable], count[usable])
    outside: dict[float | None, Floats] = {}
    for penalty in (None, *PENALTIES):
        said = np.zeros(len(residual))
        for train, test in folds:
            rows = train[usable[train]]
            if penalty is not None and len(rows):
                said[test] = design.main[test] @ design.fit(residual, count, rows, penalty, shrink)[0]
        outside[penalty] = said

    def error(penalty: float | None) -> float:
        off = np.abs(np.exp(outside[penalty]) - np.exp(np.nan_to_num(residual))) * base
        return float(off[usable].mean()) if usable.any() else 0.0

    best = min(outside, key=error)
    rows = np.flatnonzero(usable)
    main, pairs = design.fit(residual, count, rows, best, shrink)
    values = dict(zip(design.names[0], main.tolist(), strict=True)) if best is not None else {}
    values |= dict(zip(design.names[1], pairs.tolist(), strict=True))
    times: Counter[str] = Counter()
    for matrix, names in zip((design.main, design.pairs), design.names, strict=True):
        counted = np.asarray((matrix > 0).T @ count).ravel()
        times.update(dict(zip(names, counted.tolist(), strict=True)))
    return Memory(values, dict(times), shrink, platforms, elsewhere), outside[best]
