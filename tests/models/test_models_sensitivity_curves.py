"""Sensitivity and pressure curves: the reporter inverted, pressures added, and what is unknown left unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.profile import WorkloadProfile
from models.data.scene import ProfileTable
from models.features.feature_matrix import REPORTER, build_matrix, curve_columns, families, read_sweep
from tests.examples import examples
from tests.models.synthetic import batch, host, instance

LEVELS = (10, 20, 40)


def sweep(name: str, curve: tuple[float, ...], reporter: float | None = None) -> WorkloadProfile:
    """A workload with its T/B beside bubbles of 10, 20 and 40 MB, and the reporter's T/B beside it."""
    metrics = {f"bubble_{level}mb": value for level, value in zip(LEVELS, curve, strict=False)}
    return WorkloadProfile(name, metrics if reporter is None else metrics | {"bubble_reporter": reporter})


# The reporter loses a hundredth per megabyte.
OF_REPORTER = sweep(REPORTER, (0.9, 0.8, 0.6), 0.6)
SENSITIVE = sweep("sensitive", (0.7, 0.5, 0.3), 0.7)  # presses like a bubble of 30 MB
MILD = sweep("mild", (1.0, 0.95, 0.9), 0.9)  # like one of 10 MB
QUIET = sweep("quiet", (1.0, 1.0, 1.0), 1.0)
STRANGER = WorkloadProfile("stranger", {"cpu": 10.0})
DEAF = WorkloadProfile("deaf", {"cpu": 10.0, "bubble_reporter": 0.8})  # no curve of its own, pressure 20
ALL = (OF_REPORTER, SENSITIVE, MILD, QUIET, STRANGER, DEAF)
TABLE = ProfileTable.build(ALL)


def said(*workloads: str | None, table: ProfileTable = TABLE, loads: tuple[float, ...] = ()) -> list[tuple[float, ...]]:
    """(T/B by the curve, pressure around) of each instance of one host."""
    loads = loads or (1.0,) * len(workloads)
    there = [instance(f"i{at}", name, load=loads[at]) for at, name in enumerate(workloads)]
    names, values = curve_columns(batch((host("kvm", 4), there), table=table))
    assert names == ("curve bubble", "press bubble")
    return [(math.exp(curve), press) for curve, press in values[0]]


def test_a_workload_presses_like_the_bubble_that_does_the_same_to_the_reporter() -> None:
    """Bubble-Up: invert the reporter's curve, read the victim's off at the level found."""
    found = read_sweep(TABLE, "bubble", families(TABLE.columns)["bubble"])
    assert found.levels.tolist() == [0.0, 10.0, 20.0, 40.0]
    pressure = dict(zip(TABLE.names, found.pressure, strict=True))
    assert [pressure[name] for name in ("sensitive", "mild", "quiet")] == pytest.approx([30.0, 10.0, 0.0], abs=1e-6)
    (sensitive, around_it), (mild, around_mild) = said("sensitive", "mild")
    assert (sensitive, around_it) == pytest.approx((0.7, 10.0))  # its curve at 10
    assert (mild, around_mild) == pytest.approx((0.925, 30.0))  # half way between 20 and 40


def test_pressures_of_several_neighbours_add_up_and_alone_nothing_presses() -> None:
    assert said("sensitive", "mild", "mild")[0] == pytest.approx((0.5, 20.0))
    assert said("sensitive", "mild", "mild", loads=(1.0, 0.5, 0.5))[0] == pytest.approx((0.7, 10.0))
    assert said("sensitive", "quiet") == [pytest.approx((1.0, 0.0)), pytest.approx((1.0, 30.0))]
    assert said("sensitive") == [pytest.approx((1.0, 0.0))]


def test_beyond_the_largest_bubble_the_curve_is_flat() -> None:
    assert said("sensitive", *["sensitive"] * 3)[0] == pytest.approx((0.3, 90.0))


def test_what_is_unknown_stays_unknown() -> None:
    for workloads in (("sensitive", "stranger"), ("sensitive", None), ("sensitive", "mild", None)):
        assert np.isnan(said(*workloads)[0]).all()
    curve, press = said("deaf", "mild")[0]
    assert math.isnan(curve)
    assert press == pytest.approx(10.0)


