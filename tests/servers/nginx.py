"""A real nginx of the test's own: the load balancer of docs/operations.md in front of services."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.running import Running, answers, found, free_port, own_folder

_OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
{documented}
}}
"""


def documented(port: int, services: Sequence[int]) -> str:
    """What docs/operations.md asks users to write, on these ports of 127.0.0.1 and without TLS."""
    found = re.search(
        r"^```\n(upstream cotenant \{\n.*?)^```$", _OPERATIONS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found
    listening, listens = re.subn(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", found[1])
    plain, certificates = re.subn(r"^ *ssl_certificate.*\n", "", listening, flags=re.MULTILINE)
    first, *others = re.findall(r"^ *server 127\.0\.0\.1:.*\n", plain, re.MULTILINE)
    assert (listens, certificates, len(others)) == (1, 2, 1)
    servers = "".join(first.replace(":8080", f":{service}") for service in services)
    return plain.replace(first, servers).replace(others[0], "")


class Nginx:
    """Forwards a port of its own to others in turn."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        path = folder / "nginx.conf"
        text = _CONFIGURATION.format(folder=folder, documented=documented(self.port, ports))
        path.write_text(text, encoding="utf-8")
        argv = [found("nginx"), "-c", str(path), "-p", str(folder), "-e", "stderr"]
        self.running = Running(argv, lambda: answers(self.port), folder / "log", drop=True)


@contextmanager
def nginx(ports: Sequence[int]) -> Iterator[Nginx]:
    """A running nginx before services on these ports of 127.0.0.1; NotInstalled where there is none."""
    folder = own_folder("nginx")
    balancer = None
    try:
        balancer = Nginx(folder, ports)
        balancer.running.start()
        yield balancer
    finally:
        if balancer is not None:
            balancer.running.stop()
        shutil.rmtree(folder)
