"""Who may ask: as long as no token can be configured, only this machine; the room where tokens will live."""

from __future__ import annotations

import ipaddress
import re
import socket

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from advisor.errors import InvalidInput
from api.problems import OF_STATUS, respond

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d{1,5})?\Z")


def is_loopback(name: str) -> bool:
    """Whether a host name or address means this machine and cannot mean another one."""
    name = name.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def parse_listen(listen: str) -> tuple[str, int]:
    """Split `127.0.0.1:8080` or `[::1]:8080` into host and port; InvalidInput says what is wrong with it."""
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\s]+):(\d{1,5})", listen)
    if not match or int(match[2]) > 65535:
        raise InvalidInput(f"{listen!r} is not ADDRESS:PORT, such as 127.0.0.1:8080 or [::1]:8080", field="listen")
    return match[1].strip("[]"), int(match[2])


def require_loopback(host: str) -> None:
    """Refuse to listen where others could reach a service that has no token; InvalidInput names the way out."""
    if not is_loopback(host):
        raise InvalidInput(
            f"refusing to listen on {host}: no token is configured, so anybody who reaches it could change the "
            "inventory; listen on 127.0.0.1 or [::1] and put an authenticating proxy in front",
            field="listen",
        )


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket for that loopback address; OSError when it is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Told that it is TCP, asyncio sends without Nagle's delay, which would add 40 ms to every answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


class LoopbackNames:
    """Answer only requests that were addressed to a loopback name.

    A page in an administrator's browser can point a name of its own at 127.0.0.1 (DNS rebinding) and would then be
    allowed to read and write a service that asks for no token; it cannot forge the Host header.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] == "http":
            request = Request(scope, receive)
            match = _HOST.match(request.headers.get("host", ""))
            if not match or not is_loopback(match["name"]):
                detail = "no token is configured, so only requests to a loopback name or address are answered"
                await respond(request, OF_STATUS[421], detail)(scope, receive, send)
                return
        await self.app(scope, receive, send)
