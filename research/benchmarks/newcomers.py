"""New VMs placed one after the other on clouds of large hosts without profiles, by the product and by rules.

    python -m research.benchmarks.newcomers [--seeds 24] [--busy 6] [--new-vms 100] [--kinds] [--never-known]
        [--spread 0.76] [--model DIR]

The clouds are those of `research.arena.clusters`: 12 hosts of 64 CPUs and 150 VMs, the last of which come anew. The
analytic model answers, or the trained one of `--model`, beside which the analytic one is a policy of its own. With
`--kinds` a name says what the VM is, and VMs of a kind want alike; with `--never-known` no policy ever learns what
new VMs want, as where all come at once. Demand varies by `--spread` of its mean, which no policy knows, and an
event simulation judges.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from advisor.prediction.active import load
from models.physics.prior import PriorPredictor
from models.prediction import Predictor
from research import markdown
from research.arena.clusters import CPUS, HOSTS, SPREAD, NewVmCluster
from research.arena.contest import Advised, Found, Policy, differences, played, rules, with_interval

OURS = "Cotenant"
BUSY = 6.0  # multiplies demand: the VMs then ask for 85 % of the CPUs
FIGURES = ("simulated short, %", "simulated below 0.9", "simulated below 0.8")


def policies(predictor: Predictor) -> Mapping[str, Policy]:
    """By name in the table; the first is the product's default."""
    ours: dict[str, Policy] = {OURS: Advised(predictor), "Cotenant, total": Advised(predictor, "total")}
    if predictor.origin != "analytic":
        ours["Cotenant, analytic model"] = Advised(PriorPredictor())
    return ours | rules(NewVmCluster.columns)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=24, help="clouds (24)")
    parser.add_argument("--busy", type=float, default=BUSY, help="what multiplies demand (6)")
    parser.add_argument("--new-vms", type=int, default=100, help="of the 150 VMs (100)")
    parser.add_argument("--kinds", action="store_true", help="names say what a VM is")
    parser.add_argument("--never-known", action="store_true", help="the demand of new VMs is never learned")
    parser.add_argument("--spread", type=float, default=SPREAD, help="of demand, as a part of its mean (%(default)s)")
    parser.add_argument("--model", type=Path, metavar="DIR", help="of a trained model (the analytic one)")
    options = parser.parse_args(arguments)
    if options.seeds < 2:
        parser.error("--seeds must be at least 2: one cloud says nothing of chance")
    predictor = load(options.model) if options.model else PriorPredictor()
    known = {"kinds": options.kinds, "never_known": options.never_known, "spread": options.spread}
    clouds = [NewVmCluster.draw(seed, options.busy, options.new_vms, **known) for seed in range(1, options.seeds + 1)]
    demanded = [sum(one.demand["cpu"].mean for one in each.cluster.inventory.instances) for each in clouds]
    sys.stdout.write(f"wanted: {np.mean(demanded) / (HOSTS * CPUS):.2f} of all CPUs\n\n")
    sys.stdout.write(table(played(clouds, policies(predictor))))
    return 0


def table(found: Found) -> str:
    """Means over clouds by policy, and how much less the first has on the same clouds (95 % bootstrap intervals)."""
    rows = []
    for name, each in found.items():
        cells = [f"{np.mean([one[figure] for one in each]):.1f}" for figure in FIGURES]
        rows.append([name, *cells, "" if name == OURS else with_interval(differences(found, name, OURS, FIGURES[0]))])
    return markdown.table(["policy", *FIGURES, "less short with Cotenant"], rows)


if __name__ == "__main__":
    sys.exit(main())
