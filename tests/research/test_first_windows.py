"""What the first windows tell, on series that were made up."""

from __future__ import annotations

import numpy as np

from research.first_windows import errors


def test_the_first_windows_tell_more_together_with_the_others() -> None:
    generator = np.random.default_rng(3)
    times = np.arange(300.0) * 300
    series = {}
    for number in range(60):
        mean = float(np.clip(np.exp(generator.normal(np.log(0.1), 0.6)), 0.01, 0.5))
        used = np.clip(mean * generator.gamma(1.0, 1.0, times.size), 0, 1)
        series[f"host {number}"] = (times, used)
    found = errors(series)
    assert found[1]["both"] < found[1]["alone"]
    assert found[12]["both"] < min(found[1]["both"], found[12]["others"])
    assert found[12]["both"] == found[12]["alone"]
