"""Features of a scene: what is known of its demands, and how near an instance comes to its own limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.features.feature_matrix import build_matrix
from profiler.demand import Demand
from profiler.observed import NetworkSettings
from tests.examples import examples
from tests.models.synthetic import batch, host, instance, wanting


def known(*demands: Demand) -> list[float]:
    return [float(one) for one in build_matrix(batch(wanting(*demands, pcpus=16))).known]


def sure(mean: float, doubt: float = 1e-3) -> Demand:
    return Demand(mean, spread=0.2 * mean, doubt=doubt, origin="measured")


def test_measured_demands_are_known_and_sizes_alone_hardly() -> None:
    assert known(sure(1.0), sure(2.0)) == pytest.approx([1, 1], abs=1e-4)
    there, profiled = host(pcpus=8), instance("a", "spin")
    of_profile, of_size = (
        build_matrix(batch((there, [profiled, instance("b", workload)]))).known for workload in ("half", None)
    )
    assert of_profile == pytest.approx([1, 1])
    assert of_size[0] < 1
    assert of_size[1] < 0.3
    sizes = [instance(f"i{at}", None) for at in range(10)]
    assert max(build_matrix(batch((there, sizes))).known) < 0.1


@settings(max_examples=examples(60), deadline=None)
@given(st.floats(0.01, 4), st.floats(1e-3, 4), st.floats(1e-6, 0.05))
def test_more_doubt_is_never_better_known_and_a_little_more_changes_little(
    mean: float, doubt: float, step: float
) -> None:
    one, more = known(sure(mean, doubt), sure(1.0)), known(sure(mean, doubt + step), sure(1.0))
    assert (np.array(more) <= np.array(one) + 1e-12).all()
    assert np.abs(np.subtract(more, one)).max() <= 2 * step / mean


def test_a_further_neighbour_that_asks_for_next_to_nothing_changes_nothing_by_a_jump() -> None:
    few, more = known(sure(1.0), sure(1.0)), known(sure(1.0), sure(1.0), sure(1e-4, 1.0))
    assert more[:2] == pytest.approx(few, abs=2e-3)


@pytest.mark.parametrize(
    ("limit", "line", "of_line", "of_limit"), [(None, None, 0, 0), (None, 1000.0, 0.085, 0), (160.0, None, 0, 0.5)]
)
def test_what_binds_an_instance_alone_is_a_part_of_the_line_and_of_its_own_limit(
    limit: float | None, line: float | None, of_line: float, of_limit: float
) -> None:
    network = None if limit is None else NetworkSettings("dedicated", limit)
    matrix = build_matrix(batch((host(pcpus=2, nic_mbit=line), [instance("a", "web", network=network)])))
    found = [matrix.x[0, matrix.names.index(name)] for name in ("own net", "own rate")]
    assert found == pytest.approx([of_line, of_limit], abs=1e-3)
