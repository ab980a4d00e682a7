"""The quality report of a model: figures and alarms per group, sentences about them, and comparison with other
models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from pydantic import Field

from models.evaluation.drift import DriftAlarm, alarms
from models.evaluation.prediction_checks import (
    ENOUGH_SCENES,
    FEW,
    ROLES,
    TARGETS,
    WINDOW,
    CheckedPrediction,
    CheckFigures,
    WindowGroup,
    figures,
    widening,
)
from models.figures import Figure, Known

SCOPES = ("all", "platform", "workload")


@dataclass(frozen=True, slots=True)
class QualityGroup:
    """The rows of one role and target: all of them, one platform's or one workload's."""

    role: Annotated[str, Field(description="active, shadow or baseline (the analytic model beside a learned model)")]
    target: Annotated[str, Field(description="throughput, latency or jitter")]
    scope: Annotated[str, Field(description="all, platform or workload")]
    name: Annotated[str, Field(description="of the platform or workload")]
    figures: Annotated[CheckFigures, Field(description="its figures")]
    alarms: Annotated[tuple[DriftAlarm, ...], Field(description="alarms that are raised")]
    widening: Annotated[
        Figure | None,
        Field(description="by which intervals on this platform should be widened; 1 = not at all, null = no platform"),
    ] = None


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """The model beside another one on the same measurements; `difference` below 0 is in its favour."""

    other: Annotated[str, Field(description="the other model")]
    role: Annotated[str, Field(description="shadow or baseline")]
    target: Annotated[str, Field(description="throughput, latency or jitter")]
    rows: Annotated[int, Field(description="observed rows")]
    scenes: Annotated[int, Field(description="measured scenes")]
    difference: Annotated[Known, Field(description="mean error of this model minus that of the other")]
    lower: Annotated[Figure | None, Field(description="95 % bootstrap interval over scenes; null for a single scene")]
    upper: Annotated[Figure | None, Field(description="upper end of its 95 % interval")]
    text: Annotated[str, Field(description="the comparison as a sentence")]


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Calibration of a model's recent predictions: `status` is no_data, too_few, ok or drift, `verdict` says it in
    words."""

    version: Annotated[str, Field(description="the model")]
    last: Annotated[int, Field(description="most observations of a group that are looked at")]
    status: Annotated[str, Field(description="no_data, too_few, ok or drift")]
    verdict: Annotated[tuple[str, ...], Field(description="what was found and what to do, as sentences")]
    groups: Annotated[tuple[QualityGroup, ...], Field(description="figures by role, target and scope")]
    beside: Annotated[tuple[ModelComparison, ...], Field(description="the model beside others")]
    windows: Annotated[tuple[WindowGroup, ...], Field(description="calibration in windows that agents measured")] = ()


def assess(
    version: str,
    rows: Sequence[CheckedPrediction],
    others: Sequence[CheckedPrediction],
    *,
    window: int = WINDOW,
    windows: tuple[WindowGroup, ...] = (),
) -> QualityReport:
    """Assess a model by its rows, in the order in which they were stored; each group has its last `window` rows.

    `others` are other models' rows of the same sources, `windows` its groups of measured windows.
    """
    groups = tuple(_groups(rows, window))
    sentences = [sentence(version, group, alarm) for group in groups for alarm in group.alarms]
    sentences += [_too_narrow(version, one) for one in windows if one.short]
    scenes = max((group.figures.scenes for group in groups), default=0)
    if sentences:
        status = "drift"
    elif not groups and not windows:
        status = "no_data"
        sentences = [
            f"Nothing was observed of what {version} predicted; run agents on hosts, or report outcomes to POST "
            "/v1/colocations or POST /v1/placements/{placement}/outcome."
        ]
    elif scenes >= FEW or any(one.widening is not None for one in windows):
        status, sentences = "ok", [f"No drift: {version} predicts as well as it says."]
    else:
        status, sentences = "too_few", _missing(version, scenes, windows)
    compared = compare(rows, others, window=window)
    return QualityReport(version, window, status, tuple(sentences), groups, compared, windows)


def _missing(version: str, scenes: int, windows: Sequence[WindowGroup]) -> list[str]:
    """How much is needed before anything is said."""
    needed = (
        [f"{scenes} scenes were observed, {FEW} are needed before anything is said about {version}."] if scenes else []
    )
    if windows:
        most = max((one.scenes for one in windows if one.contended and one.question == "forecast"), default=0)
        needed.append(
            f"{most} contended windows were held against {version}; {ENOUGH_SCENES} on hosts of one kind, over a day, "
            "are needed before its intervals are calibrated."
        )
    return needed


