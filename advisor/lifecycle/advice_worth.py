"""What the advice was worth: asked for, followed, told against observed, and who followed beside others like them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from advisor.domain import (
    AdviceWorth,
    Band,
    FaredAs,
    FaredBeside,
    Heeded,
    PlacementWorth,
    ToldAndObserved,
)
from advisor.lifecycle.alternatives import gained
from advisor.lifecycle.arrivals import ASKED_S, Fared, ShareSums, ToldOnArrival
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

LEAST_WINDOWS = 12  # an hour: who was measured for less says nothing
MOST_SHOWN = 50  # placements, the newest
MOST_COMPARED = 2_000  # arrivals, the newest: a second
LIKE = (
    f"of the same size and class on hosts alike, with a demand within a factor of {DEMAND:g}, that came within "
    f"{APART_S / 3600:.0f} hours of them"
)
NEEDED = f"{FEWEST} on each side, {FEWEST_HOSTS} hosts and {FEWEST_DAYS} days of arrival are needed"
NO_LOT = (
    "Nobody was drawn by lot to follow. Whatever else differs between the two groups is in their difference, too: it "
    "is no proof of what the advice did."
)
WHO: Mapping[FaredAs, str] = {
    "newcomer": "Instances that went where they were advised to",
    "residents": "Those who were on such a host before",
}


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A stay, with what is kept of it read."""

    stay: Stay
    told: ToldOnArrival
    fared: Fared

    @property
    def heeded(self) -> Heeded | None:
        """None = nobody had asked."""
        if self.stay.recommendation is None:
            return None
        return "followed" if self.told.advised == self.stay.host else "elsewhere"

    @property
    def measured(self) -> bool:
        return self.fared.newcomer.windows >= LEAST_WINDOWS


def worth(
    stays: Sequence[Stay],
    asked: Sequence[AskedBefore],
    seats: Mapping[str, str],
    since: datetime,
    until: datetime,
) -> AdviceWorth:
    """What is known of those who came in this time; `asked` are answers of it, `seats` is who is where now.

    Alternatives are left out: see `advisor.lifecycle.alternatives`.
    """
    came = [
        _Arrival(one, ToldOnArrival.of(one.told), Fared.of(one.fared))
        for one in stays
        if one.told is not None and one.since_s <= until.timestamp()
    ]
    heeded = Counter(one.heeded for one in came if one.heeded is not None)
    heeded.update(_without_arrival(asked, stays, seats))
    followed = [one for one in came if one.heeded == "followed"]
    found = AdviceWorth(
        since=since,
        until=until,
        heeded={name: heeded[name] for name in ("followed", "elsewhere", "unseen", "no_host")},
        arrivals=len(came),
        measured=sum(one.measured for one in came),
        told=_told(followed),
        beside=tuple(_beside(came, who) for who in WHO),
        placements=tuple(_placement(one) for one in came if one.heeded is not None)[:MOST_SHOWN],
    )
    return replace(found, sentences=tuple(_sentences(found)))


def with_placements(found: AdviceWorth, placements: Sequence[PlacementWorth]) -> AdviceWorth:
    """The same with placements that have alternatives, and a sentence on what they say together."""
    told = replace(found, placements=tuple(placements))
    beside = gained(placements)
    if beside is None:
        return told
    number, here, free, others_here, others = beside
    said = (
        f"Predicted, not measured: Nova's weighers would have put {number} of the newest placements that followed "
        f"elsewhere, to where most is free. With the demand known by now the model gives them {here:.3f} of the CPU "
        f"time that they want where they are and {free:.3f} there, and the others on both hosts {others_here:.3f} and "
        f"{others:.3f}."
    )
    return replace(told, sentences=(*found.sentences, said))


def _without_arrival(asked: Sequence[AskedBefore], stays: Sequence[Stay], seats: Mapping[str, str]) -> Iterable[Heeded]:
    """What became of answers after which nobody came; of several about one instance within a day the last counts."""
    came: dict[str, list[float]] = {}
    for stay in stays:
        came.setdefault(stay.instance, []).append(stay.since_s)
    last: dict[str, float] = {}
    for one in sorted(asked, key=lambda one: one.created_at, reverse=True):
        at_s = one.created_at.timestamp()
        later, last[one.instance] = last.get(one.instance), at_s
        again = later is not None and later - at_s <= ASKED_S
        if again or any(0 <= since_s - at_s <= ASKED_S for since_s in came.get(one.instance, ())):
            continue
        if one.host is None:
            yield "no_host"
        elif one.instance not in seats:
            yield "unseen"
        elif seats[one.instance] != one.host:
            yield "elsewhere"  # it stayed where it was; who was told to stay there was not placed


