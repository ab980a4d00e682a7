"""Of many hosts only the most promising ones are predicted in full, and the answer is the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.domain import Instance
from advisor.placement import decision, host_classes, screen
from advisor.prediction.active import PredictorProxy
from advisor.scheduling import scoring
from advisor.snapshot import ClusterSnapshot
from models.data.scene import DAY_PARTS, HOST_NUMBERS, SceneBatch
from models.learning import artifact
from models.physics.peak_demand import FIGURES, shares
from models.physics.prior import PriorPredictor
from models.prediction import TARGETS, BandArrays, InterferencePrediction
from profiler.demand import Demand
from tests.advisor.core.core_clouds import Counting, ask, cloud, codes, host, hosts_of, request, vm
from tests.examples import examples
from tests.models.made_models import fitted

HOSTS = 150


@cache
def unlike(
    low: float, high: float, most_threads: int = 1, clocks: bool = False, **of_residents: Any
) -> ClusterSnapshot:
    """Hosts of 16 CPUs whose residents want a part of them between `low` and `high` on average, no two alike; their
    cores have one thread up to `most_threads`, in turn. With `clocks` two of three have a turbo of their own, and a
    second thread that adds more or less."""
    random = np.random.default_rng(3)
    residents = []
    for at in range(HOSTS):
        means = random.dirichlet(np.ones(8)) * 16 * random.uniform(low, high)
        residents += [
            vm(f"r{at}-{slot}", None, on=f"h{at:03}", vcpus=4, demand=wanting(min(mean, 3.8)), **of_residents)
            for slot, mean in enumerate(means.tolist())
        ]
    hosts = [
        host(
            f"h{at:03}",
            pcpus=16,
            memory_mb=1e6,
            cpu_overcommit=8.0,
            threads_per_core=1 + at % most_threads,
            **(
                {"cpu_mhz": 2000.0, "turbo_mhz": 2000.0 + 20 * at, "second_thread": at / HOSTS}
                if clocks and at % 3
                else {}
            ),
        )
        for at in range(HOSTS)
    ]
    return cloud(hosts, residents)


def wanting(cpus: float) -> dict[str, Demand]:
    return {"cpu": Demand(cpus, spread=0.5 * cpus, common=0.1, windows=1000.0, open_loop=1.0)}


def new_vm(**more: Any) -> Instance:
    return vm("n", None, vcpus=4, demand=wanting(1.0), **more)


@pytest.mark.parametrize("loads", [(0.2, 0.9), (0.9, 1.4), (0.2, 0.9, 2), (0.2, 0.9, 2, True), (0.9, 1.4, 1, True)])
@pytest.mark.parametrize(
    ("wanted", "objective"),
    [
        ({}, "worst"),
        ({}, "total"),
        ({"min_throughput_ratio": 0.9}, "worst"),
        ({"service": "latency", "max_latency_ratio": 2.0}, "worst"),
        ({"max_time_short": 0.02}, "worst"),
    ],
)
def test_an_answer_that_predicts_only_promising_hosts_equals_the_one_that_predicts_all(
    loads: tuple[Any, ...], wanted: dict[str, Any], objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, question = unlike(*loads), request(new_vm(**wanted), objective=objective, limit=5)
    found = ask(snapshot, question)
    monkeypatch.setattr(decision, "SCREENED_FROM", HOSTS + 1)
    full = ask(snapshot, question)
    shown, wanted_shown = ([(one.host, one.pinning) for one in answer.candidates] for answer in (found, full))
    assert shown == wanted_shown
    assert [one.score for one in found.candidates] == pytest.approx([one.score for one in full.candidates], abs=1e-9)
    assert codes(found) == codes(full)


LIMITS = ({"min_throughput_ratio": 0.9}, {"service": "latency", "max_latency_ratio": 2.0}, {"max_time_short": 0.02})


@pytest.mark.parametrize("loads", [(0.2, 0.9), (0.9, 1.4), (0.5, 1.0, 2, True)])
@pytest.mark.parametrize("wanted", LIMITS)
def test_of_very_many_hosts_with_a_limit_the_same_are_shown_and_fewer_are_refused_by_name(
    loads: tuple[Any, ...], wanted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no host, or fewer than asked for, keeps the limit: then all are predicted."""
    snapshot, question = unlike(*loads), request(new_vm(**wanted), limit=5)
    full = ask(snapshot, question)
    monkeypatch.setattr(screen, "MOST_NAMED", 0)
    named = replace(question, hosts=tuple(one.id for one in snapshot.hosts))
    found, of_named = ask(snapshot, question), ask(snapshot, named)
    assert [(one.host, one.pinning) for one in found.candidates] == [(one.host, one.pinning) for one in full.candidates]
    assert codes(found).items() <= codes(full).items()
    assert codes(of_named) == codes(full), "a question that names hosts is answered about each of them"
    left = len(codes(full)) - len(codes(found))
    assert (left == 0) >= (len(full.candidates) < question.limit)
    assert any("more hosts may break a limit" in note for note in found.notes) >= (left > 0)


