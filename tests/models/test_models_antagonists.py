"""Antagonists by windows: the instance that runs is named, and none where there is nothing to name."""

from __future__ import annotations

import numpy as np
import pytest

from models.arrays import Floats
from models.profiling.antagonists import UsedAndWaited, antagonists, effective_size

WINDOWS = 288


def all_instances(_one: str, _other: str) -> bool:
    return True


def _steps(random: np.random.Generator, low: float, high: float) -> Floats:
    """Busy or quiet for six windows at a time, which makes neighbouring windows alike."""
    return np.repeat(random.uniform(low, high, WINDOWS // 6), 6)


def _host(seed: int, *, pressing: float) -> dict[str, UsedAndWaited]:
    """The victim waits `pressing` % for each % that the hog runs, and the more the more it demands itself."""
    random = np.random.default_rng(seed)
    hog = _steps(random, 0, 80)
    own = 20 + 10 * np.sin(np.arange(WINDOWS) / 20)
    waiting = own * (0.05 + pressing * hog / 100 + own / 1000 + random.normal(0, 0.02, WINDOWS).clip(-0.04))
    others = {f"other-{at}": UsedAndWaited(_steps(random, 0, 40), np.full(WINDOWS, 1.0)) for at in range(8)}
    follower = UsedAndWaited(own * 1.5 + random.normal(0, 1, WINDOWS), np.full(WINDOWS, 1.0))
    quiet = UsedAndWaited(hog, np.full(WINDOWS, 0.5))
    return {"victim": UsedAndWaited(own, waiting), "hog": quiet, "follower": follower, **others}


def test_the_one_who_runs_while_it_waits_is_named_and_not_who_has_the_same_daily_rhythm() -> None:
    for seed in range(5):
        first, *more = antagonists(_host(seed, pressing=0.5), all_instances)
        assert (first.victim, first.suspect) == ("victim", "hog")
        assert first.chance < 1e-4
        assert 0.05 < first.loss < 0.25
        assert not [one for one in more if one.suspect == "follower"]


def test_without_antagonists_hardly_any_instance_is_named() -> None:
    named = [antagonists(_host(seed, pressing=0.0), all_instances) for seed in range(20)]
    assert sum(map(bool, named)) <= 4  # 5 % of 20, and what chance adds


def test_who_shares_no_cpu_is_no_suspect() -> None:
    assert antagonists(_host(0, pressing=0.5), lambda _one, other: other != "hog") == ()


def test_a_few_windows_say_nothing() -> None:
    found = {
        name: UsedAndWaited(one.cpu[:36], one.waiting[:36]) for name, one in _host(0, pressing=0.9).items()
    }  # fmt: skip
    assert antagonists(found, all_instances) == ()


def test_two_who_always_run_together_are_not_distinguished() -> None:
    host = _host(0, pressing=0.5)
    assert antagonists({**host, "twin": host["hog"]}, all_instances) == ()


def test_steady_and_absent_series_are_taken() -> None:
    steady = UsedAndWaited(np.full(WINDOWS, 50.0), np.full(WINDOWS, 5.0))
    gone = UsedAndWaited(np.full(WINDOWS, np.nan), np.full(WINDOWS, np.nan))
    assert antagonists({"a": steady, "b": steady, "gone": gone}, all_instances) == ()
    named = antagonists({**_host(0, pressing=0.5), "gone": gone}, all_instances)
    assert named[0].suspect == "hog"


def test_windows_that_are_alike_count_for_less() -> None:
    random = np.random.default_rng(0)
    noise, other = random.normal(size=3000), random.normal(size=3000)
    slow = np.repeat(random.normal(size=300), 10), np.repeat(random.normal(size=300), 10)
    assert effective_size(noise[None], other[None])[0] == pytest.approx(3000, rel=0.15)
    assert effective_size(*(one[None] for one in slow))[0] == pytest.approx(
        450, rel=0.4
    )  # ten alike: between 300 and 3000


def test_a_suspect_that_was_there_for_moments_is_not_named() -> None:
    """Whatever its few windows say, it was not there in the others; one that was there for hours is named."""
    host = _host(0, pressing=0.9)
    brief = np.full(WINDOWS, np.nan)
    worst = np.argsort(host["victim"].waiting)[-5:]
    brief[worst] = 90.0
    found = antagonists({**host, "brief": UsedAndWaited(brief, np.full(WINDOWS, 1.0))}, all_instances)
    assert "brief" not in {pair.suspect for pair in found}
    assert "hog" in {pair.suspect for pair in found}
