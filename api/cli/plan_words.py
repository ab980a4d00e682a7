"""A plan on a terminal: steps by stage, commands, and the document that every front end shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import chain

from advisor import offline
from advisor.domain import IsolationSettings, Plan, PlanStep, duration_in_words, settings_in_words
from api.cli.answers import ratio
from api.cli.output import print_table, say

DONE = {
    "place": "place", "move": "move", "settings": "set", "resize": "resize", "remove": "take away",
    "driver_domain": "set",
}  # fmt: skip


def show(plan: Plan, *, undo: bool) -> None:
    """Everything that a plan says, with the steps back where they are wanted."""
    document = offline.plan_document(plan)
    show_steps(plan.steps)
    for sentence in (document.headline, *document.sentences):
        say(sentence)
    for fact, value in document.facts.items():
        say(f"{fact}: {value}.")
    for table in offline.text_tables(*document.sections):
        print_table(table.headings, table.rows, right=tuple(table.numeric))
    for note in plan.notes:
        say(f"Note: {note}")
    show_commands(plan.steps)
    if undo and plan.undo:
        say("")
        say("The steps back:")
        show_steps(plan.undo)
        show_commands(plan.undo)
    effects = chain.from_iterable(plan.after.values())
    say(offline.answered_by(plan.model_version, plan.model_origin, degraded=plan.degraded, effects=effects))


def show_steps(steps: Sequence[PlanStep]) -> None:
    """One line for each step, those of one stage together."""
    if not steps:
        return
    ranked = any(step.new_vm for step in steps)  # only who is placed anew stands in a ranking
    copied = any(step.duration_s for step in steps)
    rows = [
        (
            step.stage + 1 if step.host or step.action == "remove" else "",
            DONE[step.action],
            step.subject,
            step.source or "",
            step.host or ("" if step.action == "remove" else "none"),
            *([ratio(step.new_vm) if step.new_vm else ""] if ranked else []),
            *([duration_in_words(step.duration_s) if step.duration_s else ""] if copied else []),
            _what(step),
        )
        for step in steps
    ]
    new_vm = ["new VM (range)"] if ranked else []
    takes = ["takes"] if copied else []
    print_table(("stage", "step", "instance", "from", "to", *new_vm, *takes, "why"), rows, right=(0,))


def _what(step: PlanStep) -> str:
    """The reason, or why there is no host; with the new size or settings where these are the step."""
    if step.rejected and step.host is None:
        first = step.rejected[0]
        more = f" (and {len(step.rejected) - 1} more hosts refuse)" if len(step.rejected) > 1 else ""
        return f"{first.host}: {first.reason}{more}"
    size = "" if step.vcpus is None else f"to {step.vcpus} vCPU{'s' if step.vcpus > 1 else ''}"
    settings = "" if step.settings in {None, IsolationSettings()} else settings_in_words(step.settings)
    return "; ".join(part for part in (size, settings, step.why) if part)


def show_commands(steps: Sequence[PlanStep]) -> None:
    """The commands of each step, with what must be known."""
    for step in steps:
        for note in step.notes:
            say(f"{step.subject}: {note}")
        for command in step.commands:
            if not command.argv:
                continue
            say(f"# stage {step.stage + 1}, {step.subject}{f': {command.note}' if command.note else ''}")
            say(shlex.join(command.argv))
            if command.undo:
                say(f"#   undo: {shlex.join(command.undo)}")
