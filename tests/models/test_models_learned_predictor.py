"""The trained predictor in service: the same numbers as in training, and what it does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.dataset import Dataset
from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable, SceneBatch, build_batch
from models.features.examples import build_examples, scene_of
from models.features.feature_matrix import build_matrix
from models.learning import learned_predictor
from models.learning.fitted_target import FittedTarget
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


def sure_of_what_it_knows(predictor: LearnedPredictor) -> LearnedPredictor:
    """The same with intervals that are five times as wide for what is not known."""
    return replace(predictor, throughput=with_widths(predictor.throughput))


def with_widths(target: FittedTarget) -> FittedTarget:
    """Intervals of one typical error where all is known and of five where not."""
    quantiles = {"known": {"": (1.0, 1.0)}, "unknown": {"": (5.0, 5.0)}}
    return replace(target, calibration=replace(target.calibration, quantiles=quantiles))


def pair(one: str | None, other: str | None) -> Scene:
    return host("lxc", 2, platform="p1"), [instance("a", one, pins="0:0"), instance("b", other, pins="0:0")]


@pytest.mark.parametrize("target", ["throughput", "latency", "jitter"])
def test_service_gives_the_numbers_of_training(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch, target: str
) -> None:
    """Rows, effects and blends by the path of training (names and lists) and by that of service (arrays)."""
    examples = build_examples([world], predictor.metrics, target=target)
    slow = predictor.targets[target].ask(examples)
    said = getattr(predictor.predict(measured_scenes), target)
    matrix = build_matrix(measured_scenes, predictor.metrics)
    for name in ("expected", "lower", "upper"):
        np.testing.assert_allclose(getattr(said, name)[matrix.scene, matrix.slot], getattr(slow, name), rtol=1e-9)


def test_it_learned_something_of_the_pairs_it_saw(
    predictor: LearnedPredictor, world: Dataset, measured_scenes: SceneBatch
) -> None:
    examples = build_examples([world], predictor.metrics)
    said = predictor.predict(measured_scenes).throughput.expected
    matrix = build_matrix(measured_scenes, predictor.metrics)
    ours = np.abs(said[matrix.scene, matrix.slot] - examples.ratio).mean()
    assert ours < np.abs(examples.base - examples.ratio).mean() / 2


def test_nobody_sits_where_no_number_stands(predictor: LearnedPredictor, table: ProfileTable) -> None:
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
    monkeypatch.setattr(learned_predictor, "MOST_RESIDENTS", 7)
    parts = predictor.predict(many)
    few = np.array(sizes) <= 7
    by_prior = PriorPredictor().predict(many)
    for target in ("throughput", "latency", "jitter"):
        for name in ("expected", "lower", "upper"):
            found = getattr(getattr(parts, target), name)
            np.testing.assert_allclose(found[few], getattr(getattr(whole, target), name)[few], rtol=1e-9)
            np.testing.assert_allclose(found[~few], getattr(getattr(by_prior, target), name)[~few], rtol=1e-9)
    np.testing.assert_array_equal(parts.outside[few], whole.outside[few])
    assert parts.outside[~few].all()
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


def test_numbers_of_a_platform_that_training_saw_need_not_be_brought_along(
    predictor: LearnedPredictor, world: Dataset
) -> None:
    assert "platform.tlb_mb" in predictor.metrics
    assert predictor.platforms == {"p1": {"tlb_mb": 8.0}}
    brought, bare = (ProfileTable.build(world.profiles, numbers) for numbers in (world.platform_numbers, None))
    one, other = (predictor.predict(batch(pair("w0", "w1"), table=of)).throughput for of in (brought, bare))
    np.testing.assert_array_equal(one.expected, other.expected)
    np.testing.assert_array_equal(one.lower, other.lower)


def test_a_workload_without_any_metric_of_training_is_marked_though_its_platform_is_known(
    predictor: LearnedPredictor, world: Dataset
) -> None:
    table = ProfileTable.build([*world.profiles, WorkloadProfile("odd", {"unheard_of": 1.0})], world.platform_numbers)
    asked = batch(pair("w0", "w1"), pair("odd", "w1"), table=table)
    blank = predictor._nothing_in_common(build_matrix(asked, predictor.metrics))
    assert blank.tolist() == [False, False, True, False]
    said = predictor.predict(asked)
    assert said.outside[1, 0]
    width = np.log(said.throughput.expected / said.throughput.lower)
    assert width[1, 0] > 2 * width[0].max()


def test_an_unknown_workload_is_marked_and_wide_and_makes_its_neighbour_less_certain(
    predictor: LearnedPredictor, table: ProfileTable
) -> None:
    said = sure_of_what_it_knows(predictor).predict(batch(pair("w0", "w1"), pair("w0", None), table=table))
    width = np.log(said.throughput.expected / said.throughput.lower)
    assert not said.outside[0].any()
    assert said.outside[1, 1]
    assert width[1, 1] > 2 * width[0].max()
    assert width[1, 0] > width[0, 0]


@pytest.mark.parametrize("strange", [{"kind": "xen"}, {"pcpus": 64}], ids=["of another kind", "of another size"])
def test_on_a_host_that_training_says_nothing_of_the_prior_answers_range_and_all(
    predictor: LearnedPredictor, table: ProfileTable, strange: dict[str, Any]
) -> None:
    usual, there = pair("w0", "w1")
    asked = build_batch([(usual, there), (replace(usual, platform="", **strange), there)], table)
    said, prior = predictor.predict(asked), PriorPredictor().predict(asked)
    for name in ("throughput", "latency", "jitter"):
        own, its = (getattr(one, name) for one in (said, prior))
        for edge in ("expected", "lower", "upper"):
            np.testing.assert_array_equal(getattr(own, edge)[1], getattr(its, edge)[1])
    assert said.outside[1].all()
    assert (said.throughput.lower[0] != prior.throughput.lower[0]).any()


@pytest.mark.parametrize(
    "setting", [{"weight": 1024}, {"cap": 20.0}, {"network": dedicated(10.0)}], ids=["a weight", "a cap", "a rate"]
)
def test_beside_a_setting_that_nobody_in_training_had_the_prior_answers_for_everybody(
    predictor: LearnedPredictor, table: ProfileTable, setting: dict[str, Any]
) -> None:
    usual, (victim, other) = pair("w0", "w1")
    strange = instance("b", "w1", pins="0:0", **setting)
    asked = build_batch([(usual, [victim, other]), (usual, [victim, strange])], table)
    said, prior = predictor.predict(asked).throughput, PriorPredictor().predict(asked).throughput
    assert (said.expected[0] != prior.expected[0]).any()
    for edge in ("expected", "lower", "upper"):
        np.testing.assert_array_equal(getattr(said, edge)[1], getattr(prior, edge)[1])


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
    both = replace(predictor, latency=with_widths(less))
    all_known = replace(predictor, latency=with_widths(predictor.latency))
    asked = batch(pair("w0", "w1"), table=table)
    said, sure = both.predict(asked), all_known.predict(asked)
    np.testing.assert_array_equal(said.throughput.lower, sure.throughput.lower)
    assert (
        np.log(said.latency.upper / said.latency.expected) > np.log(sure.latency.upper / sure.latency.expected)
    ).all()


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


def test_who_sits_beside_namesakes_of_other_effects_is_no_twin_of_who_looks_the_same(
    predictor: LearnedPredictor, world: Dataset, table: ProfileTable
) -> None:
    """Two that run the same on CPUs of their own, one beside each of two workloads that only their names tell apart."""
    like = table.values[table.row("w1", "p1")]
    known = {key: float(value) for key, value in zip(table.columns, like, strict=True) if np.isfinite(value)}
    twin = table.with_profile(WorkloadProfile("w1-again", known))
    values = {**predictor.throughput.model.effects.values, "neighbour|near|w1": -0.3, "neighbour|near|w1-again": 0.2}
    model = replace(
        predictor.throughput.model,
        effects=replace(predictor.throughput.model.effects, values=values),
        known=frozenset({*predictor.throughput.model.known, "w1-again"}),
        known_weights=replace(predictor.throughput.model.known_weights, effects=1.0),
    )
    informed = replace(
        predictor,
        throughput=replace(  # trained on pairs: four instances are to lie inside, too
            predictor.throughput, model=model, high=predictor.throughput.high * 10, most_instances=4
        ),
        reference={**predictor.reference, "w1-again": [known]},
    )
    rows = {"a": "w0", "b": "w0", "c": "w1", "d": "w1"}
    found = batch(
        (
            host("lxc", 2, platform="p1"),
            [instance(name, row, pins=f"0:{at % 2}") for at, (name, row) in enumerate(rows.items())],
        ),
        table=twin,
    )
    found.profile[0, 3] = len(twin.values) - 1
    together = informed.predict(found, ()).throughput.expected[0]
    assert together[0] < together[1] * 0.9
    apart = found.take(np.array([0]))
    order = np.array([1, 0, 3, 2])
    swapped = replace(
        apart, **{name: getattr(apart, name)[:, order] for name in ("profile", "affinity", "vcpus", "load")}
    )
    assert informed.predict(swapped, ()).throughput.expected[0] == pytest.approx(together[order])
