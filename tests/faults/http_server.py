"""The real application behind the real protocol, served from a thread of the test, so that times can be made short."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx

from advisor.offline import load_inventory
from advisor.service import Advisor
from advisor.settings import Settings
from api.app import create_app
from api.serving import Server

CLOUD = Path(__file__).parents[1] / "api" / "cloud.yaml"


class Served:
    """An application that is being served; `server` is uvicorn's."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> httpx.Response:
        """Ask on a connection of its own."""
        return httpx.get(f"{self.url}{path}", timeout=30)

    def connect(self, *, small: bool = False) -> socket.socket:
        """A connection on which nothing was said yet; `small` = with a receive buffer of a few KiB."""
        connection = socket.socket()
        if small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(30)
        connection.connect(("127.0.0.1", self.port))
        return connection


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Served]:
    """A service with a small cloud; it ends with the block."""
    settings = Settings(database=f"sqlite:///{folder}/db.sqlite3", state_dir=folder, max_body_mb=1.0, reserve_s=0)
    listener = socket.create_server(("127.0.0.1", 0))
    started = threading.Event()
    with Advisor(settings) as advisor:
        advisor.inventory.put(load_inventory(CLOUD), mode="replace", generation=None)
        app = create_app(advisor, settings)
        server = Server(app, settings, started.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            assert started.wait(60)
            yield Served(server, listener.getsockname()[1])
        finally:
            server.should_exit = server.force_exit = True
            thread.join(60)
            app.state.lanes.close()


def answer_of(connection: socket.socket) -> bytes:
    """One whole answer."""
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(1)
    length = int(got.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    for _ in range(length):
        got += connection.recv(1)
    return got


def rest_of(connection: socket.socket) -> bytes:
    """Everything until the other side closes; what a reset cuts off is lost."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            got += part
    return got
