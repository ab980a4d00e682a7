"""`openstack cotenant plan ...`: makes, lists and shows plans for the whole cloud."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from osc_lib.command import command

from cotenant_client.schemas import PlanAnswer, PlanBody
from cotenant_openstackclient.asking import asking

KINDS = ("rebalance", "consolidate", "evacuate")
STEP_COLUMNS = ("Stage", "Action", "Server", "Source", "Destination", "Seconds", "Reason")
PLAN_COLUMNS = ("ID", "Created At", "Kind", "Model", "Stale")
Shown = tuple[tuple[str, ...], tuple[Any, ...]]


class CreatePlan(command.ShowOne):
    """Make a plan; nothing is carried out. `cotenant plan step list` lists its steps."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--kind",
            choices=KINDS,
            default="rebalance",
            help="rebalance: bring every server within its limit (default); consolidate: use the fewest hosts; "
            "evacuate: empty hosts",
        )
        parser.add_argument("--empty", action="append", metavar="<host>", help="Host to empty (repeat for several)")
        parser.add_argument("--host", action="append", metavar="<host>", help="Only host to use (repeat for several)")
        parser.add_argument("--max-moves", type=int, metavar="<number>", help="Most moves")
        parser.add_argument(
            "--keep-ratio",
            type=float,
            metavar="<ratio>",
            help="Lowest accepted relative throughput of servers without a limit",
        )
        parser.add_argument("--time-limit", type=float, metavar="<seconds>", help="Seconds that the search may take")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Shown:
        body: dict[str, Any] = {
            "kind": parsed_args.kind,
            "empty": parsed_args.empty,
            "hosts": parsed_args.host,
            "max_moves": parsed_args.max_moves,
            "keep_ratio": parsed_args.keep_ratio,
            "time_limit_s": parsed_args.time_limit,
        }
        asked: PlanBody = {name: value for name, value in body.items() if value is not None}  # type: ignore[assignment]
        with asking(self.app) as client:
            return _shown(client.plan(**asked))


class ShowPlan(command.ShowOne):
    """Show a plan that was made."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _about_a_plan(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Shown:
        with asking(self.app) as client:
            return _shown(client.plan_by_id(parsed_args.plan))


class ListPlan(command.Lister):
    """List plans that were made, newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--kind", metavar="<kind>", help="Only plans of this kind")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
        with asking(self.app) as client:
            plans = list(client.plans(kind=parsed_args.kind))
        names = ("id", "created_at", "kind", "model_version", "stale")
        return PLAN_COLUMNS, [tuple(dict(plan)[name] for name in names) for plan in plans]


class ListPlanStep(command.Lister):
    """List the steps of a plan; those of one stage may run together."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        return _about_a_plan(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
        with asking(self.app) as client:
            steps = client.plan_by_id(parsed_args.plan)["steps"]
        return STEP_COLUMNS, [
            (
                step.get("stage"),
                step.get("action"),
                step["instance"],
                step.get("source") or "",
                step["host"] or "",
                "" if (duration_s := step.get("duration_s")) is None else duration_s["expected"],
                step.get("why", ""),
            )
            for step in steps
        ]


def _about_a_plan(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("plan", metavar="<plan>", help="Plan to show (ID)")
    return parser


def _shown(plan: PlanAnswer) -> Shown:
    rows: dict[str, Any] = {
        "id": plan["id"],
        "created_at": plan["created_at"],
        "kind": plan["kind"],
        "model": plan["model_version"],
        "steps": len(plan["steps"]),
        "stages": len({step.get("stage") for step in plan["steps"]}),
    }
    for when in ("before", "after"):
        sums = plan["sums_before"] if when == "before" else plan["sums_after"]
        if sums:
            rows |= {f"{name}_{when}": sums[name] for name in ("hosts_used", "below", "worst", "mean")}
    rows["ended"] = plan["search"]["ended"] if plan["search"] else ""
    rows["notes"] = "\n".join(plan["notes"])
    return tuple(rows), tuple(rows.values())
