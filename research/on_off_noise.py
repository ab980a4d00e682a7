"""Noise of T/B in blocks and on/off at equal time: measures each pair of a campaign both ways, again and again.

python -m research.on_off_noise CAMPAIGN.yaml OUT.jsonl [REPEATS] [STATE]     (root, a quiet machine)

In blocks each state lasts one second at a stretch, on/off as long in ten windows; both are measured in turn, each with
programs that start anew. Blocks have an advantage here: their three states follow each other within three seconds, and
runs in blocks of a campaign are minutes apart. The lines of OUT are kept: a further call adds to them.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from statistics import median, stdev
from typing import Any

from lab.campaign import Campaign, read_campaign
from lab.control_groups import GroupMaker
from lab.errors import CampaignError, RunError
from lab.instances import RunSetup, host_instances
from lab.on_off.measure import OnOffRun, WindowPlan, measure_on_off
from lab.on_off.speed_correction import SpeedCorrection
from lab.on_off.states import all_states, draw_order
from lab.resource_registry import DEFAULT_STATE, ResourceRegistry
from lab.schedule import Run, expand

SECONDS, DWELL_S, GUARD_S, WARMUP_S = 1.0, 0.1, 0.02, 0.5
WAYS = ("blocks", "on/off")
FILLED = ", filled"
ALL_WAYS = (*WAYS, *(f"{way}{FILLED}" for way in WAYS))


def plan(way: str, states: int, seed: str) -> WindowPlan:
    """The same time of each state, at a stretch or in short windows."""
    blocks, dwell_s = (1, SECONDS) if way.startswith("blocks") else (round(SECONDS / DWELL_S), DWELL_S)
    return WindowPlan(draw_order(all_states(states), blocks, seed), dwell_s, GUARD_S, WARMUP_S)


def ratios(run: OnOffRun) -> dict[str, float]:
    """T/B of each member of a pair, from the windows that nothing disturbed."""
    found: dict[str, float] = {}
    counted = [window for window in run.windows if not window.disturbed]
    for place, name in enumerate(run.members):
        correction = SpeedCorrection(counted, place)
        sums = {
            state: [(window.progress[place], correction.seconds(window)) for window in counted if window.state == state]
            for state in ((place,), (0, 1))
        }
        alone, together = (_rate(values) for values in sums.values())
        if alone and together is not None:
            found[name] = together / alone
    return found


def _rate(values: Sequence[tuple[float, float]]) -> float | None:
    return sum(done for done, _ in values) / sum(seconds for _, seconds in values) if values else None


def table(lines: Iterable[dict[str, Any]]) -> list[str]:
    """For each member of each pair: the median T/B and its standard deviation both ways."""
    values: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        for name, ratio in line["ratios"].items():
            values[line["run"], name][line["way"]].append(ratio)
    rows = [
        "| beside | workload | T/B | T/B, filled |" + "".join(f" sd, {way} |" for way in ALL_WAYS) + " n |",
        "|---" * (5 + len(ALL_WAYS)) + "|",
    ]
    for (run, name), ways in sorted(values.items()):
        counts = [len(ways[way]) for way in ALL_WAYS]
        if min(counts) > 2:
            middle = " | ".join(f"{median(ways[way]):.3f}" for way in (ALL_WAYS[1], ALL_WAYS[3]))
            spread = " | ".join(f"{stdev(ways[way]):.3f}" for way in ALL_WAYS)
            rows.append(f"| `{run}` | `{name}` | {middle} | {spread} | {min(counts)} |")
    whole = [[stdev(ways[way]) for ways in values.values() if len(ways[way]) > 2] for way in ALL_WAYS]
    if all(whole):
        rows.append("| | median | | | " + " | ".join(f"{median(one):.3f}" for one in whole) + " | |")
    return rows


def measure_pairs(campaign: Campaign, out: Path, repeats: int, state: Path) -> None:
    """Append a line for each measurement that is not there yet."""
    done = {(line["run"], line["way"], line["repeat"]) for line in read_lines(out)}
    maker = GroupMaker()
    maker.prepare()
    registry = ResourceRegistry(state)
    try:
        with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
            for run in (run for run in expand(campaign) if run.kind == "group"):
                for number, filled in product(range(repeats), (False, True)):
                    ways = [f"{way}{FILLED}" if filled else way for way in WAYS]
                    todo = [way for way in ways if (run.run, way, number) not in done]
                    if todo:
                        _measure(campaign, run, RunSetup(
                            registry, run.placed, tuple(campaign.workloads[one.member.workload] for one in run.placed),
                            Path(scratch), link_mbit=campaign.link_mbit, fill_idle=filled,
                        ), maker, (number, todo), out)  # fmt: skip
    finally:
        registry.close()


def _measure(
    campaign: Campaign, run: Run, setup: RunSetup, maker: GroupMaker, todo: tuple[int, Sequence[str]], out: Path
) -> None:
    try:
        with host_instances(campaign.instances, setup, maker) as instances, out.open("a", encoding="utf-8") as file:
            number, ways = todo
            for way in ways:
                got = measure_on_off(instances, plan(way, len(run.placed), f"{run.run}:{number}"), {})
                entry = {
                    "run": run.run,
                    "way": way,
                    "repeat": number,
                    "ratios": ratios(got),
                    "steal": got.steal_percent,
                    "disturbed": sum(window.disturbed for window in got.windows) / len(got.windows),
                    "speed_beside_busy": got.beside_busy,
                }
                file.write(json.dumps(entry) + "\n")
                file.flush()
    except RunError as error:
        sys.stderr.write(f"{run.run}: {error}\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m research.on_off_noise", description=__doc__)
    parser.add_argument("campaign", type=Path)
    parser.add_argument(
        "out", type=Path, help="what was measured, a line each; what stands there is not measured again"
    )
    parser.add_argument("repeats", type=int, nargs="?", default=6, help="0 = only print what was measured (6)")
    parser.add_argument("state", type=Path, nargs="?", default=DEFAULT_STATE, help="folder of the lab's state")
    asked = parser.parse_args(arguments)
    try:
        campaign = read_campaign(asked.campaign)
    except CampaignError as error:
        parser.error(str(error))
    if asked.repeats:
        measure_pairs(campaign, asked.out, asked.repeats, asked.state)
    sys.stdout.write("\n".join(table(read_lines(asked.out))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