@settings(max_examples=examples(20), deadline=None)
@given(
    of_host=st.lists(st.sampled_from([0.0, -0.02, -0.1, -0.4]), min_size=1, max_size=3),
    of_load=st.floats(0.0, 0.3),
    loads=st.sampled_from([(0.2, 0.9), (0.9, 1.4), (0.5, 0.8)]),
    wanted=st.sampled_from(LIMITS),
)
def test_of_very_many_hosts_with_a_limit_a_learned_model_shows_the_same(
    of_host: list[float], of_load: float, loads: tuple[float, float], wanted: dict[str, Any]
) -> None:
    model = Corrected(PriorPredictor(), tuple(of_host), of_load)
    snapshot, question = of_several_types(*loads), request(new_vm(**wanted), limit=3)
    full = ask(snapshot, question, model)
    with patch.object(screen, "MOST_NAMED", 0):
        found = ask(snapshot, question, model)
    assert [(one.host, one.pinning) for one in found.candidates] == [(one.host, one.pinning) for one in full.candidates]
    assert codes(found).items() <= codes(full).items()


@pytest.mark.parametrize("objective", ["worst", "total", "limits"])
@pytest.mark.parametrize(("differ", "values"), [("turbo_mhz", (2400, 4000, 2000)), ("second_thread", (0.8, 0.0, 1.0))])
def test_of_hosts_that_differ_in_the_speed_of_their_cores_the_fastest_are_predicted(
    differ: str, values: tuple[float, ...], objective: str
) -> None:
    """The three fastest come last, good ones first: those alone would end the search."""
    good, bad, best = values
    ends = HOSTS // 4
    of_host = {"threads_per_core": 1 + (differ == "second_thread"), "cpu_mhz": 2000.0}
    hosts = [
        host(f"h{at:03}", pcpus=16, memory_mb=1e6, **of_host, **{differ: float(value)})
        for at, value in enumerate([good] * ends + [bad] * (HOSTS - ends - 3) + [best] * 3)
    ]
    busy = {"cpu": Demand(2.0, spread=0.1, windows=1000.0, open_loop=1.0)}
    residents = [
        vm(f"r{at}-{slot}", None, on=one.id, vcpus=4, demand=busy) for at, one in enumerate(hosts) for slot in range(5)
    ]
    found = ask(cloud(hosts, residents), request(new_vm(), objective=objective, limit=3))
    assert sorted(hosts_of(found)) == ["h147", "h148", "h149"]


@dataclass(frozen=True, slots=True)
class Corrected(PredictorProxy):
    """The analytic model with a correction, as one that was learned: by what a host is, how busy it is, how busy an
    instance is there, and how much the analytic model takes off."""

    of_host: tuple[float, ...] = ()
    of_load: float = 0.0
    of_own: float = 0.0
    of_analytic: float = 0.0

    @property
    def version(self) -> str:
        return "corrected"

    @property
    def origin(self) -> str:
        return "measured"

    @property
    def correction(self) -> tuple[float, float]:
        return -1.0, 0.5

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        found = self.predictor.predict(scenes, targets)
        mean = np.nan_to_num(scenes.cpu_demand[:, :, 0])
        load = np.where(scenes.present, mean, 0.0).sum(axis=1, keepdims=True) / scenes.pcpus[:, None]
        clock = np.nan_to_num(scenes.host_numbers[:, HOST_NUMBERS.index("cpu_mhz")]) % 7
        by_host = np.array(self.of_host)[clock.astype(int) % len(self.of_host)][:, None]
        lost = 1 - np.minimum(found.throughput.expected, 1)
        log = (
            by_host
            - self.of_load * load
            - self.of_own * load * mean / np.maximum(scenes.vcpus, 1)
            + self.of_analytic * lost
        )
        factor = np.exp(np.clip(log, *self.correction))
        edges = (found.throughput.expected, found.throughput.lower, found.throughput.upper)
        return replace(found, throughput=BandArrays(*(np.minimum(edge * factor, 1.0) for edge in edges)))


