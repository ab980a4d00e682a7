"""The simulated cost of an agent: it says that it is simulated, of what, and of how long a time each reading is."""

from __future__ import annotations

from pathlib import Path

from profiler.backends import RecordedBackend
from profiler.collectors import collect
from research.benchmarks.simulated_instances import simulate

RECORDING = Path(__file__).parents[1] / "recordings" / "xen-dom0.json"


def test_a_simulation_says_what_it_copies_and_of_how_long_a_time_each_reading_is() -> None:
    backend = RecordedBackend(RECORDING)
    seconds = collect(backend.read_counters(), backend.read_counters()).seconds
    document = simulate(RECORDING, 2)
    assert document["what"].startswith("SIMULATED: 1 copy of the 2 instances of xen-dom0.json, one reading per second")
    assert f"each of what happened in {seconds:.1f} s" in document["what"]
    (row,) = document["rows"]
    assert row["cpu_percent"] > 0
    assert row["page_kb"] > 1