def _told(followed: Sequence[_Arrival]) -> dict[FaredAs, ToldAndObserved]:
    sums: dict[FaredAs, list[ShareSums]] = {
        "newcomer": [one.fared.newcomer for one in followed],
        "residents": [one.fared.residents for one in followed],
    }
    found = {who: _means(some) for who, some in sums.items()}
    return {who: one for who, one in found.items() if one is not None}


def _means(some: Iterable[ShareSums]) -> ToldAndObserved | None:
    total = ShareSums()
    for one in some:
        for name in ShareSums.__slots__:
            setattr(total, name, getattr(total, name) + getattr(one, name))
    if not total.windows:
        return None
    told, crowded = total.told_windows, total.contended
    return ToldAndObserved(
        windows=total.windows,
        told=total.told / told if told else None,
        observed=total.observed / total.windows,
        inside=total.inside / told if told else None,
        contended=crowded,
        contended_told=total.contended_told / crowded if crowded and told else None,
        contended_observed=total.contended_observed / crowded if crowded else None,
    )


def _placement(one: _Arrival) -> PlacementWorth:
    stay, told = one.stay, one.told
    return PlacementWorth(
        recommendation=stay.recommendation or "",
        instance=stay.instance,
        host=stay.host,
        advised=told.advised,
        asked_at=datetime.fromtimestamp(told.asked_s or stay.since_s, UTC),
        seen_at=datetime.fromtimestamp(stay.since_s, UTC),
        heeded=one.heeded or "elsewhere",
        band=Band(*told.band) if told.band else None,
        newcomer=_means([one.fared.newcomer]),
        residents=_means([one.fared.residents]),
        shown=told.shown,
        most_free=told.most_free,
    )


def _beside(came: Sequence[_Arrival], who: FaredAs) -> FaredBeside:
    units = []
    for one in came:
        sums = one.fared.newcomer if who == "newcomer" else one.fared.residents
        if one.measured and sums.windows:
            outcome, wanted = sums.observed / sums.windows, one.fared.wanted / one.fared.newcomer.windows
            units.append(
                FaredUnit(one.heeded == "followed", one.told.like, one.stay.host, wanted, one.stay.since_s, outcome)
            )
    found = matched_difference(units[:MOST_COMPARED])
    known = found.matched > 0
    return FaredBeside(
        who=who,
        group=found.group,
        matched=found.matched,
        others=found.others,
        hosts=found.hosts,
        followed=found.mine if known else None,
        not_followed=found.theirs if known else None,
        lower=found.lower,
        upper=found.upper,
        text=_in_words(found, who),
    )


def _in_words(found: MatchedDifference, who: FaredAs) -> str:
    whom = "placements" if found.group != 1 else "placement"
    if found.lower is None or found.upper is None:
        return (
            f"{WHO[who]}, beside others {LIKE}: {found.group} {whom} that followed and were measured, of which "
            f"{found.matched} have any of {found.others} others like them: too few to tell ({NEEDED})."
        )
    more = found.difference
    if found.lower <= 0 <= found.upper:
        verdict = "no difference is shown"
    else:
        verdict = f"{abs(more):.3f} {'more' if more > 0 else 'less'}"
    return (
        f"{WHO[who]} got {found.mine:.3f} of the CPU time that they wanted, and others {found.theirs:.3f}: {verdict} "
        f"(90 % interval of the difference {found.lower:+.3f} to {found.upper:+.3f}). Compared are {found.matched} of "
        f"{found.group} {whom} that followed with {found.others} {LIKE}."
    )


def _sentences(found: AdviceWorth) -> Iterable[str]:
    asked = sum(found.heeded.values())
    days = (found.until - found.since).total_seconds() / 86_400
    counts = found.heeded
    span = "day" if days == 1 else f"{days:g} days"
    came = _number(found.arrivals, "instance", "instances")
    yield (
        f"In the last {span} {_number(asked, 'placement was', 'placements were')} asked for: followed "
        f"{counts['followed']}, gone elsewhere {counts['elsewhere']}, not seen {counts['unseen']}, without a host that "
        f"can take it {counts['no_host']}."
    )
    yield f"{came} came in all; agents measured {found.measured} of them for at least an hour."
    for who, one in found.told.items():
        if one.told is not None and one.inside is not None:
            yield _told_in_words(who, one, 100 * one.inside)
    if found.measured:
        yield from (one.text for one in found.beside)
    if any(one.lower is not None for one in found.beside):
        yield NO_LOT


def _told_in_words(who: FaredAs, one: ToldAndObserved, inside: float) -> str:
    said = (
        f"{WHO[who]}: {one.told:.3f} of the CPU time that they want was predicted and {one.observed:.3f} measured, in "
        f"{_number(one.windows, 'window', 'windows')} of five minutes; {inside:.0f} % of them lie in the range."
    )
    if one.contended and one.contended_told is not None:
        said += (
            f" In the {one.contended:,} contended ones {one.contended_told:.3f} was predicted and "
            f"{one.contended_observed:.3f} measured."
        )
    return said


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
