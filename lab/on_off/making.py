"""Plans, measures and sums up one on/off run of a campaign: a group in all its states, or the tuning of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from lab.campaign import Campaign
from lab.control_groups import CAP_PERIOD_S
from lab.instances import Instances
from lab.measure import RunMeasurement
from lab.on_off.measure import OnOffRun, WindowPlan, measure_on_off
from lab.on_off.outcomes import asks, state_outcomes
from lab.on_off.states import all_states, blocks_for, draw_order
from lab.on_off.tuning import STEP_S, WINDOW_S, Tuning, tune
from lab.records import Record, StateOutcome
from lab.schedule import TUNING, Run, tuning_key
from lab.usage_windows import UsageSeries
from lab.workloads import WorkloadResult

_TUNING_BLOCKS = 8
_DWELL, _GUARD, _LAG = "dwell_ms", "guard_ms", "lag_one"
_BESIDE = "speed_beside_busy"
_CAP_PERIODS = 4  # that a state is measured for
_OPEN_GUARD_S, _OPEN_MEASURED_S = 0.3, 1.0  # of states with an open loop: its queue settles, then some ten bursts
_DISTURBED_SHARE = 0.25  # of the windows, from which on the whole run counts as disturbed


@dataclass(frozen=True, slots=True)
class OnOffResult:
    """A run in the form of other runs, the units of throughput by workload, and the outcomes of each state."""

    measured: RunMeasurement
    units: Mapping[str, str]
    states: tuple[StateOutcome, ...]


def is_on_off(campaign: Campaign, run: Run) -> bool:
    """Whether this run is measured on/off: groups and tunings are, base cases and the calibrations of loads are not."""
    return campaign.on_off is not None and (run.kind == "group" or run.run.startswith(f"{TUNING}:"))


def make_on_off(
    campaign: Campaign, run: Run, number: int, records: Sequence[Record], instances: Instances,
    rates: Mapping[str, float | None],
) -> OnOffResult:  # fmt: skip
    """Measure such a run; RunError as `measure_on_off`."""
    tunes = run.kind == "calibration"
    plan = _tuning_plan(campaign) if tunes else _plan(campaign, run, number, records)
    measured = measure_on_off(instances, plan, rates)
    beside = {} if measured.beside_busy is None else {_BESIDE: (measured.beside_busy, "1")}
    further = dict.fromkeys(measured.members, beside) | ({measured.members[0]: _tuned(measured)} if tunes else {})
    units = {entry.member.workload: unit for entry, unit in zip(run.placed, measured.units, strict=True)}
    return OnOffResult(on_off_measurement(measured, further), units, () if tunes else state_outcomes(measured))


def _plan(campaign: Campaign, run: Run, number: int, records: Sequence[Record]) -> WindowPlan:
    """States as long as the slowest member needs, in an order of its own for each run and round.

    A cap holds for a period, so what was left of the state before counts until the period ends, and a state of less
    than whole periods would get more or less than its share. An open loop gives up its queue at each switch: what it
    answers is what it is asked only once the queue is as long as the state makes it, over several bursts.
    """
    tunings = [_tuning_of(campaign, tuning_key(entry.member), records) for entry in run.placed]
    dwell_s = max(tuning.dwell_ms for tuning in tunings) / 1000
    guard_s = max(tuning.guard_ms for tuning in tunings) / 1000
    if campaign.host_cap_percent is not None or any(entry.member.settings.cap_percent for entry in run.placed):
        guard_s = max(guard_s, CAP_PERIOD_S)
        dwell_s = max(dwell_s, guard_s + _CAP_PERIODS * CAP_PERIOD_S)
    if any(entry.member.load < 1 for entry in run.placed):
        guard_s = max(guard_s, _OPEN_GUARD_S)
        dwell_s = max(dwell_s, guard_s + _OPEN_MEASURED_S)
    states = all_states(len(run.placed))
    order = draw_order(states, blocks_for(campaign.seconds, dwell_s), f"{campaign.seed}:{number}:{run.run}")
    return WindowPlan(order, dwell_s, guard_s, campaign.warmup_s)


def _tuning_plan(campaign: Campaign) -> WindowPlan:
    order = draw_order(((0,), (0, 1)), _TUNING_BLOCKS, f"{campaign.seed}:{TUNING}")
    return WindowPlan(order, WINDOW_S, 0.0, campaign.warmup_s, STEP_S)


def _tuning_of(campaign: Campaign, key: str, records: Sequence[Record]) -> Tuning:
    on_off = campaign.on_off
    if on_off is not None and on_off.dwell_ms is not None and on_off.guard_ms is not None:
        return Tuning(on_off.dwell_ms, on_off.guard_ms, 0.0)
    tuned = next(record for record in records if record.run == key).members[0].further
    return Tuning(round(tuned[_DWELL][0]), round(tuned[_GUARD][0]), tuned[_LAG][0])


def _tuned(run: OnOffRun) -> Mapping[str, tuple[float, str]]:
    windows = [window for window in run.windows if not window.disturbed]
    if len(windows) <= len(run.windows) // 2:
        windows = list(run.windows)  # better than nothing: both lengths only make ratios more or less sure
    tuning = tune([(str(window.state), [b[0] - a[0] for a, b in pairwise(window.steps)]) for window in windows])
    return {_DWELL: (float(tuning.dwell_ms), "ms"), _GUARD: (float(tuning.guard_ms), "ms"), _LAG: (tuning.lag_one, "1")}


def on_off_measurement(
    run: OnOffRun, further: Mapping[str, Mapping[str, tuple[float, str]]] | None = None
) -> RunMeasurement:
    """A run in the form of other runs: its members' outcomes are those of the state in which every member works."""
    reached = {
        name: WorkloadResult(_together(run, place), further=(further or {}).get(name, {}))
        for place, name in enumerate(run.members)
    }
    disturbed = sum(window.disturbed for window in run.windows) / len(run.windows)
    return RunMeasurement(
        run.started, run.seconds, reached, (), run.generator_percent, run.steal_percent, run.foreign_percent,
        warmup_s=run.warmup_s, series=_series(run), speeds=run.speeds, late=disturbed > _DISTURBED_SHARE,
    )  # fmt: skip


def _together(run: OnOffRun, place: int) -> float:
    """The median rate while every member worked, or answers per question."""
    windows = [window for window in run.windows if len(window.state) == len(run.members)]
    if asks(run, place):
        due = sum(window.due[place] for window in windows)
        return sum(window.answers[place] for window in windows) / due if due else 0.0
    return median(window.progress[place] / window.seconds for window in windows) if windows else 0.0


def _series(run: OnOffRun) -> UsageSeries:
    """Each window: the rate, whether the member worked, whether the window was disturbed, and the speed of its CPUs."""
    values = {
        name: {
            "progress": tuple(_short(window.progress[place] / window.seconds) for window in run.windows),
            "works": tuple(float(place in window.state) for window in run.windows),
            "disturbed": tuple(float(window.disturbed) for window in run.windows),
            **_speeds(run, place),
        }
        for place, name in enumerate(run.members)
    }
    return UsageSeries(tuple(round(window.at_s, 3) for window in run.windows), values)


def _speeds(run: OnOffRun, place: int) -> dict[str, tuple[float, ...]]:
    """The speed of the member's CPUs in each window; empty where a window has no sample."""
    speeds = [window.speeds[place] for window in run.windows if window.speeds]
    known = tuple(_short(speed) for speed in speeds if speed is not None)
    return {"speed": known} if len(known) == len(run.windows) else {}


def _short(value: float) -> float:
    return float(f"{value:.5g}")
