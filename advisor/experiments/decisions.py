"""A placement decision as an input of `models.probe_plan`: options, uncertain ratios, the advisor's own choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.domain import Objective, PlacementRequest, ProbePair, ProbePinning
from advisor.scheduling import pinning, scoring
from advisor.scheduling.pinning import PinningOption, limits_of, new_vm_slot, profile_row, used_share, without_new_vm
from advisor.snapshot import ClusterSnapshot
from models.arrays import Bools, Floats, Ints
from models.data.scene import SceneBatch, stack
from models.prediction import BandArrays, InterferencePrediction
from models.probe_plan import UncertainRatios
from profiler.host_kinds import HostKind

# Shared prediction errors: the error for a victim beside a neighbour is the same on every host.


class SharedErrors:
    """The shared errors, numbered: one for each victim beside each neighbour, on whatever host."""

    def __init__(self, pinnings: Sequence[ProbePinning]) -> None:
        self._pinnings = frozenset(pinnings)
        self._numbers: dict[tuple[str, ...], int] = {}
        self._pair_of: list[int] = []
        self._pairs: dict[ProbePair, int] = {}
        self._hosts: list[set[str]] = []

    @property
    def pair_of(self) -> Ints:
        """The pair whose measurement reveals each error, -1 = none."""
        return np.array(self._pair_of, dtype=np.int64)

    @property
    def pairs(self) -> tuple[ProbePair, ...]:
        """All pairs that share a host in some decision, by number."""
        return tuple(self._pairs)

    def hosts(self, pair: int) -> tuple[str, ...]:
        """The hosts on which a pair occurs in some decision."""
        return tuple(sorted(self._hosts[pair]))

    def number(
        self, victim: str | None, neighbour: str | None, form: ProbePinning, where: tuple[HostKind, str, str]
    ) -> int:
        """The error number of a victim's ratio beside a neighbour; `where` is kind, platform and id of the host.

        A workload without a name cannot be measured, so its error belongs to the host.
        """
        kind, platform, host = where
        if not victim or not neighbour:
            return self._numbered((victim or "", neighbour or "", form, kind, platform, host), -1)
        first, second = sorted((victim, neighbour))
        at = self._pairs.setdefault(ProbePair(first, second, form, kind, platform), len(self._pairs))
        if at == len(self._hosts):
            self._hosts.append(set())
        self._hosts[at].add(host)
        return self._numbered((victim, neighbour, form, kind, platform), at if form in self._pinnings else -1)

    def _numbered(self, key: tuple[str, ...], pair: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self._pair_of)
            self._pair_of.append(pair)
        return self._numbers[key]


def form_of(scenes: SceneBatch, scene: int, first: int, second: int) -> ProbePinning:
    """How two instances of a scene share its CPUs."""
    first_cpus, second_cpus = scenes.affinity[scene, first], scenes.affinity[scene, second]
    if not (first_cpus & second_cpus).any():
        return "different"
    return "same" if (first_cpus | second_cpus).sum() < scenes.vcpus[scene, [first, second]].sum() else "shared"


def weights_of(parts: Sequence[Mapping[int, float]]) -> tuple[Ints, Floats]:
    """The errors of all rows, (E,), and the weights of each row, (R, E), with squares that sum to 1 or 0.

    `parts` counts the errors of each row. Errors are independent, and neighbours weigh equally.
    """
    numbers = sorted({error for part in parts for error in part})
    column = {error: at for at, error in enumerate(numbers)}
    weights = np.zeros((len(parts), len(numbers)))
    for row, part in enumerate(parts):
        length = np.sqrt(sum(count**2 for count in part.values()))
        for error, count in part.items():
            weights[row, column[error]] = count / length
    return np.array(numbers, dtype=np.int64), weights


MAX_HOSTS = 6  # of a decision: those with the highest best case; each more takes time
MIN_RATIO = 1e-3  # keeps logarithms finite


@dataclass(frozen=True, slots=True)
class DecisionScenes:
    """A decision before prediction: `scenes` are its hosts without the new VM, then with it, by option."""

    request: PlacementRequest
    hosts: Ints  # (H,) positions in the snapshot
    options: tuple[PinningOption, ...]
    scenes: SceneBatch


def lay_out(snapshot: ClusterSnapshot, request: PlacementRequest, kept: Sequence[int]) -> DecisionScenes:
    """The scenes of a decision among the hosts at the positions `kept`, as a placement evaluates them."""
    hosts = np.array(kept, dtype=np.int64)
    table, row, _ = profile_row(snapshot, request)
    base = without_new_vm(snapshot, request, hosts, table)
    options = pinning.options(base, request.instance, [snapshot.hosts[host] for host in kept])
    values = new_vm_slot(base, snapshot, hosts, request.instance, row)
    absent = base.with_slot(**{**values, "present": np.zeros(len(base), dtype=bool)})
    return DecisionScenes(
        request,
        hosts,
        options,
        stack([absent, *(base.with_slot(**{**values, "affinity": option.affinity}) for option in options)]),
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """An input of `models.probe_plan` whose options are the H hosts; a pinning is part of a host's value.

    `after` (O, H, N), for O pinnings, and `before` (H, N) are rows of `uncertain`, 0 where a slot is empty; row 0 is a
    certain 1. `limits` (H, N), `used` (H,) as in `scoring.score`, `pins` (O,) and `usable` (O, H) as in PinningOption.
    """

    instance: str
    objective: Objective
    hosts: tuple[str, ...]
    uncertain: UncertainRatios
    after: Ints
    before: Ints
    limits: Floats
    used: Floats
    pins: Bools
    usable: Bools

    def choose(self, expected: Floats, lower: Floats) -> Ints:
        """The advisor's rule: among hosts that violate no limit the best score, of equals the first.

        What else the advisor looks at where scores are equal changes no score, and so not what a probe is worth.
        """
        score, broken = self._hosts(expected, lower)
        return np.asarray((np.round(score, 9) - 100.0 * broken).argmax(axis=1))

    def worth(self, ratios: Floats) -> Floats:
        """The score of each host at the true ratios, (M, H); a violated limit costs as much as a standstill."""
        score, broken = self._hosts(ratios, ratios)
        return np.asarray(score - 1.0 * broken)

    def _hosts(self, expected: Floats, lower: Floats) -> tuple[Floats, Bools]:
        """The score of each host under the pinning that the advisor would choose, and whether it violates a limit."""
        scores, shape = self._scores(expected, lower), (len(expected), len(self.hosts))
        usable = np.broadcast_to(self.usable[:, None], (len(self.pins), *shape)).reshape(-1)
        option = scoring.choose_options(scores, len(self.pins), self.pins, usable)
        picked = option * len(option) + np.arange(len(option))
        broken = scores.breaks_new_vm | scores.breaks_neighbour
        return scores.score[picked].reshape(shape), broken[picked].reshape(shape)

    def _grid(self, values: Floats, rows: Ints) -> Floats:
        """Values (M, R) of rows (O, H, N) as (O, M, H, N)."""
        return np.moveaxis(values[:, rows], 0, 1)

    def _scores(self, expected: Floats, lower: Floats) -> scoring.Scores:
        grid = self._grid(expected, self.after)
        flat = (-1, grid.shape[-1])

        def spread(values: NDArray[np.generic]) -> NDArray[np.generic]:
            return np.broadcast_to(values, grid.shape).reshape(flat)

        reached, low = grid.reshape(flat), self._grid(lower, self.after).reshape(flat)
        band = BandArrays(reached, low, reached)
        return scoring.score(
            InterferencePrediction(band, band, band, outside=np.zeros(reached.shape, dtype=bool)),
            np.asarray(spread(self.after[:, None] > 0), dtype=bool),
            np.asarray(spread(self._before(expected)), dtype=np.float64),
            np.asarray(spread(self.limits), dtype=np.float64),
            np.broadcast_to(self.used, grid.shape[:-1]).reshape(-1),
            self.objective,
            half_before=np.asarray(spread(self._before(expected) - self._before(lower)), dtype=np.float64),
        )

    def _before(self, values: Floats) -> Floats:
        """Values (M, R) of the rows without the new VM, (O, M, H, N)."""
        return self._grid(values, np.broadcast_to(self.before, self.after.shape))


def decision(snapshot: ClusterSnapshot, laid_out: DecisionScenes, band: BandArrays, errors: SharedErrors) -> Decision:
    """The decision with its predictions, `band` of `scenes`; equivalent hosts count once, hopeless ones are dropped."""
    grids = _Grids.of(laid_out, band)
    certain = _decision(snapshot, laid_out, grids, np.arange(len(laid_out.hosts)), None)
    kept = _in_question(snapshot, certain, laid_out)
    return _decision(snapshot, laid_out, grids, kept, errors)


@dataclass(frozen=True, slots=True)
class _Grids:
    """Predictions of one decision: `after` (3, O, H, N) expected, lower and upper, `before` (3, H, N)."""

    after: Floats
    before: Floats
    after_present: Bools
    before_present: Bools

    @classmethod
    def of(cls, laid_out: DecisionScenes, band: BandArrays) -> _Grids:
        hosts, options = len(laid_out.hosts), len(laid_out.options)
        values = np.clip(np.stack([band.expected, band.lower, band.upper]), MIN_RATIO, None)
        present = laid_out.scenes.present
        shape = (options, hosts, present.shape[1])
        return cls(
            values[:, hosts:].reshape(3, *shape), values[:, :hosts], present[hosts:].reshape(shape), present[:hosts]
        )


def _decision(
    snapshot: ClusterSnapshot, laid_out: DecisionScenes, grids: _Grids, kept: Ints, errors: SharedErrors | None
) -> Decision:
    """The decision among the hosts `kept`; without `errors` nothing is uncertain."""
    hosts = laid_out.hosts[kept]
    after_at, before_at = grids.after_present[:, kept], grids.before_present[kept]
    after: Ints = np.zeros(after_at.shape, dtype=np.int64)
    before: Ints = np.zeros(before_at.shape, dtype=np.int64)
    after[after_at] = 1 + np.arange(after_at.sum())
    before[before_at] = 1 + after_at.sum() + np.arange(before_at.sum())
    values = np.concatenate(
        [np.ones((3, 1)), grids.after[:, :, kept][:, after_at], grids.before[:, kept][:, before_at]], axis=1
    )
    parts = (
        [{} for _ in range(values.shape[1])]
        if errors is None
        else _parts(snapshot, laid_out, kept, after, before, errors)
    )
    numbers, weights = weights_of(parts)
    return Decision(
        instance=laid_out.request.instance.id,
        objective=laid_out.request.objective,
        hosts=tuple(snapshot.hosts[host].id for host in hosts),
        uncertain=UncertainRatios(values[0], values[1], values[2], numbers, weights),
        after=after,
        before=before,
        limits=limits_of(snapshot, hosts, laid_out.request.instance, before.shape[1]),
        used=used_share(snapshot, laid_out.request, hosts),
        pins=np.array([option.pins for option in laid_out.options]),
        usable=np.stack([option.usable[kept] for option in laid_out.options]),
    )


def _parts(
    snapshot: ClusterSnapshot, laid_out: DecisionScenes, kept: Ints, after: Ints, before: Ints, errors: SharedErrors
) -> list[dict[int, float]]:
    """The components of each row's error: the number of neighbours of each kind."""
    parts: list[dict[int, float]] = [{} for _ in range(1 + int(max(after.max(initial=0), before.max(initial=0))))]
    count = len(laid_out.hosts)
    for at, position in enumerate(kept):
        host = snapshot.hosts[laid_out.hosts[position]]
        names = [resident.workload for resident in snapshot.residents[laid_out.hosts[position]]]
        names += [None] * (after.shape[-1] - 1 - len(names)) + [laid_out.request.instance.workload]
        where = (host.kind, host.platform, host.id)
        for rows, scene in (
            (before[at], position),
            *((after[o, at], count * (o + 1) + position) for o in range(len(after))),
        ):
            occupied = [slot for slot in range(len(rows)) if rows[slot]]
            for victim in occupied:
                part = parts[rows[victim]]
                for other in occupied:
                    if other != victim:
                        form = form_of(laid_out.scenes, int(scene), victim, other)
                        error = errors.number(names[victim], names[other], form, where)
                        part[error] = part.get(error, 0.0) + 1.0
    return parts


