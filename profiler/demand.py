"""Demand: what an instance would use of a resource over time if there were no contention."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

Resource = Literal["cpu", "net_mbit", "disk_mb_s", "mem_bw_mb_s"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
DemandOrigin = Literal["given", "class", "measured", "history", "trace", "assumed"]
ORIGINS: tuple[DemandOrigin, ...] = get_args(DemandOrigin)
OF_A_KIND = 0.5  # of the mean: the doubt about an instance that is only known to be of the kind of another one
HOURS = (0, 24, 168)  # lengths of `hours`: unknown, hours of the day, hours of the week


@dataclass(frozen=True, slots=True)
class Demand:
    """Demand for one resource, over windows of `window_s` seconds, in CPUs (used if only its own cap held it back),
    Mbit/s or MB/s. None = unknown.

    `spread` is the standard deviation between windows, `common` the share (0-1) of its square that all instances of
    the cloud have in common, `autocorrelation_s` how long a window resembles the next ones, `hours` the factors of
    the mean in each hour of the day or the week (mean 1). Until a whole day was seen, `seen_hours` are the numbers of
    windows in each hour of the day (UTC), because the mean of a night is not that of a day. `windows` is the number of
    windows it was learned from, `doubt` the standard deviation of the error of `mean`. `open_loop` is the share (0-1)
    of its work that arrives however well it is served, `burst_ms` the mean CPU time of one burst.
    """

    mean: float
    resource: Resource = "cpu"
    spread: float = 0.0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    window_s: float = 300.0
    autocorrelation_s: float | None = None
    hours: tuple[float, ...] = ()
    seen_hours: tuple[float, ...] = ()
    common: float | None = None
    windows: float = 0.0
    doubt: float = 0.0
    open_loop: float | None = None
    burst_ms: float | None = None
    origin: DemandOrigin = "given"

    def __post_init__(self) -> None:
        if self.resource not in RESOURCES:
            raise ValueError(f"demand: resource {self.resource!r} is none of {', '.join(RESOURCES)}")
        if self.origin not in ORIGINS:
            raise ValueError(f"demand for {self.resource}: origin {self.origin!r} is none of {', '.join(ORIGINS)}")
        for name in _NUMBERS:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not 0 <= value < math.inf:
                raise ValueError(f"demand for {self.resource}: {name} is {value}, not a number from 0 on")
        for name in ("common", "open_loop"):
            share = getattr(self, name)
            if share is not None and share > 1:
                raise ValueError(f"demand for {self.resource}: {name} is {share}, above 1")
        known = [quantile for quantile in (self.p50, self.p95, self.p99) if quantile is not None]
        if len(known) > 1 and known != sorted(known):
            raise ValueError(f"demand for {self.resource}: p50, p95 and p99 do not grow: {known}")
        if len(self.hours) not in HOURS or any(not (math.isfinite(factor) and factor >= 0) for factor in self.hours):
            raise ValueError(f"demand for {self.resource}: hours are not 24 or 168 numbers from 0 on")
        if len(self.seen_hours) not in (0, 24):
            raise ValueError(f"demand for {self.resource}: seen_hours are not 24 numbers")
        if self.window_s <= 0:
            raise ValueError(f"demand for {self.resource}: window_s is not above 0")

    def of_another(self, factor: float) -> Demand:
        """The demand expected of another instance of its kind, `factor` times its size; all amounts grow with the size.

        Its mean is known no better than to half of itself.
        """
        p50, p95, p99 = (None if value is None else factor * value for value in (self.p50, self.p95, self.p99))
        mean, spread = factor * self.mean, factor * self.spread
        unsure = max(factor * self.doubt, OF_A_KIND * mean)
        return replace(
            self, mean=mean, spread=spread, p50=p50, p95=p95, p99=p99, doubt=unsure, windows=0.0, seen_hours=(),
            origin="class",
        )  # fmt: skip

    def within(self, vcpus: int) -> Demand:
        """This demand, for an instance that now has `vcpus` vCPUs: mean and quantiles of CPUs are at most that."""
        quantiles = {name: value for name in ("p50", "p95", "p99") if (value := getattr(self, name)) is not None}
        if self.resource != "cpu" or max(self.mean, *quantiles.values(), 0.0) <= vcpus:
            return self
        most = float(vcpus)
        return replace(self, mean=min(self.mean, most), **{name: min(value, most) for name, value in quantiles.items()})


_NUMBERS = tuple(  # looked up once: a cloud has hundreds of thousands of demands
    field.name for field in fields(Demand) if field.name not in {"resource", "origin", "hours", "seen_hours"}
)
