"""The command line `cotenant`: the list of commands, and how every error becomes one sentence and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from fcntl import F_DUPFD_CLOEXEC, fcntl
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any, ClassVar

import typer

from advisor.errors import AdvisorError, InvalidInput, own_words
from api.cli.lazy import FAILED, WRONG_USAGE, LazyGroup, Listed

__all__ = ["Cotenant", "app", "main", "program_of", "run_program"]

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2  # as the kernel and C number them

# The order of the help. Each text is the first line of the command's own help, which a test compares.
COMMANDS = (
    Listed(
        "demo",
        "api.cli.demo:demo",
        "Answer a question on an example cloud, or serve it, or serve a live cloud of containers.",
    ),
    Listed("serve", "api.cli.serve:serve", "Run the REST service and the web page."),
    Listed("where", "api.cli.ask:where", "Rank the hosts of an inventory for one instance."),
    Listed("predict", "api.cli.ask:predict", "Predict what co-located instances do to each other."),
    Listed("plan", "api.cli.plan:plan", "Plan a whole cloud: placements, rebalancing, evacuation, capacity and more."),
    Listed("tune", "api.cli.plan:tune", "Find better settings for all instances of a host as it stands."),
    Listed(
        "report",
        "api.cli.report:report",
        "Write a report of the whole cloud: hosts, pressure, most affected instances, age of the data, "
        "effect of a plan.",
    ),
    Listed(
        "worth",
        "api.cli.measured:worth",
        "Show the effect of the advice: followed or not, predicted and measured, compared with similar instances.",
    ),
    Listed(
        "probe-plan",
        "api.cli.measure:probe_plan",
        "Choose the pairs of workloads to measure next: those that could change a decision.",
    ),
    Listed("replay", "api.cli.replay:replay", "Replay a trace of real demand through placement policies."),
    Listed("profile", "api.cli.measure:profile", "Profile an instance from its samples, phase by phase."),
    Listed(
        "slowing",
        "api.cli.measured:slowing",
        "Show which instances of a host slow down which others, predicted and measured.",
    ),
    Listed(
        "score",
        "api.cli.measured:score",
        "Show the scores of VMs, from 0 to 100 (uncontended).",
    ),
    Listed(
        "obtained",
        "api.cli.measured:obtained",
        "Show what was measured of an instance: CPU delivered, and stalls at disks and networks.",
    ),
    Listed("train", "api.cli.learn:train", "Fit, calibrate, evaluate and store a model."),
    Listed("evaluate", "api.cli.learn:evaluate", "Evaluate the model and every baseline on unseen data."),
    Listed("sync", "api.cli.sync:sync", "Update the inventory in the database from a file or another system."),
    Listed("snapshot", "api.cli.report:snapshot", "Write a cloud as one file that every command on files reads."),
    Listed("migrate", "api.cli.migrate:migrate", "Move instances in another system as a rebalancing plan says."),
    Listed(
        "apply",
        "api.cli.apply:apply",
        "Apply a plan, a tuning or an answer, measure its effect, and undo it.",
    ),
    Listed(
        "changes",
        "api.cli.apply:changes",
        "Changes that were applied: list them, show one with its ledger, approve one.",
    ),
    Listed(
        "maintenance",
        "api.cli.apply:maintenance",
        "Close a host, move its instances away as a plan says, and open it again.",
    ),
    Listed(
        "freeze",
        "api.cli.apply:freeze",
        "Freeze changes: none is applied until they are thawed; applied ones can be undone.",
    ),
    Listed(
        "history",
        "api.cli.sync:history",
        "Learn the demand of instances from the history that Gnocchi, Prometheus or the system itself has stored.",
    ),
    Listed(
        "doctor",
        "api.cli.measured:doctor",
        "List problems: hosts without measurements, instances with little CPU delivered, anomalies.",
    ),
    Listed("schema", "api.cli.schema:schema", "Print the JSON Schema of what a command prints with --json."),
    Listed("audit", "api.cli.tokens:show_audit", "Show changes and refused requests by user, newest first."),
    Listed("plans", "api.cli.plan:plans", "Stored plans: list them, show one with its age."),
    Listed("models", "api.cli.registry:models", "The registry of learned models: list, judge, activate, roll back."),
    Listed("db", "api.cli.tokens:db", "Administration of the database."),
    Listed("token", "api.cli.tokens:tokens", "Tokens of the REST service."),
)


# Commands without --server, each with the reason; a test compares. A group stands for each of its commands.
ON_THIS_MACHINE = {
    "demo": "its cloud is an example that comes with the program",
    "serve": "it is the service",
    "replay": "it reads a trace, and no cloud",
    "train": "it uses all CPUs for minutes, and its artifact is a folder of this machine",
    "evaluate": "it reads datasets, and no cloud",
    "sync": "it reads another system with the accounts of this machine, and writes one transaction",
    "history": "it reads another system with the accounts of this machine, and writes one transaction",
    "maintenance": "it moves instances with the accounts of this machine, as `apply` does",
    "changes run": "it acts on this machine, as `apply` does",
    "apply": "it changes settings of this machine, or signs orders with a key that the service does not have",
    "schema": "it describes what the commands of this version print",
    "db": "it administers the database itself",
    "token": "no token may make or end another, so tokens are made where the database is",
}


class Cotenant(LazyGroup):
    """The root of all commands; what the advisor refuses is shown in one sentence."""

    listed: ClassVar[Sequence[Listed]] = COMMANDS
    program: ClassVar[str] = "cotenant"

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except AdvisorError as error:
            typer.echo(f"{self.program}: {one_line(error.message)}", err=True)
            raise typer.Exit(WRONG_USAGE if isinstance(error, InvalidInput) else FAILED) from error
        except typer.BadParameter as error:
            error.message = own_words(error.message)
            raise


def program_of(group: type[Cotenant], text: str) -> typer.Typer:
    """The program of a group, named as its distribution, with --version; `text` is its help."""
    made = typer.Typer(
        name=group.program,
        cls=group,
        help=text,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def show_version(wanted: bool) -> None:
        if wanted:
            typer.echo(f"{group.program} {version(group.program)}")
            raise typer.Exit

    def root(shown: bool = False) -> None:
        del shown

    option = typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    root.__annotations__["shown"] = Annotated[bool, option]  # a text would be looked up outside of this function
    made.callback()(root)
    return made


app = program_of(
    Cotenant,
    "Where should this VM go, and with which settings, so that no VM on that host suffers?\n\n"
    "Settings come from COTENANT_* variables; options win. Exit codes: 0 done, 1 failed, 2 wrong usage or input, "
    "3 no host for it.",
)


def main() -> None:
    """Entry point."""
    run_program(app, Cotenant.program)


def run_program(commands: typer.Typer, program: str) -> None:
    """Run a program. Also the last resort for errors that were not foreseen, and for a reader that closed the pipe."""
    _keep_output()
    try:
        try:
            commands()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter complains at its end
        sys.exit(FAILED)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            _report(error, program)
        else:
            typer.echo(f"{program}: cannot write the output: no space is left where it goes", err=True)
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort
        _report(error, program)
        sys.exit(FAILED)


def _keep_output() -> None:
    """Leave standard output to what Python prints; what a library in C writes there goes to standard error.

    HiGHS now and then prints a line of its own, which would break the JSON of a command. For the whole run and not only
    around its calls, for other threads print meanwhile, and C writes what it buffers at the end of the process.
    """
    output = sys.stdout
    try:
        if output.fileno() != STANDARD_OUTPUT:
            return
    except (AttributeError, OSError):  # none, or one of a test's own
        return
    output.flush()
    number = fcntl(STANDARD_OUTPUT, F_DUPFD_CLOEXEC, STANDARD_ERROR + 1)  # never that of a closed standard error
    kept = os.fdopen(number, "w", encoding=output.encoding, errors=output.errors)
    if isinstance(output, TextIOWrapper):
        kept.reconfigure(line_buffering=output.line_buffering, write_through=output.write_through)
    try:
        os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
    except OSError:  # it is closed
        os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_OUTPUT)
    sys.stdout = kept


def _report(error: Exception, program: str) -> None:
    """Report an unforeseen error in one sentence."""
    if os.environ.get("COTENANT_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exc()
    hint = "set COTENANT_LOG_LEVEL=debug to see where, and report it"
    typer.echo(f"{program}: internal error, {type(error).__name__}: {one_line(str(error))} ({hint})", err=True)


def one_line(text: str) -> str:
    """An error as one line without control characters, for it may quote a hostile file."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())
