"""The states of an on/off run: which members work, in balanced random order."""

from __future__ import annotations

import itertools
import math
import random

State = tuple[int, ...]
"""Positions of the members that work; the others are frozen."""
FEWEST_BLOCKS = 6
"""Fewer blocks say too little about the error of a ratio."""


def all_states(members: int) -> tuple[State, ...]:
    """Every subset in which a member works, the smallest first."""
    return tuple(state for size in range(1, members + 1) for state in itertools.combinations(range(members), size))


def blocks_for(seconds: float, dwell_s: float) -> int:
    """How many blocks give each state `seconds`."""
    return max(FEWEST_BLOCKS, math.ceil(seconds / dwell_s - 1e-9))


def draw_order(states: tuple[State, ...], blocks: int, seed: str) -> list[tuple[int, State]]:
    """(block, state) of each window: every block has each state once, in a random order of its own.

    So a change that is slower than a block, such as that of a clock rate, affects all states alike; a faster one
    affects them at random. A block begins with another state than the one before ended with, so that every window
    begins with a switch.
    """
    draw = random.Random(seed)  # noqa: S311 - an order, not a secret
    order: list[tuple[int, State]] = []
    for block in range(blocks):
        shuffled = draw.sample(states, len(states))
        if order and len(states) > 1 and shuffled[0] == order[-1][1]:
            shuffled.append(shuffled.pop(0))
        order += [(block, state) for state in shuffled]
    return order
