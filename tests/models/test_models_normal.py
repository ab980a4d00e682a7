"""The standard normal distribution, compiled or not, against SciPy's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from models.arrays import Floats
from models.physics import compiled_contention, normal

VALUES = np.concatenate([np.linspace(-30, 9, 3001), [-np.inf, np.inf, 0.0]])


def _compiled(values: Floats) -> Floats:
    found = compiled_contention.load_normal(Path(normal.__file__).parent)
    assert found is not None
    return found(values)


def _plain(values: Floats) -> Floats:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal, "_compiled", None)
        return normal.below(values)


@pytest.mark.parametrize("below", [_compiled, _plain])
def test_the_chance_of_a_smaller_value_is_that_of_scipy(below: Callable[[Floats], Floats]) -> None:
    np.testing.assert_allclose(below(VALUES), ndtr(VALUES), rtol=1e-13)
    assert below(VALUES.reshape(4, -1)[:, ::2]).shape == VALUES.reshape(4, -1)[:, ::2].shape
    np.testing.assert_allclose(below(VALUES.reshape(4, -1)[:, ::2]), ndtr(VALUES.reshape(4, -1)[:, ::2]), rtol=1e-13)
    assert np.isnan(below(np.array([np.nan]))).all()
    assert below(np.empty((0, 3))).shape == (0, 3)


def test_the_density_at_a_quantile_is_that_of_scipy() -> None:
    chances = (0.0, 1e-9, 0.3, 0.5, 0.99, 1.0)
    expected = np.exp(-(ndtri(chances) ** 2) / 2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(normal.density_at(chances), expected, rtol=1e-12, atol=1e-300)


def test_without_a_library_there_is_none(tmp_path: Path) -> None:
    assert compiled_contention.load_normal(tmp_path) is None
