"""How the prior would have held on real containers: recorded runs as the windows that agents measure.

python -m research.contention.measured_windows

Each host of `datasets/container-contention` is one window of some seconds: it is asked about with the demand that the
product takes from run and wait, and held against the share that each container got. The fields are those of
`cotenant models quality`; two figures of the scheduler were chosen on these runs (profiler.host_kinds).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.domain import Host, Instance, IsolationSettings, Scene
from advisor.lifecycle import window_checks
from advisor.lifecycle.outcome_checks import OutcomeScorer
from advisor.lifecycle.window_checks import MeasuredWindow
from advisor.store.held import Watch
from models.evaluation.window_figures import WindowFigures, WindowKey, grouped, groups_of
from models.physics.prior import PriorPredictor
from profiler.observed import Pinning
from research.contention.container_mixes import host_spec
from research.contention.container_noise import best_runs, read_runs

RUNS = Path(__file__).resolve().parents[2] / "datasets" / "container-contention" / "runs.jsonl"


def windows() -> Iterator[tuple[Scene, MeasuredWindow]]:
    """Hosts of whole CPUs of undisturbed runs, with what was measured there."""
    runs = best_runs(read_runs(RUNS)).values()
    for run in (one for one in runs if not one["disturbed"] and not one["beside"]):
        for host in (one for one in run["hosts"] if one["quota_cpus"] is None):
            yield of_host(host, run["measured_s"])


def of_host(host: Mapping[str, Any], seconds: float) -> tuple[Scene, MeasuredWindow]:
    """One host of a run as a scene, and what was measured there."""
    return _scene(host), _measured(host, seconds)


def _scene(host: Mapping[str, Any]) -> Scene:
    spec = host_spec(host)
    there = [
        Instance(
            one.id,
            vcpus=one.vcpus,
            settings=IsolationSettings(
                pinning=Pinning.all_on(one.pin, one.vcpus) if one.pin else None,
                cap_percent=100 * one.cap_cpus if one.cap_cpus < one.vcpus else None,
                weight=round(one.weight),
            ),
        )
        for one in spec.instances
    ]
    return Scene(Host(spec.id, "lxc", pcpus=spec.cpus, memory_mb=1e6), tuple(there))


def _measured(host: Mapping[str, Any], seconds: float) -> MeasuredWindow:
    vcpus = {one["spec"]["id"]: one["spec"]["vcpus"] for one in host["containers"]}
    means = {
        one["spec"]["id"]: {
            "cpu": 100 * one["outcome"]["run_s"] / seconds,
            "waiting": 100 * one["outcome"]["wait_s"] / seconds,
            "throttled": 100 * one["outcome"]["throttled_s"] / seconds,
        }
        for one in host["containers"]
    }
    return window_checks.window_of(means, vcpus)


def main() -> int:
    """Print a line for contended and for calm windows."""
    judges, known = (OutcomeScorer("active", PriorPredictor()),), dict[WindowKey, WindowFigures]()
    for number, (scene, window) in enumerate(windows()):
        watch = Watch(
            scene.host.id, float(number), "", {"levels": dict.fromkeys(window.wanted, "measured"), "said": {}}
        )
        for found in window_checks.held_against(watch, scene, window, judges, ()):
            rows = [replace(row, time=datetime.fromtimestamp(number, UTC)) for row in found.rows]
            for key, group in grouped(rows, found.question, found.levels).items():
                known.setdefault(key, WindowFigures()).add(group, float(number))
    for one in (group for group in groups_of("prior", known) if not group.level):
        what = "contended" if one.contended else "calm"
        covered = f"{one.coverage:.2f} ({one.coverage_low:.2f} to {one.coverage_high:.2f})"
        sys.stdout.write(
            f"{what}: {one.rows} containers in {one.scenes} windows, coverage {covered}, error {one.error:.3f}, "
            f"bias {one.bias:+.3f}, 90 % at x {one.scaled:.2f}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
