"""Measures the real speed of a run's CPUs by timing a fixed piece of work again and again.

CPU speed changes without steal and without any counter that a VM can see: the host's clock rate changes, and a program
on the other hardware thread of the core takes up to half of the speed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Collection
from statistics import fmean
from typing import Self

_EVERY_S = 0.25
_ITERATIONS = 400  # 0.2-0.5 ms on the machine this was written on: about a thousandth of a CPU
_OFTEN_S, _OFTEN_ITERATIONS = 0.01, 160  # with the iterations that warm the caches about two hundredths of a CPU


class SpeedWatch:
    """Context manager that times the work on each of these CPUs, four times a second; CPUs it may not use are left out.

    The work is PBKDF2, which computes in registers. Its CPU time is measured, so neighbours on the same CPU do not
    count. With `often` that is done a hundred times a second, and before all other work.
    """

    def __init__(self, cpus: Collection[int], *, often: bool = False) -> None:
        self._often = often
        self._samples: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._sample, args=(cpu,), daemon=True) for cpu in sorted(cpus)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def between(self, begin: float, end: float) -> dict[int, float]:
        """Mean speed of each CPU in iterations per µs of CPU time; times on the monotonic clock."""
        means: dict[int, float] = {}
        for cpu, samples in self._samples.items():
            speeds = [speed for at, speed in samples if begin <= at <= end]
            if speeds:
                means[cpu] = fmean(speeds)
        return means

    def samples(self) -> dict[int, tuple[tuple[float, float], ...]]:
        """The samples so far by CPU: (moment on the monotonic clock, speed), in the order of time."""
        return {cpu: tuple(samples) for cpu, samples in self._samples.items()}

    def _sample(self, cpu: int) -> None:
        with contextlib.suppress(OSError):  # not a CPU of this system, or not one for us
            os.sched_setaffinity(0, {cpu})  # of this thread alone
            samples = self._samples[cpu]
            every_s, iterations = (_OFTEN_S, _OFTEN_ITERATIONS) if self._often else (_EVERY_S, _ITERATIONS)
            if self._often:
                run_before_others()
            while not self._stop.wait(every_s):
                _work(iterations // 2)  # warms the caches, which what ran before has filled
                began = time.thread_time()
                _work(iterations)
                used_s = time.thread_time() - began
                samples.append((time.monotonic(), iterations / (used_s * 1e6)))


def _work(iterations: int) -> None:
    hashlib.pbkdf2_hmac("sha256", b"cotenant", b"speed", iterations)


def run_before_others() -> None:
    """From now on this thread runs as soon as it is due, where the kernel allows that."""
    with contextlib.suppress(OSError):  # not allowed everywhere, even for root; then it is sometimes late, which shows
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
