"""What a plan says on a terminal: steps by stage, sums, capacity, variants, and how the search ended, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain

from advisor.domain import (
    Capacity,
    ClassSizing,
    IsolationSettings,
    Plan,
    PlanStep,
    PlanSums,
    Search,
    Variant,
    duration_in_words,
    time_part,
)
from api.cli.answers import model_line, ratio, settings_text
from api.cli.output import print_table, say

DONE = {
    "place": "place", "move": "move", "settings": "set", "resize": "resize", "remove": "take away",
    "driver_domain": "set",
}  # fmt: skip


def show(plan: Plan, *, undo: bool) -> None:
    """Everything that a plan says, with the steps back where they are wanted."""
    show_steps(plan.steps)
    if plan.capacity is not None:
        show_capacity(plan.capacity)
    show_variants(plan.variants)
    show_sizing(plan.sizing)
    for line in summary(plan):
        say(line)
    for note in plan.notes:
        say(f"Note: {note}")
    show_commands(plan.steps)
    if undo and plan.undo:
        say("")
        say("The steps back:")
        show_steps(plan.undo)
        show_commands(plan.undo)
    effects = chain.from_iterable(plan.after.values())
    say(model_line(plan.model_version, plan.model_origin, degraded=plan.degraded, effects=effects))


def show_steps(steps: Sequence[PlanStep]) -> None:
    """One line for each step, those of one stage together."""
    if not steps:
        return
    ranked = any(step.candidate for step in steps)  # only who is placed anew stands in a ranking
    copied = any(step.duration_s for step in steps)
    rows = [
        (
            step.stage + 1 if step.host or step.action == "remove" else "",
            DONE[step.action],
            step.subject,
            step.source or "",
            step.host or ("" if step.action == "remove" else "none"),
            *([ratio(step.candidate.newcomer) if step.candidate else ""] if ranked else []),
            *([duration_in_words(step.duration_s) if step.duration_s else ""] if copied else []),
            _what(step),
        )
        for step in steps
    ]
    newcomer = ["new VM (range)"] if ranked else []
    takes = ["takes"] if copied else []
    print_table(("stage", "step", "instance", "from", "to", *newcomer, *takes, "why"), rows, right=(0,))


def _what(step: PlanStep) -> str:
    """The reason, or why there is no host; with the new size or settings where these are the step."""
    if step.rejected and step.host is None:
        first = step.rejected[0]
        more = f" (and {len(step.rejected) - 1} more hosts refuse)" if len(step.rejected) > 1 else ""
        return f"{first.host}: {first.reason}{more}"
    size = "" if step.vcpus is None else f"to {step.vcpus} vCPU{'s' if step.vcpus > 1 else ''}"
    settings = "" if step.settings in {None, IsolationSettings()} else settings_text(step.settings)
    return "; ".join(part for part in (size, settings, step.why) if part)


def summary(plan: Plan) -> Iterator[str]:
    """What was reached, how the cloud stands, and how far from the best that is."""
    kind = plan.request.kind
    if "admit" in {kind, plan.request.then}:
        asked = {instance.id for instance in plan.request.instances}
        placed = {step.instance for step in plan.steps if step.host}
        yield f"{len(asked & placed)} of {len(asked)} instances placed."
    elif plan.search is not None and plan.search.ended == "already fine" and not plan.steps:
        yield "Already fine: nothing is to be done."
    elif plan.steps:
        done = [step for step in plan.steps if step.host is not None]
        stages = len({step.stage for step in done})
        missing = len(plan.steps) - len(done)
        refused = f"; {missing} {'finds' if missing == 1 else 'find'} no host" if missing else ""
        yield f"{_count(len(done), 'step')} in {_count(stages, 'stage')}{refused}."
        if plan.duration_s is not None:
            yield f"Copying memory takes about {duration_in_words(plan.duration_s)}, one stage after the other."
    elif kind == "tune":
        yield "No change of settings would help, as far as was searched."
    elif kind == "right_size":
        yield "No other size or cap would suit better, as far as is known."
    for name, sums in (("Before", plan.sums_before), ("After", plan.sums_after)):
        if sums is not None and not plan.variants:  # which say it side by side
            yield f"{name}: {_sums(sums)}."
    if plan.search is not None and kind != "what_if" and plan.search.ended != "already fine":
        yield from _gap(plan.search)
    if plan.capacity is not None and plan.capacity.outlook:
        yield plan.capacity.outlook


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sums(sums: PlanSums) -> str:
    watts = "" if sums.watts is None else f", {sums.watts:,.0f} W"
    price = "" if sums.price is None else f", {sums.price:,.0f} a month"
    return (
        f"{sums.hosts_used} of {sums.hosts} hosts used, {sums.below} of {sums.instances} instances below their limit, "
        f"relative throughput {sums.worst:.2f} at the lowest, {sums.mean:.2f} on average{watts}{price}"
    )


def _gap(search: Search) -> Iterator[str]:
    """How the search ended."""
    reached = f"{search.aim}: {search.value:.4g}"
    if search.ended == "optimal" or search.gap <= 0:
        yield f"{reached}; nothing better exists by these predictions."
        return
    why = {
        "time": "the time was over, this is the best so far",
        "in the way": "not everything that was asked for can be",
    }.get(search.ended, "the search found nothing better")
    yield f"{reached}; {why}. No plan can surpass {search.bound:.4g} ({search.away} away)."


def show_capacity(capacity: Capacity) -> None:
    """How many more fit, and month by month where that was asked."""
    by_worst = f"{capacity.fit_lower} if every instance ends at the worse edge of its interval"
    say(f"{capacity.fit} more of the mix fit ({by_worst}); sizes alone would let in {capacity.by_rule}.")
    say(f"In the way of one more: {capacity.first_refusal}.")
    if capacity.reserve:
        say(capacity.reserve)
    if capacity.runway:
        rows = [
            (
                f"{point.month:g}",
                point.added,
                f"{point.load_factor:.2f}",
                point.sums.hosts_used,
                point.sums.below,
                f"{point.sums.worst:.2f}",
                "yes" if point.fits else "no",
            )
            for point in capacity.runway
        ]
        header = ("month", "added", "load", "hosts used", "below", "worst T/B", "fits")
        print_table(header, rows, right=(0, 1, 2, 3, 4, 5))


def show_variants(variants: Sequence[Variant]) -> None:
    """Clouds side by side, without what is known of none of them."""
    if not variants:
        return
    columns: list[tuple[str, Sequence[object]]] = [
        ("cloud", [variant.name for variant in variants]),
        ("hosts used", [f"{variant.sums.hosts_used} of {variant.sums.hosts}" for variant in variants]),
        ("instances", [variant.sums.instances for variant in variants]),
        ("below", [variant.sums.below for variant in variants]),
        ("worst T/B", [f"{variant.sums.worst:.2f}" for variant in variants]),
        ("mean T/B", [f"{variant.sums.mean:.2f}" for variant in variants]),
        ("fit", _known([variant.fit for variant in variants])),
        ("full in month", _known([variant.runs_out_month for variant in variants])),
        ("VM-days", _known([variant.instance_days for variant in variants])),
        ("W", _known([variant.sums.watts for variant in variants])),
        ("price a month", _known([variant.sums.price for variant in variants])),
    ]
    columns = [column for column in columns if any(value != "" for value in column[1])]
    print_table(
        tuple(name for name, _ in columns),
        list(zip(*(values for _, values in columns), strict=True)),
        right=range(2, len(columns)),
    )


def show_sizing(sizing: Sequence[ClassSizing]) -> None:
    """What new sizes save beside what they risk, one line for each class."""
    if not sizing:
        return
    rows = [
        (
            row.name,
            row.instances,
            row.vcpus,
            row.vcpus_then,
            row.saved,
            f"{row.busiest:.0%}",
            time_part(row.short_mean),
            time_part(row.short),
            row.riskiest,
        )
        for row in sizing
    ]
    header = (
        "class", "instances", "vCPUs", "then", "saved", "busiest (p95)", "contended (mean)", "(most)",
        "most at risk",
    )  # fmt: skip
    print_table(header, rows, right=range(1, 8))


def _known(values: Sequence[float | None]) -> list[str]:
    return ["" if value is None else f"{value:,.0f}" for value in values]


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
