"""Digests of everything that a prediction for a host depends on, without ids, so that equal hosts are recognized."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.data.scene import ProfileTable
from models.features.sensitivity_curves import REPORTER, families
from models.physics.demands import guessed_capacity

Bytes = NDArray[np.bytes_]
Bytes8 = NDArray[np.uint8]

SIZE = 16  # bytes; the chance of a collision among 10,000 hosts is 10^-30


def digest(*parts: object) -> bytes:
    """A digest of plain values: text, numbers, bytes, and tuples of them."""
    return blake2b(repr(parts).encode(), digest_size=SIZE).digest()


def of_profile(table: ProfileTable, row: int) -> bytes:
    """A digest of a workload: its name, by which a model may know it, its values, and whether they were measured."""
    known = np.flatnonzero(~np.isnan(table.values[row]))
    columns = [table.columns[column] for column in known]
    return digest(table.names[row], columns, table.values[row, known].tobytes(), row in table.means)


def of_table(table: ProfileTable) -> bytes:
    """A digest of what a profile table contributes to every scene: fastest device and link, and sweeps.

    Platforms that a learned model brings are covered by its version.
    """
    guessed = [guessed_capacity(table, key) for key in ("disk_mb_s", "mem_bw_mb_s")]
    fastest = float(np.nan_to_num(table.column("net_mbit")).max(initial=0.0))
    reporters = [of_profile(table, row) for row, name in enumerate(table.names) if name == REPORTER]
    return digest(guessed, fastest, reporters, sorted(families(table.columns).items()), sorted(table.platforms.items()))


def of_hosts(hosts: Sequence[bytes], kinds: Bytes8, numbers: Floats, counts: Ints, table: bytes) -> Bytes:
    """The fingerprints of H hosts, (H,) S16: of the host and of its residents in slot order.

    `hosts` (H,) are digests; `kinds` (H, N, 16) are digests of the residents except for their `numbers` (H, N, K); only
    the first `counts` (H,) slots count.
    """
    rows = np.concatenate([kinds, np.ascontiguousarray(numbers).view(np.uint8)], axis=2)
    digests_by_host = [
        blake2b(host + table + row[:count].tobytes(), digest_size=SIZE).digest()
        for host, row, count in zip(hosts, rows, counts.tolist(), strict=True)
    ]
    return np.array(digests_by_host, dtype=f"S{SIZE}")
