"""Replays: a trace of real demand through placement policies side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor import offline
from advisor.domain import PlanFor, Replay, Replayed, ReplayJudge, ReplayRequest, TraceForm
from advisor.errors import InvalidInput
from api.cli.options import AsJson, Cluster, KeepRatio, ModelDir, ObjectiveName, ReportOut, Seed, settings
from api.cli.output import print_json, print_table, progress, say

COLUMNS = (
    "policy", "hosts used (mean)", "(most)", "below (time)", "worst T/B", "mean T/B", "moves", "refused",
    "ms a decision",
)  # fmt: skip


def replay(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="File or folder in one of the formats of docs/traces.md.")
    ],
    form: Annotated[TraceForm | None, typer.Option(help="Format of the trace.", show_default="detected")] = None,
    host_count: Annotated[
        int | None,
        typer.Option(min=1, help="Number of hosts.", show_default="1.5 times what the busiest moment needs"),
    ] = None,
    host_type: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Inventory file with one host, the model of all hosts, and the workloads of the instances.",
            show_default="kvm, 32 pCPUs, 256 GB",
        ),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Names of policies, as docs/traces.md has them.", show_default="all"),
    ] = None,
    keep_ratio: KeepRatio = 0.8,
    objective: ObjectiveName = "pack",
    step: Annotated[
        float, typer.Option("--step", min=1.0, metavar="SECONDS", help="Time from one moment to the next.")
    ] = 300.0,
    history: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            metavar="HOURS",
            help="Hours at the beginning of the trace in which the policies only observe.",
            show_default="24, at most a quarter of the trace",
        ),
    ] = None,
    plan_for: Annotated[
        PlanFor,
        typer.Option(
            help="Which demand counts for cotenant: as it varied till then, over the hours, too, or of each the mean "
            "or a percentile of its last day."
        ),
    ] = "p95",
    rebalance: Annotated[
        float | None,
        typer.Option(
            min=0.01, metavar="HOURS", help="Hours after which cotenant may move residents.", show_default="never"
        ),
    ] = None,
    max_instances: Annotated[
        int | None, typer.Option(min=1, help="Take only the first N instances.", show_default="all")
    ] = None,
    seed: Seed = 1,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="Repeat with this many seeds, starting at --seed.")] = 1,
    shards: Annotated[int, typer.Option(min=1, help="Divide instances and hosts into this many separate clouds.")] = 1,
    judge: Annotated[
        ReplayJudge,
        typer.Option(
            help="Where the ratios are from: a fair share of the trace's demand, in which no model has a part; the "
            "model that advises; or the analytic model."
        ),
    ] = "demand",
    cluster: Cluster = None,
    report: ReportOut = None,
    as_json: AsJson = False,
    model: ModelDir = None,
) -> None:
    """Replay a trace of real demand through placement policies.

    Demand is the trace's, placements are simulated. No server and no database are needed.
    """
    if report is not None:
        offline.check_report(report)
    request = ReplayRequest(
        policies=None if policies is None else _policies(policies),
        hosts=host_count,
        keep_ratio=keep_ratio,
        objective=objective,
        seeds=tuple(range(seed, seed + seeds)),
        shards=shards,
        history_s=None if history is None else 3600 * history,
        plan_for=plan_for,
        rebalance_s=None if rebalance is None else 3600 * rebalance,
        judge=judge,
    )
    with progress() as advance:
        result = offline.replay_trace(
            trace,
            request,
            form=form,
            interval_s=step,
            most_instances=max_instances,
            host_type=host_type,
            model=model,
            settings=settings(),
            cluster=cluster,
            progress=advance,
        )
    if report is not None:
        offline.write_replay_report(result, report)
    if as_json:
        print_json(result)
        return
    show(result)
    if report is not None:
        say(f"Report written to {report}.")


def show(found: Replay) -> None:
    """Print the policies side by side, what can be said of them, and what it rests on."""
    hours = found.steps * found.interval_s / 3600
    say(
        f"{found.instances} instances of {found.trace} ({found.form}) over {hours:.1f} hours, {found.steps} steps, on "
        f"{found.hosts} hosts ({found.host_type}); limit: T/B of {found.keep_ratio:g}."
    )
    print_table(COLUMNS, [_row(policy) for policy in found.policies], right=range(1, len(COLUMNS)))
    if len(found.seeds) > 1:
        say()
        rows = [
            (policy.policy, it.seed, f"{it.hosts_mean:.2f}", f"{it.violation_share:.2%}", f"{it.worst:.2f}", it.moves)
            for policy in found.policies
            for it in policy.repeats
        ]
        header = ("policy", "seed", "hosts used (mean)", "below (time)", "worst T/B", "moves")
        print_table(header, rows, right=range(1, 6))
    say()
    say(found.conclusion)
    for assumption in found.assumptions:
        say(f"- {assumption}")
    say(offline.answered_by(found.model_version, found.model_origin))
    if found.judge_version != found.model_version:
        say(f"Judged by {found.judge_version} ({found.judge_origin}).")


def _row(replayed: Replayed) -> tuple[object, ...]:
    hosts = (replayed.policy, f"{replayed.hosts_mean:.2f}", max(replayed.hosts_used, default=0))
    if replayed.mean is None or replayed.worst is None:
        return (*hosts, *("",) * (len(COLUMNS) - len(hosts)))
    each = f"{1000 * replayed.decision_s / replayed.decisions:.1f}" if replayed.decisions else ""
    below = f"{replayed.violation_share:.2%}"
    return (*hosts, below, f"{replayed.worst:.3f}", f"{replayed.mean:.4f}", replayed.moves, replayed.refused, each)


def _policies(names: str) -> tuple[str, ...]:
    wanted = tuple(name.strip() for name in names.split(",") if name.strip())
    if not wanted:
        raise InvalidInput("--policies names none; write --policies cotenant,first-fit", field="policies")
    return tuple(dict.fromkeys(wanted))
