"""Collectors: turn two readings of a Backend into rates and MetricSamples. Formulas are here, reading is not."""

from profiler.collectors.counter_deltas import Deltas, Difference, Drop, difference
from profiler.collectors.samples import Absence, Collected, SampleRow, collect, unit_of

__all__ = ["Absence", "Collected", "Deltas", "Difference", "Drop", "SampleRow", "collect", "difference", "unit_of"]
