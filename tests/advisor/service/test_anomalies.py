"""Windows that contradict what was predicted: an alarm that names who changed, what counts meanwhile, and its end."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from advisor.domain import Host, Instance, PlacementRequest, Recommendation, Scene
from advisor.lifecycle.anomalies import AlarmUpdate, Correction, after_window
from advisor.lifecycle.window_checks import MeasuredWindow, WindowRows
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import predictions
from models.evaluation.drift import ALARM, accumulated, beyond
from models.evaluation.prediction_checks import QUESTIONS, CheckedPrediction, WindowFigures, WindowKey
from profiler.demand import Demand
from profiler.observed import MetricSample
from tests.advisor.service.cloud_with_hogs import LOAD, PCPUS, VCPUS, CloudWithHogs

KNOWN = 288  # windows, a day: after an hour ranges are so wide that a hog does not lead out of them


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CloudWithHogs]:
    """The database of a cloud that was watched for a day, and the cloud, whose advisor is closed."""
    file = tmp_path_factory.mktemp("learned") / "db.sqlite3"
    clock = [datetime(2026, 11, 2, 9, tzinfo=UTC)]
    hosts = [Host(f"h{at}", "kvm", pcpus=PCPUS, memory_mb=65_536, cpu_overcommit=16.0) for at in range(2)]
    with Advisor(Settings(database=f"sqlite:///{file}", state_dir=file.parent), clock=lambda: clock[0]) as advisor:
        made = CloudWithHogs(advisor, clock, hosts, np.random.default_rng(1))
        made.learn(KNOWN)
    return file, made


@pytest.fixture
def cloud(tmp_path: Path, learned: tuple[Path, CloudWithHogs]) -> Iterator[CloudWithHogs]:
    shutil.copy(learned[0], tmp_path)
    made = copy.copy(learned[1])
    made.clock, made.hogs, made.slow, made.rng = [*made.clock], {}, set(), copy.deepcopy(made.rng)
    settings = Settings(database=f"sqlite:///{tmp_path}/db.sqlite3", state_dir=tmp_path)
    with Advisor(settings, clock=lambda: made.clock[0]) as made.advisor:
        for _ in range(3):
            made.window()
        assert made.advisor.cloud.alarms() == ()
        yield made


def answer_about(cloud: CloudWithHogs) -> Recommendation:
    asked = Instance("new", VCPUS, 1024.0, demand={"cpu": Demand(LOAD, common=0.0)})
    return cloud.advisor.placements.place(PlacementRequest(asked, dry_run=True)).recommendation


def new_vm_on(cloud: CloudWithHogs, host: str) -> tuple[float, tuple[str, ...]]:
    """What a new VM would get on a host, and the notes of the answer."""
    answer = answer_about(cloud)
    there = next(one for one in answer.candidates if one.host == host)
    assert there.new_vm.cpu is not None
    return there.new_vm.cpu.share, answer.notes


def watch_run_queue(cloud: CloudWithHogs, victim: str, ran: Mapping[str, float]) -> None:
    """What a run-queue collector pushes of the last window: % of the time for which it waited while who ran."""
    time_s = cloud.clock[0].timestamp() - 60
    values = {"waited_for_host": 0.5, **{f"waited_for:{name}": value for name, value in ran.items()}}
    batch = [MetricSample("h0", victim, "instance", name, value, time_s) for name, value in values.items()]
    assert cloud.advisor.telemetry.ingest(batch)["dropped"] == ()


def test_a_neighbour_that_starts_hogging_raises_an_alarm_that_names_it_and_ends_with_it(cloud: CloudWithHogs) -> None:
    said, notes = new_vm_on(cloud, "h0")
    assert not any("Measured contention" in note for note in notes)
    cloud.hogs = {"h0-2": float(VCPUS)}
    for _ in range(14):
        cloud.window()
        watch_run_queue(cloud, "h0-3", {"h0-1": 20.0, "h0-2": 1.0})
    alarms = cloud.advisor.cloud.alarms()
    assert {one.host for one in alarms} == {"h0"}
    named = {one.instance: (one.cause, one.antagonist, one.measured) for one in alarms}
    assert named.pop("h0-3") == ("neighbour", "h0-1", True), "what was measured is believed before what changed"
    assert set(named.values()) == {("neighbour", "h0-2", False)}
    assert all(one.observed < one.lower for one in alarms)
    assert all(one.demand > 1 for one in alarms if not one.measured)
    now, notes = new_vm_on(cloud, "h0")
    assert any(note.startswith("Measured contention on h0 is above the predicted range") for note in notes)
    assert now < said - 0.1, "the measured demand of the hog counts"
    assert answer_about(cloud).widened == {}, "with the demand of the hog the model is right"
    (raised,) = {one.operation for one in cloud.advisor.access.audit(named="h0-2").items}
    assert raised == "alarm.raise"
    cloud.hogs = {}
    for _ in range(12):
        cloud.window()
    assert cloud.advisor.cloud.alarms() == ()
    assert "alarm.end" in {one.operation for one in cloud.advisor.access.audit(named="h0-2").items}


def test_where_cpus_slow_by_half_the_host_is_named_what_was_measured_counts_and_ranges_widen(
    cloud: CloudWithHogs,
) -> None:
    said, _ = new_vm_on(cloud, "h1")
    cloud.slow = {"h1"}
    for _ in range(12):
        cloud.window()
    alarms = cloud.advisor.cloud.alarms()
    assert alarms and {(one.host, one.cause, one.antagonist) for one in alarms} == {("h1", "host", None)}
    now, _ = new_vm_on(cloud, "h1")
    assert now < said - 0.15
    answer = answer_about(cloud)
    assert answer.widened.keys() == {"h1"}
    assert {one.calibration for one in answer.candidates} == {"none"}
    assert any(note.startswith("Intervals on h1 are ") for note in answer.notes)


def found(version: str, share: float, expected: float) -> tuple[WindowRows, ...]:
    row = CheckedPrediction(
        "w-1", datetime(2026, 11, 2, tzinfo=UTC), version, "active", "throughput", "kvm", "", "a", expected,
        expected * 0.8, 1.0, outside=False, observed=share,
    )  # fmt: skip
    return tuple(WindowRows(question, 1e9, {"a": "measured"}, (row,)) for question in QUESTIONS)


@pytest.mark.parametrize(("cause", "left"), [("host", ALARM - 1), ("neighbour", ALARM)])
def test_a_new_model_is_believed_at_once_where_the_host_is_behind_an_alarm(cause: str, left: float) -> None:
    there = Scene(Host("h", "kvm", pcpus=2, memory_mb=8192), (Instance("a", 2), Instance("b", 2)))
    window = MeasuredWindow({"a": {"cpu": 0.5}, "b": {"cpu": 0.5}}, {"a": 0.5})
    judge = Correction(None, ())

    def after(state: Mapping[str, Any] | None, version: str, expected: float) -> AlarmUpdate:
        return after_window(state, there, window, found(version, 0.5, expected), {}, judge, lambda *_: None)

    update = AlarmUpdate(None)
    for _ in range(5):
        assert update.raised == ()
        update = after(update.state, "m-1", 0.9)
    assert update.state is not None
    assert [one.cause for one in update.raised] == ["host"]
    assert update.state["wide"] > 2
    update.state["instances"]["a"]["cause"] = cause
    update = after(update.state, "m-2", 0.5)
    assert update.state is not None
    assert update.state["instances"]["a"]["sum"] == left
    assert update.state["wide"] == 1


def test_too_few_windows_to_calibrate_answers_widen_what_windows_are_held_against(cloud: CloudWithHogs) -> None:
    """So that ranges that turn out to be too narrow do not raise alarms on the first day."""
    database = cloud.advisor._database
    off = WindowFigures(rows=80, scenes=20, last_s=3600, bins={8: 80})  # each between 2 and 2.2 half widths off
    with database.write() as connection:
        predictions.put(connection, {WindowKey("analytic", "kvm", "", "forecast", contended=True): off})
    cloud.window()
    with database.read() as connection:
        watches = predictions.due(connection, 1e12, 10)
    newest = max(one.ends_s for one in watches)
    assert {round(one.predicted["factor"], 2) for one in watches if one.ends_s == newest} == {2.18}
    assert answer_about(cloud).widened == {}


def test_one_bad_window_is_no_alarm_and_a_negligible_loss_never_is() -> None:
    total = accumulated(0.0, beyond(0.9, 0.8, 1.0, 0.1))
    assert 0 < total <= ALARM / 4
    assert accumulated(total, beyond(0.9, 0.8, 1.0, 0.9)) == 0
    assert beyond(1.0, 0.999, 1.0, 0.96) < 0
    assert beyond(0.9, 0.8, 1.0, 0.79) < 0 < beyond(0.9, 0.8, 1.0, 0.77), "intervals may be a quarter too narrow"
    assert beyond(0.9, 0.8, 2.0, 0.77) < 0, "a wider interval holds more"
