"""The scenes: residents, new VMs and their limits. Nothing is measured here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lab.workloads import BulkWorkload, CpuWorkload, DiskWorkload, KeyValueWorkload, WebWorkload, Workload

SUFFERS, PRESSES = "suffers", "presses"


@dataclass(frozen=True, slots=True)
class ScenePart:
    """One instance: what it runs, at which `rate` in the workload's unit (None = as fast as it can), and its limits."""

    name: str
    workload: Workload
    rate: float | None = None
    service: Literal["latency", "throughput"] = "throughput"
    min_throughput_ratio: float | None = None
    max_latency_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class PairScene:
    """Two instances on a host with the first `pcpus` CPUs of this machine; `resident` is there when `new_vm` comes.

    `clients` are the CPUs of their load generators, `line_mbit` the rate of the line behind the uplink, None = no line.
    """

    name: str
    resident: ScenePart
    new_vm: ScenePart
    pcpus: int
    clients: tuple[int, ...]
    line_mbit: float | None = None

    @property
    def parties(self) -> tuple[ScenePart, ScenePart]:
        return self.resident, self.new_vm

    @property
    def sufferer(self) -> ScenePart:
        """The instance whose limit is broken by the placement alone."""
        return next(party for party in self.parties if party.name == SUFFERS)


def beside_a_sender(rate: float, line_mbit: float, streams: int, limit: float, size_kb: int = 1) -> PairScene:
    """A server of small answers at a rate, and a bulk sender that fills the uplink's line with TCP."""
    asked = ScenePart(SUFFERS, WebWorkload(size_kb), rate, service="latency", max_latency_ratio=limit)
    bulk = ScenePart(PRESSES, BulkWorkload("tcp", streams))
    name = f"sender: {size_kb} KB x {rate:g}/s, {streams} streams on {line_mbit:g} Mbit/s"
    return PairScene(name, asked, bulk, 2, (1,), line_mbit)


def beside_a_sender_with_keys(rate: float, line_mbit: float, streams: int, limit: float) -> PairScene:
    """The same with a key-value server, which is the one that comes."""
    asked = ScenePart(SUFFERS, KeyValueWorkload(), rate, service="latency", max_latency_ratio=limit)
    bulk = ScenePart(PRESSES, BulkWorkload("tcp", streams))
    return PairScene(
        f"sender: keys x {rate:g}/s, {streams} streams on {line_mbit:g} Mbit/s", bulk, asked, 2, (1,), line_mbit
    )


def on_one_cpu(least: float, max_prime: int = 10_000) -> PairScene:
    """Two that count prime numbers on a host with one CPU: shares must mend it."""
    one = ScenePart(SUFFERS, CpuWorkload(max_prime), min_throughput_ratio=least)
    return PairScene(f"CPU: at least {least:g}, primes to {max_prime}", one, ScenePart(PRESSES, CpuWorkload()), 1, (1,))


def on_one_disk(least: float, others_least: float, block_kb: int) -> PairScene:
    """Two that read at random places of files of their own on one disk, past the page cache; both have a limit."""
    one = ScenePart(SUFFERS, DiskWorkload(64, block_kb), min_throughput_ratio=least)
    other = ScenePart(PRESSES, DiskWorkload(64, block_kb), min_throughput_ratio=others_least)
    return PairScene(f"disk: {block_kb} KB, at least {least:g} and {others_least:g}", one, other, 2, (1,))


SENDERS = (
    beside_a_sender(400, 100, 4, 2.0),
    beside_a_sender(200, 50, 8, 2.0, size_kb=4),
    beside_a_sender_with_keys(800, 100, 8, 2.0),
)
CPUS = (on_one_cpu(0.6), on_one_cpu(0.75, 20_000), on_one_cpu(0.85, 5_000))
# One reader takes all that the disk here gives (two together reach 0.9-1.4 times as much), so limits add up to less.
DISKS = (on_one_disk(0.7, 0.2, 64), on_one_disk(0.65, 0.3, 64), on_one_disk(0.6, 0.2, 128))
SCENES = (*SENDERS, *CPUS, *DISKS)
