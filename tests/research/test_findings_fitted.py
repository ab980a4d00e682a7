"""Predictions of findings that fixed a constant are marked, and made once more without the finding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from models.data.dataset import Dataset, load_dataset
from models.data.scene import build_batch
from models.features.examples import scene_of
from models.physics.prior import solve
from profiler.host_kinds import TRAITS
from research.findings.fitted_constants import CHOICES, SAME_RUNS, ConstantFits, PriorConstants, basis_of
from research.findings.predicted_column import profiles

ROOT = Path(__file__).resolve().parents[2]
IN_USE = PriorConstants(weight_exponent=0.124, keen=1.0, event_share=0.2, driver_servers=1.0)


@pytest.fixture(scope="module")
def papers() -> Dataset:
    return load_dataset(ROOT / "datasets" / "papers")


@pytest.fixture(scope="module")
def fits(papers: Dataset) -> ConstantFits:
    return ConstantFits.of(papers, profiles(papers))


def test_constants_of_the_product_are_among_the_choices_and_change_nothing(papers: Dataset) -> None:
    assert IN_USE in CHOICES
    assert TRAITS["xen"].weight_exponent == pytest.approx(IN_USE.weight_exponent, abs=5e-4)
    scenes = [scene_of(one, dict(papers.platforms)) for one in papers.colocations if one.finding]
    batch = build_batch(scenes, profiles(papers))
    before = solve(batch).throughput
    with IN_USE.applied():
        within = solve(batch).throughput
    np.testing.assert_allclose(within, before, atol=1e-3)
    with CHOICES[0].applied():
        assert np.abs(solve(batch).throughput - before).max() > 0.2
    np.testing.assert_array_equal(solve(batch).throughput, before)  # and they are put back


def test_a_constant_that_only_the_finding_left_out_decides_is_what_one_assumes_without_papers(
    fits: ConstantFits,
) -> None:
    assert fits.without("L4").weight_exponent == 1.0
    assert fits.without("N8").weight_exponent == pytest.approx(0.124)


def test_what_is_left_out_has_no_say(fits: ConstantFits) -> None:
    for finding in set(fits.findings):
        left_out = [one in {finding, *SAME_RUNS.get(finding, ())} for one in fits.findings]
        changed = fits.errors.copy()
        changed[:, left_out] = np.random.default_rng(1).random((len(CHOICES), sum(left_out)))
        assert ConstantFits(fits.findings, changed).without(finding) == fits.without(finding)


@pytest.mark.parametrize(
    ("finding", "situation", "fitted"),
    [
        ("L4", "latency-cpu-weight-ratio-10: cpu", True), ("N3", "1k+100k", True), ("N5", "neighbor-1-1k-1k", True),
        ("N11", "neighbor-3-pin-1-1-1-1k-1k", True), ("N8", "neighbor-2-1k-1m: web-1k", True),
        ("N8", "neighbor-2-1k-1k: web-1k", False), ("N4", "neighbor-1-1k-100k: web-1k", True),
        ("L5", "latency-cpu-cap-10-idle: cpu", False),
    ],
)  # fmt: skip
def test_findings_that_fixed_the_prior_and_what_needs_their_profile_are_fitted(
    finding: str, situation: str, fitted: bool
) -> None:
    assert basis_of(finding, situation).startswith("fitted: ") is fitted
