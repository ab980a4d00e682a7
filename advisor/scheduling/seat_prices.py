"""What the next place on each host is worth to those who are yet to come; arrays only."""

from __future__ import annotations

import numpy as np

from models.arrays import Floats

SOFT = 0.02  # of a score: differences this small are not known, so that a place has no sharp price
ROUNDS, SETTLED = 60, 1e-4  # the most rounds of the iteration, and how little prices move when it ends


def prices(scores: Floats, places: Floats, arrivals: Floats) -> Floats:
    """The price (G,) of a place on each kind of host, in units of a score.

    `scores` (G, K) says how well an arrival of each class would do there, `places` (G,) how many hosts of the kind
    have a place, at least one, and `arrivals` (K,) how many of each class are expected, above 0, together at most as
    many as there are places.

    If every instance to come were placed at once, so that the sum of scores is the highest, a place would have a shadow
    price: what the sum would lose without it. It is 0 where places of that kind are left over. This is the assignment
    problem with an entropy term (Cuturi, NIPS 2013), which Sinkhorn's iteration solves, for places that may stay empty;
    to go by such prices is bid-price control (Talluri and van Ryzin, Management Science 44, 1998).
    """
    price = np.zeros(len(places))
    with np.errstate(divide="ignore"):
        wanted, there = np.log(arrivals), np.log(places)[:, None]
    for _ in range(ROUNDS):
        gain = _log_sum((scores - price[:, None]) / SOFT + there, axis=0) - wanted  # what a class gets at these prices
        former, price = price, np.maximum(SOFT * _log_sum(scores / SOFT - gain, axis=1), 0.0)
        if np.abs(price - former).max() < SETTLED:
            break
    return price


def _log_sum(values: Floats, axis: int) -> Floats:
    """The logarithm of the sum of the exponentials."""
    most = values.max(axis=axis, keepdims=True)
    return np.asarray(np.squeeze(most, axis) + np.log(np.exp(values - most).sum(axis=axis)))
