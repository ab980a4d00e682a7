"""nginx serving one file, loaded by wrk at saturation or by httperf at a requested rate, from another namespace."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from profiler.lab.errors import RunError
from profiler.lab.workloads.base import Reached, Site, find_number

_PORT = 80
_LISTENING = f":{_PORT:04X} 00000000:0000 0A"  # /proc/net/tcp: local port, no peer, state LISTEN
_TIMEOUT_S = 5
# httperf opens a connection per session; ten calls on each keep connection set-up from being the load.
_CALLS_PER_SESSION = 10

_NGINX = """\
daemon off; master_process {master}; worker_processes {workers}; pid nginx.pid; error_log stderr crit; user root;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_timeout 60s; keepalive_requests 1000000000;
  open_file_cache max=16; default_type application/octet-stream;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{ listen {port}; root "{root}"; }}
}}
"""
# wrk prints no 95th percentile of its own; `latency` and `duration` are in µs (wrk, SCRIPTING).
_REPORT = """\
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '\\n{"requests":%d,"duration_us":%d,"mean_us":%.3f,"p95_us":%.3f,"failed":%d,"timeouts":%d,"statuses":%d}\\n',
    summary.requests, summary.duration, latency.mean, latency:percentile(95), e.connect + e.read + e.write,
    e.timeout, e.status))
end
"""


@dataclass(frozen=True, slots=True)
class Web:
    """A web server with files of one size."""

    kind: ClassVar[str] = "web"
    unit: ClassVar[str] = "req/s"
    lead_s: ClassVar[float] = 0.0

    size_kb: int = 1
    connections: int = 16

    @property
    def has_generator(self) -> bool:
        return True

    def tools(self, load: float, /) -> tuple[str, ...]:
        return ("nginx", "wrk") if load >= 1.0 else ("nginx", "wrk", "httperf")

    def disk_mb(self) -> float:
        return self.size_kb / 1024 + 1

    def prepare(self, site: Site, /) -> None:
        path = site.files / "www" / self._name
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(os.urandom(1024) * self.size_kb)
        (site.files / "report.lua").write_text(_REPORT, encoding="utf-8")

    def server(self, site: Site, /) -> list[str]:
        text = _NGINX.format(
            # One process when one is enough: it then dies with the lab, as a worker of a killed master would not.
            master="off" if site.vcpus == 1 else "on", workers=site.vcpus, port=_PORT, root=site.files / "www",
        )  # fmt: skip
        (site.directory / "nginx.conf").write_text(text, encoding="utf-8")
        return ["nginx", "-e", "stderr", "-p", f"{site.directory}/", "-c", str(site.directory / "nginx.conf")]

    def is_ready(self, pid: int, /) -> bool:
        try:
            return _LISTENING in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii")  # of its own namespace
        except OSError:
            return False

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        if rate is not None:
            return self._at_rate(site, seconds, rate)
        return [
            "wrk", "--threads", "1", "--connections", str(self.connections), "--duration", f"{max(1, round(seconds))}s",
            "--timeout", f"{_TIMEOUT_S}s", "--script", str(site.files / "report.lua"),
            f"http://{site.address}:{_PORT}/{self._name}",
        ]  # fmt: skip

    def _at_rate(self, site: Site, seconds: float, rate: float) -> list[str]:
        calls = max(1, min(_CALLS_PER_SESSION, round(rate * seconds / 100)))  # at least some 100 sessions
        sessions = rate / calls
        connections = max(1, round(sessions * seconds))
        return [
            "httperf", "--hog", "--client", "0/1", "--server", site.address, "--port", str(_PORT),
            "--uri", f"/{self._name}", "--rate", f"{sessions:.3f}", "--num-conns", str(connections),
            "--num-calls", str(calls), "--timeout", str(_TIMEOUT_S),
        ]  # fmt: skip

    def read(self, output: str, rate: float | None, /) -> Reached:
        if rate is not None:
            replies = find_number(r"Total: connections \d+ requests \d+ replies (\d+)", output, "httperf")
            seconds = find_number(r"test-duration ([\d.]+) s", output, "httperf")
            response = find_number(r"Reply time \[ms\]: response ([\d.]+)", output, "httperf")
            transfer = find_number(r"Reply time \[ms\]: response [\d.]+ transfer ([\d.]+)", output, "httperf")
            if not replies or not seconds:
                raise RunError("httperf got no reply from the server")
            return Reached(replies / seconds, response + transfer or None)  # below 0.05 ms it prints 0.0
        try:
            report = json.loads(output.strip().rsplit("\n", 1)[-1])
            if report["statuses"] or report["failed"] or not report["requests"]:
                raise RunError(f"wrk could not load the server: {report}")
            throughput = report["requests"] * 1e6 / report["duration_us"]
            return Reached(throughput, report["mean_us"] / 1e3, report["p95_us"] / 1e3)
        except (ValueError, KeyError, TypeError, IndexError, ZeroDivisionError):
            raise RunError(f"wrk printed no report: {' '.join(output.split())[-300:]}") from None

    @property
    def _name(self) -> str:
        return f"{self.size_kb}kb.bin"
