"""Compiles what tests and the services that they start need: the contention in C, and the simulator by numba.

`python -m tests.compile_loops`; each worker of pytest would else compile the simulator for itself.
"""

from __future__ import annotations

from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.simulator import simulate
from tests import library

if __name__ == "__main__":
    library.build()
    simulate(HostSpec("host", 1, (InstanceSpec("one", 1, 0.5, "open", burst_ms=10.0),), 1.0), 1)
