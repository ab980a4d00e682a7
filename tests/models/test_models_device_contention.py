"""Devices shared over time: against samples of the same demand, and what must hold for any demand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.data.scene import DEVICES, ProfileTable, SceneBatch, build_batch
from models.physics.prior import PriorPredictor, solve
from models.prediction import DevicePressure
from profiler.demand import Demand, Resource
from profiler.observed import Host, Instance
from tests.examples import examples

EMPTY = ProfileTable.build(())
LINK = 1000.0
GOODPUT = 1448 / 1538  # of the link, for payload
UNIT: dict[Resource, float] = {"net_mbit": LINK * GOODPUT, "disk_mb_s": 500.0, "mem_bw_mb_s": 20_000.0}


def scene(device: Resource, demands: list[Demand]) -> SceneBatch:
    host = Host("h", "lxc", 64, 64_000.0, nic_mbit=LINK, disk_mb_s=500.0, mem_bw_mb_s=20_000.0)
    idle = Demand(0.01, windows=1000.0)
    instances = [Instance(f"i{at}", demand={"cpu": idle, device: demand}) for at, demand in enumerate(demands)]
    return build_batch([(host, instances)], EMPTY)


def moving(device: Resource, part: float, spread: float = 0.0, common: float = 1.0, doubt: float = 0.0) -> Demand:
    """A demand for this part of a device, with a spread relative to it."""
    mean = part * UNIT[device]
    return Demand(mean, device, spread=spread * mean, common=common, doubt=doubt * mean, windows=1000.0)


def pressure(device: Resource, demands: list[Demand]) -> DevicePressure:
    found, at = solve(scene(device, demands)).devices, DEVICES.index(device)
    return DevicePressure(found.share[0, :, at], found.worst[0, :, at], found.short[0, :, at])


@pytest.mark.parametrize("device", DEVICES)
def test_demand_that_does_not_move_has_all_or_its_fair_part(device: Resource) -> None:
    fits = pressure(device, [moving(device, 0.4), moving(device, 0.5)])
    assert fits.share == pytest.approx([1.0, 1.0])
    assert fits.short == pytest.approx([0.0, 0.0])
    full = pressure(device, [moving(device, 0.4), moving(device, 0.8)])
    assert full.share == pytest.approx([1.0, 0.6 / 0.8])
    assert full.worst == pytest.approx(full.share)
    assert full.short == pytest.approx([0.0, 1.0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("spread", [0.3, 0.6])
@pytest.mark.parametrize("part", [0.3, 0.4, 0.5, 0.6])
def test_peaks_that_coincide_are_short_as_often_as_samples_of_them(
    device: Resource, spread: float, part: float
) -> None:
    said = pressure(device, [moving(device, part, spread)] * 2)
    deviation = np.sqrt(np.log1p(spread**2))
    factor = np.exp(deviation * np.random.default_rng(1).standard_normal(200_000) - deviation**2 / 2)
    got = np.minimum(factor * part, 0.5)
    assert said.share[0] == pytest.approx(got.sum() / (factor * part).sum(), abs=0.02)
    late = factor >= np.quantile(factor, 0.95)
    assert said.worst[0] == pytest.approx(got[late].sum() / (factor * part)[late].sum(), abs=0.02)
    assert said.short[0] == pytest.approx((factor * part > 0.5).mean(), abs=0.16)  # moments are whole


@pytest.mark.parametrize("device", DEVICES)
def test_demand_that_moves_together_hurts_more(device: Resource) -> None:
    apart, together = (pressure(device, [moving(device, 0.08, 1.0, common)] * 10) for common in (0.0, 1.0))
    assert together.share[0] < apart.share[0] - 0.05
    assert together.worst[0] < apart.worst[0] - 0.05


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(DEVICES),
    st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0, 1.5), st.floats(0, 1)), min_size=2, max_size=8),
)
def test_one_more_neighbour_never_helps_beyond_a_small_bound(
    device: Resource, parts: list[tuple[float, float, float]]
) -> None:
    demands = [moving(device, *part) for part in parts]
    fewer, more = pressure(device, demands[:-1]), pressure(device, demands)
    assert (more.share[:-1] <= fewer.share + 0.05).all()
    for said in (fewer, more):
        assert (said.worst <= said.share + 1e-9).all()
        assert ((said.share > 0) & (said.share <= 1 + 1e-9) & (said.short >= 0) & (said.short <= 1 + 1e-9)).all()


@pytest.mark.parametrize("device", DEVICES)
def test_more_doubt_about_a_demand_never_narrows_a_range(device: Resource) -> None:
    widths = []
    for doubt in (0.0, 0.1, 0.3, 0.6):
        said = PriorPredictor().predict(scene(device, [moving(device, 0.45, 0.2, 0.5, doubt)] * 2)).throughput
        widths.append(float(said.upper[0, 0] - said.lower[0, 0]))
    assert widths == sorted(widths)
    assert widths[-1] > widths[0] + 0.05


def test_one_number_is_widened_by_what_its_class_teaches() -> None:
    stated, known = Demand(450.0, "net_mbit"), Demand(450.0, "net_mbit", windows=1000.0)
    assert pressure("net_mbit", [stated] * 2).share[0] < pressure("net_mbit", [known] * 2).share[0] == 1.0
