"""Tables of the product's prediction of contention, held against simulated hosts and measured containers.

python -m research.contention.prediction_tables
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from models.physics.prior import solve
from research import markdown
from research.contention import judge
from research.contention.baselines import fluid_of_means
from research.contention.container_mixes import host_spec
from research.contention.container_noise import best_runs, read_runs
from research.contention.host_spec import HostSpec, InstanceSpec
from research.contention.predicted import predict, scene

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
Run = Mapping[str, Any]
LEAST_CPUS = 1e-6  # a demand of nothing at all has no share


def main() -> int:
    for name in ("hosts", "clouds"):
        sys.stdout.write(f"\nSimulated ({name}.jsonl.gz)\n\n")
        sys.stdout.write(f"{judge.compare(predict, DATASETS / 'simulated-contention' / f'{name}.jsonl.gz')}")
    runs = best_runs(read_runs(DATASETS / "container-contention" / "runs.jsonl"))
    quiet = [run for run in runs.values() if not run["disturbed"] and not run["beside"]]
    sys.stdout.write(f"\nMeasured (containers, {len(quiet)} undisturbed mixes)\n\n{container_table(quiet)}")
    return 0


def container_table(runs: Sequence[Run]) -> str:
    """Errors of each container's share and ranks of hosts, by family of mixes, as a table in Markdown.

    The prediction knows what each container asked for in each second. Two figures of the scheduler
    (profiler.host_kinds) were chosen on these very runs: so far it is fitted to them.
    """
    head = ("mixes", "containers", "MAE of share", "weighted by run time", "bias", "MAE, fluid of means",
            "MAE of hosts' mean share", "Spearman of hosts")  # fmt: skip
    families = ("one_cpu", "two_cpus", "bandwidth_groups")
    return markdown.table(head, [_row(name, [run for run in runs if run["family"] == name]) for name in families])


def _row(family: str, runs: Sequence[Run]) -> list[str]:
    measured, predicted, fluid, weight, hosts = [], [], [], [], []
    for host in (host for run in runs for host in run["hosts"]):
        said, plain = predicted_shares(host), _fluid(host)
        got = [each["outcome"] for each in host["containers"]]
        known = [at for at, each in enumerate(host["containers"]) if _comparable(each)]
        measured += [got[at]["share_without_own_cap"] for at in known]
        predicted += [said[at] for at in known]
        fluid += [plain[at] for at in known]
        weight += [got[at]["run_s"] for at in known]
        if known:
            hosts.append((np.mean([got[at]["share_without_own_cap"] for at in known]), np.mean(said[known])))
    error = np.array(predicted) - np.array(measured)
    of_hosts = np.array(hosts)
    figures = [
        np.abs(error).mean(),
        np.average(np.abs(error), weights=weight),
        error.mean(),
        np.abs(np.array(fluid) - np.array(measured)).mean(),
        np.abs(of_hosts[:, 0] - of_hosts[:, 1]).mean(),
        judge.rank_correlation(of_hosts[:, 1], of_hosts[:, 0]),
    ]
    return [family, str(len(error)), *(f"{figure:.3f}" for figure in figures)]


def _comparable(container: Run) -> bool:
    """Whether a container asked for anything, and no cap of its own held it back."""
    return container["outcome"]["share_without_own_cap"] is not None and container["spec"]["cap_cpus"] is None


def predicted_shares(host: Run) -> Any:
    """The share of each container over all seconds, by its demand in each second; (N,)."""
    series = _series(host)
    spec = _spec(host, [1.0] * len(host["containers"]))
    run, want = np.zeros(len(series)), np.zeros(len(series))
    for second in series.T:
        now = replace(spec, instances=tuple(map(_asking, spec.instances, second)))
        capacity = None if host["quota_cpus"] is None else host["capacity_cpus"]
        pressure = solve(scene(now, fluid=False, capacity=capacity)).cpu
        run += second
        want += second / pressure.share[0]
    return run / want


def _asking(one: InstanceSpec, cpus: float) -> InstanceSpec:
    return replace(one, demand_cpus=max(min(float(cpus), float(one.vcpus)), LEAST_CPUS))


def _series(host: Run) -> Any:
    """What each container asked for in each second, or on average where it asks when it is served; (N, seconds)."""
    seconds = max((len(each.get("offered_cpus") or ()) for each in host["containers"]), default=0) or 1
    rows = []
    for each in host["containers"]:
        offered = each.get("offered_cpus") or ()
        known = each["spec"]["loop"] == "open" and len(offered) == seconds
        rows.append(offered if known else [each["spec"]["demand_cpus"]] * seconds)
    return np.maximum(np.array(rows, dtype=float), LEAST_CPUS)


def _spec(host: Run, demands: Sequence[float]) -> HostSpec:
    place = {cpu: number for number, cpu in enumerate(host["cpus"])}
    spec = host_spec(host)
    instances = (
        replace(one, demand_cpus=demand, pin=tuple(place[cpu] for cpu in one.pin))
        for one, demand in zip(spec.instances, demands, strict=True)
    )
    return replace(spec, instances=tuple(instances))


def _fluid(host: Run) -> list[float]:
    spec = _spec(host, list(_series(host).mean(axis=1)))
    outcome = fluid_of_means([spec])[0]
    return [outcome.instances[one.id].share for one in spec.instances]


if __name__ == "__main__":
    sys.exit(main())
