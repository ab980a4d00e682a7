"""Trace: presence and demand of instances as arrays over equal time steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import TraceForm
from models.arrays import Bools, Floats, Floats32, Ints


@dataclass(frozen=True, slots=True)
class Trace:
    """I instances over T steps of `interval_s` seconds.

    `ids` (I) are in the file's order, `vcpus` and `memory_mb` (I,) their sizes, `workloads` (I) what each runs, None =
    unknown. `cpu` (T, I) is the mean share of its vCPUs that an instance asked for, nan where it was absent; `net_mbit`
    and `disk_mb_s` (T, I) where the trace has them.
    """

    name: str
    form: TraceForm
    interval_s: float
    ids: tuple[str, ...]
    vcpus: Ints
    memory_mb: Floats
    workloads: tuple[str | None, ...]
    cpu: Floats32
    net_mbit: Floats32 | None = None
    disk_mb_s: Floats32 | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.cpu)

    @property
    def present(self) -> Bools:
        """Which instances are present in each step, (T, I)."""
        return ~np.isnan(self.cpu)

    def there(self, step: int) -> Bools:
        """Which instances are present in one step, (I,); cheaper than `present`."""
        return np.asarray(~np.isnan(self.cpu[step]))

    def of(self, instances: Ints) -> Trace:
        """The trace of these instances only, over the same steps."""
        numbers = instances.tolist()
        return replace(
            self,
            ids=tuple(self.ids[number] for number in numbers),
            workloads=tuple(self.workloads[number] for number in numbers),
            vcpus=self.vcpus[instances],
            memory_mb=self.memory_mb[instances],
            cpu=self.cpu[:, instances],
            net_mbit=None if self.net_mbit is None else self.net_mbit[:, instances],
            disk_mb_s=None if self.disk_mb_s is None else self.disk_mb_s[:, instances],
        )
