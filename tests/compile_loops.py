"""Compiles what numba compiles at its first call, for all tests and the services that they start.

`python -m tests.compile_loops`; each worker of pytest would else do it for itself.
"""

from __future__ import annotations

from models.physics.cpu_contention import compile_all
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.simulator import simulate

if __name__ == "__main__":
    compile_all()
    simulate(HostSpec("host", 1, (InstanceSpec("one", 1, 0.5, "open", burst_ms=10.0),), 1.0), 1)
