"""What placements of new VMs lead to on simulated evenings, without running any container.

    python -m research.benchmarks.newcomer_choices [--worlds 0 1] [--sets 4]

The evenings are those of `newcomer_runs`. The advisor knows of new VMs only name and size, and once they are there
the windows that an agent saw, but for the policies that say otherwise; rules know the days of residents, and of
new VMs those of their kind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.scheduling.rules import RULES
from models.physics.prior import PriorPredictor
from research import markdown
from research.arena.contest import Advised, ByRule, differences, played, rules, with_interval
from research.arena.evenings import Evening, draw

OURS = "Cotenant"
GREEDY = "greedy by {}, 80%"
ORACLE = ByRule(RULES[GREEDY.format("every hour")])  # on evenings with foresight
EveningPolicy = Callable[[Evening], Sequence[int]]


def policies() -> Mapping[str, EveningPolicy]:
    """By name; greedy placement with one of its settings for each kind of days."""
    advised = Advised(PriorPredictor())
    greedy = [GREEDY.format(days) for days in ("means", "days, 2 waves", "days, 4 waves", "every hour")]
    return {
        OURS: advised,
        "Cotenant without hours": lambda evening: advised(replace(evening, hours=False)),
        "Cotenant, new VM known": lambda evening: advised(replace(evening, new_vm_known=True)),
        **rules(Evening.columns),
        **{name: ByRule(RULES[name]) for name in greedy},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, nargs="+", default=[0, 1], help="numbers of sets of residents")
    parser.add_argument("--sets", type=int, default=4, help="evenings for each")
    options = parser.parse_args(arguments)
    evenings = [draw(world, number) for world in options.worlds for number in range(options.sets)]
    found = played(evenings, policies())
    rows = []
    for name, each in found.items():
        short = [one["short"] for one in each]
        less = with_interval(differences(found, name, OURS, "short"), percent=90.0, seed=3)
        rows.append([name, f"{np.mean(short):.1f}", less, ", ".join(f"{value:.1f}" for value in short)])
    sys.stdout.write(markdown.table(["policy", "short, % of the time", "ours less", "each evening"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
