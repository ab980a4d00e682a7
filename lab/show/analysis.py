"""The analysis of a dataset for `cotenant-lab show`, computed once for the terminal, the page and --json."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.show.dataset import LabDataset, RunInfo
from lab.show.dataset_reader import read_dataset
from lab.show.group_prediction import GroupPredictions, compose
from lab.show.intervals import Replicates
from lab.show.noise import IntervalWidthCount, MarkedRuns, marks, narrowness, solo_noise
from lab.show.over_time import OutcomeHistories, over_time
from lab.show.pairs import FormResults, forms, pair_results
from lab.show.sweeps import FactorSweep, NetworkModes, modes, sweeps
from lab.statistics import Description, describe
from profiler.metrics import ANSWERED, artefact_of


@dataclass(frozen=True, slots=True)
class SoloOutcome:
    """An outcome of a workload alone, over rounds and places, as outcomes.csv holds it."""

    label: str
    outcome: str
    unit: str
    value: Description


@dataclass(frozen=True, slots=True)
class DatasetAnalysis:
    """The content of `cotenant-lab show`. `noise` describes solo throughput per workload and pinning over the rounds.

    `disturbed` counts disturbed runs, without calibrations; None where the dataset does not say. `artefacts` counts
    ratios that are faults of the measurement (profiler.metrics) by what they are: shown here, and not learned.
    """

    directory: str
    about: Mapping[str, str]
    repeats: int
    runs: int
    disturbed: int | None
    forms: Mapping[str, FormResults]
    noise: Mapping[str, Mapping[str, Description]]
    narrow: tuple[IntervalWidthCount, ...]
    marks: tuple[MarkedRuns, ...]
    artefacts: Mapping[str, int]
    marked: tuple[RunInfo, ...]
    sweeps: tuple[FactorSweep, ...]
    modes: tuple[NetworkModes, ...]
    composition: GroupPredictions
    courses: Mapping[str, OutcomeHistories]
    alone: tuple[SoloOutcome, ...]


def analyse(directory: Path, workloads: Collection[str] = (), form: str = "") -> DatasetAnalysis:
    """Read a dataset directory and compute everything; LabError names file, line and column of what is wrong there.

    `workloads` keeps only groups of these workloads, `form` only one pinning form.
    """
    dataset = read_dataset(directory).chosen(frozenset(workloads), form)
    replicates = Replicates(dataset)
    results = list(pair_results(dataset.groups, replicates))
    measured = [info for info in dataset.infos.values() if info.kind != "calibration"]
    return DatasetAnalysis(
        directory=dataset.directory,
        about=dataset.about,
        repeats=len({group.repeat for group in dataset.groups}),
        runs=len(measured) or len(dataset.groups),
        disturbed=sum(info.disturbed for info in measured) if dataset.infos else None,
        forms=forms(dataset.groups, results, replicates),
        noise=solo_noise(dataset.groups),
        narrow=narrowness(results),
        marks=marks(dataset, results),
        artefacts=_artefacts(dataset),
        marked=tuple(sorted((info for info in measured if info.disturbed or info.unsteady), key=lambda info: info.key)),
        sweeps=sweeps(results),
        modes=modes(dataset.groups),
        composition=compose(dataset.groups, results, replicates),
        courses=over_time(dataset, results),
        alone=_alone(dataset),
    )


def _artefacts(dataset: LabDataset) -> dict[str, int]:
    """Ratios of open loops of on/off runs, and those of other members with a fault; empty without on/off runs."""
    found: Counter[str] = Counter()
    for member in (member for group in dataset.groups for member in group.members):
        outcome = member.outcomes.get("throughput")
        if outcome is None or outcome.ratio_se is None or (ratio := outcome.ratio) is None:
            continue
        artefact = "open_loop" if outcome.unit == ANSWERED else artefact_of(ratio, outcome.ratio_se)
        found["fine" if artefact is None else artefact] += 1
    return dict(sorted(found.items()))


def _alone(dataset: LabDataset) -> tuple[SoloOutcome, ...]:
    solos = {key for key, info in dataset.infos.items() if info.kind == "solo"}
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in dataset.reached:
        if (row.run, row.repeat) in solos:
            values[row.instance.rpartition(".")[0] or row.workload, row.outcome, row.unit].append(row.value)
    return tuple(SoloOutcome(*name, describe(over_rounds)) for name, over_rounds in sorted(values.items()))
