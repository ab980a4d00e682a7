"""Tables of held-out predictions made of known errors, for the tests of the registry and its gate."""

from __future__ import annotations

import numpy as np

from models.learning.held_out import HeldOutPredictions


def table(
    off: float = 0.02,
    *,
    target: str = "throughput",
    protocol: str = "unseen_pair",
    pairs: int = 30,
    repeats: int = 3,
    prior_off: float = 0.1,
    noise: float = 0.01,
    half: float = 0.06,
    seed: int = 0,
    world: int = 0,
    dataset: str = "lab",
) -> HeldOutPredictions:
    """Rows whose expectation is off by about `off` up or down, the prior's by `prior_off`; intervals of +- `half`.

    `world` chooses what was measured and what the prior says, `seed` what the model says.
    """
    measuring, saying = np.random.default_rng(world), np.random.default_rng(1000 + seed)
    rows = pairs * repeats
    pair = [f"w{number}+w{number + 1}" for number in range(pairs) for _ in range(repeats)]
    measured = measuring.uniform(0.4, 0.9, rows)
    sign = np.repeat(saying.choice([-1.0, 1.0], pairs), repeats)  # repeats of a pair are off alike
    expected = np.clip(measured + sign * off + saying.normal(0, noise, rows), 0.01, None)
    return HeldOutPredictions(
        target,
        protocol,
        key=tuple(f"{dataset}/p1/{name}/{row % repeats}/vm0" for row, name in enumerate(pair)),
        platform=(f"{dataset}/p1",) * rows,
        pair=tuple(pair),
        measured=measured,
        prior=np.clip(measured + np.repeat(measuring.choice([-1.0, 1.0], pairs), repeats) * prior_off, 0.01, None),
        expected=expected,
        lower=np.clip(expected - half, 0, None),
        upper=expected + half,
    )
