"""fio on files of its own, past the host's page cache where that works: one stream, or pairs of readers and writers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from lab.errors import RunError
from lab.fields import Fields
from lab.workloads.base import (
    LocalWorkload,
    Progress,
    Site,
    WorkloadResult,
    excerpt,
    fill_file,
    report_of,
    whole_seconds,
)

Access = Literal["read", "randread", "write", "randwrite"]
_MB = 1 << 20
_SETUP_S = 0.25  # that fio 3.33 takes until its first request, as measured
# The files of the paper's disk tests (latency-sensitive-cloud-2010, section 3: "several hundred 5 MB files").
_FILE_MB = 5


def _fio(seconds: float, direct: bool, *jobs: str) -> list[str]:
    return [
        # --thread: one process, which dies with the lab; a forked job would not
        "fio", "--thread", "--ioengine=psync", f"--direct={int(direct)}", "--time_based", "--randrepeat=0",
        f"--runtime={whole_seconds(seconds)}", "--allow_file_create=0", "--group_reporting", "--output-format=json",
        *jobs,
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiskWorkload(LocalWorkload):
    """One synchronous request at a time per vCPU, on `file_mb` of real (not sparse) data.

    With `sync` each write is like a line of a log: through the page cache, and on the disk before the next (fdatasync).
    """

    kind: ClassVar[str] = "disk"
    unit: ClassVar[str] = "MB/s"
    progress: ClassVar[Progress] = "io"
    lead_s: ClassVar[float] = _SETUP_S
    tools: ClassVar[tuple[str, ...]] = ("fio",)

    file_mb: int = 256
    block_kb: int = 64
    access: Access = "randread"
    sync: bool = False

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        access: Access = fields.choice("access", ("read", "randread", "write", "randwrite"), "randread")
        file_mb, block_kb = fields.whole("file_mb", 256, least=8), fields.whole("block_kb", 64, most=8192)
        return cls(file_mb, block_kb, access, fields.flag("sync", False))

    def disk_mb(self) -> float:
        return float(self.file_mb)

    def prepare(self, site: Site, /) -> None:
        fill_file(self._path(site), self.file_mb * _MB)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        path = self._path(site)
        direct = takes_direct(path) and not self.sync
        return _fio(
            seconds, direct, "--name=disk", f"--filename={path}", f"--size={self.file_mb}M", f"--rw={self.access}",
            f"--bs={self.block_kb}k", f"--numjobs={site.vcpus}", *_limit(rate, site.vcpus),
            *(["--fdatasync=1"] if self.sync else []),
        )  # fmt: skip

    def disk_rates(self, mb_s: float) -> dict[str, float]:
        """Requests and flushes per second at this throughput: each operation is a request, and with `sync` a flush."""
        operations = _operations(mb_s, self.block_kb)
        return {"disk_iops": operations, **({"disk_flushes": operations} if self.sync else {})}

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        (job,) = _jobs(output, 1)
        side = _FioDirection.of(job, "read" if self.access.endswith("read") else "write")
        return WorkloadResult(side.mb_s, side.mean_ms, side.p95_ms)

    def _path(self, site: Site) -> Path:
        return site.files / f"disk-{site.position}-{self.file_mb}.bin"


@dataclass(frozen=True, slots=True)
class DiskMixWorkload(LocalWorkload):
    """`pairs` readers and as many writers, each at random places of its own `files` files of 5 MB.

    Throughput counts both. Latency is that of the readers: they wait for the disk, which may buffer writes. `further`
    has both sides apart. The rate is shared evenly by all.
    """

    kind: ClassVar[str] = "disk-mix"
    unit: ClassVar[str] = "MB/s"
    progress: ClassVar[Progress] = "io"
    lead_s: ClassVar[float] = _SETUP_S
    tools: ClassVar[tuple[str, ...]] = ("fio",)

    pairs: int = 1
    files: int = 8
    block_kb: int = 64

    @classmethod
    def of(cls, fields: Fields, /) -> Self:
        pairs, files = fields.whole("pairs", 1, most=64), fields.whole("files", 8, most=1000)
        return cls(pairs, files, fields.whole("block_kb", 64, most=_FILE_MB * 1024))

    def disk_mb(self) -> float:
        return 2.0 * self.pairs * self.files * _FILE_MB

    def prepare(self, site: Site, /) -> None:
        folder = self._folder(site)
        folder.mkdir(exist_ok=True)
        for name in self._names():
            fill_file(folder / name, _FILE_MB * _MB)

    def work(self, site: Site, seconds: float, rate: float | None, /) -> list[str]:
        folder = self._folder(site)
        common = [
            f"--directory={folder}", f"--bs={self.block_kb}k", f"--numjobs={self.pairs}", f"--nrfiles={self.files}",
            f"--filesize={_FILE_MB}M", "--file_service_type=random", *_limit(rate, 2 * self.pairs),
        ]  # fmt: skip
        readers = ["--name=reader", "--rw=randread", *common]
        writers = ["--name=writer", "--new_group", "--rw=randwrite", *common]
        return _fio(seconds, takes_direct(folder / next(iter(self._names()))), *readers, *writers)

    def disk_rates(self, mb_s: float) -> dict[str, float]:
        """Requests per second at this throughput of both sides: each operation is one."""
        return {"disk_iops": _operations(mb_s, self.block_kb)}

    def read(self, output: str, _rate: float | None, /) -> WorkloadResult:
        readers, writers = _jobs(output, 2)
        reads, writes = _FioDirection.of(readers, "read"), _FioDirection.of(writers, "write")
        further = {
            "read_throughput": (reads.mb_s, "MB/s"), "write_throughput": (writes.mb_s, "MB/s"),
            "read_latency_mean": (reads.mean_ms, "ms"), "read_latency_p95": (reads.p95_ms, "ms"),
            "write_latency_mean": (writes.mean_ms, "ms"), "write_latency_p95": (writes.p95_ms, "ms"),
        }  # fmt: skip
        return WorkloadResult(reads.mb_s + writes.mb_s, reads.mean_ms, reads.p95_ms, further=further)

    def _folder(self, site: Site) -> Path:
        return site.files / f"mix-{site.position}"

    def _names(self) -> list[str]:
        """The names by which fio finds its files: job, number of the job's copy, number of the file."""
        copies = [(name, copy) for name in ("reader", "writer") for copy in range(self.pairs)]
        return [f"{name}.{copy}.{number}" for name, copy in copies for number in range(self.files)]


