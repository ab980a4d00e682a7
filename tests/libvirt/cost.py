"""Prints what a reading of many real guests costs: CPU of this process and of libvirtd, by the kernel's accounts.

The guests are paused, so that a small machine can hold a hundred. A paused thread's counters stay the same, which the
reader of tasks notices and profits from: a second series takes that away. Arguments: how many guests, the cache mode of
their drives (none: counted by the kernel, writeback: libvirt asks QEMU). Run as root with PYTHONPATH=.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from profiler.backends.libvirt.backend import LibvirtBackend
from profiler.backends.linux import TaskReader
from profiler.collectors import collect
from tests.lab.qemu_accounts import cpu_seconds
from tests.libvirt.guests import Lab, guests
from tests.libvirt.measuring import open_backend

_READINGS = 30
_WARM_UP = 5


def series(lab: Lab, backend: LibvirtBackend, *, forget: bool) -> tuple[float, float, float]:
    """Milliseconds per reading, one per second: CPU here, CPU of libvirtd, and wall time."""
    daemon = Path(f"/proc/{lab.daemon.pid}")
    before = backend.read_counters()
    here, there, wall = time.process_time(), cpu_seconds(daemon), 0.0
    for _ in range(_READINGS):
        time.sleep(1)
        if forget:
            backend._tasks = TaskReader(backend._source)
        began = time.monotonic()
        now = backend.read_counters()
        collect(before, now)
        wall += time.monotonic() - began
        before = now
    spent = time.process_time() - here, cpu_seconds(daemon) - there, wall
    return tuple(1000 * seconds / _READINGS for seconds in spent)  # type: ignore[return-value]


def main(number: int, cache: str) -> None:
    with guests(0, accelerator="tcg") as lab:
        for one in range(number):
            lab.add(f"guest{one}", paused=True, cache=cache)
        backend = open_backend(lab)
        for _ in range(_WARM_UP):
            backend.read_counters()
        for what, forget in (("counters that stand still", False), ("every counter changed", True)):
            here, there, wall = series(lab, backend, forget=forget)
            costs = f"{here:.2f} ms here, {there:.2f} ms in libvirtd, {wall:.1f} ms wall"
            print(f"{number} guests, cache {cache}, {what}: {costs} per reading")
        backend.close()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100, sys.argv[2] if len(sys.argv) > 2 else "none")
