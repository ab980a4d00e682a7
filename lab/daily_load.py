"""A container's work over a compressed day: random bursts of CPU time, at some hours more than at others.

    python -I -S daily_load.py START END DAY_S BEGIN_H SEED CPUS...

From START until END, in seconds of the monotonic clock, it loads CPUS: parts of a real CPU at evenly spaced times of a
day, which begins at hour BEGIN_H and passes in DAY_S seconds. Work that it cannot do at once waits. It imports only
what it needs.
"""

import math
import random
import sys
import time

_BURST_S = 0.0015  # of CPU time, on average
_STEP_S = 1.0  # for which the demand stays the same
_SPREAD = 0.25  # standard deviation of the demand's logarithm …
_CORRELATION = 0.7  # … and its correlation from one step to the next
_MOST_BEHIND_S = 5.0  # later work is given up, so that a night does not end the evening's work


def work(start_s: float, end_s: float, day_s: float, begin_h: float, rng: random.Random, cpus: list[float]) -> None:
    """Want `cpus` until the end; CPU time that is spent beside the work counts as work."""
    at_s, noise, used_s = start_s, rng.gauss(0, 1), time.process_time()
    while at_s < end_s:
        noise = _CORRELATION * noise + math.sqrt(1 - _CORRELATION**2) * rng.gauss(0, 1)
        hour = (begin_h + 24 * (at_s - start_s) / day_s) % 24
        demand = cpus[int(hour / 24 * len(cpus))] * math.exp(_SPREAD * noise - _SPREAD**2 / 2)
        step_end_s = at_s + _STEP_S
        while True:
            at_s += rng.expovariate(max(demand, 1e-6) / _BURST_S)
            if at_s >= step_end_s:
                at_s = step_end_s
                break
            time.sleep(max(0.0, at_s - time.monotonic()))
            used_s += rng.expovariate(1 / _BURST_S)
            while time.process_time() < used_s:
                pass
            at_s = max(at_s, time.monotonic() - _MOST_BEHIND_S)
            used_s = max(used_s, time.process_time() - _STEP_S)
        time.sleep(max(0.0, min(at_s, end_s) - time.monotonic()))


if __name__ == "__main__":
    start, end, day, begin = map(float, sys.argv[1:5])
    time.sleep(max(0.0, start - time.monotonic()))
    rng = random.Random(int(sys.argv[5]))  # noqa: S311 - the same each time
    work(start, end, day, begin, rng, [float(argument) for argument in sys.argv[6:]])
