"""Commands about measurements of instances and workloads: profiles, and which pairs to measure next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import offline, validation
from advisor.domain import (
    PROBE_PINNINGS,
    Instance,
    Inventory,
    MeanEstimate,
    PhaseProfile,
    ProbePinning,
    ProbePlan,
    ProbeRequest,
    ProbeStep,
    WorkloadProfile,
    codec,
    found_in,
)
from advisor.errors import InvalidInput, NotFound
from advisor.service import Advisor
from api.cli.ask import instance_of, is_file
from api.cli.asking import Server, ServerOrDatabase, TokenFile, service_or_database
from api.cli.files import asked_questions
from api.cli.options import AsJson, Database, InventoryUnlessServer, ModelDir, ObjectiveName, settings
from api.cli.output import print_json, print_table, progress, say
from api.schemas.commands import ProbePlanAnswer, ProfileAnswer, ProfileOut, SavedOut
from profiler.observed import check_id

FIRST = ("cpu", "waiting", "block", "execution", "pages_exchanged", "pages_per_execution")  # of the table's rows


def profile(
    instance: Annotated[str, typer.Argument(help="The instance that was measured.")],
    since: Annotated[
        str, typer.Option(metavar="TIME", help="How far back: 90m, 24h, 7d; at most 10,000 windows are looked at.")
    ] = "24h",
    samples: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Samples as JSON lines, as the agent keeps them (.gz too), instead of the database; whole, whatever "
            "--since says; may be given several times.",
            show_default="the database",
        ),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Read windows from a Prometheus-compatible store that scrapes the agents, instead of the database; "
            "its secret is in the file that COTENANT_PROMETHEUS_AUTHORIZATION_FILE names.",
            show_default="the database, or COTENANT_PROMETHEUS_URL",
        ),
    ] = None,
    phase: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Show or save only this phase.", show_default="all")
    ] = None,
    save: Annotated[
        str | None, typer.Option(metavar="WORKLOAD", help="Store the phase as a workload.", show_default="not stored")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Save it even if it has too few windows or was measured beside others.")
    ] = False,
    full_load: Annotated[
        bool, typer.Option("--full-load", help="Save it scaled to load 1.0, marked as extrapolated.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="OUT.png|svg", help="Draw the windows and their phases.", show_default="no picture"),
    ] = None,
    database: Database = None,
    as_json: AsJson = False,
    server: ServerOrDatabase = None,
    token_file: TokenFile = None,
) -> None:
    """Profile an instance from its samples, phase by phase.

    Each phase has its metrics with 90 % intervals, its load, and whether it was measured alone and long enough.
    """
    _check_arguments(instance if samples or prometheus else None, picture)
    if samples and prometheus is not None:
        raise InvalidInput("--samples and --prometheus are two sources; give one", field="prometheus")
    if server and (samples or prometheus is not None or save or picture):
        raise InvalidInput("--server goes with none of --samples, --prometheus, --save and --picture", field="server")
    measured = offline.profile_samples(samples, instance) if samples else None
    if prometheus is not None:
        measured = offline.profile_series(settings(prometheus_url=prometheus), instance, since=since)
    stored = None
    service = None
    if measured is None and not save and not picture:
        service = service_or_database(server, token_file, database)
    if service is not None:
        name = service.id_of("instances", instance)
        with service.read_as("profile"):
            answer = codec.decode(ProfileAnswer, service.get("instances", name, "profile", since=since))
        _print(answer, phase, None, as_json=as_json)
        return
    if measured is None or save:
        with Advisor(settings(database=database)) as advisor:
            measured = measured or advisor.telemetry.profile(_known(advisor, instance), since=since)
            _check_phase(ProfileAnswer.of(measured), phase)
            if save:
                stored = advisor.telemetry.save_profile(
                    measured, save, phase=phase, anyway=force, extrapolate=full_load
                )
    answer = ProfileAnswer.of(measured)
    _check_phase(answer, phase)
    if picture:
        offline.write_profile_picture(measured, picture)
    _print(answer, phase, stored, as_json=as_json)
    if picture and not as_json:
        say(f"Picture written to {picture}.")


def _print(answer: ProfileAnswer, phase: int | None, stored: WorkloadProfile | None, *, as_json: bool) -> None:
    _check_phase(answer, phase)
    phases = [each for each in answer.phases if phase in {None, each.number}]
    if as_json:
        saved = SavedOut(workload=stored.name, platform=stored.platform, origin=stored.origin) if stored else None
        print_json(ProfileOut(**{**codec.columns(answer), "phases": tuple(phases)}, saved=saved))
        return
    _show(answer, phases)
    if stored:
        where = f" on platform {stored.platform}" if stored.platform else ""
        say(
            f"Stored as workload {stored.name}{where}, origin {stored.origin}; the workload of no instance was changed."
        )


def _known(advisor: Advisor, name: str) -> str:
    """The id of the instance by id or name; one that the inventory lacks may have samples all the same."""
    try:
        return advisor.inventory.find_instance(name).id
    except NotFound:
        _check_arguments(name, None)
        return name


def _check_arguments(instance: str | None, picture: Path | None) -> None:
    """Refuse wrong arguments before anything is read, drawn or stored."""
    try:
        if instance is not None:
            check_id(instance, "instance")
    except ValueError as error:
        raise InvalidInput(str(error), field="instance") from error
    if picture:
        validation.picture_kind(picture)


def _check_phase(measured: ProfileAnswer, phase: int | None) -> None:
    if phase is not None and phase > len(measured.phases):
        raise InvalidInput(f"{measured.instance} has phases 1-{len(measured.phases)}, not {phase}", field="phase")


def _show(measured: ProfileAnswer, phases: list[PhaseProfile]) -> None:
    say(f"{measured.instance} on {measured.host}: {measured.windows} windows of {measured.window_s:.3g} s.")
    for note in measured.notes:
        say(note[:1].upper() + note[1:] + ".")
    say()
    headers = ("phase", "time", "windows", "worth", "solo", "load", "verdict")
    print_table(headers, [_row(phase) for phase in phases], right=(0, 1, 2, 3, 4))
    say()
    keys = sorted({key for phase in phases for key in phase.metrics}, key=_place)
    cells = [(key, *(_interval(phase.metrics.get(key)) for phase in phases)) for key in keys]
    print_table(("metric (90 % interval)", *(f"phase {phase.number}" for phase in phases)), cells)
    for phase in phases:
        _explain(phase)


def _row(phase: PhaseProfile) -> tuple[object, ...]:
    return (
        phase.number,
        f"{phase.share:.0%}",
        phase.windows,
        f"{phase.effective_windows:.0f}",
        f"{phase.solo_windows / max(phase.windows, 1):.0%}",
        _load(phase),
        "enough" if phase.enough else "not enough",
    )


def _load(phase: PhaseProfile) -> str:
    load = phase.load
    if load.value is None or load.method == "idle":
        return load.method
    between = f" ({load.lower:.2f}-{load.upper:.2f})" if load.lower is not None and load.upper is not None else ""
    return f"{load.value:.2f}{between} {load.method}"


def _place(key: str) -> tuple[int, str]:
    return (FIRST.index(key) if key in FIRST else len(FIRST), key)


def _interval(estimate: MeanEstimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.lower is None or estimate.upper is None:
        return f"{_short(estimate.value)} (?)"
    return f"{_short(estimate.value)} ({_short(estimate.lower)}-{_short(estimate.upper)})"


def _short(value: float) -> str:
    """Three figures, never a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 else "0"


