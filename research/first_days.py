"""How well hours of the day that were seen for some days tell the next three days, against a day without hours.

python -m research.first_days TRACES [PRIOR_HOURS...]

TRACES is the folder of Bitbrains' trace. What counts is what prediction reads: factors of the parts of a day.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from models.arrays import Floats
from models.data.demand_classes import PRIOR_HOURS
from models.data.scene import day_parts
from research.contention.trace_fit import WINDOW_S, bitbrains

DAYS = (1, 2, 3, 7)
NEXT = 3  # days that are told
LEAST = 1e-3  # CPUs: a VM below it sleeps
PER_HOUR = 3600 // WINDOW_S
MOST = 0.3  # of a square: days that are unlike all others do not decide alone


def errors(hourly: Floats, prior_hours: float) -> Mapping[int, tuple[float, float]]:
    """By number of days: squared error of the parts of a day over that of a day without hours, of all and with no
    square above MOST.

    `hourly` (D, 24, N) is the mean demand of each VM in each hour. Below 1, hours help.
    """
    found = {}
    for days in DAYS:
        told, flat = [], []
        for begin in range(0, len(hourly) - days - NEXT, 2):
            seen, after = hourly[begin : begin + days], hourly[begin + days : begin + days + NEXT]
            awake = (seen.mean(axis=(0, 1)) > LEAST) & (after.mean(axis=(0, 1)) > LEAST)
            expected = _parts(_factors(seen[:, :, awake], prior_hours)) - 1
            real = _parts(after[:, :, awake].mean(axis=0) / after[:, :, awake].mean(axis=(0, 1))) - 1
            told.append(((real - expected) ** 2).mean(axis=1))
            flat.append((real**2).mean(axis=1))
        one, other = np.concatenate(told), np.concatenate(flat)
        found[days] = (
            float(one.mean() / other.mean()),
            float(np.minimum(one, MOST).mean() / np.minimum(other, MOST).mean()),
        )
    return found


def _factors(seen: Floats, prior_hours: float) -> Floats:
    """Hours as the product learns them, shrunk to a day without."""
    factors = (PER_HOUR * seen.sum(axis=0) / seen.mean(axis=(0, 1)) + prior_hours) / (
        PER_HOUR * len(seen) + prior_hours
    )
    return np.asarray(factors / factors.mean(axis=0))


def _parts(factors: Floats) -> Floats:
    return np.asarray([day_parts(column) for column in factors.T])


def repeats(hourly: Floats) -> tuple[float, float]:
    """How much of one day's hours comes again the days after: the slope of theirs over it; and the variance of what
    does not, the mean of all machines; `hourly` as above."""
    common = varies = 0.0
    count = 0
    for begin in range(0, len(hourly) - 1 - NEXT, 2):
        seen, after = hourly[begin], hourly[begin + 1 : begin + 1 + NEXT].mean(axis=0)
        awake = (seen.mean(axis=0) > LEAST) & (after.mean(axis=0) > LEAST)
        one, other = (day[:, awake] / day[:, awake].mean(axis=0) - 1 for day in (seen, after))
        common, varies = common + float((one * other).mean(axis=0).sum()), varies + float((one**2).mean(axis=0).sum())
        count += int(awake.sum())
    return common / varies, (varies - common) / count


def hourly_means(windows: Floats) -> Floats:
    """(D, 24, N) of (T, N) windows; what is left of a day is dropped, and gaps count as nothing."""
    day = 24 * PER_HOUR
    whole = np.nan_to_num(windows[: len(windows) // day * day])
    return np.asarray(whole.reshape(-1, 24, PER_HOUR, windows.shape[1]).mean(axis=2))


def main(arguments: Sequence[str]) -> None:
    """Print a table."""
    hourly = hourly_means(bitbrains(Path(arguments[0])))
    slope, rest = repeats(hourly)
    sys.stdout.write(f"one day tells {slope:.2f} of the next ones; the variance of the rest is {rest:.2f}\n")
    sys.stdout.write("windows of the class  days seen  squared error  with limited squares\n")
    for prior in [float(one) for one in arguments[1:]] or [PRIOR_HOURS]:
        for days, (all_of_it, limited) in errors(hourly, prior).items():
            sys.stdout.write(f"{prior:20g}  {days:9}  {all_of_it:13.2f}  {limited:20.2f}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or sys.exit(__doc__))
