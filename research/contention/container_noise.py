"""How sure the real measurement of contention is: the same mixes measured again, quietly and beside others.

python -m research.contention.container_noise RUNS
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

Run = Mapping[str, Any]
CALM = 0.05  # parts of all CPUs that the idle class had
BUSY = 0.20


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `containers` in `pairs` of runs: mean absolute and mean difference of the share (second minus first), and mean
    absolute difference of the share of all containers of a host together."""

    pairs: int
    containers: int
    mae: float
    bias: float
    hosts_mae: float


def read_runs(path: Path) -> list[dict[str, Any]]:
    """Runs in the order in which they were made; ValueError names the line that is none."""
    runs = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        run = json.loads(line)
        if not isinstance(run, dict) or not {"run", "hosts", "disturbed"} <= run.keys():
            message = f"{path}, line {number}: not a run"
            raise ValueError(message)
        runs.append(run)
    return runs


def best_runs(runs: Iterable[Run]) -> dict[str, Run]:
    """One run of each name: the last undisturbed one, else the last."""
    found: dict[str, Run] = {}
    for run in runs:
        before = found.get(run["run"])
        if before is None or before["disturbed"] or not run["disturbed"]:
            found[run["run"]] = run
    return found


def shares(run: Run) -> dict[str, float]:
    """Share by container, without those that asked for nothing."""
    by_name = ((each["spec"]["id"], each["outcome"]["share"]) for host in run["hosts"] for each in host["containers"])
    return {name: share for name, share in by_name if share is not None}


def host_shares(run: Run) -> list[float]:
    """Run time over demand (run and wait) of all containers of each host."""
    totals = []
    for host in run["hosts"]:
        outcomes = [each["outcome"] for each in host["containers"]]
        ran, waited = (sum(each[name] for each in outcomes) for name in ("run_s", "wait_s"))
        totals.append(ran / (ran + waited) if ran + waited > 0 else 1.0)
    return totals


def agreement(pairs: Sequence[tuple[Run, Run]]) -> Agreement | None:
    """How far second runs are from first ones; None without pairs."""
    differences: list[float] = []
    hosts: list[float] = []
    for first, second in pairs:
        before, after = shares(first), shares(second)
        differences += [after[name] - before[name] for name in before.keys() & after.keys()]
        hosts += [abs(b - a) for a, b in zip(host_shares(first), host_shares(second), strict=True)]
    if not differences:
        return None
    found = np.array(differences)
    return Agreement(len(pairs), len(found), float(np.abs(found).mean()), float(found.mean()), float(np.mean(hosts)))


def pairs_by_kind(runs: Sequence[Run]) -> Iterator[tuple[str, list[tuple[Run, Run]]]]:
    """Pairs of runs of the same containers, the calmer one first, by what differs between the two."""
    by_mix: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_mix[run["run"].partition("r")[0] if run["repeat"] else run["run"]].append(run)
    pairs = [sorted(pair, key=_beside) for same in by_mix.values() for pair in combinations(same, 2)]
    quiet = [(first, second) for first, second in pairs if not second["disturbed"] and not first["disturbed"]]
    yield "both quiet", quiet
    yield (
        f"the idle class below {CALM:.0%} of the CPUs in both",
        [(first, second) for first, second in quiet if _idle(first) < CALM and _idle(second) < CALM],
    )
    yield (
        f"the idle class below {CALM:.0%} of the CPUs in the first and above {BUSY:.0%} in the second",
        [(first, second) for first, second in quiet if _idle(first) < CALM and _idle(second) > BUSY],
    )
    yield (
        "the second disturbed",
        [(first, second) for first, second in pairs if second["disturbed"] and not first["disturbed"]],
    )


def _beside(run: Run) -> tuple[bool, float]:
    return run["disturbed"], _idle(run)


def _idle(run: Run) -> float:
    return float(run["machine"]["others_idle_class"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    runs = read_runs(parser.parse_args(arguments).runs)
    best = best_runs(runs).values()
    families = Counter((run["family"], "disturbed" if run["disturbed"] else "quiet") for run in best)
    lines = [f"{len(runs)} runs of {len(best)} mixes: " + ", ".join(f"{n} {a} {b}" for (a, b), n in families.items())]
    for name, pairs in pairs_by_kind(runs):
        found = agreement(pairs)
        if found is not None:
            lines.append(
                f"{name}: {found.pairs} pairs, {found.containers} containers, MAE of share {found.mae:.4f}, mean"
                f" difference {found.bias:+.4f}; MAE of a host's share {found.hosts_mae:.4f}"
            )
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
