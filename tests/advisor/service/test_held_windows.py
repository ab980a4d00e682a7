"""Windows that agents measured, held against what was predicted: made samples whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from advisor.domain import Host, Instance, Inventory, PlacementRequest, held_in_words
from advisor.service import Advisor
from advisor.settings import Settings
from advisor.store import predictions
from models.data.scene import ProfileTable, build_batch
from models.evaluation import prediction_checks
from models.evaluation.prediction_checks import WindowFigures, WindowGroup, WindowKey
from models.physics.prior import PriorPredictor
from profiler.demand import Demand
from profiler.observed import MetricSample
from tests.advisor.service.cloud_with_hogs import ran
from tests.advisor.service.service_clock import Clock
from tests.servers.fixtures import empty_url, kind, postgres_server

__all__ = ["empty_url", "kind", "postgres_server"]

HOSTS = tuple(Host(f"h{at:02}", "kvm", pcpus=2, memory_mb=65_536) for at in range(5))
VMS = tuple(Instance(f"{host.id}-{at}", vcpus=2, memory_mb=1024, host=host.id) for host in HOSTS for at in range(2))
WINDOW_S, DAY_S = 300.0, 86_400.0
ENOUGH = 20
Truth = Callable[[float], float]  # the share that the prior predicts → the share that instances get
NEW_VM = PlacementRequest(Instance("new", vcpus=2, memory_mb=1024, demand={"cpu": Demand(0.5)}), dry_run=True)


@dataclass
class Cloud:
    """Five busy hosts whose agents send what `truth` makes of the demand of each window."""

    advisor: Advisor
    clock: Clock
    truth: Truth = lambda share: share

    def windows(self, number: int, *, load: float = 0.95, metrics: dict[str, float] | None = None) -> int:
        """So many windows, one after the other; returns how many hosts' windows were held."""
        found = 0
        for _ in range(number):
            begin_s = math.ceil(self.clock().timestamp() / WINDOW_S) * WINDOW_S
            self.clock.turn(begin_s - 30 - self.clock().timestamp())
            found += self.advisor.hold_windows()
            self.send(begin_s, load, metrics or {})
        return found

    def send(self, begin_s: float, load: float, metrics: dict[str, float]) -> None:
        wanted = [load * (1 + 0.1 * math.sin(begin_s / WINDOW_S + at)) for at in range(len(VMS))]
        samples = []
        for vm, want, share in zip(VMS, wanted, shares(wanted), strict=True):
            run, wait = ran(want, self.truth(share), vm.vcpus)
            for at in range(5):
                time_s = begin_s + 30 + 60 * at
                values = {"cpu": 100 * run, "waiting": 100 * wait, **metrics}
                samples += [MetricSample(vm.host or "", vm.id, "instance", *one, time_s) for one in values.items()]
        self.clock.turn(begin_s + WINDOW_S - 1 - self.clock().timestamp())
        self.advisor.telemetry.ingest(samples)

    def two_days(self, load: float = 0.95) -> None:
        """More than is needed to calibrate, on two days."""
        self.windows(5, load=load)
        self.clock.turn(DAY_S)
        self.windows(5, load=load)

    def group(self, **wanted: object) -> WindowGroup:
        wanted = {"level": "", "question": "forecast", "contended": True, **wanted}
        groups = self.advisor.outcomes.quality("analytic").windows
        (found,) = (one for one in groups if all(getattr(one, name) == value for name, value in wanted.items()))
        return found


def shares(wanted: list[float]) -> list[float]:
    """What the prior says that each gets of a demand that is known."""
    wanting = [
        replace(vm, demand={"cpu": Demand(want, common=0.0, windows=1.0)}) for vm, want in zip(VMS, wanted, strict=True)
    ]
    scenes = [(host, [vm for vm in wanting if vm.host == host.id]) for host in HOSTS]
    said = PriorPredictor().predict(build_batch(scenes, ProfileTable.build(())), ()).throughput.expected
    return [float(one) for one in said.ravel()]


def stored(advisor: Advisor) -> tuple[dict[WindowKey, WindowFigures], int]:
    """Every group, and how many windows are still to be held."""
    with advisor._database.read() as connection:
        return predictions.load(connection), len(predictions.due(connection, math.inf, 1000))


