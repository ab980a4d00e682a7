"""The trained predictor in service: the same numbers as in training, and what it does not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import Scene, batch, host, instance

from models.dataset import Dataset
from models.examples import build_examples, scene_of
from models.features import build_matrix
from models.fitted import FittedTarget
from models.learned import LearnedPredictor, _same
from models.prior import PriorPredictor
from models.profile import WorkloadProfile
from models.scene import ProfileTable, SceneBatch, build_batch


@pytest.fixture(scope="session")
def table(world: Dataset) -> ProfileTable:
    return ProfileTable.build(world.profiles)


@pytest.fixture(scope="session")
def measured_scenes(world: Dataset, table: ProfileTable) -> SceneBatch:
    return build_batch([scene_of(one, dict(world.platforms)) for one in world.colocations], table)


def sure_of_what_it_knows(predictor: LearnedPredictor) -> LearnedPredictor:
    """The same with intervals that are five times as wide for what is not known."""
    target = predictor.throughput
    calibration = replace(target.calibration, quantile={"known": 1.0, "unknown": 5.0})
    return replace(predictor, throughput=replace(target, calibration=calibration))


def pair(one: str | None, other: str | None) -> Scene:
    return host("lxc", 2, platform="p1"), [instance("a", one, pins="0:0"), instance("b", other, pins="0:0")]


@pytest.mark.parametrize("target", ["throughput", "latency"])
def test_service_gives_the_numbers_of_training(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch, target: str
) -> None:
    """Rows, effects and trust by the path of training (names and lists) and by that of service (arrays)."""
    fitted: FittedTarget | None = getattr(predictor, target)
    assert fitted is not None
    examples = build_examples([world], predictor.metrics, target=target)
    model = fitted.model
    correction = model.log_correction(examples.x, examples.victim, examples.neighbours)
    known = model.all_known(examples.victim, examples.neighbours)
    expected = fitted.estimate(examples.x, examples.base, correction, known, examples.size)
    said = getattr(predictor.predict(measured_scenes), target)
    matrix = build_matrix(measured_scenes, predictor.metrics)
    for name in ("expected", "lower", "upper"):
        np.testing.assert_allclose(getattr(said, name)[matrix.scene, matrix.slot], getattr(expected, name), rtol=1e-9)


def test_it_learned_something_of_the_pairs_it_saw(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch
) -> None:
    examples = build_examples([world], predictor.metrics)
    said = predictor.predict(measured_scenes).throughput.expected
    matrix = build_matrix(measured_scenes, predictor.metrics)
    ours = np.abs(said[matrix.scene, matrix.slot] - examples.ratio).mean()
    assert ours < np.abs(examples.base - examples.ratio).mean() / 2


def test_nobody_sits_where_no_number_stands(predictor: LearnedPredictor, table: ProfileTable) -> None:
    scenes = batch(pair("w0", "w1"), (host("lxc", 2), [instance("a", "w0")]), (host("lxc", 2), []), table=table)
    said = predictor.predict(scenes)
    for band in (said.throughput, said.latency):
        for values in (band.expected, band.lower, band.upper):
            assert (np.isfinite(values) == scenes.present).all()
    assert not said.outside[~scenes.present].any()


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


def test_the_order_of_neighbours_does_not_matter(predictor: LearnedPredictor, table: ProfileTable) -> None:
    there, (one, other) = pair("w0", "w3")
    third = instance("c", "w2")
    first = predictor.predict(batch((there, [one, other, third]), table=table)).throughput.expected[0]
    again = predictor.predict(batch((there, [third, other, one]), table=table)).throughput.expected[0]
    np.testing.assert_allclose(again[::-1], first, rtol=1e-6)


def test_an_unknown_workload_is_marked_and_wide_and_makes_its_neighbour_less_certain(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    said = sure_of_what_it_knows(predictor).predict(batch(pair("w0", "w1"), pair("w0", None), table=table))
    width = np.log(said.throughput.expected / said.throughput.lower)
    assert said.outside.tolist() == [[False, False], [False, True]]
    assert width[1, 1] > 2 * width[0].max()
    assert width[1, 0] > width[0, 0]


def test_another_workload_of_a_known_name_is_not_taken_for_the_known_one(
    predictor: LearnedPredictor, world: Dataset, table: ProfileTable
) -> None:
    theirs = [
        replace(one, metrics={key: value * 3 for key, value in one.metrics.items()}) if one.name == "w0" else one
        for one in world.profiles
    ]
    sure = sure_of_what_it_knows(predictor)
    ours = sure.predict(batch(pair("w0", "w1"), table=table)).throughput
    other = sure.predict(batch(pair("w0", "w1"), table=ProfileTable.build(theirs))).throughput
    width, wider = (np.log(one.expected / one.lower)[0] for one in (ours, other))
    assert (wider > 2 * width).all()


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


def test_what_is_known_to_one_target_is_not_known_to_the_other(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    assert predictor.latency is not None
    less = replace(predictor.latency, model=replace(predictor.latency.model, known=frozenset({"w1"})))
    calibration = replace(less.calibration, quantile={"known": 1.0, "unknown": 5.0})
    both = replace(predictor, latency=replace(less, calibration=calibration))
    all_known = replace(predictor, latency=replace(predictor.latency, calibration=calibration))
    scenes = batch(pair("w0", "w1"), table=table)
    said, sure = both.predict(scenes), all_known.predict(scenes)
    np.testing.assert_array_equal(said.throughput.lower, sure.throughput.lower)
    assert (
        np.log(said.latency.upper / said.latency.expected) > np.log(sure.latency.upper / sure.latency.expected)
    ).all()


def test_without_a_latency_model_the_priors_latency_is_given(predictor: LearnedPredictor, table: ProfileTable) -> None:
    scenes = batch(pair("w0", "w1"), (host("lxc", 2), [instance("a", "w0")]), table=table)
    said = replace(predictor, latency=None).predict(scenes)
    prior = PriorPredictor().predict(scenes)
    np.testing.assert_array_equal(said.latency.expected, prior.latency.expected)
    np.testing.assert_array_equal(said.throughput.expected, predictor.predict(scenes).throughput.expected)


def test_metrics_that_training_never_saw_are_no_reason_to_fail(predictor: LearnedPredictor) -> None:
    strangers = ProfileTable.build(
        [WorkloadProfile("s", {"cpu": 50.0, "new_metric": 3.0}), WorkloadProfile("t", {"x": 1.0})]
    )
    said = predictor.predict(batch(pair("s", "t"), table=strangers))
    assert np.isfinite(said.throughput.expected).all()
    assert said.outside[0, 1]


def test_no_profiles_at_all_are_no_reason_to_fail(predictor: LearnedPredictor) -> None:
    said = predictor.predict(batch(pair("w0", "w1"), table=ProfileTable.build([])))
    assert said.outside.all()
    assert np.isfinite(said.throughput.lower).all()


def test_the_examples_name_runs_platforms_and_neighbours(world: Dataset, predictor: LearnedPredictor) -> None:
    examples = build_examples([world], predictor.metrics)
    assert len(examples) == 2 * len(world.colocations)
    assert set(examples.platform) == {"world/p1"}
    assert examples.pair[0] == "w0+w0"
    assert [one.workload for one in examples.neighbours[0]] == ["w0"]
    assert examples.neighbours[0][0].overlap == 1.0
    assert set(examples.size) == {2}
    assert examples.workloads == tuple(f"w{at}" for at in range(6))
    assert examples.involves("w0").sum() == sum("w0" in pair.split("+") for pair in examples.pair)
    assert build_examples([], ()).x.shape[0] == 0
    assert len(build_examples([world, world], predictor.metrics)) == 2 * len(examples)
