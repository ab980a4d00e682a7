"""Effect of the advice: asked for, followed, predicted against observed, and followers beside others like them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from advisor.domain import AdviceWorth, Band, FaredAs, FaredBeside, Heeded, PlacementWorth, PredictedAndMeasured
from advisor.lifecycle.arrivals import ASKED_S, Fared, PredictedOnArrival, ShareSums, gained
from advisor.store.stays import AskedBefore, Stay
from models.evaluation.matched_outcomes import (
    APART_S,
    DEMAND,
    FEWEST,
    FEWEST_DAYS,
    FEWEST_HOSTS,
    FaredUnit,
    MatchedDifference,
    matched_difference,
)

LEAST_WINDOWS = 12  # an hour: one that was measured for less says nothing
MOST_SHOWN = 50  # placements, the newest
MOST_COMPARED = 2_000  # arrivals, the newest: a second
LIKE = (
    f"of the same size and class on hosts alike, with a demand within a factor of {DEMAND:g}, that came within "
    f"{APART_S / 3600:.0f} hours of them"
)
NEEDED = f"{FEWEST} on each side, {FEWEST_HOSTS} hosts and {FEWEST_DAYS} days of arrival are needed"
NO_LOT = (
    "The placements were not assigned at random. Other differences between the two groups are part of their "
    "difference: it does not prove an effect of the advice."
)
WHO: Mapping[FaredAs, str] = {
    "new_vm": "Instances placed as advised",
    "residents": "Residents of their hosts",
}


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A stay, with what is kept of it read."""

    stay: Stay
    predicted: PredictedOnArrival
    fared: Fared

    @property
    def heeded(self) -> Heeded | None:
        """None = no advice was asked for."""
        if self.stay.recommendation is None:
            return None
        return "followed" if self.predicted.advised == self.stay.host else "elsewhere"

    @property
    def measured(self) -> bool:
        return self.fared.new_vm.windows >= LEAST_WINDOWS


def worth(
    stays: Sequence[Stay],
    answers: Sequence[AskedBefore],
    seats: Mapping[str, str],
    since: datetime,
    until: datetime,
) -> AdviceWorth:
    """What is known of the instances that came in this time, and of the answers given in it; `seats` maps instances to
    the host where they are now.

    Alternatives are left out: see `advisor.lifecycle.arrivals`.
    """
    arrivals = [
        _Arrival(stay, PredictedOnArrival.of(stay.predicted), Fared.of(stay.fared))
        for stay in stays
        if stay.predicted is not None and stay.since_s <= until.timestamp()
    ]
    heeded = Counter(arrival.heeded for arrival in arrivals if arrival.heeded is not None)
    heeded.update(_without_arrival(answers, stays, seats))
    followed = [arrival for arrival in arrivals if arrival.heeded == "followed"]
    summary = AdviceWorth(
        since=since,
        until=until,
        heeded={name: heeded[name] for name in ("followed", "elsewhere", "unseen", "no_host")},
        arrivals=len(arrivals),
        measured=sum(arrival.measured for arrival in arrivals),
        followed=_predictions(followed),
        beside=tuple(_beside(arrivals, who) for who in WHO),
        placements=tuple(_placement(arrival) for arrival in arrivals if arrival.heeded is not None)[:MOST_SHOWN],
    )
    return replace(summary, sentences=tuple(_sentences(summary)))


def with_placements(summary: AdviceWorth, placements: Sequence[PlacementWorth]) -> AdviceWorth:
    """The same with placements that have alternatives, and a sentence on what they say together."""
    completed = replace(summary, placements=tuple(placements))
    beside = gained(placements)
    if beside is None:
        return completed
    number, here, free, others_here, others = beside
    sentence = (
        f"Predicted, not measured: Nova's weighers would have put {number} of the newest placements that followed "
        "elsewhere, to where most is free. With the demand known by now, the model predicts that CPU delivered is "
        f"{100 * here:.1f} % of their demand where they are and {100 * free:.1f} % there, and for the others on both "
        f"hosts {100 * others_here:.1f} % and {100 * others:.1f} %."
    )
    return replace(completed, sentences=(*summary.sentences, sentence))


def _without_arrival(
    answers: Sequence[AskedBefore], stays: Sequence[Stay], seats: Mapping[str, str]
) -> Iterable[Heeded]:
    """What became of answers after which the instance did not come; of several answers about one instance within a day
    the last counts."""
    arrived_s: dict[str, list[float]] = {}
    for stay in stays:
        arrived_s.setdefault(stay.instance, []).append(stay.since_s)
    last: dict[str, float] = {}
    for answer in sorted(answers, key=lambda answer: answer.created_at, reverse=True):
        at_s = answer.created_at.timestamp()
        later, last[answer.instance] = last.get(answer.instance), at_s
        again = later is not None and later - at_s <= ASKED_S
        if again or any(0 <= since_s - at_s <= ASKED_S for since_s in arrived_s.get(answer.instance, ())):
            continue
        if answer.host is None:
            yield "no_host"
        elif answer.instance not in seats:
            yield "unseen"
        elif seats[answer.instance] != answer.host:
            yield "elsewhere"  # it stayed where it was; an instance that was advised to stay was not placed


def _predictions(followed: Sequence[_Arrival]) -> dict[FaredAs, PredictedAndMeasured]:
    means: dict[FaredAs, PredictedAndMeasured | None] = {
        "new_vm": _means([arrival.fared.new_vm for arrival in followed]),
        "residents": _means([arrival.fared.residents for arrival in followed]),
    }
    return {who: shares for who, shares in means.items() if shares is not None}


