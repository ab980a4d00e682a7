"""How answers look as text: the ranked table, reasons, commands with their undo, rejected hosts, and who answered."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from advisor.domain import (
    NO_SUPPORT,
    Band,
    Candidate,
    Effect,
    Inventory,
    IsolationSettings,
    MitigationStep,
    Recommendation,
    Rejection,
    calibration_in_words,
    evidence_in_words,
    held_in_words,
    time_part,
)
from advisor.domain.figures import score_figure, significant
from api.cli.output import print_table, say
from profiler.observed import DEFAULT_WEIGHT

AS_IS = "as is"
NOTICED = 0.02  # of the relative throughput: a smaller gain is not why an instance moves
MANY = 20  # rejected hosts, from which on they are counted and not listed
HEADERS = ("rank", "host", "score", "new VM (range)", "most affected", "contended", "settings", "tied with")


def show_answer(answer: Recommendation, *, explain: bool, commands: bool) -> None:
    name = answer.request.instance.id
    if answer.candidates:
        _show_best(name, answer)
        say()
        rows = [_row(candidate, unpins=answer.unpins(candidate)) for candidate in answer.candidates]
        if answer.present is not None:
            rows.append(_row_now(answer.present))
        print_table(HEADERS, rows, right=(0, 2, 5))
        hosts = answer.best.calibration_hosts
        say(calibration_in_words((candidate.calibration for candidate in answer.candidates), hosts))
        best = answer.best
        if best.evidence:
            say(evidence_in_words(best.evidence, best.host))
    else:
        say(f"No host can take {name}{'' if answer.rejected else ': the inventory has none'}.")
    _show_tuned(answer)
    for candidate in (*answer.candidates, *answer.tuned):
        if explain:
            show_reasons(candidate)
        if candidate.mitigation:
            _show_ladder(candidate.host, candidate.mitigation)
            _show_changes(candidate)
        if commands:
            show_commands(candidate)
    if answer.rejected:
        say()
        _show_rejected(answer.rejected, everyone=explain or len(answer.rejected) <= MANY)
    for rejected in answer.rejected:
        if explain and rejected.mitigation:
            _show_ladder(rejected.host, rejected.mitigation)
    say()
    for note in answer.notes:
        say(note)
    _show_evidence(answer)
    effects = chain.from_iterable((each.new_vm, *each.neighbours) for each in answer.candidates)
    say(model_line(answer.model_version, answer.model_origin, degraded=answer.degraded, effects=effects))


def _show_tuned(answer: Recommendation) -> None:
    """Hosts that a few changes to who is there make better, with what these change."""
    if not answer.tuned:
        return
    say()
    say("Offered besides, if settings there change first:")
    rows = [_row(candidate, unpins=answer.unpins(candidate))[1:-1] for candidate in answer.tuned]
    print_table(HEADERS[1:-1], rows, right=(1, 4))
    for candidate in answer.tuned:
        for step in candidate.tuning:
            say(f"  {candidate.host}: {step.subject} {step.why}")
            for note in step.notes:
                say(f"    {note}")
        changed = list(_changed(candidate.neighbours))
        if changed:
            say(f"  {candidate.host}, now and with {candidate.new_vm.instance} after that: {', '.join(changed)}")


def _changed(neighbours: Iterable[Effect]) -> Iterable[str]:
    """What those have and get who are noticeably better or worse off."""
    for one in neighbours:
        if one.before is not None and abs(one.throughput_ratio.expected - one.before.expected) >= NOTICED / 2:
            yield f"{one.instance} {_band(one.before)} -> {_band(one.throughput_ratio)}"


def _show_evidence(answer: Recommendation) -> None:
    if answer.evidence:
        for sentence in filter(None, (held_in_words(answer.evidence), answer.evidence.advice)):
            say(sentence)


def _show_best(name: str, answer: Recommendation) -> None:
    """The headline, with what must be known before it is followed."""
    best, present = answer.best, answer.present
    mind = ", but mind:" if best.notes else "."
    if present is None:
        say(f"{name} should go to {best.host}{mind}")
    elif answer.advised == "stay":
        figure = _expected(present)
        say(f"{name} is on {present.host} already, at {figure} as it is; nothing is better beyond the uncertainty.")
        return
    else:
        figures = f"{_expected(present)} -> {_expected(best)}"
        where = f"should stay on {best.host} under other settings"
        if answer.advised == "move":
            where = f"should move from {present.host} to {best.host}"
        hurt = f" ({_change_of_worst(present, best)})" if _change_of_worst(present, best) else ""
        say(f"{name} {where}: {figures}{hurt}{mind}")
    for note in best.notes:
        say(f"  {note}.")


def _expected(candidate: Candidate) -> str:
    return shown(candidate.new_vm.throughput_ratio.expected, 2)


def _change_of_worst(present: Candidate, best: Candidate) -> str:
    """What the most affected neighbours have before and after, where the instance itself gains little; else empty."""
    gain = best.new_vm.throughput_ratio.expected - present.new_vm.throughput_ratio.expected
    if gain >= NOTICED or not present.neighbours:
        return ""
    there = f"{worst_neighbour(best)} there" if best.neighbours else f"no other on {best.host}"
    return f"most affected neighbour {worst_neighbour(present)} now, {there}"


def _row_now(present: Candidate) -> tuple[object, ...]:
    """The row of the instance as it stands."""
    row = _row(present)
    return ("now", f"{present.host}, as it is", *row[2:])


def _show_rejected(rejected: Sequence[Rejection], *, everyone: bool) -> None:
    if everyone:
        print_table(("rejected", "code", "reason"), [(host.host, host.code, host.reason) for host in rejected])
        return
    first = {host.code: host for host in reversed(rejected)}
    counts = Counter(host.code for host in rejected).most_common()
    rows = [(count, code, f"{first[code].host}: {first[code].reason}") for code, count in counts]
    print_table(("rejected", "code", "for example (--explain shows all)"), rows, right=(0,))


def _row(candidate: Candidate, *, unpins: bool = False) -> tuple[object, ...]:
    return (
        candidate.rank,
        candidate.host,
        shown(candidate.score, 3, score_figure),
        ratio(candidate.new_vm),
        worst_neighbour(candidate),
        _shortest(candidate),
        "; ".join([_settings_of(candidate, unpins=unpins), *(() if candidate.tuning else _changes(candidate))]),
        ", ".join(candidate.tied_elsewhere),
    )


def _settings_of(candidate: Candidate, *, unpins: bool) -> str:
    """What it runs under there."""
    text = settings_text(candidate.isolation)
    if not unpins:
        return text
    return "unpin" if text == AS_IS else f"unpin, {text}"


def _named(candidate: Candidate) -> str:
    return f"{candidate.host} after these changes" if candidate.tuning else candidate.host


def show_reasons(candidate: Candidate) -> None:
    """Say why a candidate stands where it stands."""
    say()
    say(f"Why {_named(candidate)}:")
    for reason in candidate.reasons:
        say(f"  {reason.text}")


def sizes_only(cloud: Inventory) -> int:
    """Of how many instances nothing is known but their size."""
    profiles = {workload.name for workload in cloud.workloads}
    return sum(each.workload not in profiles and "cpu" not in each.demand for each in cloud.instances)


def _show_ladder(host: str, steps: Sequence[MitigationStep]) -> None:
    """What was tried because the placement alone breaks a limit there."""
    say()
    end = ":" if any(step.satisfies for step in steps) else ", and none is enough:"
    say(f"On {host} the placement alone breaks a limit; tried in order of cost{end}")
    rows = [(f"  {step.action.replace('_', ' ')}", "yes" if step.satisfies else "no", step.text) for step in steps]
    print_table(("  step", "enough", "what"), rows)


def _show_changes(candidate: Candidate) -> None:
    for change in _changes(candidate):
        say(f"  {change}")


def _changes(candidate: Candidate) -> list[str]:
    """What neighbours get."""
    return [f"{name} gets: {settings_text(settings)}" for name, settings in candidate.changes.items()]


def show_commands(candidate: Candidate) -> None:
    """Print the commands that a candidate needs, each with its undo."""
    say()
    order = " (undo goes backwards)" if candidate.tuning else ""
    say(f"Commands for {_named(candidate)}, each with its undo{order}; nothing was run:")
    if not candidate.commands:
        say("  none needed")
    for command in candidate.commands:
        if not command.argv:  # something to write into a file, which is no command
            for line in command.note.splitlines():
                say(f"  # {line}")
            continue
        say(f"  {shlex.join(command.argv)}{f'    # {command.note}' if command.note else ''}")
        if command.undo:
            say(f"    undo: {shlex.join(command.undo)}")


def ratio(effect: Effect) -> str:
    return _band(effect.throughput_ratio)


def _band(band: Band) -> str:
    return f"{shown(band.expected, 2)} ({shown(band.lower, 2)}-{shown(band.upper, 2)})"


def cpu_share(effect: Effect) -> str:
    """What it gets of the CPU time that it wants; empty where that was not predicted."""
    return "" if effect.cpu is None else shown(effect.cpu.share, 3)


def short(effect: Effect) -> str:
    """The part of the time in which it gets less CPU than it wants; empty where that was not predicted."""
    return "" if effect.cpu is None else time_part(significant(effect.cpu.short) or 0.0)


def _shortest(candidate: Candidate) -> str:
    """The part of the time in which whoever is short of CPU for longest there is short."""
    known = [effect for effect in (candidate.new_vm, *candidate.neighbours) if effect.cpu is not None]
    if any(effect.overloaded for effect in known):
        return "overloaded"
    worst = max(known, key=lambda effect: effect.cpu.short if effect.cpu else 0.0, default=None)
    return short(worst) if worst else ""


def times(band: Band | None) -> str:
    """A ratio to alone; empty where it was not predicted."""
    return "" if band is None else shown(band.expected, 2)


def remark(effect: Effect) -> str:
    return "" if effect.basis is None else effect.basis.sentence


def worst_neighbour(candidate: Candidate) -> str:
    worst = min(candidate.neighbours, key=lambda effect: effect.throughput_ratio.expected, default=None)
    return f"{worst.instance} {shown(worst.throughput_ratio.expected, 2)}" if worst else "none"


def shown(value: float, places: int, rounded: Callable[[float], float | None] = significant) -> str:
    """A figure rounded as a service does, so that its answer reads as the same answer on a file."""
    figure = rounded(value)
    return f"{math.inf if figure is None else figure:.{places}f}"


def settings_text(settings: IsolationSettings) -> str:
    """Settings in a few words."""
    network = settings.network
    parts = (
        f"pin {settings.pinning}" if settings.pinning else "",
        f"cap {settings.cap_percent:g} %" if settings.cap_percent is not None else "",
        _weight_text(settings.weight) if settings.weight is not None else "",
        f"{network.mode} {network.rate_mbit:g} Mbit/s" if network and network.rate_mbit is not None else "",
        f"disk {settings.disk_limit_mb_s:g} MB/s" if settings.disk_limit_mb_s is not None else "",
    )
    return ", ".join(part for part in parts if part) or AS_IS


def _weight_text(weight: int) -> str:
    """On the scale of the answer and in times the default, which is what the commands write on a scale of their own."""
    return f"weight {weight} ({weight / DEFAULT_WEIGHT:.3g} x default)"


def model_line(version: str, origin: str, *, degraded: bool = False, effects: Iterable[Effect] = ()) -> str:
    """Who answered, and how many of these `effects` rest on what was measured."""
    line = f"Answered by model {version}, trained on {origin} data."
    known = [effect.basis for effect in effects if effect.basis is not None]
    if known:
        rests = [one for one in known if one.support >= NO_SUPPORT]
        line += f" {len(rests):,} of {len(known):,} predictions rest on something learned"
        median = sorted(one.support for one in known)[len(known) // 2]
        line += f", median support {100 * median:.0f} %."
    if origin == "prior":
        line = "Answered by the analytic model; no learned model was used."
    return f"{line} Degraded: the learned model failed." if degraded else line
