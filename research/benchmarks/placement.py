"""Quality of placement: clouds of measured hosts filled by rules of thumb, by the advisor and by an oracle; tables.

    python -m research.benchmarks.placement [DATASET ...] [--public DIR] [--quick] [--json] [--report out.png]

Every question about a newcomer is answered by a model whose training had no run of its workload. Nothing in the
product is tuned on these tables.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from models.data.dataset import load_dataset
from models.data.tables import DatasetError
from profiler import pictures
from research.benchmarks.clouds import chart, runs
from research.benchmarks.clouds.worlds import NoWorldError, worlds
from research.benchmarks.unseen_newcomer import NewcomerModels, newcomer_models

LAB = (Path("datasets/lab-neighbours"), Path("datasets/lab-colocations"))
MOST_REGRET, LEAST_REMOVED = 3.0, 50.0  # percent: the targets

# Two lines of title, the figure, its width and digits.
COLUMNS = (
    ("to opti-", "mum, %", "regret_to_optimum_percent", 9, 2),
    ("worst", "tenth", "worst_tenth", 7, 3),
    ("below", str(runs.SLO), "below_slo_percent", 6, 1),
    ("below", str(runs.MILD_SLO), "below_mild_slo_percent", 6, 1),
    ("hosts", "opened", "hosts_opened", 8, 1),
    ("regret a", "decision", "decision_regret_percent", 9, 1),
    ("right", "%", "right_percent", 7, 1),
    ("right", "+ ties", "right_with_ties_percent", 7, 1),
    ("ties", "%", "tied_percent", 6, 1),
)
HEADER = tuple(
    f"  {'':24}{first:>6}{regret:>25}" + "".join(f"{column[line]:>{column[3]}}" for column in COLUMNS)
    for line, (first, regret) in enumerate((("mean", "regret to oracle"), ("T/B", "%, 95 % interval")))
)

Result = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print tables, or the numbers with `--json`; 0 done, 1 with one sentence where a dataset cannot be read."""
    options = _options(arguments)
    datasets = [*(options.datasets or LAB), *_public(options.public)]
    results: list[Result] = []
    try:
        if options.report:
            pictures.check_target(options.report)
        for path in datasets:
            found = of_dataset(path, runs.QUICK if options.quick else runs.SIZES)
            results += found
            for result in () if options.json else found:
                print("\n".join(lines(result)), end="\n\n", flush=True)
    except (DatasetError, pictures.PictureError) as error:
        print(error, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        print("\n".join(targets(results)))
    if options.report:
        chart.draw(results, options.report)
        _say(f"drew {options.report}")
    return 0


def of_dataset(path: Path, sizes: Sequence[runs.Size]) -> list[Result]:
    """All results of one dataset, its worlds side by side; none, with a sentence, where no cloud can be made of it."""
    dataset = load_dataset(path)
    try:
        found = list(worlds(dataset))
    except NoWorldError as error:
        _say(str(error))
        return []
    learned = newcomer_models(path, say=_say)
    results: dict[int, list[Result]] = {}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(of_world, path, number, learned, sizes): number for number in range(len(found))}
        for job in as_completed(jobs):
            results[jobs[job]] = [{"dataset": dataset.name, **one} for one in job.result()]
    return [result for number in sorted(results) for result in results[number]]


def of_world(path: Path, number: int, learned: NewcomerModels, sizes: Sequence[runs.Size]) -> list[Result]:
    """All results of one world of a dataset."""
    world = next(islice(worlds(load_dataset(path)), number, None))
    return list(runs.run(world, learned, sizes, _say))


def lines(result: Result) -> list[str]:
    """One result as a table."""
    if "used" in result:
        title = f"{result['dataset']}, {result['world']}: hosts for {result['instances']} instances, at most "
        title += f"{100 * runs.ALLOWED:.0f} % of them below {runs.SLO} of alone"
        return [title, *(_used(name, row) for name, row in result["used"].items())]
    if "noise" in result:
        return _noise(result)
    title = f"{result['dataset']}, {result['world']}: {result['hosts']} hosts, {result['load']}"
    found = [f"{title}, {result['streams']} streams", *HEADER]
    found += [_line(name, row) for name, row in result["policies"].items()]
    if "violations" in result:
        found.append(f"  instances below {runs.SLO} of alone on {result['violations_on']}:")
        found += [_violations(name, row) for name, row in result["violations"].items()]
    return found


