"""The trained predictor in service: the same numbers as in training, and what it does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.dataset import Dataset
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.examples import build_examples, scene_of
from models.features.feature_matrix import build_matrix
from models.learning import learned_predictor
from models.learning.learned_predictor import LearnedPredictor, _same
from models.physics.prior import PriorPredictor
from tests.examples import examples
from tests.models.synthetic import Scene, batch, dedicated, host, instance, scenes


@pytest.fixture(scope="session")
def table(world: Dataset) -> ProfileTable:
    return ProfileTable.build(world.profiles)


@pytest.fixture(scope="session")
def measured_scenes(world: Dataset, table: ProfileTable) -> SceneBatch:
    return build_batch([scene_of(one, dict(world.platforms)) for one in world.colocations], table)


def pair(one: str | None, other: str | None) -> Scene:
    return host("lxc", 2, platform="p1"), [instance("a", one, pins="0:0"), instance("b", other, pins="0:0")]


@pytest.mark.parametrize("target", ["throughput", "latency", "jitter"])
def test_service_gives_the_numbers_of_training(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch, target: str
) -> None:
    """Rows, effects and blends by the path of training (names and lists) and by that of service (arrays)."""
    examples = build_examples([world], predictor.further, target=target)
    slow = predictor.targets[target].ask(examples)
    said = getattr(predictor.predict(measured_scenes), target)
    matrix = build_matrix(measured_scenes, predictor.further)
    expected, lower = (getattr(said, name)[matrix.scene, matrix.slot] for name in ("expected", "lower"))
    np.testing.assert_allclose(expected, slow.expected, rtol=1e-9)
    assert (lower <= slow.lower * (1 + 1e-9)).all()  # a service also knows what the analytic model leaves out there


def test_it_learned_something_of_the_pairs_it_saw(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch
) -> None:
    examples = build_examples([world], predictor.further)
    said = predictor.predict(measured_scenes).throughput.expected
    matrix = build_matrix(measured_scenes, predictor.further)
    ours = np.abs(said[matrix.scene, matrix.slot] - examples.ratio).mean()
    assert ours < np.abs(examples.base - examples.ratio).mean() / 2


def test_no_effect_lacks_a_number(predictor: LearnedPredictor, table: ProfileTable) -> None:
    asked = batch(pair("w0", "w1"), (host("lxc", 2), [instance("a", "w0")]), (host("lxc", 2), []), table=table)
    said = predictor.predict(asked)
    for band in (said.throughput, said.latency, said.jitter):
        for values in (band.expected, band.lower, band.upper):
            assert (np.isfinite(values) == asked.present).all()
    assert not said.outside[~asked.present].any()


def test_nothing_is_asked_and_nothing_is_said(predictor: LearnedPredictor, table: ProfileTable) -> None:
    assert predictor.predict(batch(table=table)).throughput.expected.shape == (0, 0)
    assert predictor.predict(batch((host(), []), table=table)).throughput.expected.shape == (1, 0)
    empty = batch(pair("w0", "w1"), table=table)
    said = predictor.predict(replace(empty, present=np.zeros((1, 2), dtype=bool)))
    assert np.isnan(said.throughput.expected).all()


def test_a_scene_gets_the_same_answer_whatever_is_asked_with_it(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    many = [pair("w0", "w1"), pair("w2", None), (host("xen", 4), [instance(f"i{at}", f"w{at}") for at in range(4)])]
    together = predictor.predict(batch(*many, table=table))
    for at, scene in enumerate(many):
        alone = predictor.predict(batch(scene, table=table))
        count = len(scene[1])
        for name in ("expected", "lower", "upper"):
            np.testing.assert_allclose(
                getattr(together.throughput, name)[at, :count], getattr(alone.throughput, name)[0], rtol=1e-6
            )
        np.testing.assert_array_equal(together.outside[at, :count], alone.outside[0])


def test_many_instances_are_predicted_in_parts_and_get_the_same_answer(
    predictor: LearnedPredictor, table: ProfileTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (3, 1, 0, 9, 2, 6)
    many = batch(
        *((host("lxc", 4, platform="p1"), [instance(f"i{at}", f"w{at % 6}") for at in range(size)]) for size in sizes),
        table=table,
    )
    whole = predictor.predict(many)
    monkeypatch.setattr(learned_predictor, "MOST_CELLS", 60)
    parts = predictor.predict(many)
    for target in ("throughput", "latency", "jitter"):
        for name in ("expected", "lower", "upper"):
            found, same = (getattr(getattr(one, target), name) for one in (parts, whole))
            np.testing.assert_allclose(found, same, rtol=1e-9)
    np.testing.assert_array_equal(parts.outside, whole.outside)
    assert parts.basis is not None
    assert whole.basis is not None
    np.testing.assert_allclose(parts.basis.similar, whole.basis.similar)
    assert parts.pressure is not None
    assert whole.pressure is not None
    np.testing.assert_allclose(parts.pressure.short[many.present], whole.pressure.short[many.present])
    np.testing.assert_allclose(parts.pressure.crowded, whole.pressure.crowded)


WORKLOADS = (*(f"w{at}" for at in range(6)), "stranger", None)


@st.composite
def familiar(draw: st.DrawFn) -> Scene:
    """Like those of training, with up to four instances: what was learned is applied."""
    count = draw(st.integers(2, 4))
    kinds = st.tuples(st.sampled_from(WORKLOADS[:6]), st.sampled_from(["0:0", "0:1", "0:0-1"]))
    drawn = [draw(kinds) for _ in range(count)]
    return host("lxc", 2, platform="p1"), [instance(f"i{at}", name, pins=pins) for at, (name, pins) in enumerate(drawn)]


@settings(max_examples=examples(60), deadline=None)
@given(scene=familiar() | scenes(names=WORKLOADS, least=2), data=st.data())
def test_the_order_of_neighbours_does_not_matter(
    predictor: LearnedPredictor, table: ProfileTable, scene: Scene, data: st.DataObject
) -> None:
    """Any scene with any settings; rounding of sums may tip a tree, so few rows may differ in the ninth digit."""
    there, instances = scene
    order = data.draw(st.permutations(range(len(instances))))
    first = predictor.predict(batch(scene, table=table))
    again = predictor.predict(batch((there, [instances[at] for at in order]), table=table))
    for target in ("throughput", "latency", "jitter"):
        for name in ("expected", "lower", "upper"):
            one, other = (getattr(getattr(said, target), name)[0] for said in (first, again))
            np.testing.assert_allclose(other, one[list(order)], rtol=1e-5)
    np.testing.assert_array_equal(again.outside[0], first.outside[0, list(order)])


@settings(max_examples=examples(25), deadline=None)
@given(scene=scenes(names=WORKLOADS, least=1, most=1, plain=True), load=st.sampled_from([1.0, 0.3]))
def test_who_is_alone_runs_as_alone(
    predictor: LearnedPredictor, table: ProfileTable, scene: Scene, load: float
) -> None:
    there, (one,) = scene
    big = replace(there, pcpus=4, driver_cpus=())
    said = predictor.predict(batch((big, [replace(one, load=load)]), table=table)).throughput
    assert said.expected[0, 0] == pytest.approx(1.0, abs=1e-6)
    assert said.lower[0, 0] <= 1.0 <= said.upper[0, 0] + 1e-9


def test_an_unknown_workload_is_wide_and_makes_its_neighbour_less_certain(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    said = predictor.predict(batch(pair("w0", "w1"), pair("w0", None), table=table))
    width = np.log(said.throughput.expected / said.throughput.lower)
    assert said.basis is not None
    assert not said.outside[0].any()
    assert said.outside[1, 1]
    assert width[1, 1] > 2 * width[0].max()
    assert width[1, 0] > width[0, 0]
    assert said.basis.support[0, 0] > said.basis.support[1, 0] > said.basis.support[1, 1]


@pytest.mark.parametrize("target", ["throughput", "latency"])
@pytest.mark.parametrize("strange", [{"kind": "xen"}, {"pcpus": 64}], ids=["of another kind", "of another size"])
def test_on_another_host_the_answer_lies_between_what_was_learned_and_the_analytic_one(
    predictor: LearnedPredictor, table: ProfileTable, strange: dict[str, Any], target: str
) -> None:
    usual, there = pair("w0", "w1")
    there_too = [replace(one, settings=replace(one.settings, weight=256)) for one in there]
    asked = build_batch([(replace(usual, platform="", **strange), there_too)], table)
    said, prior = predictor.predict(asked), PriorPredictor().predict(asked)
    assert said.basis is not None
    assert 0 <= said.basis.support.min() <= said.basis.support.max() < 1
    own, its = getattr(said, target), getattr(prior, target)
    most = np.abs(np.log(own.expected / its.expected))
    bound = max(abs(edge) for edge in (predictor.targets[target].least, predictor.targets[target].most))
    assert (most <= bound + 1e-9).all()


@pytest.mark.parametrize(
    "setting", [{"weight": 1024}, {"cap": 20.0}, {"network": dedicated(10.0)}], ids=["a weight", "a cap", "a rate"]
)
def test_a_setting_that_no_training_had_makes_an_answer_less_supported_and_not_another_model(
    predictor: LearnedPredictor, table: ProfileTable, setting: dict[str, Any]
) -> None:
    usual, (victim, other) = pair("w0", "w1")
    strange = instance("b", "w1", pins="0:0", **setting)
    asked = build_batch([(usual, [victim, other]), (usual, [victim, strange])], table)
    basis = predictor.predict(asked).basis
    assert basis is not None
    assert basis.similar[1, 1] <= basis.similar[0, 1]


def test_the_correction_stays_within_the_bounds_that_the_predictor_states(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    many = [pair(f"w{one}", f"w{other}") for one in range(6) for other in range(6)]
    basis = predictor.predict(batch(*many, table=table), ()).basis
    assert basis is not None
    least, most = predictor.correction
    assert least <= basis.correction.min() < -0.01
    assert basis.correction.max() <= most


def test_another_workload_of_a_known_name_is_not_taken_for_the_known_one(
    predictor: LearnedPredictor, world: Dataset, table: ProfileTable
) -> None:
    theirs = [
        replace(one, metrics={key: value * 3 for key, value in one.metrics.items()}) if one.name == "w0" else one
        for one in world.profiles
    ]
    ours = predictor.predict(batch(pair("w0", "w1"), table=table)).basis
    other = predictor.predict(batch(pair("w0", "w1"), table=ProfileTable.build(theirs))).basis
    assert ours is not None
    assert other is not None
    assert ours.measured.min() >= 1
    assert other.measured.max() == 0


def test_profiles_are_alike_up_to_a_quarter_in_the_middle() -> None:
    seen = {"cpu": 100.0, "net_mbit": 50.0, "llc": 7.0}
    columns = ("cpu", "net_mbit", "disk")
    assert _same(columns, np.array([100.0, 50.0, 3.0]), seen)
    assert _same(columns, np.array([120.0, 50.0, np.nan]), seen)
    assert not _same(columns, np.array([200.0, 100.0, np.nan]), seen)
    assert not _same(columns, np.array([np.nan, np.nan, 3.0]), seen)
    assert not _same((), np.zeros(0), seen)
    assert _same(("cpu",), np.array([0.0]), {"cpu": 0.0})
    assert not _same(("cpu",), np.array([0.0]), {"cpu": 50.0})


@pytest.mark.parametrize("target", ["latency", "jitter"])
def test_what_was_not_learned_is_given_as_the_prior_has_it(
    predictor: LearnedPredictor, table: ProfileTable, target: str
) -> None:
    asked = batch(pair("w0", "w1"), (host("lxc", 2), [instance("a", "w0")]), table=table)
    none: Any = {target: None}
    said = replace(predictor, **none).predict(asked)
    for name in ("expected", "lower", "upper"):
        prior = getattr(getattr(PriorPredictor().predict(asked), target), name)
        np.testing.assert_array_equal(getattr(getattr(said, target), name), prior)
    np.testing.assert_array_equal(said.throughput.expected, predictor.predict(asked).throughput.expected)


def test_the_examples_name_runs_platforms_and_neighbours(world: Dataset, predictor: LearnedPredictor) -> None:
    examples = build_examples([world], predictor.further)
    assert len(examples) == 2 * len(world.colocations)
    assert set(examples.platform) == {"world/p1"}
    assert examples.pair[0] == "w0+w0"
    assert [one.workload for one in examples.neighbours[0]] == ["w0"]
    assert examples.neighbours[0][0].overlap == 1.0
    assert set(examples.size) == {2}
    assert examples.workloads == tuple(f"w{at}" for at in range(6))
    assert examples.involves("w0").sum() == sum("w0" in pair.split("+") for pair in examples.pair)
    assert build_examples([], ()).x.shape[0] == 0
    assert len(build_examples([world, world], predictor.further)) == 2 * len(examples)
