"""Collectors: turn two readings of a Backend into rates and MetricSamples. They hold the formulas and read nothing."""

from profiler.collectors.counter_deltas import Deltas, Drop, difference
from profiler.collectors.samples import Collected, SampleRow, collect, unit_of

__all__ = ["Collected", "Deltas", "Drop", "SampleRow", "collect", "difference", "unit_of"]
