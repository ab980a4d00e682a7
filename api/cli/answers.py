"""How answers look as text: the ranked table, commands with their undo, and the sentences of their document."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable

from advisor import offline
from advisor.domain import (
    AS_IS,
    Band,
    Candidate,
    Effect,
    Inventory,
    Recommendation,
    score_figure,
    settings_in_words,
    significant,
    time_part,
)
from api.cli.output import print_table, say

HEADERS = ("rank", "host", "score", "new VM (range)", "most affected", "contended", "settings", "tied with")


def show_answer(answer: Recommendation, *, explain: bool, commands: bool, most: int | None = None) -> None:
    """Print what the document of an answer says, around the table of hosts; reasons and commands of so many of them."""
    document = offline.placement_document(answer, every_rejection=explain and most is None)
    said = {section.id: section for section in document.sections}

    def show(name: str) -> None:
        if (section := said.get(name)) is None:
            return
        say()
        say(f"{section.title}: {section.note}" if section.note else f"{section.title}:")
        for table in offline.text_tables(section):
            print_table(table.headings, table.rows, right=tuple(table.numeric))
        for sentence in section.sentences:
            say(f"  {sentence}")

    for sentence in (document.headline, *document.sentences):
        say(sentence)
    if answer.candidates:
        say()
        rows = [_row(candidate, unpins=answer.unpins(candidate)) for candidate in answer.candidates]
        if answer.present is not None:
            rows.append(("now", f"{answer.present.host}, as it is", *_row(answer.present)[2:]))
        print_table(HEADERS, rows, right=(0, 2, 5))
    show("tuned")
    if answer.tuned:
        rows = [_row(candidate, unpins=answer.unpins(candidate))[1:-1] for candidate in answer.tuned]
        print_table(HEADERS[1:-1], rows, right=(1, 4))
    for candidate in (*answer.candidates, *answer.tuned)[:most]:
        if explain:
            show(f"why-{candidate.host}{'-tuned' * bool(candidate.tuning)}")
        if not candidate.tuning:
            show(f"tried-{candidate.host}")
        if commands:
            show_commands(candidate)
    show("rejected")
    for rejected in answer.rejected:
        if explain:
            show(f"tried-{rejected.host}")
    say()
    for name in ("notes", "advice", "model"):
        for sentence in said[name].sentences if name in said else ():
            say(sentence)


def sizes_only(cloud: Inventory) -> int:
    """Of how many instances nothing is known but their size."""
    profiles = {workload.name for workload in cloud.workloads}
    return sum(each.workload not in profiles and "cpu" not in each.demand for each in cloud.instances)


def _row(candidate: Candidate, *, unpins: bool = False) -> tuple[object, ...]:
    changes = () if candidate.tuning else candidate.changes.items()
    gets = [f"{name} gets: {settings_in_words(settings)}" for name, settings in changes]
    own = settings_in_words(candidate.isolation)
    return (
        candidate.rank,
        candidate.host,
        shown(candidate.score, 3, score_figure),
        ratio(candidate.new_vm),
        _worst(candidate),
        _shortest(candidate),
        "; ".join([f"unpin, {own}".removesuffix(f", {AS_IS}") if unpins else own, *gets]),
        ", ".join(candidate.tied_elsewhere),
    )


def show_commands(candidate: Candidate) -> None:
    """Print the commands that a candidate needs, each with its undo."""
    say()
    after, order = (" after these changes", " (undo goes backwards)") if candidate.tuning else ("", "")
    say(f"Commands for {candidate.host}{after}, each with its undo{order}; nothing was run:")
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
    """T/B with its range."""
    band = effect.throughput_ratio
    return f"{shown(band.expected, 2)} ({shown(band.lower, 2)}-{shown(band.upper, 2)})"


def cpu_share(effect: Effect) -> str:
    """CPU delivered as a part of demand; empty where that was not predicted."""
    return "" if effect.cpu is None else shown(effect.cpu.share, 3)


def short(effect: Effect) -> str:
    """Contended time; empty where that was not predicted."""
    return "" if effect.cpu is None else time_part(significant(effect.cpu.short) or 0.0)


def _shortest(candidate: Candidate) -> str:
    """The contended time of the most contended instance there."""
    known = [effect for effect in (candidate.new_vm, *candidate.neighbours) if effect.cpu is not None]
    if any(effect.overloaded for effect in known):
        return "overloaded"
    worst = max(known, key=lambda effect: effect.cpu.short if effect.cpu else 0.0, default=None)
    return short(worst) if worst else ""


def times(band: Band | None) -> str:
    """A ratio to alone; empty where it was not predicted."""
    return "" if band is None else shown(band.expected, 2)


def remark(effect: Effect) -> str:
    """What T/B rests on."""
    return "" if effect.basis is None else effect.basis.sentence


def _worst(candidate: Candidate) -> str:
    worst = offline.worst_neighbour(candidate)
    return f"{worst.instance} {shown(worst.throughput_ratio.expected, 2)}" if worst else "none"


def shown(value: float, places: int, rounded: Callable[[float], float | None] = significant) -> str:
    """A figure rounded as a service does, so that its answer reads as the same answer on a file."""
    figure = rounded(value)
    return f"{math.inf if figure is None else figure:.{places}f}"
