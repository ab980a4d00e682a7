"""How many more of a mix fit so that nobody falls below a limit, what is in the way of one more, and until when."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from advisor.domain import Capacity, Growth, Instance, PlanEnd, Rejection, RunwayPoint, Search
from advisor.planning.cloud_evaluation import Standing
from advisor.planning.plan_context import PLACED, PlanContext
from advisor.planning.size_capacity import first_fit, more_of, most, room
from advisor.prediction.active import PredictorProxy
from advisor.prediction.cache import PredictionCache
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from models.data.scene import SceneBatch
from models.prediction import TARGETS, BandArrays, InterferencePrediction

SHARE = 3  # a question takes at most so much of the time that is left: a third, then a third of what is then left
MOST_LOAD = 10.0  # of an instance
ROUNDING = 1e-6  # of an instance, in what the solver says


@dataclass(frozen=True, slots=True)
class AtTheEdge(PredictorProxy):
    """A predictor as if everybody ended at the worse edge of its interval."""

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        """Lower edges of throughput, upper edges of latency and jitter."""
        told = self.predictor.predict(scenes, targets)
        low = told.throughput.lower
        late, uneven = told.latency.upper, told.jitter.upper
        return InterferencePrediction(
            BandArrays(low, low, low), BandArrays(late, late, late), BandArrays(uneven, uneven, uneven), told.outside
        )


@dataclass(frozen=True, slots=True)
class Filled:
    """How many of a mix fit, `bound` how many could at most; the cloud with them, why there is no room for one more,
    and whether time ran out before that was settled."""

    fit: int
    bound: int
    after: ClusterSnapshot
    refusal: str
    in_time: bool


@dataclass(frozen=True, slots=True)
class _Tried:
    """Whether all of a number fit, how many of them did, the cloud then, why one did not, how many of them could at
    most, and whether the solver had the time to find out."""

    all_fit: bool
    placed: int
    after: ClusterSnapshot
    refusal: str
    most: int
    in_time: bool = True


def capacity(
    asking: PlanContext, snapshot: ClusterSnapshot
) -> tuple[Capacity, Search, ClusterSnapshot, tuple[str, ...]]:
    """The answer, how it was found, the cloud filled as expected, and notes."""
    request = asking.request
    named = None if request.hosts is None else frozenset(request.hosts)
    by_rule = first_fit(room(snapshot, named), request.instances)
    whole = asking.left_s
    asking.say("filling the cloud as expected", 0.05)
    filled = fill(asking, snapshot, by_rule, whole * 0.5)
    asking.say("filling it by lower bounds", 0.5)
    edge = replace(asking.chosen, predictor=AtTheEdge(asking.chosen.predictor), remembered=PredictionCache())
    at_edge = fill(replace(asking, chosen=edge), snapshot, min(by_rule, filled.fit), whole * 0.2)
    notes = [] if at_edge.in_time else ["Time limit reached before it was settled how many fit by lower bounds."]
    runs_out: float | None = None
    runway: tuple[RunwayPoint, ...] = ()
    if request.growth is not None:
        asking.say("looking ahead month by month", 0.7)
        runs_out, runway = look_ahead(asking, snapshot, request.growth)
        notes += _outgrown(snapshot, request.instances, runway)
        if runs_out is None and len(runway) <= request.growth.months:
            notes.append(f"Time limit reached before month {len(runway)} was examined.")
    bound = max(filled.bound, filled.fit)
    gap = 0.0 if not bound else 1 - filled.fit / bound
    ended: PlanEnd = "optimal" if filled.fit == bound else "search" if filled.in_time else "time"
    search = Search("instances of the mix that fit", float(filled.fit), float(bound), gap, ended)
    fit_lower = min(at_edge.fit, filled.fit)
    found = Capacity(filled.fit, fit_lower, by_rule, filled.refusal, runs_out, runway)
    return found, search, filled.after, tuple(notes)


def fill(asking: PlanContext, snapshot: ClusterSnapshot, guess: int, within_s: float) -> Filled:
    """The largest number of the mix that all find a host, asked by doubling and halving from a guess.

    `bound` is what no packing of sizes can surpass, and of a mix of one kind what the solver says that it cannot place.
    """
    mix = asking.request.instances
    named = None if asking.request.hosts is None else frozenset(asking.request.hosts)
    bound = most(room(snapshot, named), mix)
    until = asking.left_s - within_s  # of the time that is left then
    best, least_too_many = _Tried(True, 0, snapshot, "", 0), bound + 1
    refusal, number, in_time = "", min(max(guess, 1), bound + 1), True
    while best.placed + 1 < least_too_many or not refusal:
        left = asking.left_s - until
        if left <= 0:
            full = "no host has room left for its size" if best.placed == bound else _LATE
            return Filled(best.placed, bound, best.after, refusal or full, best.placed == bound)
        tried = _try(asking, snapshot, number, left / SHARE)
        in_time &= tried.in_time
        if tried.all_fit:
            best = tried if number > best.placed else best
            if number > bound:
                return Filled(best.placed, best.placed, best.after, f"nothing: {number} are no longer counted", True)
        else:
            refusal = tried.refusal if number <= least_too_many or not refusal else refusal
            least_too_many = min(least_too_many, number)
            if len(mix) == 1:
                bound = max(min(bound, tried.most), best.placed)
            if len(mix) == 1 and best.placed < tried.placed < number and _fine(asking, snapshot, tried.after):
                best = tried  # all are alike: as many as found a host fit
                least_too_many = tried.placed + 1
        number = _next(best.placed, least_too_many, heard=bool(refusal))
    return Filled(best.placed, bound, best.after, refusal, in_time)


_LATE = "the time was over before it was known what"


def _next(fit: int, too_many: int, *, heard: bool) -> int:
    """What to try next: twice as many while nothing was refused, up to one too many to hear why; then the middle."""
    if heard:
        return max((fit + too_many) // 2, fit + 1)
    return min(max(2 * fit, fit + 1), too_many)


def _try(asking: PlanContext, snapshot: ClusterSnapshot, number: int, at_most_s: float) -> _Tried:
    taken = frozenset(one.id for there in snapshot.residents for one in there)
    newcomers = tuple(islice(more_of(asking.request.instances, taken), number))
    return _placed(asking, snapshot, newcomers, at_most_s)


def _placed(asking: PlanContext, snapshot: ClusterSnapshot, newcomers: Sequence[Instance], at_most_s: float) -> _Tried:
    found = asking.assign(snapshot, "admit", newcomers, at_most_s=at_most_s)
    refused = [one.id for one in newcomers if found.where.get(one.id) is None]
    placed = len(newcomers) - len(refused)
    if refused:
        # Whom it cannot place at all the solver counts first, so that its bound is one of their number.
        most = int(found.search.bound + ROUNDING) if found.search.aim == PLACED else len(newcomers)
        in_time, reasons = found.search.ended != "time", found.refused.get(refused[0], ())
        return _Tried(False, placed, found.after, told(reasons) if reasons or in_time else _LATE, most, in_time)
    fine = _fine(asking, snapshot, found.after)
    why = "" if fine else "somebody would fall below what it must keep"
    return _Tried(fine, placed, found.after, why, len(newcomers))


def _fine(asking: PlanContext, before: ClusterSnapshot, after: ClusterSnapshot) -> bool:
    """Whether nobody is below a limit who was not before."""
    predictor, keep = asking.chosen.predictor, asking.request.keep_ratio
    return Standing.of(after, predictor).below(keep) <= Standing.of(before, predictor).below(keep)


def told(refused: Sequence[Rejection]) -> str:
    """Why nobody takes it, in one sentence: the reason that most hosts give, by one of them."""
    if not refused:
        return "there is no host that could take it"
    by_code: dict[str, list[Rejection]] = {}
    for one in refused:
        by_code.setdefault(one.code, []).append(one)
    some = max(by_code.values(), key=len)
    others = f" (and {len(refused) - 1} more refuse)" if len(refused) > 1 else ""
    return f"{some[0].host}: {some[0].reason}{others}"


def look_ahead(
    asking: PlanContext, snapshot: ClusterSnapshot, growth: Growth
) -> tuple[float | None, tuple[RunwayPoint, ...]]:
    """The first month at whose end not everybody is served, None = none of those examined, and each month until then.

    Who came in earlier months stays where it was placed, as in life; loads grow for everybody.
    """
    keep = asking.request.keep_ratio
    first = Standing.of(snapshot, asking.chosen.predictor)
    suffering, points = first.below(keep), [RunwayPoint(0.0, 0, 1.0, first.sums(keep), True)]
    mix = more_of(asking.request.instances, frozenset(one.id for there in snapshot.residents for one in there))
    cloud, base = snapshot, {one.id: one for there in snapshot.residents for one in there}
    for month in range(1, growth.months + 1):
        if asking.left_s <= 0:
            return None, tuple(points)
        factor = (1 + growth.load_percent_per_month / 100) ** month
        wanted = int(growth.instances_per_month * month + 1e-9)
        new = tuple(islice(mix, wanted - points[-1].added))
        base |= {one.id: one for one in new}
        cloud = _loaded(cloud, base, factor)
        tried = _placed(asking, cloud, [_heavier(one, factor) for one in new], asking.left_s / SHARE)
        if not tried.in_time:
            return None, tuple(points)
        cloud = tried.after
        standing = Standing.of(cloud, asking.chosen.predictor)
        fits = tried.placed == len(new) and standing.below(keep) <= suffering
        points.append(RunwayPoint(float(month), wanted, factor, standing.sums(keep), fits))
        if not fits:
            return float(month), tuple(points)
    return None, tuple(points)


def _outgrown(cloud: ClusterSnapshot, mix: Sequence[Instance], runway: Sequence[RunwayPoint]) -> Iterator[str]:
    """From when on loads are more than one instance can do, or than is predicted: T/B, a share, tells neither."""
    loads = [one.load for there in cloud.residents for one in there] + [one.load for one in mix]
    for limit, said in (
        (1.0, "they outgrow their own vCPUs, which T/B does not show"),
        (MOST_LOAD, f"what comes is predicted as if it stayed at {MOST_LOAD:g}"),
    ):
        heaviest = max((load for load in loads if load <= limit), default=0.0)
        month = next((one.month for one in runway if heaviest * one.load_factor > with_slack(limit)), None)
        if month is not None:
            yield f"From month {month:g} on the load of some instances is above {limit:g}: {said}."


def _loaded(cloud: ClusterSnapshot, base: dict[str, Instance], factor: float) -> ClusterSnapshot:
    """Everybody who is there under so many times its first load."""
    if factor == 1.0:
        return cloud
    heavier = {
        one.id: replace(one, load=_heavier(base[one.id], factor).load) for there in cloud.residents for one in there
    }
    return cloud.changed(instances=heavier, seen={}, pending=(), taken_at=cloud.taken_at)


def _heavier(one: Instance, factor: float) -> Instance:
    return replace(one, load=min(one.load * factor, MOST_LOAD))
