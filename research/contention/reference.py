"""Simulate random hosts, one JSON line each; a run that was interrupted goes on.

`python -m research.contention.reference OUT [--hosts N | --clouds N]`
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from research.contention import records
from research.contention.random_hosts import RandomHost, random_cloud, random_host
from research.contention.simulator import Length, simulate

SEED = 20_261_123
CLOUD_SEED = 7_000_000
ORIGIN = "simulated"
CLOUD_LENGTH = Length(windows=8, least=4, warm_up=4, error=0.01, events=600_000)
"""Of hosts that are only ranked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate what the file does not hold yet; 0 when all hosts are there."""
    parser = argparse.ArgumentParser(prog="research.contention.reference", description=__doc__)
    parser.add_argument("out", type=Path)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--hosts", type=int, default=600, help="random hosts, each for itself")
    which.add_argument(
        "--clouds", type=int, default=0, help="clouds of eight hosts each, of one style and several loads"
    )
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    parts = options.out.with_name(options.out.name + ".part")
    done = list(records.read(parts)) if parts.exists() else []
    if parts.exists():
        records.write(parts, done)  # without a line that was cut off
    known = {record.spec.id for record in done}
    todo = list(_clouds(options.clouds) if options.clouds else _hosts(options.hosts))
    started = time.monotonic()
    for count, (cloud, seed, host) in enumerate(todo, start=1):
        if host.spec.id in known:
            continue
        result = simulate(host.spec, seed, host.bursts, CLOUD_LENGTH if cloud else None)
        record = records.HostRecord(
            host.spec, result.outcome, ORIGIN, seed, cloud, host.bursts, result.share_error, result.lost_95
        )
        records.append(parts, record)
        done.append(record)
        sys.stderr.write(f"\r{count} of {len(todo)} hosts, {time.monotonic() - started:.0f} s ")
        sys.stderr.flush()
    sys.stderr.write("\n")
    records.write(options.out, done)
    parts.unlink(missing_ok=True)
    return 0


def _hosts(count: int) -> Iterator[tuple[str, int, RandomHost]]:
    for k in range(count):
        yield "", SEED + k, random_host(f"host-{k}", SEED + k)


def _clouds(count: int) -> Iterator[tuple[str, int, RandomHost]]:
    for k in range(count):
        name = f"cloud-{k}"
        for number, host in enumerate(random_cloud(name, CLOUD_SEED + k)):
            yield name, CLOUD_SEED + 1000 * (k + 1) + number, host


if __name__ == "__main__":
    sys.exit(main())