def _explain(phase: PhaseProfile) -> None:
    say()
    say(f"Phase {phase.number}: load {phase.load.method}, confidence: {phase.load.sure}; {phase.load.text}.")
    if phase.neighbours:
        beside = ", ".join(f"{name} ({cpu:.0f} % CPU)" for name, cpu in list(phase.neighbours.items())[:5])
        say(f"  At times beside {beside}.")
    if not phase.solo:
        say("  Measured beside others, so its waiting is not its own: not for training or serving.")
    for reason in phase.reasons:
        say(f"  Not enough: {reason}.")
    for remark in phase.remarks:
        say(f"  Note: {remark}.")


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
    cloud = asked_questions(server, token_file, inventory, model=None).inventory()
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
        answer = ProbePlanAnswer(
            **codec.columns(plan),
            sentence=offline.probe_sentence(plan),
            campaign=str(campaign) if is_written else None,
            not_in_campaign=left_out if campaign else None,
        )
        print_json(answer)
        return
    _show_plan(plan)
    if campaign:
        _show_campaign(campaign, left_out, is_written=is_written)


def _show_plan(plan: ProbePlan) -> None:
    if plan.steps:
        print_table(
            HEADERS, [_campaign_row(rank, step) for rank, step in enumerate(plan.steps, 1)], right=(0, 5, 6, 7, 8)
        )
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


def _campaign_row(rank: int, step: ProbeStep) -> tuple[object, ...]:
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
