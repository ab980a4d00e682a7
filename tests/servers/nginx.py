"""A real nginx of the test's own: a plain load balancer in front of services."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.servers.running import Running, answers, found, free_port, own_folder

# What a plain configuration has: a server that refuses a connection or says 503 is passed over for the next.
# POST is asked twice only because every POST of the API may be: samples and colocations are stored once.
_CONFIGURATION = """
daemon off;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_max_body_size 16m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream cotenant {{
    {servers}
    keepalive 16;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://cotenant;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host 127.0.0.1;
      proxy_next_upstream error timeout http_503 non_idempotent;
    }}
  }}
}}
"""


class Nginx:
    """Forwards a port of its own to others in turn."""

    def __init__(self, folder: Path, ports: Sequence[int]) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        servers = " ".join(f"server 127.0.0.1:{port} max_fails=0;" for port in ports)
        path = folder / "nginx.conf"
        path.write_text(_CONFIGURATION.format(folder=folder, port=self.port, servers=servers), encoding="utf-8")
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
