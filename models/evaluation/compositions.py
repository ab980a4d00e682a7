"""Predicts groups from measured pairs by a rule: additive, product or max composition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping

import numpy as np

from models.arrays import Floats
from models.features.examples import Examples

LOWEST, HIGHEST = 1e-3, 1.1
Rule = Callable[[Floats], float]  # the pairs' ratios of one victim to its ratio beside all of them


def compose_additive(train: Examples, test: Examples) -> Floats:
    """Slowdowns add up: s = 1 + sum of (s_pair - 1)."""
    return _compose(train, test, lambda ratios: 1 / max(1 + float((1 / ratios - 1).sum()), 1 / HIGHEST))


def compose_product(train: Examples, test: Examples) -> Floats:
    """Ratios multiply: each neighbour takes a share of what the others leave."""
    return _compose(train, test, lambda ratios: float(ratios.prod()))


def compose_max(train: Examples, test: Examples) -> Floats:
    """Only the worst neighbour counts."""
    return _compose(train, test, lambda ratios: float(ratios.min()))


def _compose(train: Examples, test: Examples, rule: Rule) -> Floats:
    """`rule` over the mean measured ratio of each pair, where all of them are known; else the training mean; (R,)."""
    known = _means(train)
    guess = np.full(len(test), float(train.ratio.mean()))
    for row, keys in enumerate(_keys(test)):
        ratios = [next((known[key] for key in exact_first if key in known), None) for exact_first in keys]
        measured = [ratio for ratio in ratios if ratio is not None]
        if keys and len(measured) == len(keys):
            guess[row] = rule(np.array(measured))
    return np.asarray(np.clip(guess, LOWEST, HIGHEST))


def _means(train: Examples) -> Mapping[Hashable, float]:
    found: dict[Hashable, list[float]] = defaultdict(list)
    for ratio, size, keys in zip(train.ratio, train.size, _keys(train), strict=True):
        if size == 2 and keys:
            for key in keys[0]:
                found[key].append(float(ratio))
    return {key: float(np.mean(ratios)) for key, ratios in found.items()}


def _keys(examples: Examples) -> Iterator[list[tuple[Hashable, Hashable]]]:
    """For every row and neighbour the pair: as it is pinned against that neighbour, and however it is pinned."""
    for victim, platform, beside in zip(examples.victim, examples.platform, examples.neighbours, strict=True):
        pairs = [(platform, victim, one.workload, round(one.overlap, 2)) for one in beside]
        yield [(pair, pair[:3]) for pair in pairs]


COMPOSITIONS = {"compose_additive": compose_additive, "compose_product": compose_product, "compose_max": compose_max}
