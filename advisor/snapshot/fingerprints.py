"""Digests of all that a prediction on a host can depend on, ids left out: hosts alike are known as alike."""

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

SIZE = 16  # bytes: 10,000 hosts meet by chance once in 10^30


def digest(*parts: object) -> bytes:
    """One digest of plain values: text, numbers, bytes, and tuples of them."""
    return blake2b(repr(parts).encode(), digest_size=SIZE).digest()


def of_profile(table: ProfileTable, row: int) -> bytes:
    """The workload of a row: its name, by which a model may know it, and what is measured of it."""
    known = np.flatnonzero(~np.isnan(table.values[row]))
    return digest(table.names[row], [table.columns[column] for column in known], table.values[row, known].tobytes())


def of_table(table: ProfileTable) -> bytes:
    """What a profile table says to every scene, whoever is in it: the fastest device and link, and the sweeps.

    A learned model may also bring platforms; they go with its version.
    """
    most = [guessed_capacity(table, key) for key in ("disk_mb_s", "mem_bw_mb_s")]
    fastest = float(np.nan_to_num(table.column("net_mbit")).max(initial=0.0))
    reporters = [of_profile(table, row) for row, name in enumerate(table.names) if name == REPORTER]
    return digest(most, fastest, reporters, sorted(families(table.columns).items()), sorted(table.platforms.items()))


def of_hosts(hosts: Sequence[bytes], kinds: Bytes8, vcpus: Floats, load: Floats, counts: Ints, table: bytes) -> Bytes:
    """The fingerprints of H hosts, (H,) S16: of the host itself and of everybody there, in the order of the slots.

    `hosts` (H,) are digests, `kinds` (H, N, 16) those of who sits in each slot but for `vcpus` and `load`, (H, N); only
    the first `counts` (H,) slots are taken.
    """
    numbers = np.stack([vcpus, load], axis=2).view(np.uint8)
    everybody = np.concatenate([kinds, numbers], axis=2)
    found = [
        blake2b(host + table + row[:count].tobytes(), digest_size=SIZE).digest()
        for host, row, count in zip(hosts, everybody, counts.tolist(), strict=True)
    ]
    return np.array(found, dtype=f"S{SIZE}")