def _too_narrow(version: str, group: WindowGroup) -> str:
    """A sentence about intervals that do not hold in measured windows, and what is done about it."""
    return (
        f"On {group.platform} hosts {100 * group.coverage:.0f} % of what instances got in {group.scenes} contended "
        f"windows lay in the 90 % intervals of {version}, {group.error:.2f} off on average; its intervals there are "
        f"widened {group.widening:.1f} times."
    )


def _groups(rows: Sequence[CheckedPrediction], window: int) -> Iterator[QualityGroup]:
    parts: dict[tuple[int, int, int, str], list[CheckedPrediction]] = {}
    for row in rows:
        kind = ROLES.index(row.role), TARGETS.index(row.target)
        for scope, name in enumerate(("", row.platform, row.workload)):
            parts.setdefault((*kind, scope, name), []).append(row)
    for role, target, scope, name in sorted(parts):
        found = parts[role, target, scope, name]
        last = found[-window:]
        factor = widening(found[-2 * window :], window) if SCOPES[scope] == "platform" else None
        yield QualityGroup(ROLES[role], TARGETS[target], SCOPES[scope], name, figures(last), alarms(last), factor)


def sentence(version: str, group: QualityGroup, alarm: DriftAlarm) -> str:
    """A sentence about an alarm: which group, since when, how far off, and what to do."""
    workload = f"workload {group.name}" if group.name else "unknown workloads"
    where = {"all": "Over all", "platform": f"On platform {group.name}", "workload": f"Of {workload}"}
    since = f"since {alarm.since:%Y-%m-%d %H:%M} UTC ({alarm.scenes} scenes)"
    off = f"{abs(alarm.off - 1):.0%} {'above' if alarm.off > 1 else 'below'} what {version} expects"
    if alarm.kind == "coverage":
        what = f"{alarm.after:.0%} of {group.target} lay in the 90 % intervals of {version} {since}, {off} on average"
    else:
        what = f"{group.target} has been {off} {since}"
    advice = "measure again what `cotenant probe-plan` names, then train and activate a new model"
    if group.figures.outside > 0.5:
        advice = f"most of it lies outside the training data: {advice}"
    return f"{where[group.scope]}: {what}; {advice}."


def compare(
    rows: Sequence[CheckedPrediction], others: Sequence[CheckedPrediction], *, window: int = WINDOW
) -> tuple[ModelComparison, ...]:
    """Compare the model with every other one on the last `window` measurements that both predicted."""
    mine = {(row.source, row.instance, row.target): row for row in rows}
    pairs: dict[tuple[str, str], list[tuple[CheckedPrediction, CheckedPrediction]]] = {}
    for other in others:
        one = mine.get((other.source, other.instance, other.target))
        if one is not None and one.version != other.version:
            pairs.setdefault((other.version, other.target), []).append((one, other))
    ordered = sorted(pairs.items(), key=lambda item: (item[0][0], TARGETS.index(item[0][1])))
    return tuple(_beside(version, target, found[-window:]) for (version, target), found in ordered)


def _beside(version: str, target: str, pairs: Sequence[tuple[CheckedPrediction, CheckedPrediction]]) -> ModelComparison:
    less = np.array([_error(one) - _error(other) for one, other in pairs])
    difference = float(less.mean())
    from models.evaluation.error_metrics import (
        codes,
        resampled_means,  # and datasets with it, which questions do without
    )

    scene = codes(one.source for one, _ in pairs)
    resampled = resampled_means(scene, less[:, None])
    lower, upper = (None, None) if resampled is None else np.quantile(resampled, [0.025, 0.975]).tolist()
    name = pairs[0][0].version
    word = "less" if difference < 0 else "more"
    text = f"{name} errs by {abs(difference):.3f} {word} than {version} on {len(pairs)} measurements of {target}"
    if lower is None or upper is None:
        text += ", all in one scene: nothing follows."
    elif lower > 0 or upper < 0:
        side = "better" if upper < 0 else "worse"
        text += f" (95 % interval {lower:+.3f} to {upper:+.3f}): it is {side} beyond the uncertainty."
    else:
        text += f" (95 % interval {lower:+.3f} to {upper:+.3f}): that may be chance."
    return ModelComparison(
        version, pairs[-1][1].role, target, len(pairs), len(set(scene.tolist())), difference, lower, upper, text
    )


def _error(row: CheckedPrediction) -> float:
    return abs(row.observed - row.expected)
