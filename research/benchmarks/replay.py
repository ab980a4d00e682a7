"""Public traces replayed through placement policies side by side: hosts used, violations, moves, and time; tables.

    python -m research.benchmarks.replay [TRACE ...] [--quick] [--overcommit 4 8] [--model DIR] [--json]

The prior advises unless a model is named. Policies are judged by a fair share of the demand in the trace, in which no
model has a part: simulated, not measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from advisor.domain import Replay, ReplayRequest
from advisor.errors import AdvisorError
from advisor.prediction import active
from advisor.prediction.active import ActivePredictor
from advisor.replay.coordinator import HOST_TYPE, replay, replay_as_json
from advisor.replay.trace_formats import load_trace
from models.physics.prior import PriorPredictor

TRACES = Path("../shared/data/traces")
# By trace: how many instances and how long a step, at a quick and at a decent size, and the pCPUs and MB of a host.
SIZES = {
    "bitbrains-small-trace.parquet": ((20, 7200.0), (50, 1800.0), 32, 262_144.0),
    "planetlab-20110303.csv.gz": ((100, 1800.0), (300, 300.0), 16, 131_072.0),
}
OTHERS = ((100, 900.0), (300, 300.0), HOST_TYPE.pcpus, HOST_TYPE.memory_mb)
OVERCOMMITS = (4.0, 8.0)
REBALANCE_S = 6 * 3600.0
COLUMNS = (
    f"{'policy':12} {'hosts':>7} {'most':>5} {'below 0.8':>10} {'worst':>6} {'mean T/B':>9} {'moves':>6} "
    f"{'refused':>8} {'decisions s':>12}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table per trace and overcommit, or the numbers with `--json`; 1 with a sentence where it cannot be."""
    options = _options(arguments)
    results: list[dict[str, Any]] = []
    try:
        chosen = ActivePredictor(active.load(options.model) if options.model else PriorPredictor())
        for path in options.traces or [TRACES / name for name in SIZES]:
            for overcommit in options.overcommit:
                for rebalance_s in (None, REBALANCE_S):
                    found, seconds = replayed(path, overcommit, chosen, quick=options.quick, rebalance_s=rebalance_s)
                    results.append({**replay_as_json(found), "overcommit": overcommit, "seconds": seconds})
                    if not options.json:
                        print("\n".join(lines(found, rebalance_s, seconds)), end="\n\n", flush=True)
    except AdvisorError as error:
        print(error.message, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(results, indent=1))
    return 0


def replayed(
    path: Path, overcommit: float, chosen: ActivePredictor, *, quick: bool, rebalance_s: float | None
) -> tuple[Replay, float]:
    """One trace on hosts with that overcommit, and the seconds that it took."""
    small, decent, pcpus, memory_mb = SIZES.get(path.name, OTHERS)
    instances, interval_s = small if quick else decent
    begin = time.perf_counter()
    trace, unsaid = load_trace(path, interval_s=interval_s, most_instances=instances)
    request = ReplayRequest(rebalance_s=rebalance_s)
    if rebalance_s is not None:  # the others are the same again
        request = replace(request, policies=("cotenant", "lower bound"))
    host = replace(HOST_TYPE, pcpus=pcpus, memory_mb=memory_mb, cpu_overcommit=overcommit)
    found = replay(trace, unsaid, request, chosen, host=host, now=datetime.now(UTC))
    return found, time.perf_counter() - begin


def lines(found: Replay, rebalance_s: float | None, seconds: float) -> list[str]:
    """A table of policies."""
    moving = (
        "no instance moves" if rebalance_s is None else f"cotenant may move residents every {rebalance_s / 3600:g} h"
    )
    hours = found.steps * found.interval_s / 3600
    lines = [
        f"{found.trace}: {found.instances} instances, {hours:.0f} h in {found.steps} steps, {found.hosts} hosts "
        f"({found.host_type}), {moving}; judged by {found.judge_version}; {seconds:.0f} s",
        COLUMNS,
    ]
    for policy in found.policies:
        row = f"{policy.policy:12} {policy.hosts_mean:7.2f} {max(policy.hosts_used):5d}"
        if policy.mean is not None and policy.worst is not None:
            row += f" {policy.violation_share:10.3%} {policy.worst:6.3f} {policy.mean:9.4f} {policy.moves:6d}"
            row += f" {policy.refused:8d} {policy.decision_s:12.1f}"
        lines.append(row)
    return lines


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--quick", action="store_true", help="few instances and long steps")
    parser.add_argument("--overcommit", nargs="+", type=float, default=list(OVERCOMMITS), metavar="N")
    parser.add_argument("--model", type=Path, metavar="DIR", help="artifact that advises and judges")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
