"""`openstack cotenant candidate list`: which hosts suit a new server, as `allocation candidate list` asks Placement."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from osc_lib import exceptions
from osc_lib.command import command

from cotenant_client.schemas import NewInstance, PlacementBody
from cotenant_openstackclient.asking import asking, ratio

COLUMNS = ("Rank", "Host", "Score", "T/B", "Worst neighbour", "Notes")
SPECS = {"cotenant:workload": "workload", "cotenant:service": "service"}


class ListCandidate(command.Lister):
    """List hosts that can take a new server, best first. Nothing is held."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--flavor", metavar="<flavor>", help="Flavor of the server (name or ID)")
        parser.add_argument("--vcpus", type=int, metavar="<vcpus>", help="Number of vCPUs, without a flavor")
        parser.add_argument("--ram", type=float, metavar="<size-mb>", help="Memory size in MB, without a flavor")
        parser.add_argument("--workload", metavar="<workload>", help="What it runs; wins over the flavor's")
        parser.add_argument("--host", action="append", metavar="<host>", help="Only this host (repeat for several)")
        parser.add_argument("--limit", type=int, metavar="<limit>", help="Number of hosts to list at most")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], Iterable[tuple[Any, ...]]]:
        body: PlacementBody = {"instance": self._instance(parsed_args), "dry_run": True, "explain": False}
        if parsed_args.host:
            body["hosts"] = parsed_args.host
        if parsed_args.limit:
            body["limit"] = parsed_args.limit
        with asking(self.app) as client:
            answer = client.place(**body)
        for note in answer["notes"]:
            self.log.warning("%s", note)
        if not answer["candidates"]:
            reasons = "; ".join(f"{host['host']}: {host['reason']}" for host in answer["rejected"][:3])
            raise exceptions.CommandError(f"no host can take it: {reasons or 'Cotenant knows no host'}")
        return COLUMNS, [_row(candidate) for candidate in answer["candidates"]]

    def _instance(self, parsed_args: argparse.Namespace) -> NewInstance:
        """The instance that the flavor or the options describe."""
        instance: dict[str, Any] = {"id": "openstackclient"}
        if parsed_args.flavor:
            flavor = self.app.client_manager.compute.find_flavor(
                parsed_args.flavor, ignore_missing=False, get_extra_specs=True
            )
            instance |= {"vcpus": flavor.vcpus, "memory_mb": float(flavor.ram)}
            instance |= {name: flavor.extra_specs[spec] for spec, name in SPECS.items() if spec in flavor.extra_specs}
        elif not parsed_args.vcpus or not parsed_args.ram:
            raise exceptions.CommandError("name a --flavor, or --vcpus and --ram")
        else:
            instance |= {"vcpus": parsed_args.vcpus, "memory_mb": parsed_args.ram}
        if parsed_args.workload:
            instance["workload"] = parsed_args.workload
        return instance  # type: ignore[return-value]


def _row(candidate: Any) -> tuple[Any, ...]:
    neighbours = [neighbour["throughput_ratio"] for neighbour in candidate["neighbours"]]
    worst = min(neighbours, key=lambda band: band["expected"], default=None)
    return (
        candidate["rank"],
        candidate["host"],
        "" if candidate["score"] is None else f"{candidate['score']:.2f}",
        ratio(candidate["new_vm"]["throughput_ratio"]),
        ratio(worst) if worst else "",
        "; ".join(candidate.get("notes", [])),
    )
