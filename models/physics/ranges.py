"""How far from its prediction an instance may end up, by what the analytic model leaves out.

The model shares CPU time, packets and bytes. It does not count how long an instance waits each time it wakes up while
others are at work on its CPUs, however little time it wants; what busy CPUs elsewhere on the host take from caches,
memory and the clock; nor in which order a full NIC or disk serves. The first two only slow down, so they widen the
range downwards. Nor does it know how evenly a scheduler spreads tasks over CPUs, or when exactly it lets in a writer
that syncs. All are about how fast a program gets on, so they apply where its profile is known and not its demand
over time: where that is, T/B is the share of CPU time that comes of it. Constants: docs/decisions/0152.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.clock import CLOCK
from models.physics.contention import together
from models.physics.demands import Demands, crowd, link
from models.physics.htb import shaped

WAKING = 1.0  # half a width on the log scale where no CPU of an instance is ever idle
SLOWED, FREE = 0.3, 0.9  # T/B at which waking up counts nothing (it always runs or waits), and wholly
# The same of those who share a NIC (without a class of their own) or a disk that is asked for more than it has: these
# serve packets and requests by round trips and queues, not by bytes. Small ones lose, large ones gain.
QUEUED_DOWN, QUEUED_UP = 1.6, 0.8
FROM, UP_TO = 0.6, 1.0  # of the rate asked for, between which this begins to count
FLUSHING = 1.0  # the same of those who wait for the scheduler's clock with each flush, and hardly get on otherwise
# Downwards, of those who share full CPUs, TWO of them: tasks are whole, and a scheduler with a queue for each CPU
# leaves more of them on one than on the other. More CPUs even out; how much of it is left there was not measured.
# Upwards it counts nothing: what one has more, others have less, and plans take all of a host at the same end.
UNEVEN, TWO = 0.35, 2.0
RATIONED = 0.35  # in both directions, of those who share a cap, of which the kernel hands out 5 ms at a time
SELDOM = 0.001  # a chance that is none
STEADY = 0.05  # of a vCPU: the least deviation of what others keep busy


@dataclass(frozen=True, slots=True)
class UnmodelledWaits:
    """Half widths on the log scale, (S, N) each, 0 where T/B is a share: of `waking` for an instance that keeps all of
    its speed, of the host's other work (`company`), of a scheduler that spreads tasks unevenly (`uneven`), of a cap of
    all (`rationed`), and of flushes that wait (`flushing`). `queued` is the part of a full NIC's or disk's width.
    """

    waking: Floats
    company: Floats
    queued: Floats
    uneven: Floats
    rationed: Floats
    flushing: Floats

    @classmethod
    def of(cls, scenes: SceneBatch, want: Demands, crowded: Floats, flushed: Floats) -> Self:
        """`crowded` (S, N) is CPU demand per CPU on the CPUs that each may use, its own included, and `flushed` (S, N)
        how fast its flushes let it be."""
        known = scenes.present & (scenes.profile > 0) & np.isnan(scenes.cpu_demand[:, :, 0])
        classless = np.where(shaped(scenes), 0.0, want.net / link(scenes)[:, None])
        queued = np.maximum(_queued(scenes, classless), _queued(scenes, want.disk))
        waking = _waking(scenes, want, crowded)
        parts = waking, _company(scenes, want), queued, _uneven(scenes, waking), _rationed(scenes, want)
        return cls(*(np.where(known, part, 0.0) for part in (*parts, FLUSHING * (1 - flushed))))

    def down(self, throughput: Floats, own: Floats, further: Floats | float = 0.0) -> Floats:
        """The whole half width below `throughput`, (S, N), with the prior's `own`; `further` is that of the clock, of
        which company is a part."""
        free = np.clip((throughput - SLOWED) / (FREE - SLOWED), 0.0, 1.0)
        parts = (self.waking * free, QUEUED_DOWN * self.queued, self.uneven, self.rationed, self.flushing)
        return np.asarray(np.hypot(own + np.maximum(self.company, further), np.hypot.reduce(parts)))

    def up(self, own: Floats, further: Floats | float = 0.0) -> Floats:
        """The whole half width above, (S, N)."""
        parts = QUEUED_UP * self.queued, self.rationed, self.flushing
        return np.asarray(np.hypot(own + further, np.hypot.reduce(parts)))


def _waking(scenes: SceneBatch, want: Demands, crowded: Floats) -> Floats:
    """How many vCPUs others keep busy on the CPUs of an instance is taken for normal, with the variance of as many
    independent ones that are busy or not; a logistic function stands for the normal distribution."""
    allowed = np.maximum(scenes.allowed, 1)
    switching = np.maximum(want.cpu * (1 - want.cpu / np.maximum(scenes.vcpus, 1)), 0.0)
    others = np.maximum(crowded * allowed - want.cpu - want.driver, 0.0)
    spread = np.sqrt(np.maximum(crowd(scenes, replace(want, cpu=switching)) * allowed - switching - want.driver, 0.0))
    none_idle = 1 / (1 + np.exp(np.clip(1.7 * (allowed - 0.5 - others) / np.maximum(spread, STEADY), -50.0, 50.0)))
    return np.asarray(WAKING * np.sqrt(np.where(others > 0, np.maximum(none_idle - SELDOM, 0.0), 0.0)))


def _uneven(scenes: SceneBatch, waking: Floats) -> Floats:
    """Where tasks may choose among CPUs none of which is idle."""
    evened = np.sqrt(TWO / np.maximum(scenes.allowed, 1))
    return np.where(scenes.allowed > 1, UNEVEN * waking / WAKING * evened, 0.0)


def _rationed(scenes: SceneBatch, want: Demands) -> Floats:
    """Where all instances share a cap, by how much of it they ask for."""
    most = together(scenes)[:, None]
    mine = np.where(scenes.present, want.cpu + want.driver, 0.0)
    asked = mine.sum(axis=1, keepdims=True)
    full = np.clip((asked / most - FROM) / (UP_TO - FROM), 0.0, 1.0)
    return np.where((most < scenes.pcpus[:, None]) & (asked > mine), RATIONED * full, 0.0)


def _company(scenes: SceneBatch, want: Demands) -> Floats:
    """As much as of an unknown clock, which is a part of it."""
    own = np.where(scenes.present, want.cpu + want.driver, 0.0)
    others = own.sum(axis=1, keepdims=True) - own + scenes.own_cpus[:, None]
    return np.asarray(CLOCK * np.sqrt(np.clip(others / np.maximum(scenes.pcpus, 1)[:, None], 0.0, 1.0)))


def _queued(scenes: SceneBatch, share: Floats) -> Floats:
    """How much of a full device an instance shares with others, 0-1; `share` (S, N) is what each asks of it."""
    mine = np.where(scenes.present, share, 0.0)
    asked = mine.sum(axis=1, keepdims=True)
    full = np.clip((asked - FROM) / (UP_TO - FROM), 0.0, 1.0)
    return np.where(mine > 0, full * np.sqrt(np.clip(asked - mine, 0.0, 1.0)), 0.0)
