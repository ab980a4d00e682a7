"""Which limits hold on a host with given company: predicted for states that a cloud passes on its way, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from advisor.domain import Instance
from advisor.planning.cloud_evaluation import under
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import lay_out
from models.prediction import Predictor

SIZES = ("vCPUs", "memory", "disk", "driver domain")
AT_ONCE = 4096  # host states in one prediction
State = tuple[int, Sequence[Instance]]  # a host by position, and everybody there
Key = tuple[int, frozenset[int]]
NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Verdict:
    """`below` are those under a limit, `over` how much of each of SIZES is promised where that is more than may be (0 =
    it is not), `crowded` whether somebody there wants the host for itself and is not alone."""

    below: frozenset[str] = NOBODY
    over: tuple[float, ...] = (0.0,) * len(SIZES)
    crowded: bool = False


FINE = Verdict()


def permitted(*verdicts: Verdict) -> Verdict:
    """What a state may break because one of these breaks it, too."""
    return Verdict(
        frozenset().union(*(one.below for one in verdicts)),
        tuple(max(sizes) for sizes in zip(*(one.over for one in verdicts), strict=True)),
        any(one.crowded for one in verdicts),
    )


def broken(verdict: Verdict, allowed: Verdict, everywhere: frozenset[str]) -> str:
    """What of a state is broken that is not `allowed` on its host or, of instances, `everywhere`; "" = nothing."""
    for name, over, most in zip(SIZES, verdict.over, allowed.over, strict=True):
        if over > with_slack(most):
            return f"has no room for its {name} while the others are there"
    if verdict.crowded and not allowed.crowded:
        return "holds somebody who shares its host with nobody"
    suffering = sorted(verdict.below - allowed.below - everywhere)
    if suffering:
        return f"would take {suffering[0]} below what it must keep"
    return ""


@dataclass(frozen=True, slots=True)
class FeasibilityChecker:
    """Host states by one predictor; `keep_ratio` is what who has no limit of its own must keep.

    A state is known again by its host and by the very objects that are there, which it keeps.
    """

    snapshot: ClusterSnapshot
    predictor: Predictor
    keep_ratio: float
    _known: dict[Key, tuple[Verdict, tuple[Instance, ...]]] = field(default_factory=dict)

    def of(self, states: Sequence[State]) -> list[Verdict]:
        """The verdict on each state; those that are not known are asked together."""
        keys = [(host, frozenset(map(id, there))) for host, there in states]
        new = {key: state for key, state in zip(keys, states, strict=True) if key not in self._known}
        asked = list(new.items())
        for first in range(0, len(asked), AT_ONCE):
            some = asked[first : first + AT_ONCE]
            for (key, (_, there)), verdict in zip(some, self._predicted([state for _, state in some]), strict=True):
                self._known[key] = verdict, tuple(there)
        return [self._known[key][0] for key in keys]

    def _predicted(self, states: Sequence[State]) -> list[Verdict]:
        scenes = self.snapshot.scenes
        hosts = [self.snapshot.hosts[host] for host, _ in states]
        rows = lay_out(hosts, [there for _, there in states], scenes.table, scenes.driver_cpus.shape[1])
        count = rows.scenes.present.sum(axis=1)
        suffers = np.zeros(rows.scenes.present.shape, dtype=bool)
        if count.any():
            minds = bool(np.isfinite(rows.max_latency).any())
            targets = ("throughput", "latency") if minds else ("throughput",)
            suffers = under(rows, self.predictor.predict(rows.scenes, targets), self.keep_ratio)
        promised = np.stack(
            [rows.used_vcpus, rows.used_memory_mb, rows.used_disk_gb, rows.driver_asked.sum(axis=1)], axis=1
        )
        room = np.stack([rows.room_vcpus, rows.room_memory_mb, rows.room_disk_gb, rows.room_driver_cpus], axis=1)
        over = np.where(promised > with_slack(room), promised, 0.0)
        crowded = rows.exclusive & (count > 1)
        return [
            Verdict(
                frozenset(rows.residents[row][slot].id for slot in np.flatnonzero(suffers[row]).tolist()),
                tuple(over[row].tolist()),
                bool(crowded[row]),
            )
            for row in range(len(states))
        ]
