"""What a model learns from windows, on recorded runs of real containers: prior beside learned, by host and by time.

python -m research.contention.learned_shares

Each host of `datasets/container-contention` is one window, as in `measured_windows`; repeats of a run are windows of
one host. Windows are taken as five minutes apart, in the order in which they were measured. What is printed is what the
gate sees: hosts and containers that were left out, and the newest sixth. The model is that of
`cotenant train --from-telemetry`, without lab data.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.lifecycle.window_checks import as_wanted
from models.data.dataset import load_dataset
from models.data.window_dataset import SharedWindow, write_windows
from models.evaluation.comparison import errors, means_of
from models.evaluation.gate import gate
from models.features.examples import Examples, build_examples
from models.features.feature_matrix import WANTED
from models.learning.fitted_target import fit_share
from models.learning.held_out import HeldOutPredictions
from research.contention import measured_windows
from research.contention.container_noise import read_runs

WINDOW_S = 300.0


def windows() -> list[SharedWindow]:
    """Hosts of whole CPUs of undisturbed runs in order of time; who is alike in repeats of a run has one name."""
    runs = [one for one in read_runs(measured_windows.RUNS) if not one["disturbed"] and not one["beside"]]
    found: list[SharedWindow] = []
    for run in sorted(runs, key=lambda one: str(one["date"])):
        for host in (one for one in run["hosts"] if one["quota_cpus"] is None):
            scene, measured = measured_windows.of_host(host, run["measured_s"])
            name = f"{run['run'].partition('r')[0]}-{run['seed']}-{scene.host.id}"
            active = [one for one in scene.instances if one.id in measured.wanted]
            there = tuple(replace(as_wanted(one, measured.wanted[one.id]), id=f"{name}-{one.id}") for one in active)
            shares = {f"{name}-{one}": share for one, share in measured.shares.items()}
            found.append(SharedWindow(replace(scene.host, id=name), there, shares, WINDOW_S * (len(found) + 1)))
    return found


def examples_of(found: Sequence[SharedWindow]) -> Examples:
    """The training rows of windows, by way of a dataset directory."""
    with tempfile.TemporaryDirectory() as folder:
        write_windows(Path(folder), "windows", found)
        return build_examples([load_dataset(Path(folder))], (WANTED,), target="share")


def line(table: HeldOutPredictions) -> str:
    """Errors of prior and learned with 95 % intervals over hosts, the bias of both, and the coverage."""
    mine, prior = errors(table, table.expected), errors(table, table.prior)
    inside = ((table.measured >= table.lower) & (table.measured <= table.upper)) * 1.0
    means = means_of(np.column_stack([prior, mine, mine - prior, inside]), table.pair, 0)
    said = [_bounded(means.mean[at], means.bounds(at, 0.025)) for at in range(4)]
    biases = [f"{float((table.measured - one).mean()):+.3f}" for one in (table.prior, table.expected)]
    return (
        f"{table.protocol}: {means.rows} rows of {means.pairs} hosts, error of the prior {said[0]}, learned {said[1]}, "
        f"difference {said[2]}, bias {biases[0]} and {biases[1]}, coverage {said[3]}"
    )


def _bounded(mean: float, bounds: tuple[float, float] | None) -> str:
    return f"{mean:.4f}" + (f" ({bounds[0]:.4f} to {bounds[1]:.4f})" if bounds else "")


def main() -> int:
    """Print a line for each way to leave out, and what the gate says."""
    fitted = fit_share(examples_of(windows()))
    for table in fitted.held_out:
        sys.stdout.write(line(table) + "\n")
    verdict = gate(fitted.held_out, None)
    sys.stdout.write(
        f"blend {fitted.model.unknown_weights.named()}, gate {'passed' if verdict.passed else verdict.refusals}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
