"""How soon what was measured of an instance tells what it will do: alone, by the others, and by both.

python -m research.first_windows TRACE...

Traces are those of `research.demand_classes`. Of each VM a few windows in a row, wherever they begin, are held against
its mean over the whole trace. `others` are known by their whole traces.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.data.cloud_classes import CloudClasses, completed
from models.data.demand_classes import LEAST
from profiler.demand import Demand
from profiler.observed import Instance
from research.demand_classes import Series, read

COUNTS = (1, 2, 3, 6, 12)  # windows
TRIES = 4  # of each VM
MOST_VMS = 400


def errors(series: Series, *, seed: int = 1) -> Mapping[int, Mapping[str, float]]:
    """By number of windows: by which factor each way is off, up or down (exp of the root mean square of the logarithm).

    `alone` = the mean of the windows, `others` = the class of all other VMs, `both` = what the product makes of it.
    """
    generator = np.random.default_rng(seed)
    long = [one for _, one in list(series.values())[:MOST_VMS] if one.size > 2 * COUNTS[-1]]
    used = {f"vm{number}x": one for number, one in enumerate(long)}  # names that tell nothing
    whole = {name: max(float(one.mean()), LEAST) for name, one in used.items()}
    classes = CloudClasses.of(_instance(name, mean, windows=used[name].size) for name, mean in whole.items())
    found: dict[int, dict[str, list[float]]] = {count: {"alone": [], "others": [], "both": []} for count in COUNTS}
    for name, windows in used.items():
        alike = classes.changed({name: None})
        others = completed(Instance(name), alike, ()).demand["cpu"].mean
        for count in COUNTS:
            for begin in generator.integers(0, windows.size - count, TRIES).tolist():
                mean = max(float(windows[begin : begin + count].mean()), LEAST)
                both = completed(_instance(name, mean, windows=count), alike, ()).demand["cpu"].mean
                for way, told in (("alone", mean), ("others", others), ("both", both)):
                    found[count][way].append(float(np.log(told / whole[name])))
    return {count: {way: _factor(logs) for way, logs in ways.items()} for count, ways in found.items()}


def _instance(name: str, mean: float, *, windows: int) -> Instance:
    return Instance(name, demand={"cpu": Demand(min(mean, 1.0), windows=windows, origin="measured")})


def _factor(logs: Sequence[float]) -> float:
    return float(np.exp(np.sqrt(np.mean(np.square(logs)))))


def main(arguments: Sequence[str]) -> None:
    """Print a table for each trace."""
    for name in arguments:
        sys.stdout.write(f"{Path(name).name}\nwindows  alone  others  both\n")
        for count, ways in errors(read(Path(name))).items():
            sys.stdout.write(f"{count:7}  {ways['alone']:5.2f}  {ways['others']:6.2f}  {ways['both']:4.2f}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit(__doc__))