@settings(max_examples=examples(30), deadline=None)
@given(
    of_host=st.lists(st.sampled_from([0.0, -0.02, -0.1, -0.4]), min_size=1, max_size=3),
    of_load=st.floats(0.0, 0.3),
    of_own=st.floats(0.0, 0.3),
    of_analytic=st.floats(-0.5, 0.5),
    loads=st.sampled_from([(0.2, 0.9), (0.9, 1.4), (0.5, 0.8)]),
    wanted=st.sampled_from([{}, {"min_throughput_ratio": 0.9}, {"service": "latency"}]),
    objective=st.sampled_from(["worst", "total", "limits"]),
)
def test_an_answer_of_a_learned_model_that_predicts_only_promising_hosts_equals_the_one_that_predicts_all(
    of_host: list[float],
    of_load: float,
    of_own: float,
    of_analytic: float,
    loads: tuple[float, float],
    wanted: dict[str, Any],
    objective: str,
) -> None:
    """Also where the best hosts are of a kind that only the model knows to be better."""
    model = Corrected(PriorPredictor(), tuple(of_host), of_load, of_own, of_analytic)
    snapshot = of_several_types(*loads)
    question = request(new_vm(**wanted), objective=objective, limit=3)
    found = ask(snapshot, question, model)
    with patch.object(decision, "SCREENED_FROM", HOSTS + 1):
        full = ask(snapshot, question, model)
    shown, wanted_shown = ([(one.host, one.pinning) for one in answer.candidates] for answer in (found, full))
    assert shown == wanted_shown
    assert [one.score for one in found.candidates] == pytest.approx([one.score for one in full.candidates], abs=1e-9)
    assert codes(found) == codes(full)


@settings(max_examples=examples(20), deadline=None)
@given(
    loads=st.sampled_from([(0.2, 0.9), (0.9, 1.4), (0.5, 0.8)]),
    cpus=st.floats(0.05, 3.5),
    common=st.floats(0.0, 0.5),
    wanted=st.sampled_from([{}, {"min_throughput_ratio": 0.9}, {"service": "latency"}]),
    objective=st.sampled_from(["worst", "total", "limits"]),
)
def test_at_each_rank_a_trained_model_shows_a_host_that_is_tied_with_the_one_of_all_hosts_predicted(
    loads: tuple[float, float], cpus: float, common: float, wanted: dict[str, Any], objective: str
) -> None:
    """Trained trees tell hosts apart by thousandths, which no estimate does; so equal hosts are not asked for. All
    pinnings are predicted, too."""
    demand = {"cpu": Demand(cpus, spread=0.5 * cpus, common=common, windows=1000.0)}
    question = request(vm("n", None, vcpus=4, demand=demand, **wanted), objective=objective, limit=5)
    snapshot, model = unlike(*loads), artifact.load(fitted())
    found = ask(snapshot, question, model)
    with patch.object(decision, "SCREENED_FROM", HOSTS + 1), patch.object(host_classes, "MOST_PINNED", HOSTS):
        full = ask(snapshot, question, model)
    assert codes(found) == codes(full)
    for one, best in zip(found.candidates, full.candidates, strict=True):
        assert scoring.tied(one.expected - best.expected, one.half_width, best.half_width)


@cache
def of_several_types(low: float, high: float) -> ClusterSnapshot:
    """The same hosts, of five types that differ in their clock: the most loaded ones have one of their own."""
    made = unlike(low, high)
    load = made.demand_sums[:, 0, 0]
    types = np.where(load > np.quantile(load, 0.8), 4, np.arange(HOSTS) % 4)
    hosts = [replace(one, cpu_mhz=2100.0 + kind) for one, kind in zip(made.hosts, types.tolist(), strict=True)]
    return cloud(hosts, [one for residents in made.residents for one in residents])


def test_a_host_that_breaks_a_residents_limit_is_named_however_little_it_promises() -> None:
    answer = ask(unlike(0.9, 1.4, min_throughput_ratio=0.5), request(new_vm(min_throughput_ratio=0.9), limit=HOSTS))
    assert {*codes(answer), *hosts_of(answer)} == {f"h{at:03}" for at in range(HOSTS)}


def test_fewer_scenes_than_hosts_are_predicted_where_most_hosts_promise_little() -> None:
    counting = Counting()
    ask(unlike(0.2, 1.2), request(new_vm(), limit=5), counting)
    assert 0 < sum(scenes for scenes, _ in counting.asked) < 2 * HOSTS  # without the new VM and with it


def test_the_estimated_share_falls_with_demand_and_reaches_that_of_a_fluid() -> None:
    load = np.linspace(0.1, 3.0, 40)
    sums = np.zeros((len(load), 1, FIGURES + len(DAY_PARTS)))
    sums[:, 0, 0], sums[:, 0, 3] = 64 * load, 30 * load
    sums[:, 0, FIGURES:] = 64 * load[:, None]
    found = shares(sums, np.full((len(load), 1), 64.0))
    assert found[0] == 1
    assert (np.diff(found) <= 1e-12).all()
    assert found[-1] == pytest.approx(1 / 3, abs=0.01)


def test_a_resource_of_unknown_size_limits_no_instance() -> None:
    sums = np.zeros((1, 2, 4))
    sums[:, :, 0] = 1e6
    assert shares(sums, np.full((1, 2), np.inf)).tolist() == [1.0]