def _in_question(snapshot: ClusterSnapshot, certain: Decision, laid_out: DecisionScenes) -> Ints:
    """The best host today and those that could be better, one per class, in order; (H',)."""
    ratios, count = certain.uncertain, len(laid_out.hosts)
    today = int(certain.choose(ratios.expected[None], ratios.lower[None])[0])
    moves = np.arange(len(ratios.expected)) <= certain.after.max(initial=0)  # what was before stays as expected
    most, least = (
        certain.worth(np.where(moves, end, ratios.expected)[None])[0]
        for end in (np.maximum(ratios.upper, ratios.expected), ratios.lower)
    )
    seen: set[tuple[object, ...]] = set()
    kept = []
    for at in sorted(range(count), key=lambda at: (at != today, -most[at], at)):
        alike = _equivalence_key(snapshot, certain, laid_out, at)
        if alike not in seen and most[at] >= least[today]:
            kept.append(at)
        seen.add(alike)
    return np.array(sorted(kept[:MAX_HOSTS]), dtype=np.int64)


def _equivalence_key(
    snapshot: ClusterSnapshot, certain: Decision, laid_out: DecisionScenes, at: int
) -> tuple[object, ...]:
    """A key: hosts with equal keys have the same predictions and errors."""
    host = snapshot.hosts[laid_out.hosts[at]]
    workloads = tuple(resident.workload for resident in snapshot.residents[laid_out.hosts[at]])
    ratios, rows = certain.uncertain, np.concatenate([certain.after[:, at].ravel(), certain.before[at]])
    numbers = [np.round(end[rows], 9).tobytes() for end in (ratios.expected, ratios.lower, ratios.upper)]
    cpus = laid_out.scenes.affinity[at :: len(laid_out.hosts)].tobytes()
    return (host.kind, host.platform, workloads, *numbers, cpus, certain.limits[at].tobytes(), float(certain.used[at]))
