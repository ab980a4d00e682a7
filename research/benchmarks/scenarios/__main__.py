"""Advice followed on real containers of this machine, before and after, beside what was predicted.

    python -m research.benchmarks.scenarios [--json FILE] [--rounds 5] [--seconds 4] [--scenes WORD] [--model DIR]

Every round measures both instances alone, together as they come, and together with the rendered commands carried out;
then these are undone and the host's state is compared. `before` and `after` are ratios over alone, of the same round.
Root is needed, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from advisor.settings import Settings
from lab.control_groups import GroupMaker
from lab.errors import RunError
from lab.measure import Timing
from lab.resource_registry import ResourceRegistry, clean
from research.benchmarks.light_containers import STATE
from research.benchmarks.measuring import circumstances
from research.benchmarks.scenarios.advice import NoAdviceError
from research.benchmarks.scenarios.campaign import CaseOutcome, ScenarioCampaign, ScenarioResult
from research.benchmarks.scenarios.scenes import SCENES
from research.benchmarks.scenarios.testbed import unfit


def main() -> int:
    """Print a table; also the single values, as JSON, where asked. 1 where a scene could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="measured time of a run (4)")
    parser.add_argument("--warmup", type=float, default=0.7, help="seconds (0.7)")
    parser.add_argument("--scenes", default="", metavar="WORD", help="only those whose name holds this word")
    parser.add_argument("--model", type=Path, metavar="DIR", help="artifact that advises (the analytic model)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    console = Console(width=160)
    scenes = [scene for scene in SCENES if options.scenes in scene.name]
    if trouble := unfit(scenes):
        console.print(f"nothing can be measured here: {trouble}")
        return 1
    clean(STATE)
    registry, maker = ResourceRegistry(STATE), GroupMaker()
    maker.prepare()
    results: list[ScenarioResult] = []
    missed: list[str] = []
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            timing = Timing(options.seconds, options.warmup, options.warmup)
            campaign = ScenarioCampaign(options.rounds, timing, options.model, Settings(state_dir=folder / "no-models"))
            for scene in scenes:
                try:
                    results.append(campaign.tell(scene, registry, maker, folder))
                except (NoAdviceError, RunError) as error:
                    missed.append(f"{scene.name}: {error}")
    finally:
        registry.close()
    console.print(_table(results))
    for result in results:
        console.print(f"{result.scene.name}: {result.advice.says}")
    cases = [case for result in results for case in result.cases]
    console.print(_summary(results, cases))
    for line in missed:
        console.print(f"not measured: {line}")
    if options.json:
        options.json.write_text(json.dumps(_document(results), indent=1) + "\n", encoding="utf-8")
    return 1 if missed else 0


def _table(found: Sequence[ScenarioResult]) -> Table:
    table = Table(title="Ratio over alone: median (lowest to highest)", box=None)
    for name in ("scene", "instance", "of", "before", "after", "predicted", "covered", "disturbed", "undone"):
        table.add_column(name)
    for result in found:
        for party in result.scene.parties:
            cases = result.of(party)
            band = cases[0].predicted
            table.add_row(
                result.scene.name,
                party.name,
                cases[0].outcome,
                _range([case.before for case in cases]),
                _range([case.after for case in cases]),
                f"{band.expected:.2f} ({band.lower:.2f} to {band.upper:.2f})",
                f"{sum(case.covered for case in cases)}/{len(cases)}",
                f"{sum(case.disturbed for case in cases)}/{len(cases)}",
                "no" if result.left_behind else "yes",
            )
    return table


def _summary(found: Sequence[ScenarioResult], cases: Sequence[CaseOutcome]) -> str:
    if not cases:
        return "nothing was measured"
    calm = [case.covered for case in cases if not case.disturbed]
    covered = sum(case.covered for case in cases)
    return (
        f"{sum(result.mended for result in found)} of {len(found)} sufferers better off in every round; median gain"
        f" {median(result.gain for result in found):.2f} times; intervals hold in {covered} of {len(cases)} cases"
        f" ({covered / len(cases):.0%}), in {sum(calm)} of the {len(calm)} that nothing disturbed"
    )


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _document(found: Sequence[ScenarioResult]) -> dict[str, Any]:
    return {
        **circumstances(),
        "scenes": [
            {
                "scene": result.scene.name,
                "advice": result.advice.says,
                "commands": [list(command.argv) for command in result.advice.commands if command.argv],
                "mended": result.mended,
                "left_behind": list(result.left_behind),
                "cases": [asdict(case) | {"covered": case.covered} for case in result.cases],
            }
            for result in found
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
