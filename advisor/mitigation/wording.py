"""What a rung does in one sentence, and its effects on everybody as values of the answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from advisor.domain import Band, Effect, Host, Instance
from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from models.prediction import BandArrays as PredictedBand
from models.prediction import InterferencePrediction

WORTH_NAMING = 0.02  # of T/B, for whom the rung is not about
MOST_NAMED = 4


def sentence(standing: Standing, trial: Trial, after: InterferencePrediction, outcome: str) -> str:
    """What is done and what it gives whom: the sufferer, those whose settings change, then who else feels it most."""
    old, new = standing.prediction.throughput.expected[0], after.throughput.expected[0]
    felt = np.round(np.abs(new - old), 9)
    settings = [trial.changes.get(one.id, one.settings) for one in standing.shared.parties]
    changed = [at for at in range(len(settings)) if at != standing.sufferer and settings[at] != standing.settings(at)]
    rest = [at for at in range(len(settings)) if at not in {standing.sufferer, *changed} and felt[at] > WORTH_NAMING]
    named = [*sorted(changed, key=lambda at: -felt[at]), *sorted(rest, key=lambda at: -felt[at])]
    parts = [_change(standing, after, standing.sufferer, of_latency=standing.of_latency)]
    parts += [_change(standing, after, at, of_latency=False) for at in named[: MOST_NAMED - 1]]
    return f"{trial.says}: {', '.join(parts)}{outcome}."


def _change(standing: Standing, after: InterferencePrediction, at: int, *, of_latency: bool) -> str:
    now = standing.prediction
    bands = (now.latency, after.latency) if of_latency else (now.throughput, after.throughput)
    old, new = (float(band.expected[0, at]) for band in bands)
    name = standing.party(at).id
    return f"{f'latency of {name}' if of_latency else name} {old:.2f} -> {new:.2f}"


def another_host(host: Host, newcomer: Instance, others: Sequence[str]) -> str:
    """What is left when no setting on this host mends it."""
    if not others:
        return f"Nothing that was tried on {host.id} keeps every limit, and no other host is known that does."
    return (
        f"Nothing that was tried on {host.id} keeps every limit: place {newcomer.id} on {others[0]}, which breaks none."
    )


def effects(standing: Standing, after: InterferencePrediction) -> tuple[Effect, ...]:
    """What is predicted for everybody, the newcomer first and then by id; `before` is without the rung."""
    count = len(standing.shared.parties)
    return tuple(
        Effect(
            instance=standing.party(at).id,
            throughput_ratio=_band(after.throughput, at),
            latency_ratio=_band(after.latency, at),
            before=_band(standing.prediction.throughput, at),
            outside_training=bool(after.outside[0, at]),
            jitter_ratio=_band(after.jitter, at),
        )
        for at in (count - 1, *range(count - 1))
    )


def _band(band: PredictedBand, at: int) -> Band:
    return Band(float(band.expected[0, at]), float(band.lower[0, at]), float(band.upper[0, at]))
