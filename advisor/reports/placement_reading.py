"""A placement's answer in words: the document that every front end shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from advisor.domain import (
    Band,
    Candidate,
    Effect,
    Recommendation,
    Rejection,
    calibration_in_words,
    evidence_in_words,
    held_in_words,
    settings_in_words,
    speed,
)
from advisor.reports.parts import Column, ReportDocument, Section, Table, interval, listed, percent
from advisor.reports.shared_sentences import answered_by

NOTICED = 0.02  # of the relative throughput: a smaller gain is not why an instance moves
FELT = 0.01  # of the relative throughput: who loses less is not named
NAMED = 3  # instances that lose, by name
MANY = 20  # rejected hosts, from which on they are counted and not listed
_NARROW, _WIDE = 0.06, 0.15  # half widths of an interval, as shares of the uncontended speed


def document(answer: Recommendation, *, every_rejection: bool = True) -> ReportDocument:
    """What every front end says of an answer; how hosts and effects are laid out is a front end's own.

    Of more than MANY rejected hosts one is shown for each reason, unless `every_rejection` is set.
    """
    shown = _shown(answer)
    name = answer.request.instance.id
    return ReportDocument(
        what="placement",
        title=f"Where should {name} go?",
        headline=headline(answer),
        sentences=[] if shown is None else list(filter(None, _sentences(answer, shown))),
        facts={},
        sections=[section for section in _sections(answer, every_rejection=every_rejection) if section],
        made_at=answer.created_at,
    )


def headline(answer: Recommendation) -> str:
    """What the instance should do, in one sentence."""
    name, present = answer.request.instance.id, answer.present
    if not answer.candidates:
        return f"No host can take {name}{'' if answer.rejected else ': the inventory has none'}."
    best = answer.best
    if present is None:
        return f"{name} should go to {best.host}."
    if answer.advised == "stay":
        return f"{name} should stay on {present.host} as it is: nothing is better beyond the uncertainty."
    change = f"{_expected(present)} → {_expected(best)} of its uncontended speed"
    if answer.advised == "move":
        return f"{name} should move from {present.host} to {best.host}: {change}."
    return f"{name} should stay on {best.host} under other settings: {change}."


def _shown(answer: Recommendation) -> Candidate | None:
    """What the headline speaks of: as it is where it stays, else the candidate that is advised."""
    if not answer.candidates:
        return None
    return answer.present if answer.advised == "stay" else answer.best


def worst_neighbour(candidate: Candidate) -> Effect | None:
    """The neighbour that this placement leaves with the lowest ratio; None on an empty host."""
    return min(candidate.neighbours, key=lambda effect: effect.throughput_ratio.expected, default=None)


def _sentences(answer: Recommendation, shown: Candidate) -> Iterator[str]:
    """What must be known before it is followed, what it does, to which instances, and how sure that is."""
    for note in shown.notes:
        yield f"Note: {note}."
    worst, ratio = worst_neighbour(shown), shown.new_vm.throughput_ratio
    beside = (
        "no other instance is there"
        if worst is None
        else f"the most affected neighbour, {worst.instance}, at {percent(worst.throughput_ratio.expected)}"
    )
    yield f"On {shown.host} it runs at {speed(ratio.expected)} ({interval(ratio)}); {beside}."
    if shown.tied_elsewhere:
        yield f"Within the uncertainty it is the same on {listed(shown.tied_elsewhere, 'hosts')}."
    yield _affected(shown.neighbours)
    if answer.advised == "move" and answer.present is not None:
        yield _change_of_worst(answer.present, shown)
    yield _certainty(answer, shown)
    yield evidence_in_words(shown.evidence, shown.host)


def _change_of_worst(present: Candidate, best: Candidate) -> str:
    """What the most affected neighbours have before and after, where the instance itself gains little; else empty."""
    gain = best.new_vm.throughput_ratio.expected - present.new_vm.throughput_ratio.expected
    now = worst_neighbour(present)
    if gain >= NOTICED or now is None:
        return ""
    there = worst_neighbour(best)
    then = (
        f"{there.instance} at {percent(there.throughput_ratio.expected)} there"
        if there
        else "no other instance is there"
    )
    return f"It moves for its neighbours: {now.instance} is at {percent(now.throughput_ratio.expected)} now, {then}."


def _affected(neighbours: Sequence[Effect]) -> str:
    losses = [
        (effect.before.expected - effect.throughput_ratio.expected, effect.instance)
        for effect in neighbours
        if effect.before is not None
    ]
    felt = sorted((loss for loss in losses if loss[0] >= FELT), key=lambda loss: (-loss[0], loss[1]))
    if felt:
        named = ", ".join(f"{name} loses {percent(loss)}" for loss, name in felt[:NAMED])
        more = f" and {len(felt) - NAMED} more" if len(felt) > NAMED else ""
        return f"Affected: {named}{more}."
    return "No instance there loses one per cent or more." if neighbours else ""


def _certainty(answer: Recommendation, shown: Candidate) -> str:
    """How sure the headline is: how wide its range is, what calibrated it, what was widened."""
    effect, factor = shown.new_vm, answer.widened.get(shown.host)
    learned = answer.model_origin != "analytic"
    parts = [
        _width(effect.throughput_ratio) if shown.calibration == "observed" else "",
        calibration_in_words([shown.calibration], shown.calibration_hosts).removesuffix("."),
        effect.basis.sentence if effect.basis is not None and learned else "",
        "what it runs is not known, so its range is wider" if effect.outside_training and effect.basis is None else "",
        f"ranges here are {factor:.1f} times the model's own, which were too narrow recently" if factor else "",
    ]
    return " ".join(f"{part[:1].upper()}{part[1:]}." for part in parts if part)


def _width(band: Band) -> str:
    half = (band.upper - band.lower) / 2
    if half <= _NARROW:
        return "certain to a few per cent"
    if half <= _WIDE:
        return "fairly sure"
    return "uncertain: the range is so wide that a measurement may change the order"


def _sections(answer: Recommendation, *, every_rejection: bool) -> Iterator[Section]:
    evidence = answer.evidence
    yield Section(
        "tuned", "If settings there change first", "The ranked hosts need none of this.", list(_tuned(answer))
    )
    for candidate in (*answer.candidates, *answer.tuned):
        after = " after these changes" if candidate.tuning else ""
        reasons = [reason.text for reason in candidate.reasons]
        yield Section(f"why-{candidate.host}{'-tuned' if after else ''}", f"Why {candidate.host}{after}", "", reasons)
    for candidate in answer.candidates:
        yield _ladder(candidate)
    for rejected in answer.rejected:
        yield _ladder(rejected)
    yield Section("rejected", "Rejected hosts", tables=[_rejected(answer.rejected, every=every_rejection)])
    yield Section("notes", "What else to know", sentences=list(answer.notes))
    held = () if evidence is None else (held_in_words(evidence), evidence.advice)
    yield Section("advice", "What would tell more", sentences=list(filter(None, held)))
    by = answered_by(answer.model_version, answer.model_origin, degraded=answer.degraded, effects=_effects(answer))
    yield Section("model", "Which model answered", sentences=[by])


def _tuned(answer: Recommendation) -> Iterator[str]:
    """The changes that make hosts better, each with what it changes."""
    for candidate in answer.tuned:
        for step in candidate.tuning:
            yield " ".join([f"{candidate.host}: {step.subject} {step.why}", *step.notes])
        changed = [
            f"{effect.instance} {percent(effect.before.expected)} → {percent(effect.throughput_ratio.expected)}"
            for effect in candidate.neighbours
            if effect.before is not None and abs(effect.throughput_ratio.expected - effect.before.expected) >= FELT
        ]
        if changed:
            name = candidate.new_vm.instance
            yield f"{candidate.host}, now and with {name} after that: {', '.join(changed)}."


def _ladder(place: Candidate | Rejection) -> Section:
    """The steps that were tried where the placement alone breaks a limit, and what residents get by them."""
    steps = place.mitigation
    end = "" if any(step.satisfies for step in steps) else "; none is enough"
    rows = [(step.action.replace("_", " "), "yes" if step.satisfies else "no", step.text) for step in steps]
    columns = (Column("step", "Step"), Column("enough", "Enough"), Column("what", "What", "prose"))
    changes = place.changes if isinstance(place, Candidate) else {}
    return Section(
        f"tried-{place.host}",
        f"Settings tried on {place.host}",
        f"The placement alone breaks a limit there; in order of cost{end}." if steps else "",
        [f"{name} gets: {settings_in_words(settings)}" for name, settings in changes.items()],
        tables=[Table(f"tried-{place.host}", f"Steps on {place.host}", columns, rows)],
    )


def _rejected(rejected: Sequence[Rejection], *, every: bool) -> Table:
    """Every rejected host, or of many one for each reason, with how many there are."""
    if every or len(rejected) <= MANY:
        columns = (Column("host", "Host", "name"), Column("code", "Code"), Column("reason", "Reason", "prose"))
        rows = [(host.host, host.code, host.reason) for host in rejected]
        return Table("rejected", "Rejected hosts", columns, rows, most=len(rows))
    first = {host.code: host for host in reversed(rejected)}
    counts = Counter(host.code for host in rejected).most_common()
    reasons = [(count, code, f"{first[code].host}: {first[code].reason}") for code, count in counts]
    columns = (Column("hosts", "Hosts", "count"), Column("code", "Code"), Column("example", "For example", "prose"))
    return Table("rejected", "Rejected hosts, by reason", columns, reasons)


def _expected(candidate: Candidate) -> str:
    return percent(candidate.new_vm.throughput_ratio.expected)


def _effects(answer: Recommendation) -> Iterable[Effect]:
    return (effect for each in answer.candidates for effect in (each.new_vm, *each.neighbours))
