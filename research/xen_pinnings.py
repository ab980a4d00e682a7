"""Two guests beside each other in the CPU configurations of a Xen host: what each keeps, and what the metrics say.

python -m research.xen_pinnings DATASET

The configurations are those of Table 4 of "Who Is Your Neighbor" (2012), and so are the orders that its section 4.3
reports. Everything in an emulated dataset may be compared with itself only.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from lab.statistics import interval

CONFIGURATIONS = {
    "1-1-1": "(1, 1, 1)",
    "1-2-2": "(1, [2, 2])",
    "1-3-3": "(1, [3, 3])",
    "2-2-2": "(2, [2, 2])",
    "2-1-1": "(2, [1, 1])",
    "3-1-1": "(3, [1, 1])",
    "shared-1": "1 shared by all",
    "shared-3": "3 shared by all",
    "shared-4": "4 shared by all",
}
# Better than, by the paper: fewer CPUs of Dom0, and with the same ones fewer of the guests (4.3.2); fewer that all
# share (4.3.1, where one shared core reaches its full load, three 40 % and four 45 %).
REPORTED = (("1-1-1", "1-2-2"), ("1-2-2", "1-3-3"), ("1-1-1", "3-1-1"), ("2-1-1", "3-1-1"), ("shared-1", "shared-3"))
_SHOWN = (
    ("driver_domain", "cpu", "Dom0 CPU, %"),
    ("instance", "cpu", "guest CPU, %"),
    ("instance", "waiting", "guest waiting, %"),
    ("host", "event", "events/s"),
    ("host", "switch", "switches/s"),
    ("driver_domain", "pages_exchanged", "pages/s"),
)
Metrics = Mapping[tuple[str, str, str], Sequence[float]]  # of run, scope and metric: a value of each instance and round


@dataclass(frozen=True, slots=True)
class PinnedPair:
    """One member's T/B and rate beside the other, of one configuration and round; `error` is within the run."""

    configuration: str
    members: str
    repeat: str
    instance: str
    ratio: float
    error: float
    rate: float


def read_pairs(directory: Path) -> list[PinnedPair]:
    """All throughput rows of the dataset."""
    with (directory / "colocations.csv").open(newline="") as file:
        return [
            PinnedPair(
                row["run"].partition(":")[0], row["run"].partition(":")[2], row["repeat"], row["instance"],
                float(row["colocated"]) / float(row["solo"]), float(row["ratio_se"]), float(row["colocated"]),
            )
            for row in csv.DictReader(file)
            if row["outcome"] == "throughput"
        ]  # fmt: skip


def read_metrics(directory: Path) -> Metrics:
    """By run, scope and metric; of the driver domain only what is of the whole of it."""
    found = defaultdict(list)
    with gzip.open(directory / "metrics.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            if row["scope"] != "driver_domain" or not row["instance"]:
                found[row["run"], row["scope"], row["metric"]].append(float(row["value"]))
    return found


def configurations(pairs: Sequence[PinnedPair], metrics: Metrics, members: str) -> list[str]:
    """A table: what two members keep in each configuration."""
    shown = " | ".join(name for *_, name in _SHOWN)
    lines = [
        "| CPUs of Dom0, [VM1, VM2] | rounds | T/B, median (95 %) | sd over rounds | standard error in a run | both, /s"
        f" | {shown} |",
        "|" + "---|" * (6 + len(_SHOWN)),
    ]
    for name, label in CONFIGURATIONS.items():
        rounds = _rounds(pairs, name, members)
        if not rounds:
            continue
        ratios = [fmean(pair.ratio for pair in of) for of in rounds]
        low, high = interval(ratios)
        between = "" if low is None or high is None else f" ({low:.2f}-{high:.2f})"
        spread = f"{stdev(ratios):.3f}" if len(ratios) > 1 else ""
        error = median(pair.error for of in rounds for pair in of)
        cells = [_cell(metrics.get((f"{name}:{members}", scope, metric), ())) for scope, metric, _ in _SHOWN]
        lines.append(
            f"| {label} | {len(rounds)} | {median(ratios):.2f}{between} | {spread} | {error:.3f} |"
            f" {median(_together(rounds)):.0f} | {' | '.join(cells)} |"
        )
    return lines


def orders(pairs: Sequence[PinnedPair], members: str) -> list[str]:
    """A sentence for each order that the paper reports, by both members' rate together."""
    lines = []
    for better, worse in REPORTED:
        one, other = ({of[0].repeat: sum(pair.rate for pair in of) for of in _rounds(pairs, name, members)}
                      for name in (better, worse))  # fmt: skip
        ratios = [other[repeat] / one[repeat] for repeat in one.keys() & other.keys()]
        if not ratios:
            continue
        low, high = interval(ratios)
        verdict = "undetermined"
        if low is not None and high is not None:
            verdict = "agrees" if high < 1 else "disagrees" if low > 1 else verdict
            between = f" ({low:.2f}-{high:.2f})"
        else:
            between = ""
        lines.append(
            f"{CONFIGURATIONS[better]} is better than {CONFIGURATIONS[worse]}: {verdict}; the second has"
            f" {median(ratios):.2f}{between} of the first's rate"
        )
    return lines


def costs(metrics: Metrics) -> list[str]:
    """A table of what one page, event and switch costs alone, in CPU time of Dom0: in emulation it is no real one's."""
    lines = ["| alone | Dom0 CPU, % | pages/s | events/s | switches/s | µs of Dom0 for a page | pages for an event |",
             "|" + "---|" * 7]  # fmt: skip
    for run in sorted({run for run, *_ in metrics if run.startswith("solo:")}):
        cpu, pages = (_middle(metrics, run, "driver_domain", metric) for metric in ("cpu", "pages_exchanged"))
        events, switches = (_middle(metrics, run, "host", metric) for metric in ("event", "switch"))
        cost = f"{cpu * 1e4 / pages:.0f}" if cpu is not None and pages else ""
        share = f"{pages / events:.2f}" if pages is not None and events else ""
        shown = " | ".join("" if value is None else f"{value:.0f}" for value in (cpu, pages, events, switches))
        lines.append(f"| `{run.split(':')[1]}` | {shown} | {cost} | {share} |")
    return lines


def _rounds(pairs: Sequence[PinnedPair], configuration: str, members: str) -> list[list[PinnedPair]]:
    found: dict[str, list[PinnedPair]] = defaultdict(list)
    for pair in pairs:
        if (pair.configuration, pair.members) == (configuration, members):
            found[pair.repeat].append(pair)
    return list(found.values())


def _together(rounds: Sequence[Sequence[PinnedPair]]) -> list[float]:
    return [sum(pair.rate for pair in of) for of in rounds]


def _middle(metrics: Metrics, *key: str) -> float | None:
    values = metrics.get((key[0], key[1], key[2]), ())
    return median(values) if values else None


def _cell(values: Sequence[float]) -> str:
    return f"{median(values):.0f}" if values else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m research.xen_pinnings")
    parser.add_argument("dataset", type=Path)
    options = parser.parse_args(arguments)
    try:
        pairs, metrics = read_pairs(options.dataset), read_metrics(options.dataset)
    except (OSError, KeyError) as error:
        sys.stderr.write(f"{options.dataset} is no dataset of pairs measured on/off: {error} is missing\n")
        return 1
    for members in sorted({pair.members for pair in pairs}):
        of = [*configurations(pairs, metrics, members), "", *orders(pairs, members), ""]
        sys.stdout.write("\n".join([f"**{members}**", "", *of, ""]))
    sys.stdout.write("\n".join([*costs(metrics), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
