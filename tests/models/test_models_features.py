"""`build_matrix`: one row per instance, whatever order, batch or metrics it comes in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.arrays import Floats
from models.data.topology import cores_of, cpu_overlap, group_overlap
from models.features.feature_matrix import CORES, LIMITS, PLATFORM, SOCKETS, VCPUS, FeatureMatrix, build_matrix
from tests.examples import examples
from tests.models.synthetic import TABLE, Scene, batch, dedicated, host, instance, scenes

METRICS = ("cpu", "driver_domain.cpu", "net_mbit", "llc_misses")


def column(matrix: FeatureMatrix, name: str) -> list[float]:
    return [float(value) for value in matrix.x[:, matrix.names.index(name)]]


def test_there_is_one_row_for_each_instance_and_it_says_whose_it_is() -> None:
    matrix = build_matrix(
        batch((host(), [instance("a")]), (host(), []), (host(), [instance("b"), instance("c")])), METRICS
    )
    assert list(zip(matrix.scene.tolist(), matrix.slot.tolist(), strict=True)) == [(0, 0), (2, 0), (2, 1)]
    assert matrix.x.shape == (3, len(matrix.names))
    assert matrix.log_prior.tolist() == np.log([1.0, 0.5, 0.5]).tolist()


def test_neighbours_press_with_their_metrics_times_their_load() -> None:
    scene = (host("kvm", 2), [instance("a", "web"), instance("b", "bulk", load=0.5), instance("c", "odd", load=3.0)])
    matrix = build_matrix(batch(scene), METRICS)
    assert column(matrix, "own cpu")[0] == 60.0
    assert column(matrix, "host cpu") == [5.0, 60.0, 65.0]
    assert column(matrix, "host llc_misses") == [3.0, 3.0, 0.0]
    assert column(matrix, "neighbours") == [2.0, 2.0, 2.0]


def test_near_pressure_counts_the_part_of_a_neighbours_cpus_that_is_shared() -> None:
    pins = ("0:0", "0:0-1|1:0-1", "0:1")
    scene = (host("kvm", 2), [instance(f"i{at}", "spin", pins=pin, vcpus=2) for at, pin in enumerate(pins)])
    overlap = cpu_overlap(batch(scene))[0]
    np.testing.assert_allclose(overlap, [[1.0, 0.5, 0.0], [1.0, 1.0, 1.0], [0.0, 0.5, 1.0]])
    assert column(build_matrix(batch(scene), METRICS), "near cpu") == [50.0, 200.0, 50.0]


def test_a_metric_that_is_not_known_is_nan_for_its_owner_and_nothing_to_its_neighbours() -> None:
    matrix = build_matrix(batch((host(), [instance("a", None), instance("b", "spin")])), (*METRICS, "no_such_metric"))
    assert np.isnan(column(matrix, "own cpu")[0])
    assert column(matrix, "host cpu") == [100.0, 0.0]
    assert np.isnan(column(matrix, "own no_such_metric")).all()
    assert column(matrix, "host no_such_metric") == [0.0, 0.0]


def test_settings_that_are_not_set_are_without_end_and_others_are_numbers() -> None:
    bare, held = instance("a"), instance("b", cap=50.0, network=dedicated(10.0), disk_limit_mb_s=5.0, weight=768)
    matrix = build_matrix(batch((host(), [bare, held])), ())
    for name, value in (("cap", 0.5), ("net_rate", 10.0), ("disk_limit", 5.0)):
        assert column(matrix, name) == [np.inf, value]
    assert column(matrix, "weight_share") == [0.25, 0.75]


def test_without_metrics_a_matrix_still_has_settings_host_and_prior() -> None:
    matrix = build_matrix(batch((host(), [instance("a"), instance("b")])), ())
    assert matrix.names[0] == "load"
    assert column(matrix, "prior") == np.log([0.5, 0.5]).tolist()
    assert not any(name.startswith(("own ", "near ", "host ")) for name in matrix.names)


def test_no_scenes_and_no_instances_make_no_rows() -> None:
    for empty in (batch(), batch((host(), []))):
        matrix = build_matrix(empty, METRICS)
        assert matrix.x.shape == (0, len(matrix.names))
        assert len(matrix.scene) == len(matrix.log_prior) == 0


@settings(max_examples=examples(50), deadline=None)
@given(scenes(least=1), st.booleans(), st.data())
def test_the_order_of_neighbours_does_not_matter(scene: Scene, nodes: bool, data: st.DataObject) -> None:
    there, instances = scene
    half = there.pcpus // 2
    there = replace(there, numa=(tuple(range(half)), tuple(range(half, there.pcpus))) if nodes else ())
    order = data.draw(st.permutations(range(len(instances))))
    plain, mixed = (
        build_matrix(batch((there, some)), (*METRICS, SOCKETS)) for some in (instances, [instances[at] for at in order])
    )
    np.testing.assert_allclose(mixed.x, plain.x[order], rtol=1e-5, atol=1e-5)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(scenes(), min_size=2, max_size=4))
def test_a_row_is_the_same_alone_and_in_a_batch(many: list[Scene]) -> None:
    together = build_matrix(batch(*many), METRICS)
    for at, scene in enumerate(many):
        alone = build_matrix(batch(scene), METRICS)
        rows = together.scene == at
        np.testing.assert_allclose(together.x[rows], alone.x, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(together.slot[rows], alone.slot)
        assert together.names == alone.names


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(scenes(), min_size=1, max_size=3))
def test_only_limits_that_are_not_set_are_without_end(many: list[Scene]) -> None:
    matrix = build_matrix(batch(*many), METRICS)
    endless = np.asarray(np.isinf(matrix.x).any(axis=0))
    assert {name for name, one in zip(matrix.names, endless.tolist(), strict=True) if one} <= {*LIMITS}
    assert not (matrix.x == -np.inf).any()


def test_more_pressure_never_helps_and_more_of_ones_own_limits_never_hurts() -> None:
    names = ("cpu", "block", "driver_domain.cpu", "pages_per_execution")
    matrix = build_matrix(batch((host(), [instance("a")])), names)
    way = dict(zip(matrix.names, matrix.monotone.tolist(), strict=True))
    assert {name for name, one in way.items() if one > 0} == {*LIMITS}
    around = {f"{where} {key}" for where in ("near", "host") for key in ("cpu", "driver_domain.cpu")}
    assert {name for name, one in way.items() if one < 0} == {"neighbours", "near", "cpu_crowd", *around}


def test_numbers_of_a_platform_are_features_of_whoever_is_on_it() -> None:
    table = replace(TABLE, platforms={"big": {"tlb_mb": 8.0}, "odd": {"other": 1.0}})
    on_each = [(host(platform=name), [instance("a")]) for name in ("big", "odd", "", "strange")]
    matrix = build_matrix(batch(*on_each, table=table), ("cpu", PLATFORM + "tlb_mb", PLATFORM + "missing"))
    np.testing.assert_array_equal(column(matrix, "platform.tlb_mb"), [8.0, np.nan, np.nan, np.nan])
    assert np.isnan(column(matrix, "platform.missing")).all()
    assert not any(name.endswith(" platform.tlb_mb") for name in matrix.names)


def test_the_prior_of_every_target_is_told_row_by_row() -> None:
    matrix = build_matrix(batch((host(), [instance("a"), instance("b")]), (host(), [instance("c")])), ())
    np.testing.assert_array_equal(np.log(matrix.prior_of("throughput")), matrix.log_prior)
    assert matrix.prior_of("latency").shape == matrix.prior_of("jitter").shape == (3,)
    assert matrix.prior_of("latency")[2] == 1.0


@settings(max_examples=examples(40), deadline=None)
@given(scenes(least=1, most=3))
def test_a_metric_more_or_less_leaves_the_other_columns_as_they_are(scene: Scene) -> None:
    few, many = build_matrix(batch(scene), METRICS[:1]), build_matrix(batch(scene), METRICS)
    at = [many.names.index(name) for name in few.names]
    np.testing.assert_array_equal(many.x[:, at], few.x)


def test_every_metric_of_the_table_can_be_asked_for() -> None:
    matrix = build_matrix(batch((host(), [instance("a", "web"), instance("b", "disk")])), TABLE.columns)
    assert set(TABLE.columns) == {name.removeprefix("own ") for name in matrix.names if name.startswith("own ")}


def _of_nodes(scene: Scene) -> Floats:
    made = batch(scene)
    return group_overlap(made, made.node)


TWO_NODES: dict[str, Any] = {"pcpus": 4, "numa": ((0, 1), (2, 3))}


def test_socket_pressure_counts_the_part_of_a_neighbours_cpus_on_ones_own_nodes() -> None:
    pins = ("0:0", "0:1", "0:2", "0:1-2", "")
    scene = (host("kvm", **TWO_NODES), [instance(f"i{at}", "spin", pins=pin) for at, pin in enumerate(pins)])
    of_first = [1.0, 1.0, 0.0, 0.5, 0.5]
    np.testing.assert_allclose(_of_nodes(scene)[0][0], of_first)
    matrix = build_matrix(batch(scene), (*METRICS, SOCKETS))
    assert column(matrix, "near cpu")[0] == 25.0  # of the last, who may run anywhere
    assert column(matrix, "socket cpu") == [200.0, 200.0, 100.0, 400.0, 400.0]
    assert column(matrix, "host cpu") == [400.0] * 5
    way = dict(zip(matrix.names, matrix.monotone.tolist(), strict=True))
    assert {name for name, one in way.items() if one < 0 and name.startswith("socket ")} == {
        f"socket {key}" for key in METRICS
    }


def test_on_one_node_everybody_shares_the_socket() -> None:
    for nodes in ((), ((0, 1, 2, 3),)):
        scene = (host("kvm", 4, numa=nodes), [instance("a", pins="0:0"), instance("b", pins="0:3")])
        np.testing.assert_array_equal(_of_nodes(scene), np.ones((1, 2, 2)))


def test_cpus_that_no_node_names_are_a_node_of_their_own() -> None:
    there = host("kvm", 4, numa=((0, 1),))
    scene = (there, [instance(f"i{at}", pins=f"0:{cpu}") for at, cpu in enumerate((0, 2, 3))])
    np.testing.assert_array_equal(_of_nodes(scene)[0], [[1, 0, 0], [0, 1, 1], [0, 1, 1]])


@settings(max_examples=examples(30), deadline=None)
@given(scenes(least=1))
def test_without_sockets_among_the_metrics_nodes_change_no_bit(scene: Scene) -> None:
    there, instances = scene
    split = replace(there, numa=tuple((cpu,) for cpu in range(there.pcpus)))
    plain, other = build_matrix(batch(scene), METRICS), build_matrix(batch((split, instances)), METRICS)
    assert plain.names == other.names
    assert plain.x.tobytes() == other.x.tobytes()
    more = build_matrix(batch((split, instances)), (*METRICS, SOCKETS))
    kept = [at for at, name in enumerate(more.names) if not name.startswith("socket ")]
    assert np.ascontiguousarray(more.x[:, kept]).tobytes() == plain.x.tobytes()


def test_siblings_are_told_from_cores_of_the_same_socket() -> None:
    """Siblings are numbered far apart, or side by side where only that fits the nodes."""
    for numa, sibling in (((), 2), (((0, 1), (2, 3)), 1)):
        there = host("kvm", 4, numa=numa, threads_per_core=2)
        pins = ("0:0", f"0:{sibling}", "0:3")
        made = batch((there, [instance(f"i{at}", "spin", pins=pin) for at, pin in enumerate(pins)]))
        np.testing.assert_array_equal(group_overlap(made, cores_of(made))[0][0], [1.0, 1.0, 0.0])
        matrix = build_matrix(made, (*METRICS, CORES))
        assert column(matrix, "core cpu") == [100.0, 100.0, 0.0]
        assert column(matrix, "near cpu") == [0.0] * 3


def test_neighbours_vcpus_are_features_where_training_saw_different_ones() -> None:
    scene = (
        host("kvm", 4),
        [instance("a", pins="0:0"), instance("b", vcpus=2, pins="0:0-1|1:0-1"), instance("c", pins="0:2")],
    )
    matrix = build_matrix(batch(scene), (*METRICS, VCPUS))
    assert column(matrix, "near vcpus") == [1.0, 1.0, 0.0]
    assert column(matrix, "host vcpus") == [3.0, 2.0, 3.0]
    assert not {"near vcpus", "core cpu"} & set(build_matrix(batch(scene), METRICS).names)
