"""nginx serving one file, loaded by wrk at saturation or in an open loop at a requested rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import (
    Listens,
    Progress,
    ServedWorkload,
    Site,
    WorkloadResult,
    fill_file,
    report_of,
    whole_seconds,
)
from lab.workloads.nginx import nginx
from lab.workloads.open_loop import at_rate, read_at_rate

_PORT = 80
_TIMEOUT_S = 5

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
class WebWorkload(ServedWorkload):
    """A web server with files of one size; a part load comes in `bursts` a second, evenly with none."""

    kind: ClassVar[str] = "web"
    unit: ClassVar[str] = "req/s"
    progress: ClassVar[Progress] = "sent"
    listens: ClassVar[Listens] = ("tcp", _PORT)
    tools: ClassVar[tuple[str, ...]] = ("nginx", "wrk")  # wrk also for part loads: it measures what the whole is

    size_kb: int = 1
    connections: int = 16
    bursts: int = 0

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        size_kb, connections = fields.whole("size_kb", 1, most=1 << 20), fields.whole("connections", 16, most=1000)
        return cls(size_kb, connections, fields.whole("bursts", 0, least=0, most=1000))

    def disk_mb(self) -> float:
        return self.size_kb / 1024 + 1

    def prepare(self, site: Site, /) -> None:
        path = site.files / "www" / self._name
        path.parent.mkdir(exist_ok=True)
        fill_file(path, self.size_kb * 1024)
        (site.files / "report.lua").write_text(_REPORT, encoding="utf-8")

    def server(self, site: Site, /) -> list[str]:
        return nginx(site, _PORT, site.files / "www", "tcp_nopush on")

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        if rate is not None:
            return at_rate("http", site, _PORT, f"/{self._name}", rate, seconds, self.bursts)
        return [
            "wrk", "--threads", "1", "--connections", str(self.connections), "--duration", f"{whole_seconds(seconds)}s",
            "--timeout", f"{_TIMEOUT_S}s", "--script", str(site.files / "report.lua"),
            f"http://{site.address}:{_PORT}/{self._name}",
        ]  # fmt: skip

    def read(self, output: str, rate: float | None, /) -> WorkloadResult:
        if rate is not None:
            return read_at_rate(output)
        with report_of(output, "wrk") as report:
            if report["statuses"] or report["failed"] or not report["requests"]:
                raise RunError(f"wrk could not load the server: {report}")
            throughput = report["requests"] * 1e6 / report["duration_us"]
            return WorkloadResult(throughput, report["mean_us"] / 1e3, report["p95_us"] / 1e3)

    @property
    def _name(self) -> str:
        return f"{self.size_kb}kb.bin"
