"""Where the service listens: how addresses are read, and that a service without a token listens on loopback only."""

from __future__ import annotations

import ipaddress
import re
import socket

from advisor.errors import InvalidInput


def is_loopback(name: str) -> bool:
    """Whether a host name or address always means this machine."""
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
    """InvalidInput for an address where others could reach a service without a token; it says what to do."""
    if not is_loopback(host):
        raise InvalidInput(
            f"refusing to listen on {host}: no token is configured, so any client that reaches it could change "
            "the inventory; make one with `cotenant token create`, or listen on 127.0.0.1 or [::1]",
            field="listen",
        )


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to that address; OSError when it is taken or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay, 40 ms for every answer, off only for sockets that name TCP as their protocol.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener
