"""Host situations of a question: which hosts are alike, and what is predicted of each kind, once and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.domain import PlacementRequest
from advisor.prediction.cache import PredictionCache
from advisor.scheduling import pinning
from advisor.scheduling.newcomer import latency_limits_of, limits_of, newcomer_slot, used_share, without_it
from advisor.scheduling.pinning import NAMES, PinningOption
from advisor.snapshot import ClusterSnapshot, fingerprints
from models.arrays import Bools, Floats, Ints
from models.data.scene import ProfileTable, SceneBatch
from models.data.scene import stack as stack_scenes
from models.prediction import Predictor

# Cells (scenes x slots x slots) that are predicted at a time: what a prediction holds on the way grows with them.
CELLS = 150_000


@dataclass(frozen=True, slots=True)
class Question:
    """Who is to be placed in which cloud, and who predicts; `table` and `row` as from `newcomer.profile_row`."""

    snapshot: ClusterSnapshot
    request: PlacementRequest
    predictor: Predictor
    table: ProfileTable
    row: int | None

    @property
    def slots(self) -> int:
        """N: everybody's, and the newcomer's in the last one."""
        return self.snapshot.scenes.slots + 1


@dataclass(frozen=True, slots=True)
class HostClasses:
    """G kinds of hosts, any two of one kind alike in all that a decision looks at: `hosts` (G,) are one of each, by
    position, `of` (H,) says which kind each host is. `present` (G, N) as with the newcomer, `limits` and `waits`
    (G, N) the lowest T/B and the highest latency ratio that each accepts, nan = any; `used` (G,) vCPUs per pCPU."""

    hosts: Ints
    of: Ints
    present: Bools
    limits: Floats
    waits: Floats
    used: Floats

    def __len__(self) -> int:
        return len(self.hosts)


@dataclass(frozen=True, slots=True)
class ClassPredictions:
    """What is predicted of G kinds under O options: expected T/B and its lower bound, and expected latency where
    somebody's limit asks for it, else nan. (O, G, N), nan where an option is no choice; `before` and `latency_before`
    (G, N) are without the newcomer, 1 for itself. `options` are their names, `pins` and `usable` as in PinningOption.
    """

    options: tuple[str, ...]
    pins: Bools
    usable: Bools
    expected: Floats
    lower: Floats
    latency: Floats
    before: Floats
    latency_before: Floats


def kinds(question: Question, hosts: Ints) -> HostClasses:
    """Join the hosts at these positions that are alike; (H,)."""
    snapshot, request = question.snapshot, question.request
    limits = limits_of(snapshot, hosts, request.instance, question.slots)
    waits = latency_limits_of(snapshot, hosts, request.instance, question.slots)
    alike: NDArray[Any] = snapshot.fingerprints[hosts]
    mine = snapshot.where(request.instance.id)
    told = [one[:, :-1] for one in (limits, waits) if not np.isnan(one[:, :-1]).all()]
    if told or mine:
        seat = np.full((len(hosts), 1), -1.0)
        for host, slot in mine:
            seat[hosts == host] = slot
        rows = np.concatenate([seat, *told], axis=1)
        parts = [alike.view(np.uint8).reshape(len(hosts), -1), np.ascontiguousarray(rows).view(np.uint8)]
        joined = np.concatenate(parts, axis=1)
        alike = joined.view(np.dtype((np.void, joined.shape[1])))[:, 0]
    each = alike.view(np.dtype((np.void, alike.itemsize))).tolist()
    number = dict(zip(dict.fromkeys(each), count()))
    of = np.fromiter(map(number.__getitem__, each), dtype=np.int64, count=len(each))
    first = np.flatnonzero(np.diff(np.maximum.accumulate(of), prepend=-1))
    chosen = hosts[first]
    present = np.concatenate([snapshot.scenes.present[chosen], np.ones((len(chosen), 1), dtype=bool)], axis=1)
    for host, slot in mine:
        present[chosen == host, slot] = False
    return HostClasses(
        hosts=chosen,
        of=of,
        present=present,
        limits=limits[first],
        waits=waits[first],
        used=used_share(snapshot, request, chosen),
    )


def predict(question: Question, found: HostClasses, remembered: PredictionCache) -> ClassPredictions:
    """Predict every kind without the newcomer and with it under every option that is a choice there.

    Only throughput is asked, but where somebody minds latency; only what is not remembered is asked at all.
    """
    minds = ~np.isnan(found.waits).all(axis=1)
    groups = [((), np.flatnonzero(~minds)), (("latency",), np.flatnonzero(minds))]
    asked = [(rows, *_asked(question, found.hosts[rows], targets, remembered)) for targets, rows in groups if len(rows)]
    before, after = asked[0][1:]
    if len(asked) > 1:  # put together in the order of the kinds
        order = np.argsort(np.concatenate([rows for rows, *_ in asked]))
        before, after = (np.concatenate([one[part] for one in asked])[order] for part in (1, 2))
    usable = ~np.isnan(after[:, :, 0, -1])
    places = np.flatnonzero(usable.any(axis=0)).tolist()
    expected, lower, latency = (np.stack([after[:, place, number] for place in places]) for number in range(3))
    alone = ~(found.present & (np.arange(question.slots) < question.slots - 1))
    return ClassPredictions(
        options=tuple(NAMES[place] for place in places),
        pins=np.array([NAMES[place] != pinning.FREE for place in places], dtype=bool),
        usable=usable.T[places],
        expected=expected,
        lower=lower,
        latency=latency,
        before=np.where(alone, 1.0, before[:, 0]),
        latency_before=np.where(alone, 1.0, before[:, 2]),
    )


def _asked(
    question: Question, hosts: Ints, targets: Sequence[str], remembered: PredictionCache
) -> tuple[Floats, Floats]:
    """Of the hosts at these positions expected T/B, its lower bound and expected latency: without the newcomer
    (G, 3, N), and with it under every option there is (G, O, 3, N), by its place in NAMES, nan where it is no choice.
    """
    where, who = keys(question, hosts, targets)
    block = (3, question.slots)
    is_known, before = remembered.before.find(where, block)
    is_told, after = remembered.after.find(who, (len(NAMES), *block))
    new, untold = first_of_each(where, is_known), first_of_each(who, is_told)
    scenes = [base_with(question, hosts[new.first])[1]] if len(new.first) else []
    found: tuple[PinningOption, ...] = ()
    if len(untold.first):
        base, absent = base_with(question, hosts[untold.first])
        found = pinning.options(base, question.request.instance)
        scenes += [with_newcomer(absent, option).take(np.flatnonzero(option.usable)) for option in found]
    if scenes:
        said = _in_parts(question.predictor, stack_scenes(scenes), targets)
        before[new.first], at = said[: len(new.first)], len(new.first)
        for option in found:
            rows = untold.first[option.usable]
            after[rows, NAMES.index(option.name)] = said[at : at + len(rows)]
            at += len(rows)
    remembered.before.keep([where[row] for row in new.first.tolist()], before[new.first])
    remembered.after.keep([who[row] for row in untold.first.tolist()], after[untold.first])
    before[new.rows], after[untold.rows] = before[new.like], after[untold.like]
    return before, after


class Unknown(NamedTuple):
    """The `rows` (U,) whose key is not known, for each the first one with the same key, `like` (U,), and these."""

    rows: Ints
    like: Ints
    first: Ints


def first_of_each(keys: Sequence[bytes], known: Bools) -> Unknown:
    """Who is to be asked about: hosts that differ in limits alone have one key."""
    rows = np.flatnonzero(~known)
    first: dict[bytes, int] = {}
    like = [first.setdefault(keys[row], row) for row in rows.tolist()]
    return Unknown(rows, np.array(like, dtype=np.int64), np.array(list(first.values()), dtype=np.int64))


def keys(question: Question, hosts: Ints, targets: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """What a prediction about each host depends on without the newcomer, and with it."""
    snapshot, one, table = question.snapshot, question.request.instance, question.table
    # The number of slots is one of it: sums over eight and more of them end in other bits.
    said = snapshot.names.table if table is snapshot.scenes.table else fingerprints.of_table(table)
    asked = fingerprints.digest(question.predictor.version, said, question.slots, tuple(targets))
    own = [] if question.row is None else [("", question.row)]
    by_name = [(platform, row) for (platform, name), row in table.rows.items() if name == one.workload]
    newcomer = fingerprints.digest(
        [(platform, fingerprints.of_profile(table, row)) for platform, row in own or by_name],
        (one.workload, one.vcpus, one.load, one.service, one.max_latency_ratio is None),
        one.settings,
    )
    where = [fingerprint + asked for fingerprint in snapshot.fingerprints[hosts].view(f"V{fingerprints.SIZE}").tolist()]
    for host, slot in snapshot.where(one.id):
        for at in np.flatnonzero(hosts == host).tolist():
            where[at] += b"without %d" % slot
    return where, [key + newcomer for key in where]


def base_with(question: Question, hosts: Ints) -> tuple[SceneBatch, SceneBatch]:
    """The hosts at these positions as they stand without the newcomer, and with it in the last slot but not there."""
    base = without_it(question.snapshot, question.request, hosts, question.table)
    values = newcomer_slot(base, question.snapshot, hosts, question.request.instance, question.row)
    return base, base.with_slot(**{**values, "present": np.zeros(len(base), dtype=bool)})


def with_newcomer(absent: SceneBatch, option: PinningOption) -> SceneBatch:
    """The same scenes with the newcomer there, pinned as an option says."""
    present, affinity = absent.present.copy(), absent.affinity.copy()
    present[:, -1], affinity[:, -1] = True, option.affinity
    return replace(absent, present=present, affinity=affinity)


def _in_parts(predictor: Predictor, scenes: SceneBatch, targets: Sequence[str]) -> Floats:
    """Expected T/B, its lower bound and expected latency of every slot; (S, 3, N)."""
    size = max(CELLS // scenes.slots**2, 1)
    told = np.empty((len(scenes), 3, scenes.slots))
    for start in range(0, len(scenes), size):
        rows = np.arange(start, min(start + size, len(scenes)))
        said = predictor.predict(scenes if len(rows) == len(scenes) else scenes.take(rows), targets)
        told[rows] = np.stack([said.throughput.expected, said.throughput.lower, said.latency.expected], axis=1)
    return told
