"""The command `serve`: one uvicorn process on a loopback address, stopped gracefully."""

from __future__ import annotations

import signal
import socket
from typing import Annotated

import typer
import uvicorn

from advisor.errors import InvalidInput
from advisor.service import Advisor
from api.app import create_app
from api.auth import bind, parse_listen, require_loopback
from api.cli.options import Database, settings
from api.telemetry import start_logging

GRACE_S = 30  # for requests under way when the service is told to stop
KEEP_ALIVE_S = 75  # longer than proxies keep idle connections, so that they and not we close them
LEVELS = ("debug", "info", "warning", "error")


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then tell."""
        await super().startup(sockets)
        for listener in sockets or []:
            host, port = listener.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            typer.echo(
                f"Cotenant listens on http://{shown}:{port} (API: /docs). No token is configured: this machine only.",
                err=True,
            )


def serve(
    listen: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS:PORT", help="Where.", show_default="COTENANT_LISTEN, else 127.0.0.1:8080"),
    ] = None,
    database: Database = None,
) -> None:
    """Run the REST service and the web page.

    Stops at SIGTERM or Ctrl-C after finishing the requests under way.
    """
    chosen = settings(listen=listen, database=database)
    if chosen.log_level.lower() not in LEVELS:
        raise InvalidInput(f"COTENANT_LOG_LEVEL {chosen.log_level!r} is none of {', '.join(LEVELS)}", field="log_level")
    host, port = parse_listen(chosen.listen)
    require_loopback(host)
    try:
        listener = bind(host, port)
    except OSError as error:
        typer.echo(f"cotenant: cannot listen on {chosen.listen}: {error.strerror or error}; choose another", err=True)
        raise typer.Exit(1) from error
    start_logging(chosen.log_level)
    with listener, Advisor(chosen) as advisor:
        advisor.ready()  # a database of another version is told now, not to whoever asks first
        config = uvicorn.Config(
            create_app(advisor, chosen),
            log_config=None,
            access_log=False,  # api.telemetry writes the access log
            ws="none",
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # nobody's word about who the client is counts yet
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        # uvicorn stops gracefully, then raises the signal again; that one must not kill us before the database closes.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        _Server(config).run(sockets=[listener])
