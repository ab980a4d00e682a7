"""WorkloadProfile: metrics of a workload that runs alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from profiler.metrics import join_key, split_key


@dataclass(frozen=True, slots=True)
class WorkloadProfile:
    """A workload's solo metrics at load 1.0 (saturation).

    `metrics` maps a key (`cpu`, `driver_domain.cpu`, `event`, `llc_misses`, ...; see `profiler.metrics.split_key`) to
    the value in the metric's unit. `platform` empty = holds on every platform. `origin` is paper, measured, simulated,
    given (by the caller) or unknown.
    """

    name: str
    metrics: Mapping[str, float]
    platform: str = ""
    origin: str = "given"

    def __post_init__(self) -> None:
        for key, value in self.metrics.items():
            if not math.isfinite(value):
                raise ValueError(f"workload {self.name}: metric {key} is {value}, not a finite number")
            if value < 0:
                raise ValueError(f"workload {self.name}: metric {key} is {value}, below 0")

    @property
    def known(self) -> bool:
        """Whether anything at all was measured."""
        return bool(self.metrics)

    def get(self, key: str) -> float | None:
        """The value under any spelling of its key (`instance.cpu` is `cpu`), or None where it is unknown."""
        scope, metric = split_key(key)
        return self.metrics.get(join_key(scope, metric))
