"""The programs of one instance during a run: the measuring program, and fillers before and after it, without gaps."""

from __future__ import annotations

from lab.errors import RunError
from lab.instances import Program, RunningInstance
from lab.workloads import WorkloadResult


class InstancePrograms:
    """One instance's measuring program, which waits until it is released, and its filler, which works at once."""

    def __init__(self, running: RunningInstance, seconds: int, rate: float | None) -> None:
        self.running = running
        self._rate = rate
        self._filling = running.workload.fill(running.site, rate)
        self._filler: Program | None = None
        self._refill()
        self._measuring = running.start(running.workload.work(running.site, seconds, rate), wait=True)

    @property
    def name(self) -> str:
        return self.running.placed.instance

    @property
    def fixed(self) -> bool:
        """Whether it ends when its work is done."""
        return self.running.workload.fixed

    @property
    def lead_s(self) -> float:
        return self.running.lead_s

    @property
    def ended(self) -> bool:
        """Whether the measuring program ended."""
        return self._measuring.returncode is not None

    def check(self) -> None:
        """RunError when the filler failed in the warm-up: then the work cannot be done at all."""
        filler = self._filler
        if filler is None or filler.returncode is None:
            return
        if self.fixed and filler.returncode == 0:
            self._refill()
            return
        raise RunError(
            f"{self.name}: {filler.command[0]} ended with status {filler.returncode} in the warm-up:"
            f" {filler.errors() or 'no message'}"
        )

    def release(self) -> None:
        self._measuring.release()

    def drop_filler(self) -> None:
        if self._filler is not None:
            self._filler.stop(patience_s=0)
            self._filler = None

    def keep_pressing(self) -> None:
        """Once the measuring program has ended, let fillers press on the neighbours that have not finished yet."""
        if self.ended and (self._filler is None or (self.fixed and self._filler.returncode == 0)):
            self._refill()

    def reached(self) -> WorkloadResult:
        """What the measuring program reached; RunError when it failed."""
        self._measuring.check()
        return self.running.workload.read(self._measuring.output(), self._rate)

    def stop(self) -> None:
        self.drop_filler()
        self._measuring.stop(patience_s=0)

    def _refill(self) -> None:
        self.drop_filler()
        if self._filling is not None:
            self._filler = self.running.start(self._filling)
