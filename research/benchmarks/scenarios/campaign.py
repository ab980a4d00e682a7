"""Measures scenes in rounds: instances alone, placed as they come, and with the advice followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from advisor.domain import Band
from advisor.settings import Settings
from lab.control_groups import GroupMaker
from lab.measure import RunMeasurement, Timing
from lab.resource_registry import ResourceRegistry
from lab.workloads import DiskWorkload
from research.benchmarks.scenarios.advice import Advice, ask, followed
from research.benchmarks.scenarios.scenes import PairScene, ScenePart
from research.benchmarks.scenarios.testbed import Testbed, standing

PROFILED = 3  # runs alone that a profile is the mean of: a shared disk's speed changes by half from one to the next


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What became of one instance in one round, as it minds it: latency over solo latency, or throughput over solo.

    `alone` is what the ratios are over, in ms or in the workload's unit; `predicted` is for `after`. `disturbed` says
    that something from outside took part in one of its runs.
    """

    scene: str
    instance: str
    outcome: str
    number: int
    alone: float
    before: float
    after: float
    predicted: Band
    disturbed: bool

    @property
    def covered(self) -> bool:
        """Whether the interval contains what was measured after the advice was followed."""
        return self.predicted.lower <= self.after <= self.predicted.upper

    @property
    def gain(self) -> float:
        """How many times better it is after than before; 1 = the same."""
        return self.before / self.after if self.outcome == "latency" else self.after / self.before


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """A scene with its advice and its cases; `left_behind` is what differed after the advice was taken back."""

    scene: PairScene
    advice: Advice
    cases: tuple[CaseOutcome, ...]
    left_behind: tuple[str, ...]

    def of(self, party: ScenePart) -> list[CaseOutcome]:
        return [case for case in self.cases if case.instance == party.name]

    @property
    def mended(self) -> bool:
        """Whether the sufferer was better off with the advice than without it in every round.

        Within a round, because a disk that others share, too, gives half as much in one round as in the next.
        """
        return all(case.gain > 1 for case in self.of(self.scene.sufferer))

    @property
    def gain(self) -> float:
        """The sufferer's gain, the median over rounds."""
        return median(case.gain for case in self.of(self.scene.sufferer))


@dataclass(frozen=True, slots=True)
class ScenarioCampaign:
    """How scenes are measured: `rounds` of each, for how long, and who advises (`model` None = the analytic model)."""

    rounds: int
    timing: Timing
    model: Path | None
    settings: Settings

    def tell(self, scene: PairScene, registry: ResourceRegistry, maker: GroupMaker, folder: Path) -> ScenarioResult:
        """Measure one scene; LabError where it cannot be built, NoAdviceError where there is no advice."""
        with standing(scene, registry, maker, folder) as stage:
            profiled = [self._alone(stage) for _ in range(PROFILED)]
            advice = ask(stage, profiled, self._disk_mb_s(stage), self.model, self.settings)
            cases: list[CaseOutcome] = []
            bare = stage.dump()
            left: list[str] = []
            for number in range(1, self.rounds + 1):
                alone = self._alone(stage)
                before = self._together(stage)
                with followed(stage, advice):
                    after = self._together(stage)
                now = stage.dump()
                left += [f"{what}: {now[what]!r} was {bare[what]!r}" for what in bare if now[what] != bare[what]]
                cases += [_case(scene, party, number, alone, before, after, advice) for party in scene.parties]
            return ScenarioResult(scene, advice, tuple(cases), tuple(left))

    def _alone(self, stage: Testbed) -> dict[str, RunMeasurement]:
        return {party.name: stage.measured([party.name], self.timing) for party in stage.scene.parties}

    def _disk_mb_s(self, stage: Testbed) -> float | None:
        """What the disk does for both of a scene's readers, as an operator would measure it of a host beforehand: what
        one of them reaches alone does not say whether the disk could do more. None where no instance reads."""
        if not all(isinstance(party.workload, DiskWorkload) for party in stage.scene.parties):
            return None
        runs = [self._together(stage) for _ in range(PROFILED)]
        return median(sum(one.outcomes()["throughput"] for one in run.reached.values()) for run in runs)

    def _together(self, stage: Testbed) -> RunMeasurement:
        return stage.measured([party.name for party in stage.scene.parties], self.timing)


def _case(
    scene: PairScene,
    party: ScenePart,
    number: int,
    alone: Mapping[str, RunMeasurement],
    before: RunMeasurement,
    after: RunMeasurement,
    advice: Advice,
) -> CaseOutcome:
    minds = "latency" if party.max_latency_ratio is not None else "throughput"
    solo = alone[party.name]
    key = "latency_mean_ms" if minds == "latency" else "throughput"
    base, then, now = (run.reached[party.name].outcomes()[key] for run in (solo, before, after))
    effect = advice.effects[party.name]
    return CaseOutcome(
        scene.name,
        party.name,
        minds,
        number,
        base,
        then / base,
        now / base,
        effect.latency_ratio if minds == "latency" else effect.throughput_ratio,
        solo.disturbed or before.disturbed or after.disturbed,
    )
