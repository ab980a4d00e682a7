"""iperf3 as a bulk sender: the instance sends as fast as it can, or at a rate, to the load generators' side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import (
    ENDLESS_S,
    Listens,
    Progress,
    ServedWorkload,
    Site,
    WorkloadResult,
    excerpt,
    program,
    report_of,
    whole_seconds,
)

Transport = Literal["tcp", "udp"]
# iperf3 serves one client at a time: the measuring one finds a free server while the filler still loads the other.
_PORT, _FILL_PORT = 5201, 5202


@dataclass(frozen=True, slots=True)
class BulkWorkload(ServedWorkload):
    """`streams` connections on which the instance sends (iperf3 -R, so that its outgoing traffic is what is limited).

    Throughput is the payload that the receiver got, in Mbit/s. `mbit` is the most that it sends at full load; UDP with
    neither it nor a rate sends as fast as its CPU can. `datagram_bytes` is the payload of a UDP datagram, None = as
    much as fits into a packet.
    """

    kind: ClassVar[str] = "bulk"
    unit: ClassVar[str] = "Mbit/s"
    listens: ClassVar[Listens] = ("tcp", _PORT)
    tools: ClassVar[tuple[str, ...]] = ("iperf3",)

    transport: Transport = "tcp"
    streams: int = 1
    mbit: float | None = None
    datagram_bytes: int | None = None

    @property
    def progress(self) -> Progress:
        return "packets" if self.transport == "udp" else "sent"

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        transport: Transport = fields.choice("transport", ("tcp", "udp"), "tcp")
        streams = fields.whole("streams", 1, most=128)  # 128 is iperf3's own limit
        size = fields.whole("datagram_bytes", least=16, most=65_507) if fields.has("datagram_bytes") else None
        if size is not None and transport == "tcp":
            fields.wrong(fields.at("datagram_bytes"), "needs transport udp")
        return cls(transport, streams, fields.optional("mbit", most=1e6), size)

    def server(self, _site: Site, /) -> list[str]:
        serve = ("iperf3", "--server", "--port")
        return program("run_together", 0, "--", *serve, _FILL_PORT, "--", *serve, _PORT)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        return self._client(site, seconds, rate, _PORT)

    def fill(self, site: Site, rate: float | None, /) -> list[str]:
        return self._client(site, ENDLESS_S, rate, _FILL_PORT)

    def _client(self, site: Site, seconds: float, rate: float | None, port: int) -> list[str]:
        mbit = self.mbit if rate is None else rate
        bits = 0 if mbit is None else max(1, round(mbit * 1e6 / self.streams))  # 0 = no limit, for UDP too
        return [
            "iperf3", "--client", site.address, "--port", str(port), "--reverse", "--json", "--bitrate", str(bits),
            "--time", str(whole_seconds(seconds)), "--parallel", str(self.streams),
            *(["--udp"] if self.transport == "udp" else []),
            *([] if self.datagram_bytes is None else ["--length", str(self.datagram_bytes)]),
        ]  # fmt: skip

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, "iperf3") as report:
            if "error" in report:  # iperf3 3.12 ends with status 0 after "unable to connect to server"
                raise RunError(f"iperf3: {excerpt(str(report['error']))}")
            end = report["end"]
            mbit = end["sum_received"]["bits_per_second"] / 1e6
            if self.transport == "tcp":
                return WorkloadResult(mbit, further={"retransmits": (float(end["sum_sent"]["retransmits"]), "1")})
            total = end["sum"]
            further = {"lost": (float(total["lost_percent"]), "%")}
            return WorkloadResult(mbit, jitter_ms=float(total["jitter_ms"]), further=further)