def test_a_pressure_of_ones_own_that_is_unknown_hides_no_neighbours() -> None:
    table = ProfileTable.build([*ALL, sweep("new", (0.9, 0.8, 0.7))])
    assert said("new", "mild", table=table)[0] == pytest.approx((0.9, 10.0))
    assert np.isnan(said("new", "mild", None, table=table)[0]).all()


def test_without_the_reporters_own_curve_nothing_is_said() -> None:
    table = ProfileTable.build([SENSITIVE, MILD])
    assert np.isnan(said("sensitive", "mild", table=table)).all()


def test_a_sweep_has_three_levels_and_a_reporter() -> None:
    assert families(["bubble_1mb", "bubble_2mb", "bubble_3mb"]) == {}
    assert families(["bubble_1mb", "bubble_2mb", "bubble_reporter", "cpu"]) == {}
    found = families(["b_16kb", "b_2kb", "b_4.5kb", "b_reporter", "a_1", "a_2", "a_3", "a_reporter", "latency_p95"])
    assert found == {
        "a": [(1.0, "a_1"), (2.0, "a_2"), (3.0, "a_3")],
        "b": [(2.0, "b_2kb"), (4.5, "b_4.5kb"), (16.0, "b_16kb")],
    }


def test_a_curve_of_too_few_points_is_none_and_a_gap_is_bridged() -> None:
    thin = WorkloadProfile("thin", {"bubble_10mb": 0.9, "bubble_40mb": 0.5})
    wide = [WorkloadProfile(one.name, {**one.metrics, "bubble_80mb": 0.2}) for one in (OF_REPORTER, SENSITIVE)]
    gap = WorkloadProfile("gap", {"bubble_10mb": 0.9, "bubble_40mb": 0.6, "bubble_80mb": 0.5})
    table = ProfileTable.build([*wide, thin, gap])
    found = read_sweep(table, "bubble", families(table.columns)["bubble"])
    assert np.isnan(found.sensitivity[table.row("thin")]).all()
    np.testing.assert_allclose(found.sensitivity[table.row("gap")], [1.0, 0.9, 0.8, 0.6, 0.5])


CURVES = st.tuples(*[st.floats(0.01, 1.3)] * 3)


@settings(max_examples=examples(60), deadline=None)
@given(CURVES, CURVES, st.lists(st.floats(0.0, 1.3), min_size=2, max_size=8))
def test_curves_never_rise_and_pressure_never_falls_with_the_harm_to_the_reporter(
    own: tuple[float, ...], reporters: tuple[float, ...], harms: list[float]
) -> None:
    made = [sweep(f"w{at}", own, harm) for at, harm in enumerate(sorted(harms, reverse=True))]
    table = ProfileTable.build([sweep(REPORTER, reporters, 1.0), *made])
    found = read_sweep(table, "bubble", families(table.columns)["bubble"])
    known = found.sensitivity[1:]
    assert (np.diff(known, axis=1) <= 1e-12).all()
    assert (known <= 1.0).all()
    assert ((found.pressure[1:] >= 0) & (found.pressure[1:] <= 40)).all()
    rising = [found.pressure[table.row(one.name)] for one in made]
    assert (np.diff(rising) >= -1e-9).all()


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.sampled_from(["sensitive", "mild", "quiet"]), min_size=1, max_size=4), st.data())
def test_one_neighbour_more_never_helps_and_their_order_does_not_matter(around: list[str], data: st.DataObject) -> None:
    curve, press = said("sensitive", *around)[0]
    mixed = said("sensitive", *data.draw(st.permutations(around)))[0]
    assert mixed == pytest.approx((curve, press))
    more_curve, more_press = said("sensitive", *around, data.draw(st.sampled_from(["mild", "quiet"])))[0]
    assert more_curve <= curve + 1e-9
    assert more_press >= press - 1e-9


def test_levels_of_a_sweep_are_no_pressure_but_the_harm_to_the_reporter_is() -> None:
    scene = (host("kvm", 4), [instance("a", "sensitive"), instance("b", "mild")])
    matrix = build_matrix(batch(scene, table=TABLE), TABLE.columns)
    for where in ("beside", "host"):
        assert f"{where} bubble_10mb" not in matrix.names
        assert f"{where} bubble_reporter" in matrix.names
    assert "own bubble_10mb" in matrix.names
    of = dict(zip(matrix.names, matrix.monotone.tolist(), strict=True))
    assert (of["curve bubble"], of["press bubble"]) == (1, -1)
