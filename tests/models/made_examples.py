"""Training examples made of nothing but names and numbers, for what does not ask how a scene became a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from models.arrays import Floats
from models.features.examples import Examples, GroupedExamples, Neighbour, group_repeats

Group = tuple[str, ...]
PAIRS = st.lists(st.lists(st.sampled_from("abcde"), min_size=1, max_size=3).map(tuple), min_size=1, max_size=30)


def made_up(
    groups: Sequence[Group],
    ratio: Floats | None = None,
    *,
    x: Floats | None = None,
    names: tuple[str, ...] = ("own cpu", "prior"),
    monotone: Sequence[int] | None = None,
    base: float | Floats = 0.8,
    platform: Sequence[str] = (),
    setting: Sequence[str] = (),
    run: Sequence[str] = (),
) -> Examples:
    """Examples with these workloads in their runs, the first of each as the victim, every row with features of its
    own."""
    count = len(groups)
    return Examples(
        x=np.arange(count * len(names) * 1.0).reshape(count, len(names)) if x is None else x,
        names=names,
        monotone=np.array(monotone or [0] * len(names), dtype=np.int8),
        ratio=np.full(count, 0.5) if ratio is None else ratio,
        base=np.broadcast_to(base, count).astype(float),
        victim=tuple(group[0] for group in groups),
        neighbours=tuple(tuple(Neighbour(workload, 1.0) for workload in group[1:]) for group in groups),
        pair=tuple("+".join(sorted(group)) for group in groups),
        platform=tuple(platform) or ("d/p",) * count,
        setting=tuple(setting) or ("",) * count,
        run=tuple(run) or tuple(f"d/r{at}/0" for at in range(count)),
        size=np.array([len(group) for group in groups], dtype=np.int64),
        key=tuple(f"d/p/{at}" for at in range(count)),
        campaign=("d",) * count,
    )


def grouped(groups: Sequence[Group], **more: object) -> GroupedExamples:
    """The same with repeats joined."""
    return group_repeats(made_up(groups, **more))  # type: ignore[arg-type]
