"""Alarms where windows contradict what was predicted before them: raised, explained, ended, and what counts meanwhile.

What is kept of a host is plain JSON: `before` the demand for CPUs that was expected when the first window contradicted,
as (mean, spread) by instance; `wants` what each wanted since, the newest windows most; `instances` how far each is
below; `off` how far the model was off in each of the newest windows, asked with the demand that they had, in half
widths; `counts` and `wide` what answers count with meanwhile, and by how much their intervals are widened.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from advisor.domain import Anomaly, AnomalyCause, Instance, Recommendation, Scene, WorkloadProfile, listed
from advisor.lifecycle import window_checks
from advisor.lifecycle.outcome_checks import OutcomeScorer
from advisor.lifecycle.window_checks import MeasuredWindow, WindowRows
from advisor.store.rollups import BUCKET_S
from advisor.telemetry.antagonists import share_cpus
from models.data.cloud_classes import WEEK
from models.evaluation.drift import ALARM, accumulated, beyond, half_width
from models.evaluation.prediction_checks import WIDEST, CheckedPrediction, Question, conformal_quantile, log_off, widen
from profiler.demand import Demand

State = dict[str, Any]
# By how much more of its CPU demand an instance waited since a time, by what ran meanwhile; None = nothing
# watched its run queue.
WaitedMore = Callable[[str, float], Mapping[str, float] | None]
HELD_S = 86_400.0  # for so long windows are held against what was said before the first that contradicted
SILENT_S = 6 * 3600.0  # without a window an alarm ends: its state is not known
NEWEST = 0.5  # weight of the newest window in what each demands
LEAST_RISE = 0.05  # CPUs
STANDS_OUT = 2.0  # standard deviations between windows above what was expected
OFF = 0.05  # of the logarithm of a share: by less nothing is corrected
MOST_FACTOR = 16.0
LEAST_MORE = 0.02  # of its demand: a neighbour that takes less of it is not named
CHANGED = 0.1  # of a demand or a width: by less what answers count with stays
NEWEST_OFF = 12  # windows, an hour: the worst of them says how wide intervals must be


@dataclass(frozen=True, slots=True)
class AlarmUpdate:
    """What a window changes for a host: `state` is to be stored, None = nothing any more; `differs` = answers count
    with something else now."""

    state: State | None
    raised: tuple[Anomaly, ...] = ()
    ended: tuple[Anomaly, ...] = ()
    differs: bool = False


def after_window(
    state: Mapping[str, Any] | None,
    scene: Scene,
    window: MeasuredWindow,
    checked: Sequence[WindowRows],
    forecast: Mapping[str, Any],
    correct: Correction,
    waited_more: WaitedMore,
) -> AlarmUpdate:
    """Take in one more window of a host: the `forecast` that was stored before it, and the rows `checked` against it.

    The cause of an alarm is looked for when it is raised.
    """
    was: Mapping[str, Any] = state or _nothing(forecast)
    factor, rows = forecast.get("factor", 1.0), _active(checked, "forecast")
    ends_s = next((part.ends_s for part in checked), 0.0)
    present = {instance.id for instance in scene.instances}
    instances: dict[str, Any] = {}
    for name in sorted(present & (rows.keys() | was["instances"].keys())):
        if (below := _one_more(was["instances"].get(name), rows.get(name), ends_s, factor)) is not None:
            instances[name] = below
    if not instances and state is None:
        return AlarmUpdate(None)
    wants = _smoothed(was["wants"], window, present)
    raised = []
    for name, below in instances.items():
        if below["raised_s"] is None and below["sum"] >= ALARM:
            waits = waited_more(name, below["since_s"])
            below |= {"raised_s": ends_s, **_cause(name, scene, was["before"], wants, waits)}
            raised.append(name)
    now: State = {**was, "wants": wants, "instances": instances, "counts": {}, "wide": 1.0}
    now |= _off_by(was, rows, _active(checked, "window"))
    if any(below["raised_s"] is not None for below in instances.values()):
        now["counts"] = _kept(was["counts"], correct.counted(wants, scene, window))
        now["wide"] = _still(was["wide"], min(max(1.0, *now["off"]), WIDEST))
    alarms_before = {alarm.instance: alarm for alarm in standing(scene.host.id, was)}
    alarms_now = {alarm.instance: alarm for alarm in standing(scene.host.id, now)}
    return AlarmUpdate(
        now if instances else None,
        tuple(alarms_now[name] for name in raised),
        tuple(alarm for name, alarm in alarms_before.items() if name not in alarms_now),
        differs=alarms_before.keys() != alarms_now.keys() or any(now[name] != was[name] for name in ("counts", "wide")),
    )


def _nothing(forecast: Mapping[str, Any]) -> State:
    return {
        "before": forecast.get("demanded", {}), "wants": {}, "instances": {}, "counts": {}, "wide": 1.0, "off": [],
        "version": "",
    }  # fmt: skip


def _active(checked: Sequence[WindowRows], question: Question) -> dict[str, CheckedPrediction]:
    rows = (row for part in checked if part.question == question for row in part.rows)
    return {row.instance: row for row in rows if row.role == "active"}


def _off_by(
    was: Mapping[str, Any], forecast: Mapping[str, CheckedPrediction], window: Mapping[str, CheckedPrediction]
) -> State:
    """How far the model is off where it knows what every instance wanted, in the newest windows; those of another model
    do not count.

    In half widths of the forecast, for those are what answers have. So a neighbour that hogs does not widen what the
    model says with its demand, and CPUs that became slow do.
    """
    version = next((row.version for row in forecast.values()), was["version"])
    before = was["off"] if version == was["version"] else []
    scores = [
        abs(log_off(row)) / half_width(predicted.expected, predicted.lower)
        for name, row in window.items()
        if (predicted := forecast.get(name)) is not None
    ]
    now = [conformal_quantile(scores)] if scores else []
    return {"version": version, "off": [*before, *now][-NEWEST_OFF:]}


def _one_more(
    former: Mapping[str, Any] | None, row: CheckedPrediction | None, ends_s: float, factor: float
) -> dict[str, Any] | None:
    """What is stored of an instance after a window, None = it agrees; `row` None = it wanted nothing.

    For a day windows are compared with what was predicted before the first that contradicted: later predictions have
    learned from them. Where the host is the cause another model is believed at once: it may have learned how the host
    is now.
    """
    if former is None:
        if row is None or (excess := beyond(row.expected, row.lower, factor, row.observed)) <= 0:
            return None
        state: dict[str, Any] = {
            "sum": 0.0, "since_s": ends_s - BUCKET_S, "windows": 0, "got": 0.0, "raised_s": None,
            "expected": row.expected, "own": row.lower, "factor": factor, "version": row.version,
        }  # fmt: skip
    else:
        state = dict(former)
        if row is not None and (ends_s - state["since_s"] > HELD_S or _has_new_model(state, row)):
            state |= {"expected": row.expected, "own": row.lower, "factor": factor, "version": row.version}
        excess = -1.0 if row is None else beyond(state["expected"], state["own"], state["factor"], row.observed)
    state["sum"] = accumulated(state["sum"], excess)
    if state["sum"] == 0:
        return None
    if row is not None:
        state |= {"windows": state["windows"] + 1, "got": state["got"] + row.observed}
    return state | {"lower": widen(state["expected"], state["own"], state["factor"])}


def _has_new_model(state: Mapping[str, Any], row: CheckedPrediction) -> bool:
    return state["raised_s"] is not None and state["cause"] == "host" and state["version"] != row.version


def standing(host: str, state: Mapping[str, Any]) -> tuple[Anomaly, ...]:
    """The alarms of a host that stand, by instance."""
    return tuple(
        Anomaly(
            instance=name,
            host=host,
            since=datetime.fromtimestamp(alarm["since_s"], UTC),
            raised=datetime.fromtimestamp(alarm["raised_s"], UTC),
            windows=alarm["windows"],
            expected=alarm["expected"],
            lower=alarm["lower"],
            observed=alarm["got"] / max(alarm["windows"], 1),
            cause=alarm["cause"],
            antagonist=alarm["antagonist"],
            demand_before=alarm["wanted_before"],
            demand=alarm["wanted"],
            measured=alarm["measured"],
        )
        for name, alarm in sorted(state["instances"].items())
        if alarm["raised_s"] is not None
    )


def counting_as(instance: Instance, cpus: float) -> Instance:
    """The instance with the demand for CPUs that was measured while its host contradicts: its own past says nothing
    of it, and nor does its class."""
    expected = instance.demand.get("cpu", Demand(cpus))
    now = Demand(
        min(cpus, float(instance.vcpus)), hours=(1.0,) * 24, common=0.0, windows=float(WEEK),
        open_loop=expected.open_loop, burst_ms=expected.burst_ms, origin="measured",
    )  # fmt: skip
    return replace(instance, demand={**instance.demand, "cpu": now}, load=1.0)


def annotated(answer: Recommendation, alarms: Iterable[Anomaly]) -> Recommendation:
    """The answer with a sentence for each host in it where an alarm stands."""
    hosts = {candidate.host for candidate in (*answer.candidates, *answer.tuned, *filter(None, [answer.present]))}
    victims: dict[str, list[str]] = {}
    for alarm in alarms:
        if alarm.host in hosts:
            victims.setdefault(alarm.host, []).append(alarm.instance)
    notes = tuple(
        f"Measured contention on {host} is above the predicted range ({listed(names, 3)}). Until it subsides, answers "
        f"for {host} use the measured values."
        for host, names in sorted(victims.items())
    )
    return replace(answer, notes=(*answer.notes, *notes)) if notes else answer


@dataclass(frozen=True, slots=True)
class Correction:
    """Asks the active model, None = there is none, what the measured demand explains of the measured shares."""

    judge: OutcomeScorer | None
    workloads: Sequence[WorkloadProfile]

    def counted(self, wants: Mapping[str, float], scene: Scene, window: MeasuredWindow) -> dict[str, float]:
        """Demands for CPUs with which the model says the shares that were measured.

        They are those measured, each times the same factor where others there got more than what the model says of
        them: a host with slower CPUs, or with work that was not reported, is as if every instance wanted more.
        """
        if self._off(wants, scene, window) <= OFF:
            return dict(wants)
        low, high = 1.0, MOST_FACTOR
        for _ in range(7):
            middle = math.sqrt(low * high)
            more = {name: middle * value for name, value in wants.items()}
            low, high = (middle, high) if self._off(more, scene, window) > 0 else (low, middle)
        return {name: low * value for name, value in wants.items()}

    def _off(self, wants: Mapping[str, float], scene: Scene, window: MeasuredWindow) -> float:
        """By how much the shares that the model says are above those measured: the mean of the logarithms."""
        if self.judge is None or not window.shares:
            return 0.0
        active = tuple(
            counting_as(instance, wants[instance.id]) for instance in scene.instances if instance.id in wants
        )
        rows = window_checks.rows_of(self.judge, replace(scene, instances=active), self.workloads, window.shares, 0.0)
        off = [math.log(row.expected / row.observed) for row in rows]
        return sum(off) / len(off) if off else 0.0


def _smoothed(before: Mapping[str, float], window: MeasuredWindow, names: Iterable[str]) -> dict[str, float]:
    now = {name: demand["cpu"] for name, demand in window.demanded.items() if "cpu" in demand}
    return {
        name: (1 - NEWEST) * before.get(name, now[name]) + NEWEST * now[name] for name in sorted(names) if name in now
    }


def _cause(
    victim: str,
    scene: Scene,
    before: Mapping[str, Sequence[float]],
    wants: Mapping[str, float],
    waited_more: Mapping[str, float] | None,
) -> dict[str, Any]:
    """The likely cause: the one that ran for most of the time that the victim waits more, where that is measured; else,
    of those that share CPUs with it, the one with most demand beyond what was expected; the host where no instance
    does, or most do."""
    own = next(instance for instance in scene.instances if instance.id == victim)
    near = [instance for instance in scene.instances if instance.id in wants and share_cpus(instance, own)]
    rises = {instance.id: _rise(before.get(instance.id), wants[instance.id]) for instance in near}
    risen = {name: rise for name, rise in rises.items() if rise > 0}
    cause: AnomalyCause = "host"
    antagonist = None
    if risen and (len(risen) <= len(near) / 2 or len(near) <= 2):
        antagonist = max(risen, key=lambda name: (risen[name], name))
        cause = "itself" if antagonist == victim else "neighbour"
    ran = None if cause == "itself" else _ran_most(waited_more or {}, {instance.id for instance in near} - {victim})
    if ran is not None:
        cause, antagonist = "neighbour", ran
    return {
        "cause": cause,
        "antagonist": antagonist,
        "wanted_before": before[antagonist][0] if antagonist is not None and antagonist in before else 0.0,
        "wanted": wants.get(antagonist, 0.0) if antagonist else 0.0,
        "measured": ran is not None,
    }


def _ran_most(waited_more: Mapping[str, float], near: Collection[str]) -> str | None:
    """The one that ran for more than half of the time that the victim waits more; None = no instance, as where CPUs
    became slow, or only one instance can be the cause."""
    if len(near) < 2 or not waited_more:
        return None
    most = max(waited_more, key=lambda name: (waited_more[name], name))
    enough = most in near and waited_more[most] > sum(max(value, 0.0) for value in waited_more.values()) / 2
    return most if enough and waited_more[most] >= LEAST_MORE else None


def _rise(before: Sequence[float] | None, demanded: float) -> float:
    """CPUs that an instance demands beyond what was expected, 0 = not beyond what it varies by."""
    if before is None:
        return 0.0
    mean, spread = before
    rise = demanded - mean
    return rise if rise > max(STANDS_OUT * spread, LEAST_RISE) else 0.0


def _kept(before: Mapping[str, float], now: dict[str, float]) -> dict[str, float]:
    """The former figures as long as none has changed much: each change has remembered answers about the host predicted
    anew."""
    same = before.keys() == now.keys() and all(
        abs(now[name] - before[name]) <= CHANGED * max(before[name], LEAST_RISE) for name in now
    )
    return dict(before) if same else now


def _still(before: float, now: float) -> float:
    """The former width as long as it has not changed much."""
    return before if abs(now - before) <= CHANGED * before else now
