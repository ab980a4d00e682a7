"""The command `probe-plan`: which pairs of workloads to measure next, and the campaign file for the lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import (
    PROBE_PINNINGS,
    Instance,
    Inventory,
    ProbePinning,
    ProbePlan,
    ProbeRequest,
    ProbeStep,
    found_in,
)
from advisor.errors import InvalidInput
from api.cli.ask import instance_of, is_file
from api.cli.asking import Server, TokenFile
from api.cli.options import AsJson, InventoryUnlessServer, ModelDir, ObjectiveName, settings
from api.cli.output import print_json, print_table, progress, say
from api.cli.plan import inventory_of

MOST_SHOWN = 3  # hosts or decisions of a row; --json has all
HEADERS = ("rank", "pair", "CPUs", "would meet on", "could turn", "probability", "gain", "minutes", "in all")


def probe_plan(
    inventory: InventoryUnlessServer = None,
    instance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE_OR_NAME",
            help="Instances whose placement is to be decided: a YAML file, or the name of one in the inventory; may "
            "be given several times.",
            show_default="every instance of the inventory, as if it were yet to be placed",
        ),
    ] = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time for measuring: 90s, 45m, 2h.")] = "60m",
    seconds_per_run: Annotated[
        int, typer.Option(min=1, max=86_400, help="Measured seconds of a run; warm-up and set-up add 6.5 s.")
    ] = 20,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="How often every pair and base case is measured.")] = 3,
    pinning: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Forms that can be measured: same (a CPU for both), different (one each), shared (two for both).",
        ),
    ] = ",".join(PROBE_PINNINGS),
    objective: ObjectiveName = "worst",
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Seed of the simulation and of the campaign.")] = 1,
    campaign: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.yaml", help="Write the plan as a campaign for cotenant-lab run.", show_default="no file"
        ),
    ] = None,
    workload_file: Annotated[
        Path | None,
        typer.Option(
            metavar="CAMPAIGN.yaml",
            help="Campaign file that defines how the workloads are run.",
            show_default="kinds of the lab by their own names, such as cpu and memory",
        ),
    ] = None,
    as_json: AsJson = False,
    model: ModelDir = None,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Choose the pairs of workloads to measure next: those that could change a decision.

    Nothing is measured here, and "nothing is worth measuring" is an answer. With --server the cloud is that of the
    service, and the plan is made here, by the model of this machine.
    """
    cloud = inventory_of(inventory, server, token_file)
    request = ProbeRequest(
        budget_s=offline.duration_s(budget),
        instances=_asked(cloud, instance),
        seconds_per_run=seconds_per_run,
        rounds=rounds,
        pinnings=_forms(pinning),
        objective=objective,
        seed=seed,
    )
    known = offline.lab_workloads(workload_file) if campaign or workload_file else {}
    with progress() as advance:
        plan = offline.probe_plan(cloud, request, model=model, settings=settings(), progress=advance)
    left_out = offline.write_campaign(plan, campaign, known) if campaign else ()
    is_written = campaign is not None and len(left_out) < len(plan.steps)
    if as_json:
        written = {"campaign": str(campaign) if is_written else None, "not_in_campaign": list(left_out)}
        print_json({**offline.probe_plan_as_json(plan), **(written if campaign else {})})
        return
    _show(plan)
    if campaign:
        _show_campaign(campaign, left_out, is_written=is_written)


def _show(plan: ProbePlan) -> None:
    if plan.steps:
        print_table(HEADERS, [_row(rank, step) for rank, step in enumerate(plan.steps, 1)], right=(0, 5, 6, 7, 8))
        say()
    rows = [
        (decision.instance, decision.host, f"{decision.probability_before:.0%}", f"{decision.probability_after:.0%}",
         f"{decision.regret_before:.3f}", f"{decision.regret_after:.3f}")
        for decision in plan.decisions
    ]  # fmt: skip
    if rows:
        headers = ("decision", "now", "in doubt", "after the plan", "expected regret", "after the plan")
        print_table(headers, rows, right=(2, 3, 4, 5))
        say()
    say(offline.probe_sentence(plan))
    request = plan.request
    say(f"A run takes {plan.run_s:g} s, {request.seconds_per_run} s of them measured; {request.rounds} rounds of each.")
    for note in plan.notes:
        say(note)
    say(offline.answered_by(plan.model_version, plan.model_origin, degraded=plan.degraded))


def _row(rank: int, step: ProbeStep) -> tuple[object, ...]:
    pair = step.pair
    turns = [f"{turn.instance}: {turn.before} -> {turn.after}" for turn in step.turns]
    return (
        rank,
        f"{pair.first} + {pair.second}",
        pair.pinning,
        _few(step.hosts),
        _few(turns, "; "),
        f"{step.probability:.0%}",
        f"{step.gain:.4f}",
        f"{step.seconds / 60:.1f}",
        f"{step.cumulative_s / 60:.1f}",
    )


def _few(names: tuple[str, ...] | list[str], mark: str = ", ") -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return mark.join(names[:MOST_SHOWN]) + more


def _show_campaign(path: Path, left_out: tuple[str, ...], *, is_written: bool) -> None:
    for reason in left_out:
        say(f"Not in the campaign: {reason}.")
    say(f"Campaign written to {path}." if is_written else "No campaign was written: the lab has nothing to run.")


def _forms(text: str) -> tuple[ProbePinning, ...]:
    names = [name.strip() for name in text.split(",")]
    wrong = [name for name in names if name not in PROBE_PINNINGS]
    if wrong:
        raise InvalidInput(f"--pinning {wrong[0]!r} is none of {', '.join(PROBE_PINNINGS)}")
    return tuple(form for form in PROBE_PINNINGS if form in names)


def _asked(cloud: Inventory, wanted: list[str] | None) -> tuple[Instance, ...] | None:
    """The instances of files and names; None = all of the inventory."""
    if not wanted:
        return None
    instances: dict[str, Instance] = {}
    for name in wanted:
        find = found_in(cloud.instances)
        named = offline.load_instances(Path(name), find) if is_file(name) else (instance_of(cloud, name),)
        instances |= {instance.id: instance for instance in named}
    return tuple(instances.values())