def _noise(result: Result) -> list[str]:
    found = [f"{result['dataset']}, {result['world']}: {result['hosts']} hosts, regret to an oracle, % as judged by"]
    for case, rows in result["noise"].items():
        regrets = (f"{name} {row['regret_percent']:.2f}" for name, row in rows.items() if name != runs.ORACLE)
        found.append(f"  {case}: " + ", ".join(regrets))
    return found


def _line(name: str, row: Mapping[str, Any]) -> str:
    ends = row.get("regret_interval")
    regret = f"{row['regret_percent']:.2f}" + (f" [{ends[0]:6.2f},{ends[1]:6.2f}]" if ends else " " * 16)
    text = f"  {name:24}{row['mean_ratio']:6.3f}{regret:>25}"
    for _, _, figure, width, digits in COLUMNS:
        value = row.get(figure)
        text += " " * width if value is None else f"{value:{width}.{digits}f}"
    return text.rstrip()


def _violations(name: str, row: Mapping[str, Any]) -> str:
    text = f"    {name:22}{row['violations']:8.1f}"
    if row.get("removed_percent") is not None:
        ends = row["removed_interval"]
        text += f"  {row['removed_percent']:5.1f} % removed" + (f" [{ends[0]:.1f}, {ends[1]:.1f}]" if ends else "")
    return text + (f", {row['more_hosts']:.1f} more hosts" if row.get("more_hosts") else "")


def _used(name: str, row: Mapping[str, Any]) -> str:
    if row["hosts"] is None:
        return f"  {name:24}  never ({row['below_slo_percent']:.1f} % below with a host for everybody)"
    share = f"  ({row['below_slo_percent']:.1f} % below)" if "below_slo_percent" in row else ""
    return f"  {name:24}{row['hosts']:8.1f}{share}"


def targets(results: Sequence[Result]) -> list[str]:
    """Which of the two targets are met, world by world; what no placement at all can reach is said."""
    found = []
    for result in results:
        if "policies" not in result:
            continue
        where = f"{result['dataset']}, {result['world']}, {result['hosts']} hosts, {result['load']}"
        regret = result["policies"][runs.THROUGHPUT]["regret_percent"]
        found.append(f"{_met(regret <= MOST_REGRET)} regret {regret:.2f} % (at most {MOST_REGRET:.0f} %): {where}")
        if "violations" in result:
            found.append(f"{_removed(result)}: {where}")
    return found


def _removed(result: Result) -> str:
    violations = result["violations"]
    removed = violations[runs.KEEPING]["removed_percent"]
    if removed is None:
        return "none first fit has no violation to remove"
    text = f"{_met(removed >= LEAST_REMOVED)} {removed:.1f} % of first fit's violations removed "
    text += f"on {result['violations_on']} (at least {LEAST_REMOVED:.0f} %"
    best = violations.get(runs.BEST)
    if best is None:
        return text + ")"
    beyond = "that no placement reaches; " if best["removed_percent"] < LEAST_REMOVED else ""
    return text + f", {beyond}the best of all placements removes {best['removed_percent']:.1f} %)"


def _met(met: bool) -> str:
    return "met " if met else "MISS"


def _public(folder: Path | None) -> list[Path]:
    """The converted public datasets of a folder; a sentence where there are none."""
    if folder is None:
        _say(
            "no --public folder: public tables (python -m research.benchmarks.public_data all SOURCE DIR) are left out"
        )
        return []
    found = sorted(path.parent for path in folder.glob("*/dataset.yaml"))
    if not found:
        _say(f"{folder} holds no converted dataset: public tables are left out")
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m research.benchmarks.placement",
        description="Fill clouds of measured hosts by several policies and compare what came of it.",
    )
    parser.add_argument(
        "datasets", nargs="*", type=Path, metavar="DATASET", help="default: the lab's two tables of pairs"
    )
    parser.add_argument(
        "--public", type=Path, metavar="DIR", help="a folder of converted public datasets, one below it each"
    )
    parser.add_argument("--quick", action="store_true", help="10 and 100 hosts, few streams")
    parser.add_argument("--json", action="store_true", help="print the numbers")
    parser.add_argument("--report", type=Path, metavar="FILE", help="draw regret and violations (.png or .svg)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
