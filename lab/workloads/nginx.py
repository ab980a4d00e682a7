"""How workloads of the lab start nginx: in the foreground, without logs, on one folder of files."""

from __future__ import annotations

from pathlib import Path

from lab.workloads.base import Site

_CONFIGURATION = """\
daemon off; master_process {master}; worker_processes {workers}; pid nginx.pid; error_log stderr crit; user root;
events {{ worker_connections 4096; }}
http {{
  access_log off; sendfile on; keepalive_timeout 60s; keepalive_requests 1000000000; {settings};
  open_file_cache max=16; default_type application/octet-stream;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{ listen {port}; root "{root}"; }}
}}
"""


def nginx(site: Site, port: int, root: Path, settings: str) -> list[str]:
    """Write the configuration, with `settings` of its http part, and return the command."""
    text = _CONFIGURATION.format(
        # With one vCPU there is one process, which dies with the lab; a worker of a killed master would not.
        master="off" if site.vcpus == 1 else "on", workers=site.vcpus, port=port, root=root, settings=settings,
    )  # fmt: skip
    path = site.directory / "nginx.conf"
    path.write_text(text, encoding="utf-8")
    return ["nginx", "-e", "stderr", "-p", f"{site.directory}/", "-c", str(path)]
