"""Advice followed on real instances: who suffered is better off, the intervals hold, and undo leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from advisor.settings import Settings
from lab.control_groups import GroupMaker, device_of
from lab.errors import ToolError
from lab.measure import Timing
from lab.resource_registry import ResourceRegistry
from research.benchmarks.scenarios.campaign import ScenarioCampaign, ScenarioResult
from research.benchmarks.scenarios.scenes import CPUS, DISKS, SENDERS, PairScene
from research.benchmarks.scenarios.testbed import unfit

pytestmark = [
    pytest.mark.lab,
    pytest.mark.measured,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        os.environ.get("COTENANT_TEST_SCENARIOS") != "1",
        reason="measures minutes on real containers and needs a quiet machine: run `make test-scenarios`",
    ),
]

SCENES = (*SENDERS[::2], *CPUS[::2], *DISKS[::2])
ROUNDS = 2
LEAST_COVERED = 0.85
REPORTED: dict[str, ScenarioResult] = {}  # what the tests of single scenes measured, for the one about all of them


def follow(scene: PairScene, folder: Path) -> ScenarioResult:
    """Measure a scene, and keep what it reported."""
    if trouble := unfit([scene]):
        pytest.skip(trouble)
    if scene in DISKS and device_of(folder) is None:
        pytest.skip(f"{folder} lies on no single disk")
    maker, registry = GroupMaker(), ResourceRegistry(folder / "state")
    maker.prepare()
    campaign = ScenarioCampaign(ROUNDS, Timing(2, 0.5, 0.5), None, Settings(state_dir=folder / "no-models"))
    try:
        REPORTED[scene.name] = campaign.tell(scene, registry, maker, folder)
    except ToolError as error:
        if "kind is unknown" in str(error):
            pytest.skip(f"this kernel has no HTB: {error}")
        raise
    finally:
        registry.close()
    return REPORTED[scene.name]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_who_suffered_is_better_off_in_every_round_once_the_advice_is_followed(
    scene: PairScene, tmp_path: Path
) -> None:
    reported = follow(scene, tmp_path)
    assert reported.left_behind == ()
    assert reported.mended, f"{reported.advice.says}: {reported.of(scene.sufferer)}"
    assert reported.gain > 1.1


def test_what_is_measured_then_lies_within_the_predicted_intervals_in_85_percent_of_cases(tmp_path: Path) -> None:
    for scene in SCENES:
        if scene.name not in REPORTED:
            (tmp_path / f"{len(REPORTED)}").mkdir()
            follow(scene, tmp_path / f"{len(REPORTED)}")
    cases = [case for reported in REPORTED.values() for case in reported.cases]
    REPORTED.clear()  # who is not sure measures all of them again
    assert len(cases) >= 20
    missed = [case for case in cases if not case.covered]
    assert len(missed) <= (1 - LEAST_COVERED) * len(cases), missed
