"""Reads a trace file as a Trace over equal steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from advisor.domain import TRACE_FORMS, TraceForm
from advisor.errors import InvalidInput
from advisor.replay.grid import StepGrid
from advisor.replay.trace import Trace
from advisor.replay.trace_formats import TraceSource, open_trace

MIN_STEP_S, MAX_STEP_S = 1.0, 30 * 86400.0  # of a step


def load_trace(
    path: Path, *, form: str | None = None, interval_s: float = 300.0, most_instances: int | None = None
) -> tuple[Trace, tuple[str, ...]]:
    """Read a trace, and what it lacks; `form` None = detect it.

    Every value is the mean over a step of `interval_s` seconds; only the first `most_instances` are read. InvalidInput
    names file, row, column and reason.
    """
    if not MIN_STEP_S <= interval_s <= MAX_STEP_S:
        raise InvalidInput(f"interval {interval_s:g} s is outside {MIN_STEP_S:g} to {MAX_STEP_S:g}", field="interval")
    source = open_trace(path, _form(form))
    grid = StepGrid(path.name, interval_s, len(source.kinds), most_instances)
    for rows in source.rows:
        grid.add(rows)
    return _trace(path.name, source, grid, interval_s), source.unsaid


def _trace(name: str, source: TraceSource, grid: StepGrid, interval_s: float) -> Trace:
    means = dict(zip(source.kinds, grid.finish(), strict=True))
    return Trace(
        name=name,
        form=source.form,
        interval_s=interval_s,
        ids=tuple(grid.ids),
        vcpus=grid.vcpus.astype(np.int64),
        memory_mb=grid.memory_mb,
        workloads=tuple(str(workload) or None for workload in grid.workloads),
        cpu=means["cpu"],
        net_mbit=means.get("net_mbit"),
        disk_mb_s=means.get("disk_mb_s"),
    )


def _form(form: str | None) -> TraceForm | None:
    for known in TRACE_FORMS:
        if form == known:
            return known
    if form is None:
        return None
    raise InvalidInput(f"form {form!r} is none of {', '.join(TRACE_FORMS)}", field="form")
