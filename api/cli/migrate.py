"""The command `migrate`: a rebalancing plan of the service, carried out in the system where the instances run."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from advisor import service
from advisor.domain import Instance, Inventory, Plan, PlanRequest, PlanStep
from advisor.errors import AdvisorError, InvalidInput
from advisor.service import MoveOutcome, Mover
from api.cli.asking import SERVER, Server, Service, TokenFile
from api.cli.lazy import FAILED, stop_event
from api.cli.options import NOTHING, AsJson, CloudName, Options, names_of, with_options
from api.cli.output import print_json, say
from api.schemas.commands import MigrationOut, MoveOut

REST_S = 3600.0  # for which who could not be moved is left alone
MOST_SHOWN = 10  # instances that stay; --json has all


@with_options
def migrate(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="Where the instances run, such as kubernetes.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Carry the moves out, one at a time.", show_default="only list them")
    ] = False,
    evict: Annotated[
        bool,
        typer.Option("--evict", help="Evict pods, too, if a controller replaces them.", show_default="no"),
    ] = False,
    namespaces: Annotated[
        str | None, typer.Option(metavar="A,B", help="Only what is in these namespaces.", show_default="all")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Repeat at this interval, such as 15m, until SIGTERM.", show_default="once"),
    ] = None,
    max_moves: Annotated[int, typer.Option(min=1, max=1000, help="Maximum number of moves.")] = 10,
    asked: Annotated[Mapping[str, Any], Options(PlanRequest, ("move_gain", "keep_ratio", "objective"))] = NOTHING,
    patience: Annotated[str, typer.Option(metavar="TIME", help="Cancel a move that takes longer than this.")] = "15m",
    cloud: CloudName = None,
    as_json: AsJson = False,
    server: Server = None,
    token_file: TokenFile = None,
) -> None:
    """Move instances in another system as a rebalancing plan says.

    The running service makes the plan. Without --apply nothing is moved. With it guests of KubeVirt move to the nodes
    of the plan, one at a time, and only where nothing moves already, no PodDisruptionBudget forbids it, and the guest
    is still where it was planned from. Exit code 1 when a move failed or a plan could not be had.
    """
    url = server or os.environ.get(SERVER)
    if url is None:
        raise InvalidInput(f"name the service that makes the plan with --server or {SERVER}", field="server")
    pause_s = service.every_s(every) if every is not None else None
    names = names_of("--namespaces", namespaces) or ()
    mover = service.open_mover(system, cloud=cloud, evict=evict, namespaces=names, patience_s=_patience_s(patience))
    request = PlanRequest(kind="rebalance", max_moves=max_moves, at_once=1, at_once_per_host=1, **asked)
    planner = Service.of(url, token_file, patience_s=request.time_limit_s)
    stop = stop_event() if apply or pause_s is not None else threading.Event()
    rounds = _Rounds(planner, mover, request, apply=apply, stop=stop)
    while True:
        went_well = _make_round(rounds, repeated=pause_s is not None, as_json=as_json)
        if pause_s is None or stop.wait(pause_s):
            break
    if not went_well:
        raise typer.Exit(FAILED)


def _patience_s(text: str) -> float:
    try:
        return service.every_s(text)
    except InvalidInput:
        message = f"--patience {text[:40]!r} is no time from 1s to 30d; write 30s, 15m or 1h"
        raise InvalidInput(message, field="patience") from None


def _make_round(rounds: _Rounds, *, repeated: bool, as_json: bool) -> bool:
    """Make a round and say what came of it; whether it went well. An error ends the command only where it runs once."""
    try:
        done = rounds.once()
    except AdvisorError as error:
        if not repeated:
            raise
        typer.echo(f"cotenant: {error.message}", err=True)
        return False
    if as_json:
        print_json(done.document(), in_one_line=repeated)
    else:
        done.say()
    return not any(outcome.became == "failed" for outcome in done.outcomes.values())


@dataclass(slots=True)
class _Round:
    """One plan and what became of its moves, by instance; `stay` is why an instance may not move, by name."""

    at: datetime
    apply: bool
    stay: Mapping[str, str]
    waits: str = ""
    plan: Plan | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    moves: list[PlanStep] = field(default_factory=list)
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    outcomes: dict[str, MoveOutcome] = field(default_factory=dict)

    def say(self) -> None:
        """Everything in sentences."""
        at = f"{self.at:%Y-%m-%dT%H:%M:%SZ}"
        if self.waits:
            say(f"{at} Nothing is planned: {self.waits}.")
            return
        if self.plan is None:
            say(f"{at} Nothing is planned: no instance may be moved.")
        else:
            say(f"{at} Plan {self.plan.id}: {_moves(len(self.moves))}; {_standing(self.plan)}.")
            for note in self.plan.notes:
                say(f"  note: {note}")
        for step in self.moves:
            name, outcome = self.names[step.instance], self.outcomes.get(step.instance)
            way = f"{name} from {step.source} to {step.host}"
            if outcome is None:
                say(f"  {'not tried: ' if self.apply else 'would move '}{way}: {step.why}")
            else:
                say(f"  {outcome.became}: {way}: {outcome.sentence}")
        for name, why in sorted(self.stay.items())[:MOST_SHOWN]:
            say(f"  stays: {name}: {why}")
        if len(self.stay) > MOST_SHOWN:
            say(f"  and {len(self.stay) - MOST_SHOWN} more stay (--json shows all)")
        if self.moves and not self.apply:
            say("Nothing was moved; --apply moves them, one at a time.")

    def document(self) -> MigrationOut:
        """The same for programs."""
        return MigrationOut(
            at=self.at,
            apply=self.apply,
            plan=self.plan.id if self.plan else None,
            waits=self.waits or None,
            below_before=self.plan.sums_before.below if self.plan and self.plan.sums_before else None,
            below_after=self.plan.sums_after.below if self.plan and self.plan.sums_after else None,
            moves=[self._move(step, request) for step, request in zip(self.moves, self.requests, strict=True)],
            stay=dict(self.stay),
            notes=list(self.plan.notes) if self.plan else [],
        )

    def _move(self, step: PlanStep, request: Mapping[str, Any]) -> MoveOut:
        outcome = self.outcomes.get(step.instance)
        return MoveOut(
            instance=step.instance,
            name=self.names[step.instance],
            source=step.source or "",
            to=step.host or "",
            why=step.why,
            request=dict(request),
            became=outcome and outcome.became,
            said=outcome and outcome.sentence,
        )


@dataclass(slots=True)
class _Rounds:
    """Makes rounds, and leaves alone for a while who could not be moved."""

    service: Service
    mover: Mover
    request: PlanRequest
    apply: bool
    stop: threading.Event
    _resting: dict[str, float] = field(default_factory=dict)

    def once(self) -> _Round:
        """Ask for a plan of who may move, and carry it out where that is wanted."""
        cloud = self.service.inventory()
        standings = self.mover.standings(cloud.instances)
        now = time.monotonic()
        self._resting = {name: until for name, until in self._resting.items() if until > now}
        stay = {guest.name: guest.why_not for guest in standings if guest.why_not}
        stay |= {guest.name: "it could not be moved lately" for guest in standings if guest.instance in self._resting}
        names = {guest.instance: guest.name for guest in standings if guest.name not in stay}
        done = _Round(datetime.now(UTC).replace(microsecond=0), self.apply, stay)
        done.names, done.waits = names, self.mover.busy()
        if done.waits or not names:
            return done
        done.plan = self.service.plan(replace(self.request, movable=tuple(sorted(names))))
        done.moves = [step for step in done.plan.steps if step.action == "move" and step.host and step.source]
        done.requests = [self._request(step, cloud, done.plan.id) for step in done.moves]
        if self.apply:
            self._carry_out(done, cloud, done.plan.id)
        return done

    def _request(self, step: PlanStep, cloud: Inventory, plan: str) -> Mapping[str, Any]:
        target = next(host for host in cloud.hosts if host.id == step.host)
        return self.mover.request(_instance(cloud, step.instance), target, plan)

    def _carry_out(self, done: _Round, cloud: Inventory, plan: str) -> None:
        """One move after the other; after the first that does not end as planned the rest is planned anew."""
        hosts = {host.id: host for host in cloud.hosts}
        for step in done.moves:
            if self.stop.is_set():
                return
            instance = _instance(cloud, step.instance)
            source, target = hosts[step.source or ""], hosts[step.host or ""]
            outcome = self.mover.move(instance, source, target, plan, self.stop)
            done.outcomes[step.instance] = outcome
            if outcome.became in {"refused", "failed"}:
                self._resting[step.instance] = time.monotonic() + REST_S
            if outcome.became != "done":
                return


def _instance(cloud: Inventory, name: str) -> Instance:
    return next(instance for instance in cloud.instances if instance.id == name)


def _moves(number: int) -> str:
    return "nothing is to be moved" if number == 0 else "1 move" if number == 1 else f"{number} moves"


def _standing(plan: Plan) -> str:
    if plan.sums_before is None or plan.sums_after is None:
        return "the plan has no figures of the cloud"
    return f"{plan.sums_before.below} are below their limit now, {plan.sums_after.below} afterwards"
