"""How far from its prediction an instance may end up, by what the analytic model leaves out.

The model shares CPU time, packets and bytes. It does not count how long an instance waits each time it wakes up while
others are at work on its CPUs, however little time it wants; what busy CPUs elsewhere on the host take from caches,
memory and the clock; nor how connections share a full NIC. The first two only slow down, so they widen the range
downwards. All are about how fast a program gets on, so they apply where its profile is known: where only demand is,
T/B is the share of CPU time that comes of it. Constants and where they are from: docs/decisions/0152.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from models.arrays import Floats
from models.data.scene import SceneBatch
from models.physics.clock import CLOCK
from models.physics.demands import Demands, crowd, link
from models.physics.htb import shaped

WAKING = 1.0  # half a width on the log scale where no CPU of an instance is ever idle
SLOWED, FREE = 0.3, 0.9  # T/B at which waking up counts nothing (it always runs or waits), and wholly
# The same of those who send without a class of their own over a NIC that is asked for more than it has: connections
# share it by packets and round trips, not by bytes. Small answers lose, large ones gain.
SENDING_DOWN, SENDING_UP = 1.3, 0.6
FROM, UP_TO = 0.6, 1.0  # of the NIC's rate asked for, between which this begins to count
SELDOM = 0.001  # a chance that is none
STEADY = 0.05  # of a vCPU: the least deviation of what others keep busy


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Half widths on the log scale, (S, N) each and 0 without a profile: of `waking` for an instance that keeps all of
    its speed, of the host's other work (`company`), and of a full NIC."""

    waking: Floats
    company: Floats
    sending_down: Floats
    sending_up: Floats

    @classmethod
    def of(cls, scenes: SceneBatch, want: Demands, crowded: Floats) -> Self:
        """`crowded` (S, N) is CPU demand per CPU on the CPUs that each may use, its own included."""
        known = scenes.present & (scenes.profile > 0)
        full = _sending(scenes, want)
        parts = (_waking(scenes, want, crowded), _company(scenes, want), SENDING_DOWN * full, SENDING_UP * full)
        return cls(*(np.where(known, part, 0.0) for part in parts))

    def down(self, throughput: Floats, own: Floats, further: Floats | float = 0.0) -> Floats:
        """The whole half width below `throughput`, (S, N), with the prior's `own`; `further` is that of the clock, of
        which company is a part."""
        free = np.clip((throughput - SLOWED) / (FREE - SLOWED), 0.0, 1.0)
        return np.asarray(
            np.hypot(own + np.maximum(self.company, further), np.hypot(self.waking * free, self.sending_down))
        )


def _waking(scenes: SceneBatch, want: Demands, crowded: Floats) -> Floats:
    """How many vCPUs others keep busy on the CPUs of an instance is taken for normal, with the variance of as many
    independent ones that are busy or not; a logistic function stands for the normal distribution."""
    allowed = np.maximum(scenes.affinity.sum(axis=2), 1)
    switching = np.maximum(want.cpu * (1 - want.cpu / np.maximum(scenes.vcpus, 1)), 0.0)
    others = np.maximum(crowded * allowed - want.cpu - want.driver, 0.0)
    spread = np.sqrt(np.maximum(crowd(scenes, replace(want, cpu=switching)) * allowed - switching - want.driver, 0.0))
    none_idle = 1 / (1 + np.exp(np.clip(1.7 * (allowed - 0.5 - others) / np.maximum(spread, STEADY), -50.0, 50.0)))
    return np.asarray(WAKING * np.sqrt(np.where(others > 0, np.maximum(none_idle - SELDOM, 0.0), 0.0)))


def _company(scenes: SceneBatch, want: Demands) -> Floats:
    """As much as of an unknown clock, which is a part of it."""
    own = np.where(scenes.present, want.cpu + want.driver, 0.0)
    others = own.sum(axis=1, keepdims=True) - own + scenes.own_cpus[:, None]
    return np.asarray(CLOCK * np.sqrt(np.clip(others / np.maximum(scenes.pcpus, 1)[:, None], 0.0, 1.0)))


def _sending(scenes: SceneBatch, want: Demands) -> Floats:
    """How much of a full NIC an instance shares with others without a class, 0-1."""
    rate = link(scenes)[:, None]
    net = np.where(scenes.present, want.net, 0.0)
    asked = net.sum(axis=1, keepdims=True)
    full = np.clip((asked / rate - FROM) / (UP_TO - FROM), 0.0, 1.0)
    return np.where((net > 0) & ~shaped(scenes), full * np.sqrt(np.clip((asked - net) / rate, 0.0, 1.0)), 0.0)