def _means(parts: Iterable[ShareSums]) -> PredictedAndMeasured | None:
    total = ShareSums()
    for part in parts:
        for name in ShareSums.__slots__:
            setattr(total, name, getattr(total, name) + getattr(part, name))
    if not total.windows:
        return None
    predicted, crowded = total.predicted_windows, total.contended
    return PredictedAndMeasured(
        windows=total.windows,
        predicted=total.predicted / predicted if predicted else None,
        observed=total.observed / total.windows,
        inside=total.inside / predicted if predicted else None,
        contended=crowded,
        contended_predicted=total.contended_predicted / crowded if crowded and predicted else None,
        contended_observed=total.contended_observed / crowded if crowded else None,
    )


def _placement(arrival: _Arrival) -> PlacementWorth:
    stay, on_arrival = arrival.stay, arrival.predicted
    return PlacementWorth(
        recommendation=stay.recommendation or "",
        instance=stay.instance,
        host=stay.host,
        advised=on_arrival.advised,
        asked_at=datetime.fromtimestamp(on_arrival.asked_s or stay.since_s, UTC),
        seen_at=datetime.fromtimestamp(stay.since_s, UTC),
        heeded=arrival.heeded or "elsewhere",
        band=Band(*on_arrival.band) if on_arrival.band else None,
        new_vm=_means([arrival.fared.new_vm]),
        residents=_means([arrival.fared.residents]),
        shown=on_arrival.shown,
        most_free=on_arrival.most_free,
    )


def _beside(arrivals: Sequence[_Arrival], who: FaredAs) -> FaredBeside:
    units = []
    for arrival in arrivals:
        sums = arrival.fared.new_vm if who == "new_vm" else arrival.fared.residents
        if arrival.measured and sums.windows:
            outcome, demanded = sums.observed / sums.windows, arrival.fared.demanded / arrival.fared.new_vm.windows
            stay, followed = arrival.stay, arrival.heeded == "followed"
            units.append(FaredUnit(followed, arrival.predicted.like, stay.host, demanded, stay.since_s, outcome))
    difference = matched_difference(units[:MOST_COMPARED])
    is_known = difference.matched > 0
    return FaredBeside(
        who=who,
        group=difference.group,
        matched=difference.matched,
        others=difference.others,
        hosts=difference.hosts,
        followed=difference.mine if is_known else None,
        not_followed=difference.theirs if is_known else None,
        lower=difference.lower,
        upper=difference.upper,
        text=_in_words(difference, who),
    )


def _in_words(difference: MatchedDifference, who: FaredAs) -> str:
    counted = _number(difference.group, "placement", "placements")
    if difference.lower is None or difference.upper is None:
        return (
            f"{WHO[who]}, compared with others {LIKE}: of {counted} that followed and were measured, "
            f"{difference.matched} match any of {difference.others} others: too few for a comparison ({NEEDED})."
        )
    gap = difference.difference
    if difference.lower <= 0 <= difference.upper:
        verdict = "no difference is shown"
    else:
        verdict = f"{100 * abs(gap):.1f} points {'more' if gap > 0 else 'less'}"
    return (
        f"{WHO[who]}: CPU delivered was {100 * difference.mine:.1f} % of demand, and {100 * difference.theirs:.1f} % "
        f"for others: {verdict} (90 % interval of the difference {100 * difference.lower:+.1f} to "
        f"{100 * difference.upper:+.1f} points). Compared are {difference.matched} of {counted} that followed with "
        f"{difference.others} {LIKE}."
    )


def _sentences(summary: AdviceWorth) -> Iterable[str]:
    counts = summary.heeded
    days = (summary.until - summary.since).total_seconds() / 86_400
    span = "day" if days == 1 else f"{days:g} days"
    yield (
        f"In the last {span} {_number(sum(counts.values()), 'placement was', 'placements were')} asked for: followed "
        f"{counts['followed']}, gone elsewhere {counts['elsewhere']}, not seen {counts['unseen']}, without a host that "
        f"can take it {counts['no_host']}."
    )
    arrivals = _number(summary.arrivals, "instance", "instances")
    yield f"{arrivals} came in all; agents measured {summary.measured} of them for at least an hour."
    for who, shares in summary.followed.items():
        if shares.predicted is not None and shares.inside is not None:
            yield _in_a_sentence(who, shares, shares.predicted, 100 * shares.inside)
    if summary.measured:
        yield from (group.text for group in summary.beside)
    if any(group.lower is not None for group in summary.beside):
        yield NO_LOT


def _in_a_sentence(who: FaredAs, shares: PredictedAndMeasured, predicted: float, inside: float) -> str:
    text = (
        f"{WHO[who]}: CPU delivered was {100 * shares.observed:.1f} % of demand, and {100 * predicted:.1f} % was "
        f"predicted, in {_number(shares.windows, 'window', 'windows')} of five minutes; {inside:.0f} % of them lie in "
        "the predicted range."
    )
    if shares.contended and shares.contended_predicted is not None and shares.contended_observed is not None:
        text += (
            f" In the {shares.contended:,} contended ones it was {100 * shares.contended_observed:.1f} %, and "
            f"{100 * shares.contended_predicted:.1f} % was predicted."
        )
    return text


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
