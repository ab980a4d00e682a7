"""The best hosts of an answer as candidates: with the chosen settings, effects, reasons, ties and commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import explanation, render
from advisor.domain import (
    Band,
    Candidate,
    Command,
    Effect,
    Host,
    Instance,
    IsolationSettings,
    MitigationStep,
)
from advisor.errors import InvalidInput
from advisor.explanation import CandidateArrays
from advisor.placement.host_classes import Question, base_with, first_of_each, keys, with_newcomer
from advisor.prediction.cache import PredictionCache
from advisor.scheduling import pinning, scoring
from advisor.scheduling.newcomer import latency_limits_of, limits_of, used_share
from advisor.snapshot import fingerprints
from advisor.store import codec
from models.arrays import Floats
from models.data.scene import SceneBatch, slot_values, stack
from models.prediction import TARGETS, InterferencePrediction
from models.prediction import BandArrays as Bands

EDGES = ("expected", "lower", "upper")


@dataclass(frozen=True, slots=True)
class RankedHost:
    """A host in the order of an answer: its position in the snapshot, the option chosen there, and the steps of the
    isolation ladder that mended it, if it had to be mended. `expected` and `half_width` as in Scores."""

    host: int
    option: str
    score: float
    expected: float
    half_width: float
    rungs: tuple[MitigationStep, ...] = ()

    @property
    def changes(self) -> Mapping[str, IsolationSettings]:
        """Settings that the mending gives to instances, by id."""
        return self.rungs[-1].changes if self.rungs else {}

    @property
    def driver_cpus(self) -> tuple[int, ...] | None:
        """Where the mending lets the driver domain run, None = where it does."""
        return self.rungs[-1].driver_cpus if self.rungs else None

    def tied(self, other: RankedHost) -> bool:
        """Whether the difference of both lies inside their uncertainty."""
        return scoring.tied(self.expected - other.expected, self.half_width, other.half_width)


@dataclass(frozen=True, slots=True)
class Placed:
    """K hosts with the newcomer on each as it was chosen: `newcomers` (K,) with their pinning, `scenes` with it in the
    last slot, `absent` the same hosts without it, `slots[k]` of `residents[k]`."""

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    newcomers: tuple[Instance, ...]
    scenes: SceneBatch
    absent: SceneBatch


def place(question: Question, hosts: Sequence[int], options: Sequence[str]) -> Placed:
    """Put the newcomer on the hosts at these positions, pinned by the options of these names."""
    snapshot, asked = question.snapshot, question.request.instance
    at = np.array(hosts, dtype=np.int64)
    base, absent = base_with(question, at)
    by_name = {option.name: option for option in pinning.options(base, asked)}
    affinity = np.stack([by_name[name].affinity[row] for row, name in enumerate(options)])
    scenes = with_newcomer(absent, replace(by_name[options[0]], affinity=affinity))
    slots = tuple(tuple(np.flatnonzero(there).tolist()) for there in base.present)
    pins = [pinning.as_pinning(by_name[name], row, asked.vcpus) for row, name in enumerate(options)]
    return Placed(
        hosts=tuple(snapshot.hosts[host] for host in hosts),
        residents=tuple(
            tuple(snapshot.residents[host][slot] for slot in there) for host, there in zip(hosts, slots, strict=True)
        ),
        slots=slots,
        newcomers=tuple(replace(asked, settings=replace(asked.settings, pinning=one)) for one in pins),
        scenes=scenes,
        absent=absent,
    )


def candidates(
    question: Question, standings: Sequence[RankedHost], remembered: PredictionCache
) -> tuple[Candidate, ...]:
    """The best of the hosts in order, as many as are asked for; the others are there to be compared with."""
    shown = standings[: max(question.request.limit, 2)]  # the first is compared with the second
    key = _about(question, shown)
    known = remembered.told.find(key)
    if known is None:
        known = _told(question, shown, remembered)
        remembered.told.keep(key, known)
    name = {one.host: question.snapshot.hosts[one.host].id for one in standings}
    return tuple(
        replace(
            candidate, tied_with=tuple(name[other.host] for other in standings if other is not one and one.tied(other))
        )
        for candidate, one in zip(known, shown, strict=False)  # of the second only the first's comparison may be told
    )


def _about(question: Question, shown: Sequence[RankedHost]) -> bytes:
    """All that is told of K hosts depends on this, but for their ties; a digest, for a request may name many hosts."""
    snapshot, at = question.snapshot, [one.host for one in shown]
    there = tuple((snapshot.hosts[host], snapshot.residents[host]) for host in at)
    said = codec.text((question.request, there, tuple(one.rungs for one in shown)))
    return fingerprints.digest(_keys(question, shown), said)


def _told(question: Question, shown: Sequence[RankedHost], remembered: PredictionCache) -> tuple[Candidate, ...]:
    request = question.request
    placed = place(question, [one.host for one in shown], [one.option for one in shown])
    scenes = with_changes(question, placed, shown)
    before, after = _predicted(question, placed, scenes, shown, remembered)
    for row, one in enumerate(shown):
        if one.rungs:
            told(after, row, one.rungs[-1].effects, seats(placed, row))
    occupied = placed.absent.present
    former = np.where(occupied, before.throughput.expected, 1.0)
    at = np.array([one.host for one in shown], dtype=np.int64)
    scores = scoring.score(
        after,
        scenes.present,
        former,
        limits_of(question.snapshot, at, request.instance, scenes.slots),
        used_share(question.snapshot, request, at),
        request.objective,
        scoring.Waiting(
            latency_limits_of(question.snapshot, at, request.instance, scenes.slots),
            np.where(occupied, before.latency.expected, 1.0),
        ),
    )
    settings = _settings(shown, placed)
    why = (
        explanation.explain(
            CandidateArrays(
                hosts=placed.hosts,
                residents=placed.residents,
                slots=placed.slots,
                newcomer=request.instance,
                scenes=scenes,
                prediction=after,
                before=former,
                scores=scores,
                objective=request.objective,
                predictor=question.predictor,
                beside=request.constraints.affinity,
            )
        )
        if request.explain
        else ((),) * len(shown)
    )
    return tuple(
        Candidate(
            rank=row + 1,
            host=placed.hosts[row].id,
            score=float(scores.score[row]),
            combined_score=float(scores.combined[row]),
            pinning=settings[row].pinning,
            isolation=settings[row],
            newcomer=_effect(request.instance.id, after, row, -1),
            neighbours=tuple(
                _effect(resident.id, after, row, slot, _band(before.throughput, row, slot))
                for resident, slot in sorted(
                    zip(placed.residents[row], placed.slots[row], strict=True), key=lambda pair: pair[0].id
                )
            ),
            reasons=why[row],
            commands=_commands(question, placed, row, settings[row], one) if request.commands else (),
            rungs=one.rungs,
            changes={who: what for who, what in one.changes.items() if who != request.instance.id},
        )
        for row, one in enumerate(shown[: request.limit])
    )


def with_changes(question: Question, placed: Placed, shown: Sequence[RankedHost]) -> SceneBatch:
    """The scenes of K hosts after what mended them: settings of instances, and where the driver domain runs."""
    scenes = placed.scenes
    if not any(one.rungs for one in shown):
        return scenes
    driver = scenes.driver_cpus.copy()
    width = driver.shape[1]
    parts = {key: getattr(scenes, key).copy() for key in slot_values(question.request.instance, 0, width, width)}
    for row, mended in enumerate(shown):
        if mended.driver_cpus is not None:
            driver[row] = np.isin(np.arange(width), mended.driver_cpus)
        everybody = zip((*placed.residents[row], placed.newcomers[row]), (*placed.slots[row], -1), strict=True)
        for one, slot in everybody:
            if one.id in mended.changes:
                changed = replace(one, settings=mended.changes[one.id])
                profile = int(scenes.profile[row, slot])
                for key, value in slot_values(changed, profile, placed.hosts[row].pcpus, width).items():
                    parts[key][row, slot] = value
    return replace(scenes, **parts, driver_cpus=driver)


def seats(placed: Placed, row: int) -> dict[str, int]:
    """The slot of everybody on one of K hosts, by id."""
    found = {one.id: slot for one, slot in zip(placed.residents[row], placed.slots[row], strict=True)}
    return {**found, placed.newcomers[row].id: -1}


def told(prediction: InterferencePrediction, row: int, effects: Sequence[Effect], slots: Mapping[str, int]) -> None:
    """Write what was predicted for everybody of one scene into the arrays of a prediction."""
    for effect in effects:
        slot = slots[effect.instance]
        for bands, one in (
            (prediction.throughput, effect.throughput_ratio),
            (prediction.latency, effect.latency_ratio),
            (prediction.jitter, effect.jitter_ratio),
        ):
            if one is not None:
                bands.expected[row, slot], bands.lower[row, slot] = one.expected, one.lower
                bands.upper[row, slot] = one.upper


def _settings(shown: Sequence[RankedHost], placed: Placed) -> list[IsolationSettings]:
    """What the newcomer gets on each host: what mended it, else its pinning."""
    return [one.changes.get(who.id, who.settings) for one, who in zip(shown, placed.newcomers, strict=True)]


def _commands(
    question: Question, placed: Placed, row: int, settings: IsolationSettings, one: RankedHost
) -> tuple[Command, ...]:
    newcomer = question.request.instance
    changes = {who: what for who, what in one.changes.items() if who != newcomer.id}
    host, residents = placed.hosts[row], placed.residents[row]
    try:
        return render.plan(host, newcomer, settings, residents, changes, driver_cpus=one.driver_cpus)
    except InvalidInput as error:  # a name or a label on this host; the other candidates have their commands
        return (render.refused(host, error.message),)


def _predicted(
    question: Question, placed: Placed, scenes: SceneBatch, shown: Sequence[RankedHost], remembered: PredictionCache
) -> tuple[InterferencePrediction, InterferencePrediction]:
    """Everything about K hosts, without the newcomer and with it, asked where it is not remembered."""
    told_of = _keys(question, shown)
    known, values = remembered.shown.find(told_of, (2, scenes.slots, len(TARGETS) * len(EDGES) + 1))
    new = first_of_each(told_of, known)
    if len(new.first):
        said = question.predictor.predict(stack([placed.absent.take(new.first), scenes.take(new.first)]))
        bands = [getattr(getattr(said, target), edge) for target in TARGETS for edge in EDGES]
        both = np.stack([*bands, said.outside.astype(np.float64)], axis=2)
        values[new.first] = np.stack([both[: len(new.first)], both[len(new.first) :]], axis=1)
        remembered.shown.keep([told_of[row] for row in new.first.tolist()], values[new.first])
        values[new.rows] = values[new.like]
    return _unpacked(values[:, 0]), _unpacked(values[:, 1])


def _keys(question: Question, shown: Sequence[RankedHost]) -> tuple[bytes, ...]:
    """What a prediction about each of K hosts depends on, as the newcomer is placed there."""
    _, who = keys(question, np.array([one.host for one in shown], dtype=np.int64), TARGETS)
    return tuple(
        key + fingerprints.digest(one.option, one.changes, one.driver_cpus) for key, one in zip(who, shown, strict=True)
    )


def _unpacked(values: Floats) -> InterferencePrediction:
    """A prediction whose bands may be written to, of (K, N, edges of the bands and whether it lies outside)."""
    throughput, latency, jitter = (
        Bands(*(values[:, :, first + edge].copy() for edge in range(len(EDGES))))
        for first in range(0, len(TARGETS) * len(EDGES), len(EDGES))
    )
    return InterferencePrediction(throughput, latency, jitter, values[:, :, -1] > 0)


def _effect(name: str, prediction: InterferencePrediction, row: int, slot: int, before: Band | None = None) -> Effect:
    return Effect(
        instance=name,
        throughput_ratio=_band(prediction.throughput, row, slot),
        latency_ratio=_band(prediction.latency, row, slot),
        jitter_ratio=_band(prediction.jitter, row, slot),
        before=before,
        outside_training=bool(prediction.outside[row, slot]),
    )


def _band(bands: Bands, row: int, slot: int) -> Band:
    return Band(float(bands.expected[row, slot]), float(bands.lower[row, slot]), float(bands.upper[row, slot]))


def scene_effects(prediction: InterferencePrediction, names: Sequence[str]) -> tuple[Effect, ...]:
    """What is predicted for everybody of a batch's only scene, in the order of its slots."""
    return tuple(_effect(name, prediction, 0, slot) for slot, name in enumerate(names))
