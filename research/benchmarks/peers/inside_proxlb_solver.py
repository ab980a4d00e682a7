"""Runs in the environment of proxlb-solver: its CP-SAT solver on a cloud that standard input describes; prints stages.

Usage: python inside_proxlb_solver.py < QUESTION.json. The question is that of inside_kronos.py, with `never` the VMs
that stay and `method`, cpu or memory. All settings but that are its defaults, and nothing of it is replaced.
"""

import json
import sys
import time

from proxlb_solver.models import VM, Balancing, Cluster, Constraints, Expect, Node
from proxlb_solver.solver import solve_reachable

MB = 1 << 20


def main() -> None:
    """Print the steps of its plan and the CPU seconds that they took."""
    question = json.load(sys.stdin)
    nodes = [
        Node(name=one["name"], cpu_total=one["cpus"], memory_total=int(one["whole_memory_mb"]) * MB)
        for one in question["hosts"]
    ]
    vms = [
        VM(
            name=one["name"], node=one["host"], cpu=one["vcpus"], memory=int(one["memory_mb"]) * MB,
            cpu_usage=one["cpu"],
        )
        for one in question["vms"]
    ]  # fmt: skip
    rules: dict[str, list[dict[str, object]]] = {"affinity": [], "anti-affinity": []}
    for group in question["groups"]:
        rules[group["policy"]].append({"name": group["id"], "vms": group["members"], "hard": True, "origin": "plb"})
    cluster = Cluster(
        name="cloud",
        description="",
        balancing=Balancing(method=question["method"]),
        nodes=nodes,
        vms=vms,
        constraints=Constraints(
            affinity=rules["affinity"], anti_affinity=rules["anti-affinity"], ignore=question["never"]
        ),
        expect=Expect(),
    )
    first = time.process_time()
    _, plan = solve_reachable(cluster)
    stages = [[(one.vm, one.target) for one in step.migrations] for step in plan.steps]
    json.dump({"stages": stages, "cpu_seconds": time.process_time() - first}, sys.stdout)


main()
