"""Co-locations that users posted as a correction of whatever model answers, in force with the next question."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

from advisor.domain import Candidate, Host, Instance, PostedColocation, listed
from advisor.prediction.active import PredictorProxy
from advisor.snapshot import ClusterSnapshot
from advisor.validation import misfit
from models.data.scene import INSTANCE, SceneBatch, build_batch
from models.data.window_dataset import PostedScene
from models.features.examples import measured
from models.learning.posted_results import PROBE, PostedResults, PostedRow, number_of, posted_row
from models.prediction import TARGETS, InterferencePrediction, Predictor
from profiler.observed import Colocation

log = logging.getLogger(__name__)
_GIVEN = tuple(one.name for one in fields(Instance) if one.name not in {"id", "host"})
_SCENES_AT_ONCE = 50_000  # scenes x slots x slots that are predicted at a time
_NAMED_HOSTS, _NAMED_PAIRS = 3, 2  # in a note


@dataclass(frozen=True, slots=True)
class PostedPredictor(PredictorProxy):
    """A predictor moved by posted `results`; `subjects` numbers the workloads and instances that occur in them."""

    results: PostedResults
    subjects: Mapping[str, int]

    def predict(self, scenes: SceneBatch, targets: Collection[str] = TARGETS) -> InterferencePrediction:
        prediction = self.predictor.predict(scenes, targets)
        moved = self.results.moved(scenes, prediction.throughput)
        return prediction if moved is prediction.throughput else replace(prediction, throughput=moved)


def posted_of(predictor: Predictor) -> PostedPredictor | None:
    """What was posted, however the predictor was wrapped since; None = nothing."""
    while not isinstance(predictor, PostedPredictor):
        if not isinstance(predictor, PredictorProxy):
            return None
        predictor = predictor.predictor
    return predictor


def unmoved(predictor: Predictor) -> Predictor:
    """The model alone, without what was posted."""
    posted = posted_of(predictor)
    return predictor if posted is None else posted.predictor


def moves_alike(one: Predictor, other: Predictor) -> bool:
    """Whether two predictors, of which the same model answers, are moved by the same results and as far."""
    first, second = posted_of(one), posted_of(other)
    if first is None or second is None:
        return first is second
    return first.subjects == second.subjects and first.results.is_like(second.results)


def subjects_of(posted: Iterable[PostedColocation], instances: Iterable[Instance]) -> dict[str, int]:
    """The workloads of co-located instances, or INSTANCE and the id of those without, with their numbers."""
    known = {instance.id: instance for instance in instances} if posted else {}
    found: dict[str, int] = {}
    for one in posted:
        for outcome in one.colocation.outcomes:
            there = outcome.instance
            workload = there.workload or getattr(known.get(there.id), "workload", None)
            name = workload or INSTANCE + there.id
            found[name] = number_of(name)
    return found


def with_posted(predictor: Predictor, posted: Sequence[PostedColocation], snapshot: ClusterSnapshot) -> Predictor:
    """The predictor moved by what was posted, the newest first; itself where nothing of it can be held against the
    hosts of this snapshot, which knows its subjects, and where the predictor fails."""
    try:
        results = PostedResults.of(_rows(predictor, posted, snapshot)) if posted else None
    except Exception:  # whoever asks falls back to the prior, and is answered
        log.exception("model %s said nothing about posted results", predictor.version)
        results = None
    if results is None:
        return predictor
    return PostedPredictor(predictor, results, snapshot.scenes.table.subjects)


def note_of(snapshot: ClusterSnapshot, new_vm: Instance, candidates: Sequence[Candidate], predictor: Predictor) -> str:
    """A sentence on which results moved what is said of the first candidates; empty = none did."""
    posted = posted_of(predictor)
    if posted is None:
        return ""
    table, parts = snapshot.scenes.table, []
    for candidate in candidates:
        at = snapshot.index(candidate.host)
        there = (new_vm, *(() if at is None else snapshot.residents[at]))
        names: dict[int, str] = {}
        for instance in there:
            names.setdefault(table.subject(instance), instance.id)
        names.pop(0, None)
        pairs = sorted(
            (-count, names[victim], listed(sorted(names[one] for one in beside)))
            for (victim, beside), count in posted.results.counts.items()
            if victim in names and beside <= names.keys()
        )[:_NAMED_PAIRS]
        if pairs:
            said = [
                f"{-count} measured result{'s' * (count != -1)} of {who} beside {whose}" for count, who, whose in pairs
            ]
            parts.append(f"{' and '.join(said)} on {candidate.host}")
    return f"Answers are moved by {'; by '.join(parts[:_NAMED_HOSTS])}." if parts else ""


def scenes_of(
    posted: Sequence[PostedColocation], snapshot: ClusterSnapshot
) -> list[tuple[PostedScene, tuple[str, ...]]]:
    """Posted co-locations by scene, as their hosts and instances are known now, each with its sender; those of hosts
    that are not there are left out, and so is what fits no more."""
    placed = snapshot.names.placed
    by_name = {host.platform: host for host in reversed(snapshot.hosts) if host.platform}
    by_name |= {host.id: host for host in snapshot.hosts}
    scenes: dict[str, tuple[Host, tuple[Instance, ...]]] = {}
    several: dict[str, list[PostedColocation]] = {}
    for one in posted:
        host = by_name.get(one.colocation.platform)
        if host is None:
            continue
        host, there = _scene(one.colocation, host, placed, snapshot)
        key = repr((host.id, host.driver_cpus, there))
        if key in scenes or (len(there) > 1 and misfit(host, there) is None):
            scenes[key] = host, there
            several.setdefault(key, []).append(one)
    return [
        (PostedScene(*scenes[key], tuple(one.colocation for one in these)), tuple(one.sender for one in these))
        for key, these in several.items()
    ]


def _rows(predictor: Predictor, posted: Sequence[PostedColocation], snapshot: ClusterSnapshot) -> list[PostedRow]:
    """Posted throughput ratios beside what the predictor expects in their scenes as they would be now."""
    rows: list[PostedRow] = []
    for scenes in _parts(scenes_of(posted, snapshot)):
        batch = build_batch([(one.host, one.instances) for one, _ in scenes], snapshot.scenes.table)
        expected = predictor.predict(batch, ("throughput",)).throughput.expected
        placed = snapshot.names.placed
        for scene, (one, senders) in enumerate(scenes):
            for colocation, sender in zip(one.colocations, senders, strict=True):
                reached = measured(colocation, "throughput")
                for slot, instance in enumerate(one.instances):
                    if instance.id in reached:
                        at = float(expected[scene, slot])
                        row = posted_row(batch, scene, slot, at, reached[instance.id], sender)
                        if colocation.probe:  # the scene has the probe where the instance is
                            itself = snapshot.scenes.table.subject(placed.get(instance.id, instance))
                            row = replace(row, victim=itself, apart=PROBE)
                        rows.append(row)
    return rows


def _scene(
    colocation: Colocation, host: Host, placed: Mapping[str, Instance], snapshot: ClusterSnapshot
) -> tuple[Host, tuple[Instance, ...]]:
    """The host and instances of a co-location; what was not said of an instance is as the inventory has it."""
    there: dict[str, Instance] = {}
    for outcome in colocation.outcomes:
        said, known = outcome.instance, placed.get(outcome.instance.id)
        if known is not None:
            usual = Instance(said.id)
            given = {name: getattr(said, name) for name in _GIVEN if getattr(said, name) != getattr(usual, name)}
            if colocation.probe and said.demand:
                known = replace(known, workload=None, demand={})
            if known.host != host.id:
                known = replace(known, settings=replace(known.settings, pinning=None))
            if "vcpus" in given and "dedicated_vcpus" not in given:
                given["dedicated_vcpus"] = min(known.dedicated_vcpus, said.vcpus)
            with suppress(ValueError):  # what was said contradicts what is known: it stands for itself
                said = replace(known, **given)
        there.setdefault(said.id, snapshot.with_class(said))
    if colocation.driver_cpus and not host.lacks(colocation.driver_cpus):
        host = replace(host, driver_cpus=colocation.driver_cpus)
    return host, tuple(there.values())


def _parts(scenes: list[tuple[PostedScene, tuple[str, ...]]]) -> Iterable[list[tuple[PostedScene, tuple[str, ...]]]]:
    """Scenes of about one size, as many as are predicted at a time."""
    waiting = sorted(scenes, key=lambda one: -len(one[0].instances))
    while waiting:
        most = max(_SCENES_AT_ONCE // len(waiting[0][0].instances) ** 2, 1)
        yield waiting[:most]
        waiting = waiting[most:]
