"""nginx as streaming server: it paces one stream to each client; clients measure bit rate, stalls and jitter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from lab.fields import Fields
from lab.workloads.base import Listens, ServedWorkload, Site, WorkloadResult, fill_file, program, report_of
from lab.workloads.nginx import nginx

_PORT = 8080
# A server sends slightly faster than the stream plays, so that a client that fell behind catches up.
_PACE = 1.05
# Bytes of a piece that it sends: one every 31 ms at 1 Mbit/s, as often as a film has frames.
_PIECE = 4096
_LENGTH_S = 60  # of the film; clients begin again at its end
_FILM = "film.bin"


@dataclass(frozen=True, slots=True)
class StreamWorkload(ServedWorkload):
    """`clients` watch a film of `mbit` Mbit/s each over HTTP (programs/stream_clients.py).

    Throughput is what all received, in Mbit/s. Jitter is the mean absolute difference between the intervals at which
    pieces arrive and those at which they are sent. `further` has `quality`, the mean share of the film's bit rate that
    clients got, and the stalls of a player that begins half a second after the first piece. At a rate, as many clients
    watch as there are streams in it.
    """

    kind: ClassVar[str] = "stream"
    unit: ClassVar[str] = "Mbit/s"
    lead_s: ClassVar[float] = 0.03
    listens: ClassVar[Listens] = ("tcp", _PORT)
    tools: ClassVar[tuple[str, ...]] = ("nginx",)

    clients: int = 4
    mbit: float = 1.0

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        return cls(fields.whole("clients", 4, most=1000), fields.number("mbit", 1.0, above=0.01, most=1000))

    def disk_mb(self) -> float:
        return self._bytes / (1 << 20) + 1

    def prepare(self, site: Site, /) -> None:
        path = site.files / f"films-{site.position}" / _FILM
        path.parent.mkdir(exist_ok=True)
        fill_file(path, self._bytes)

    def server(self, site: Site, /) -> list[str]:
        pace = round(self.mbit * 1e6 / 8 * _PACE)
        # Without tcp_nodelay the kernel would keep the end of each piece back until the next one.
        settings = f"limit_rate {pace}; sendfile_max_chunk {_PIECE}; tcp_nodelay on"
        return nginx(site, _PORT, site.files / f"films-{site.position}", settings)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        clients = self.clients if rate is None else max(1, round(rate / self.mbit))
        return program(
            "stream_clients", site.address, _PORT, f"/{_FILM}", clients, self.mbit, _PACE, _PIECE, f"{seconds:g}"
        )

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        with report_of(output, "the clients") as report:
            further = {
                "quality": (float(report["quality_percent"]), "%"),
                "stalls": (float(report["stalls"]), "1"),
                "stalled": (float(report["stalled_s"]), "s"),
            }
            jitter = None if report["jitter_ms"] is None else float(report["jitter_ms"])
            return WorkloadResult(float(report["mbit_s"]), jitter_ms=jitter, further=further)

    @property
    def _bytes(self) -> int:
        return round(self.mbit * 1e6 / 8 * _LENGTH_S)