@pytest.fixture
def fewer_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the windows; tests/models has the real number."""
    monkeypatch.setattr(prediction_checks, "ENOUGH_SCENES", ENOUGH)


@pytest.fixture
def cloud(advisor: Advisor, clock: Clock) -> Cloud:
    advisor.inventory.put(Inventory(HOSTS, VMS), mode="replace", generation=None)
    return Cloud(advisor, clock)


@pytest.mark.usefixtures("fewer_are_enough")
def test_a_model_that_is_right_is_calibrated_after_enough_windows_on_two_days(cloud: Cloud) -> None:
    assert cloud.advisor.outcomes.quality().status == "no_data"
    cloud.windows(5)
    quality = cloud.advisor.outcomes.quality()
    assert quality.status == "too_few"
    assert "100 on hosts of one kind, over a day, are needed" in quality.verdict[0]
    answer = cloud.advisor.placements.place(NEW_VM).recommendation
    assert {one.calibration for one in answer.candidates} == {"none"}
    was = answer.candidates[0].new_vm.throughput_ratio
    cloud.clock.turn(DAY_S)
    cloud.windows(5)
    assert cloud.advisor.outcomes.quality().status == "ok"
    during, before = cloud.group(question="window"), cloud.group()
    assert during.error < 1e-9, "the contention is what the prior says of a known demand"
    assert during.coverage == 1.0
    assert before.scenes > ENOUGH and before.coverage > 0.9
    assert before.error < 0.08, "a forecast averages over demands, and what it is held against was made of one"
    assert before.widening == 1.0
    answer = cloud.advisor.placements.place(NEW_VM).recommendation
    assert {one.calibration for one in answer.candidates} == {"observed"}
    now = answer.candidates[0].new_vm.throughput_ratio
    assert now.lower == pytest.approx(was.lower, abs=0.02), "not narrower for what was seen"


@pytest.mark.usefixtures("fewer_are_enough")
def test_a_wrong_model_is_reported_and_its_intervals_widen_until_they_hold(cloud: Cloud) -> None:
    cloud.truth = lambda share: share**4
    cloud.windows(2)
    was = cloud.advisor.placements.place(NEW_VM).recommendation.candidates[0].new_vm.throughput_ratio
    cloud.two_days()
    quality, during, before = cloud.advisor.outcomes.quality(), cloud.group(question="window"), cloud.group()
    assert quality.status == "drift"
    assert "On kvm hosts" in quality.verdict[0] and "widened" in quality.verdict[0]
    assert during.bias < -0.1 and during.error > 0.1 and during.coverage < 0.5
    assert before.widening is not None and before.widening > 1.1
    answer = cloud.advisor.placements.place(NEW_VM).recommendation
    now = answer.candidates[0].new_vm.throughput_ratio
    assert math.log(now.lower / now.expected) < 1.15 * math.log(was.lower / was.expected)
    assert answer.widened


def test_an_answer_tells_how_answers_about_such_new_vms_have_held(cloud: Cloud) -> None:
    cloud.windows(8)
    like = PlacementRequest(cloud.advisor.inventory.instance("h01-1"), dry_run=True)
    evidence = cloud.advisor.placements.place(like).recommendation.evidence
    assert evidence is not None and evidence.level == "measured" and evidence.held is not None
    reported = cloud.group(level="measured")
    assert evidence.held.windows == pytest.approx(reported.scenes, rel=0.1)
    assert evidence.held.coverage == pytest.approx(reported.coverage, abs=0.01)
    assert f"{100 * evidence.held.coverage:.0f} % of the instances" in held_in_words(evidence)
    given = cloud.advisor.placements.place(NEW_VM).recommendation.evidence
    assert given is not None and given.held is None, "no demand was given by hand"


@pytest.mark.usefixtures("fewer_are_enough")
def test_calm_windows_are_distinguished_and_calibrate_nothing(cloud: Cloud) -> None:
    cloud.two_days(load=0.02)
    calm = cloud.group(contended=False)
    assert (calm.coverage, calm.widening) == (1.0, None)
    assert calm.scenes > ENOUGH
    quality = cloud.advisor.outcomes.quality()
    assert quality.status == "too_few"
    assert quality.verdict[0].startswith("0 contended windows")
    answer = cloud.advisor.placements.place(NEW_VM).recommendation
    assert {one.calibration for one in answer.candidates} == {"none"}


def test_time_that_its_own_cap_took_is_not_held_against_a_prediction(cloud: Cloud) -> None:
    cloud.windows(6, metrics={"throttled": 30.0})
    assert cloud.advisor.outcomes.quality().windows == ()


def test_a_window_in_which_an_instance_came_or_was_changed_is_not_scored(cloud: Cloud) -> None:
    cloud.windows(4)
    assert cloud.windows(1) == len(HOSTS)
    cloud.advisor.inventory.put_instance(Instance("late", vcpus=2, memory_mb=1024, host="h00"))
    assert cloud.windows(1) == len(HOSTS) - 1, "a resident of h00 came after the prediction"
    assert cloud.windows(2) == 2 * (len(HOSTS) - 1), "and is never measured"


def test_samples_that_come_late_are_waited_for(cloud: Cloud) -> None:
    cloud.windows(4)
    begin_s = cloud.clock().timestamp() + 1
    cloud.clock.turn(-30)
    cloud.advisor.hold_windows()
    cloud.clock.turn(600)
    assert cloud.advisor.hold_windows() == len(HOSTS), "of the window before"
    cloud.send(begin_s, 0.95, {})
    cloud.clock.turn(400)
    assert cloud.advisor.hold_windows() == len(HOSTS)


def test_a_restart_loses_nothing_and_two_processes_count_a_window_once(
    empty_url: str, clock: Clock, tmp_path: Path
) -> None:
    settings = Settings(database=empty_url, state_dir=tmp_path)
    with Advisor(settings, clock=clock) as first:
        first.inventory.put(Inventory(HOSTS, VMS), mode="replace", generation=None)
        Cloud(first, clock).windows(5)
        before = first.outcomes.quality()
    with Advisor(settings, clock=clock) as one, Advisor(settings, clock=clock) as other:
        assert one.outcomes.quality() == before
        clock.turn(270)
        with ThreadPoolExecutor(2) as both:
            counted = list(both.map(lambda advisor: advisor.hold_windows(), (one, other)))
        assert sum(counted) == 2 * len(HOSTS), "the last two windows, reported by the process that is gone"
        assert one.outcomes.quality() == other.outcomes.quality() != before
        assert one.hold_windows() == 0


def test_rows_are_bounded_whatever_is_held(cloud: Cloud) -> None:
    cloud.windows(5)
    groups, waiting = stored(cloud.advisor)
    cloud.windows(5)
    later, still = stored(cloud.advisor)
    assert later.keys() == groups.keys()
    assert still == waiting <= 2 * len(HOSTS)
    assert all(len(one.bins) <= 49 for one in later.values())