@dataclass(frozen=True, slots=True)
class _FioDirection:
    """fio's report of one direction, reads or writes."""

    mb_s: float
    mean_ms: float
    p95_ms: float

    @classmethod
    def of(cls, job: Any, name: str) -> _FioDirection:
        try:
            side = job[name]
            if not side["total_ios"]:
                raise RunError(f"fio made no {name} request in its time")
            p95_ns = side["clat_ns"]["percentile"]["95.000000"]
            return cls(side["bw_bytes"] / 1e6, side["lat_ns"]["mean"] / 1e6, p95_ns / 1e6)
        except (KeyError, IndexError, TypeError):
            raise RunError(f"fio did not report its {name} requests: {excerpt(str(job))}") from None


def _jobs(output: str, count: int) -> list[Any]:
    with report_of(output, "fio") as report:
        jobs: list[Any] = report["jobs"]
        if len(jobs) != count:
            raise RunError(f"fio reported {len(jobs)} jobs and not {count}: {excerpt(output)}")
        return jobs


def _operations(mb_s: float, block_kb: int) -> float:
    """Operations per second of so many MB/s (1 MB = 1,000,000 bytes) in blocks of so many KB (1,024 bytes)."""
    return mb_s * 1e6 / (block_kb * 1024)


def _limit(rate: float | None, jobs: int) -> list[str]:
    """A rate of all jobs together in MB/s, as fio's limit of each job in bytes per second."""
    return [] if rate is None else [f"--rate={max(1, round(rate * 1e6 / jobs))}"]


def takes_direct(path: Path) -> bool:
    """Whether this file system lets reads bypass the page cache."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC))
    except OSError:
        return False
    return True
