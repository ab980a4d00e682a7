"""fio on a file of its own: random or sequential, reading or writing, past the host's page cache where that works."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from profiler.lab.errors import RunError
from profiler.lab.workloads.base import Local, Reached, Site

Access = Literal["read", "randread", "write", "randwrite"]
ACCESSES: tuple[Access, ...] = ("read", "randread", "write", "randwrite")
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Disk(Local):
    """One synchronous request at a time per vCPU, on `file_mb` of real (not sparse) data."""

    kind: ClassVar[str] = "disk"
    unit: ClassVar[str] = "MB/s"
    lead_s: ClassVar[float] = 0.25  # fio 3.33 sets itself up for so long before the first request, as measured

    file_mb: int = 256
    block_kb: int = 64
    access: Access = "randread"

    def tools(self, _load: float, /) -> tuple[str, ...]:
        return ("fio",)

    def disk_mb(self) -> float:
        return float(self.file_mb)

    def prepare(self, site: Site, /) -> None:
        path = self._path(site)
        if path.exists() and path.stat().st_size == self.file_mb * _CHUNK:
            return
        chunk = os.urandom(_CHUNK)  # data that no layer below can compress or leave out
        with path.open("wb") as file:
            file.writelines(chunk for _ in range(self.file_mb))
            file.flush()
            os.fsync(file.fileno())

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        path = self._path(site)
        limit = [] if rate is None else [f"--rate={round(rate * 1e6 / site.vcpus)}"]
        return [
            # --thread: one process, which dies with the lab; a forked job would not
            "fio", "--name=disk", f"--filename={path}", f"--size={self.file_mb}M", f"--rw={self.access}", "--thread",
            f"--bs={self.block_kb}k", f"--direct={int(takes_direct(path))}", "--ioengine=psync", "--time_based",
            f"--runtime={max(1, round(seconds))}", f"--numjobs={site.vcpus}", "--group_reporting", "--randrepeat=0",
            "--allow_file_create=0", "--output-format=json", *limit,
        ]  # fmt: skip

    def read(self, output: str, _rate: float | None, /) -> Reached:
        try:
            job = json.loads(output[output.index("{") :])["jobs"][0]
            side = job["read" if self.access.endswith("read") else "write"]
            if not side["total_ios"]:
                raise RunError("fio made no request in its time")
            p95_ns = side["clat_ns"]["percentile"]["95.000000"]
            return Reached(side["bw_bytes"] / 1e6, side["lat_ns"]["mean"] / 1e6, p95_ns / 1e6)
        except (ValueError, KeyError, IndexError, TypeError):
            raise RunError(f"fio printed no report: {' '.join(output.split())[-300:]}") from None

    def _path(self, site: Site) -> Path:
        return site.files / f"disk-{site.position}-{self.file_mb}.bin"


def takes_direct(path: Path) -> bool:
    """Whether this file system lets reads bypass the page cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True
