"""Demand of a trace's instances as it was seen till a step, learned window by window as the service learns it."""

from __future__ import annotations

import numpy as np

from advisor.replay.workloads import MIN_SEEN_STEPS, TraceDemand
from models.arrays import Floats
from models.data.demand_classes import from_mean
from models.profiling.demand_estimation import Tally, Window, estimated, others_in_step
from profiler.demand import Demand


class SeenDemand:
    """The demand for CPUs of I instances before a step; steps are asked for in their order."""

    def __init__(self, demand: TraceDemand) -> None:
        self._demand = demand
        self._tallies = [Tally(window_s=demand.trace.interval_s) for _ in demand.names]
        self._steps = 0

    def before(self, step: int, loads: Floats) -> list[Demand]:
        """What is known of each before `step`: spread, what all have in common, and hours once a day was seen.

        Of instances that were hardly seen only the mean counts that `loads` (I) tell, as a part of their vCPUs.
        """
        trace = self._demand.trace
        for at, row in enumerate(self._demand.loads(self._steps, step), self._steps):
            self._add((at + 1) * trace.interval_s, row * trace.vcpus)
        self._steps = max(step, self._steps)
        return [
            estimated(tally, vcpus=vcpus, origin="trace")
            if tally.n >= MIN_SEEN_STEPS
            else from_mean(float(load) * vcpus, vcpus)
            for tally, vcpus, load in zip(self._tallies, trace.vcpus.tolist(), loads, strict=True)
        ]

    def _add(self, time_s: float, demanded: Floats) -> None:
        there = np.flatnonzero(~np.isnan(demanded)).tolist()
        means = {str(who): (float(demanded[who]), self._tallies[who].mean) for who in there}
        others = others_in_step(means)
        for who in there:
            self._tallies[who].add(Window(time_s, float(demanded[who]), others.get(str(who))))
