"""The command `serve`: the service on an address, as one process or several."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from advisor.errors import InvalidInput
from advisor.service import Advisor
from advisor.settings import Settings
from api import serving
from api.auth import bind, is_loopback, parse_listen, require_loopback
from api.cli.options import Database, settings
from api.html import Demonstration
from api.telemetry import start_logging

LEVELS = ("debug", "info", "warning", "error")


def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            help="Address and port to listen on.",
            show_default="COTENANT_LISTEN, else 127.0.0.1:8080",
        ),
    ] = None,
    database: Database = None,
    workers: Annotated[
        int, typer.Option(min=1, max=256, metavar="N", help="Number of worker processes; they share the address.")
    ] = 1,
) -> None:
    """Run the REST service and the web page.

    Stops at SIGTERM or Ctrl-C after finishing the requests under way. Several workers share the database and the
    metrics; limits that are kept in memory hold for each of them.
    """
    run_service(settings(listen=listen, database=database), workers)


def run_service(chosen: Settings, workers: int = 1, shown: Demonstration | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; InvalidInput where the settings do not allow it.

    What is `shown` is served by one process.
    """
    if chosen.log_level.lower() not in LEVELS:
        raise InvalidInput(f"COTENANT_LOG_LEVEL {chosen.log_level!r} is none of {', '.join(LEVELS)}", field="log_level")
    host, port = parse_listen(chosen.listen)
    with Advisor(chosen) as advisor:
        advisor.access.tokens.refresh()
        guarded = advisor.access.guarded
    if not guarded:
        require_loopback(host)
    try:
        listener = bind(host, port)
    except OSError as error:
        typer.echo(f"cotenant: cannot listen on {chosen.listen}: {error.strerror or error}; choose another", err=True)
        raise typer.Exit(1) from error
    start_logging(chosen.log_level, chosen.log_format)
    announce = partial(_announce, listener.getsockname(), guarded=guarded, shown=shown)
    if workers == 1:
        serving.serve(chosen, listener, announce, shown)
    else:
        raise typer.Exit(serving.serve_with_workers(chosen, listener, workers, announce))


def _announce(address: tuple[str, int], *, guarded: bool, shown: Demonstration | None) -> None:
    host, port = address[:2]
    shown_address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    who = "Tokens are asked for." if guarded else "No token is configured: this machine only."
    if not is_loopback(host):
        who += " They travel in clear text: let a proxy speak TLS in front of it."
    typer.echo(f"Cotenant listens on http://{shown_address} (API: /docs). {who}", err=True)
    if shown is not None:
        shown.listens(f"http://{shown_address}")
