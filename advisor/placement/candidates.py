"""Builds the candidates of an answer: chosen settings, effects, reasons, ties and commands of the best hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import explanation, render
from advisor.domain import (
    Calibration,
    Candidate,
    Command,
    CpuTime,
    Effect,
    Headroom,
    Host,
    Instance,
    IsolationSettings,
    MitigationStep,
    codec,
)
from advisor.errors import InvalidInput
from advisor.explanation import CandidateArrays
from advisor.placement.host_classes import (
    PlacementQuestion,
    base_with,
    first_of_each,
    keys,
    no_better,
    options_on,
    with_new_vm,
)
from advisor.prediction.active import PredictionCache, crowded, effect
from advisor.render import migrations
from advisor.scheduling import pinning, scoring
from advisor.scheduling.pinning import latency_limits_of, limits_of, short_limits_of, used_share
from advisor.snapshot import ClusterSnapshot, layout
from models.arrays import Bools, Floats
from models.data.scene import SLOT_FIELDS, SceneBatch, affinity_on, slot_values, stack
from models.physics.prior import PriorResult
from models.prediction import TARGETS, Basis, CpuPressure, InterferencePrediction, Predictor
from models.prediction import BandArrays as Bands

EDGES = ("expected", "lower", "upper")
OF_BASIS = ("support", "correction", "similar", "machines", "measured")  # of a Basis
OF_CPUS = ("share", "worst", "short", "overloaded", "crowded")  # of a CpuPressure


@dataclass(frozen=True, slots=True)
class RankedHost:
    """A ranked host: its position in the snapshot, the chosen option, and the mitigation steps if it needed any.

    `expected` and `half_width` are as in Scores. `lowest` is the lowest expected T/B of any instance there, `speed`
    that of the new VM's answers, 1 / expected latency ratio, nan where it is not sensitive to latency. `reserved` is
    what was taken off the score because others will want the place.
    """

    host: int
    option: str
    score: float
    expected: float
    half_width: float
    lowest: float
    speed: float
    headroom: Headroom
    steps: tuple[MitigationStep, ...] = ()
    reserved: float = 0.0

    @property
    def changes(self) -> Mapping[str, IsolationSettings]:
        """Settings that mitigation gives to instances, by id."""
        return self.steps[-1].changes if self.steps else {}

    @property
    def driver_cpus(self) -> tuple[int, ...] | None:
        """The driver domain's CPUs after mitigation, None = unchanged."""
        return self.steps[-1].driver_cpus if self.steps else None


@dataclass(frozen=True, slots=True)
class PlacedNewVm:
    """K hosts with the new VM placed on each.

    `new_vms` (K,) have their chosen pinning; `scenes` have the new VM in the last slot and `absent` are the same
    hosts without it; `slots[k]` are the slots of `residents[k]`.
    """

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    new_vms: tuple[Instance, ...]
    scenes: SceneBatch
    absent: SceneBatch


def place(question: PlacementQuestion, hosts: Sequence[int], options: Sequence[str]) -> PlacedNewVm:
    """Place the new VM on the hosts at these positions, pinned by the options with these names."""
    snapshot, new_vm = question.snapshot, question.request.instance
    at = np.array(hosts, dtype=np.int64)
    base, absent = base_with(question, at)
    there = tuple(snapshot.hosts[host] for host in hosts)
    by_name = {option.name: option for option in options_on(question, at, base)}
    affinity = np.stack([by_name[name].affinity[row] for row, name in enumerate(options)])
    scenes = with_new_vm(absent, replace(by_name[options[0]], affinity=affinity))
    slots = tuple(tuple(np.flatnonzero(occupied).tolist()) for occupied in base.present)
    pins = [pinning.as_pinning(by_name[name], row, new_vm.vcpus, there[row]) for row, name in enumerate(options)]
    return PlacedNewVm(
        hosts=there,
        residents=tuple(
            tuple(snapshot.residents[host][slot] for slot in occupied)
            for host, occupied in zip(hosts, slots, strict=True)
        ),
        slots=slots,
        new_vms=tuple(replace(new_vm, settings=replace(new_vm.settings, pinning=pin)) for pin in pins),
        scenes=scenes,
        absent=absent,
    )


def candidates(
    question: PlacementQuestion, ranked_hosts: Sequence[RankedHost], remembered: PredictionCache
) -> tuple[Candidate, ...]:
    """As many of the best hosts as requested; the others are only compared with."""
    # The first is compared with the second even if only one is requested.
    shown = ranked_hosts[: max(question.request.limit, 2)]
    key = _cache_key(question, shown)
    known = remembered.candidates.find(key)
    if known is None:
        known = _build_candidates(question, shown, remembered)
        remembered.candidates.keep(key, known)
    names = [question.snapshot.hosts[ranked.host].id for ranked in ranked_hosts]
    ties = _ties(shown, ranked_hosts)
    return tuple(
        replace(candidate, tied_with=tuple(names[other] for other in np.flatnonzero(tied).tolist()))
        for candidate, tied in zip(known, ties, strict=False)  # the second may serve only for comparison
    )


def _ties(shown: Sequence[RankedHost], ranked_hosts: Sequence[RankedHost]) -> Bools:
    """Which others of R hosts each of the first S is tied with, (S, R): the difference lies within both uncertainties,
    and no instance there or here is visibly worse off; as `scoring.tied` and `scoring.alike`."""
    figures = np.array([(host.expected, host.half_width, host.lowest, host.speed) for host in ranked_hosts]).T
    (here, half), (there, other_half) = figures[:2, : len(shown), None], figures[:2, None]
    tied: Bools = np.abs(here - there).round(9) <= np.hypot(half, other_half)
    for ratio in figures[2:]:
        tied &= ~(np.abs(ratio[: len(shown), None] - ratio) > scoring.NOTICED)
    np.fill_diagonal(tied, val=False)
    return tied


def _cache_key(question: PlacementQuestion, shown: Sequence[RankedHost]) -> bytes:
    """A digest of everything that the candidates depend on except their ties, because a request may name many hosts."""
    snapshot, positions = question.snapshot, [ranked.host for ranked in shown]
    hosts = tuple((snapshot.hosts[host], snapshot.residents[host]) for host in positions)
    text = codec.text((question.request, hosts, tuple((ranked.steps, ranked.reserved) for ranked in shown)))
    return layout.digest(_prediction_keys(question, shown), text)


def _build_candidates(
    question: PlacementQuestion, shown: Sequence[RankedHost], remembered: PredictionCache
) -> tuple[Candidate, ...]:
    request = question.request
    placed_new_vm = place(question, [ranked.host for ranked in shown], [ranked.option for ranked in shown])
    scenes = with_changes(placed_new_vm, shown)
    before, after, solved = _predicted(question, placed_new_vm, scenes, shown, remembered)
    _take_no_gains(before, after, [row for row, ranked in enumerate(shown) if not ranked.steps])
    for row, ranked in enumerate(shown):
        if ranked.steps:
            write_effects(after, row, ranked.steps[-1].effects, slots_by_id(placed_new_vm, row))
    occupied = placed_new_vm.absent.present
    ratios_before = np.where(occupied, before.throughput.expected, 1.0)
    positions = np.array([ranked.host for ranked in shown], dtype=np.int64)
    scores = scoring.score(
        after,
        scenes.present,
        ratios_before,
        limits_of(question.snapshot, positions, request.instance, scenes.slots),
        used_share(question.snapshot, request, positions),
        request.objective,
        scoring.ceilings(
            after,
            before,
            occupied,
            latency_limits_of(question.snapshot, positions, request.instance, scenes.slots),
            short_limits_of(question.snapshot, positions, request.instance, scenes.slots),
        ),
        np.where(occupied, before.throughput.expected - before.throughput.lower, 0.0),
        scoring.more_short(after.time_short(), np.where(occupied, before.time_short(), 0.0), scenes.profiled),
    ).less(np.array([ranked.reserved for ranked in shown]))
    settings = _settings(shown, placed_new_vm)
    stands = question.snapshot.names.placed.get(request.instance.id)
    trained = _left_out(question.predictor, scenes)
    hosts: int | None = getattr(question.predictor, "hosts_of_windows", None)
    guessed = question.predictor.origin == "analytic"
    reasons = (
        explanation.explain(
            CandidateArrays(
                hosts=placed_new_vm.hosts,
                residents=placed_new_vm.residents,
                slots=placed_new_vm.slots,
                new_vm=request.instance,
                scenes=scenes,
                prediction=after,
                before=ratios_before,
                scores=scores,
                objective=request.objective,
                predictor=question.predictor,
                beside=request.constraints.affinity,
                headroom=tuple(ranked.headroom for ranked in shown),
                reserved=tuple(ranked.reserved for ranked in shown),
                short_before=None if before.pressure is None else np.where(occupied, before.pressure.short, 0.0),
                home=None if stands is None else stands.host,
                solved=solved,
            )
        )
        if request.explain
        else ((),) * len(shown)
    )
    return tuple(
        Candidate(
            rank=row + 1,
            host=placed_new_vm.hosts[row].id,
            score=float(scores.score[row]),
            combined_score=float(scores.combined[row]),
            pinning=settings[row].pinning,
            isolation=settings[row],
            new_vm=effect(request.instance.id, after, row, -1),
            neighbours=tuple(
                effect(resident.id, after, row, slot, before)
                for resident, slot in sorted(
                    zip(placed_new_vm.residents[row], placed_new_vm.slots[row], strict=True),
                    key=lambda pair: pair[0].id,
                )
            ),
            reasons=reasons[row],
            commands=placing_commands(
                question.snapshot,
                request.instance,
                placed_new_vm.hosts[row],
                placed_new_vm.residents[row],
                settings[row],
                _of_others(ranked, request.instance.id),
                ranked.driver_cpus,
            )
            if request.commands
            else (),
            mitigation=ranked.steps,
            changes=_of_others(ranked, request.instance.id),
            headroom=ranked.headroom,
            reserved=ranked.reserved,
            expected=float(scores.expected[row]),
            half_width=float(scores.half_width[row]),
            crowded=crowded(after, row),
            calibration="none" if guessed or after.outside[row, -1] else trained[row],
            calibration_hosts=hosts if trained[row] == "windows" else None,
        )
        for row, ranked in enumerate(shown[: request.limit])
    )


def _left_out(predictor: Predictor, scenes: SceneBatch) -> list[Calibration]:
    """What the training left out to calibrate the range of the new VM in each of K scenes: pairs, or windows of hosts
    where the share that was learned from windows answers."""
    of_windows = bool(getattr(predictor, "of_windows", False))
    return ["windows" if of_windows and known else "trained" for known in ~np.isnan(scenes.cpu_demand[:, -1, 0])]


def _take_no_gains(before: InterferencePrediction, after: InterferencePrediction, rows: Sequence[int]) -> None:
    """Leave no resident of these scenes better off than before; elsewhere, its changed settings may help it.

    The better edge of an interval stays, so that no interval becomes narrower.
    """
    for target in TARGETS:
        high = target != "throughput"
        for edge in ("expected", "upper" if high else "lower"):
            was, will = (getattr(getattr(prediction, target), edge) for prediction in (before, after))
            will[rows, :-1] = no_better(will[rows, :-1], was[rows, :-1], high=high)
    if before.pressure is None or after.pressure is None:
        return
    for name in ("share", "worst", "short"):
        was, will = (getattr(pressure, name) for pressure in (before.pressure, after.pressure))
        will[rows, :-1] = no_better(will[rows, :-1], was[rows, :-1], high=name == "short")


def with_changes(placed: PlacedNewVm, shown: Sequence[RankedHost]) -> SceneBatch:
    """The scenes of K hosts after mitigation: settings of instances, and the driver domain's CPUs."""
    scenes = placed.scenes
    if not any(ranked.steps for ranked in shown):
        return scenes
    driver = scenes.driver_cpus.copy()
    width = driver.shape[1]
    parts = {key: getattr(scenes, key).copy() for key in SLOT_FIELDS}
    for row, ranked_host in enumerate(shown):
        if ranked_host.driver_cpus is not None:
            driver[row] = np.isin(np.arange(width), placed.hosts[row].places(ranked_host.driver_cpus))
        with_slots = zip((*placed.residents[row], placed.new_vms[row]), (*placed.slots[row], -1), strict=True)
        for instance, slot in with_slots:
            if instance.id in ranked_host.changes:
                changed = replace(instance, settings=ranked_host.changes[instance.id])
                profile = int(scenes.profile[row, slot])
                affinity = affinity_on(placed.hosts[row], changed, width)
                subject = int(scenes.subject[row, slot])
                for key, value in slot_values(changed, profile, affinity, subject).items():
                    parts[key][row, slot] = value
    return replace(scenes, **parts, driver_cpus=driver)


def slots_by_id(placed: PlacedNewVm, row: int) -> dict[str, int]:
    """The slot of every instance on one of K hosts, by id."""
    slots = {resident.id: slot for resident, slot in zip(placed.residents[row], placed.slots[row], strict=True)}
    return {**slots, placed.new_vms[row].id: -1}


def write_effects(
    prediction: InterferencePrediction, row: int, effects: Sequence[Effect], slots: Mapping[str, int]
) -> None:
    """Write the effects on one scene into the arrays of a prediction."""
    for instance_effect in effects:
        slot = slots[instance_effect.instance]
        _write_cpu(prediction.pressure, row, slot, instance_effect.cpu)
        for bands, band in (
            (prediction.throughput, instance_effect.throughput_ratio),
            (prediction.latency, instance_effect.latency_ratio),
            (prediction.jitter, instance_effect.jitter_ratio),
        ):
            if band is not None:
                bands.expected[row, slot], bands.lower[row, slot] = band.expected, band.lower
                bands.upper[row, slot] = band.upper


def _write_cpu(pressure: CpuPressure | None, row: int, slot: int, cpu: CpuTime | None) -> None:
    if pressure is not None and cpu is not None:
        pressure.share[row, slot], pressure.worst[row, slot] = cpu.share, cpu.worst_share
        pressure.short[row, slot], pressure.overloaded[row, slot] = cpu.short, cpu.overloaded


def _settings(shown: Sequence[RankedHost], placed: PlacedNewVm) -> list[IsolationSettings]:
    """The new VM's settings on each host: by mitigation, else its pinning."""
    return [
        ranked.changes.get(new_vm.id, new_vm.settings) for ranked, new_vm in zip(shown, placed.new_vms, strict=True)
    ]


def _of_others(ranked: RankedHost, new_vm: str) -> dict[str, IsolationSettings]:
    """The settings that mitigation gives to residents, by id."""
    return {who: what for who, what in ranked.changes.items() if who != new_vm}


def placing_commands(
    snapshot: ClusterSnapshot, new_vm: Instance, host: Host, residents: Sequence[Instance],
    settings: IsolationSettings, changes: Mapping[str, IsolationSettings], driver_cpus: tuple[int, ...] | None,
) -> tuple[Command, ...]:  # fmt: skip
    """What brings the new VM, from where it stands in the snapshot, to a host with these residents, who get their
    `changes` before it comes."""
    former = snapshot.names.placed.get(new_vm.id)
    source = None if former is None else snapshot.index(former.host or "")
    try:
        if former is not None and source is not None:
            then = replace(new_vm, host=host.id, settings=settings)
            left = [other for other in snapshot.residents[source] if other.id != new_vm.id]
            return migrations.resettle(
                former, then, snapshot.hosts[source], host, left, residents, changes, driver_cpus
            )
        return render.plan(host, new_vm, settings, residents, changes, driver_cpus=driver_cpus)
    except InvalidInput as error:  # a name or a label on this host; the other candidates have their commands
        return (render.refused(host, error.message),)


def _predicted(
    question: PlacementQuestion,
    placed: PlacedNewVm,
    scenes: SceneBatch,
    shown: Sequence[RankedHost],
    remembered: PredictionCache,
) -> tuple[InterferencePrediction, InterferencePrediction, PriorResult | None]:
    """Full predictions for K hosts, without and with the new VM; only unknown ones are computed. Where all are, and no
    settings change, the last one is what the analytic model made them of, both one after the other."""
    keys_of_hosts = _prediction_keys(question, shown)
    columns = len(TARGETS) * len(EDGES) + 1 + len(OF_CPUS) + len(OF_BASIS)
    known, values = remembered.shown.find(keys_of_hosts, (2, scenes.slots, columns))
    unknown = first_of_each(keys_of_hosts, known)
    solved: object = None
    if len(unknown.first):
        prediction = question.predictor.predict(stack([placed.absent.take(unknown.first), scenes.take(unknown.first)]))
        stacked = _packed(prediction)
        values[unknown.first] = np.stack([stacked[: len(unknown.first)], stacked[len(unknown.first) :]], axis=1)
        remembered.shown.keep([keys_of_hosts[row] for row in unknown.first.tolist()], values[unknown.first])
        values[unknown.rows] = values[unknown.like]
        if len(unknown.first) == len(shown) and scenes is placed.scenes:
            solved = prediction.solved
    return _unpacked(values[:, 0]), _unpacked(values[:, 1]), solved if isinstance(solved, PriorResult) else None


def _prediction_keys(question: PlacementQuestion, shown: Sequence[RankedHost]) -> tuple[bytes, ...]:
    """What a prediction for each of K hosts depends on, with the new VM as placed there."""
    _, with_new_vm_keys = keys(question, np.array([ranked.host for ranked in shown], dtype=np.int64), TARGETS)
    return tuple(
        key + layout.digest(ranked.option, ranked.changes, ranked.driver_cpus)
        for key, ranked in zip(with_new_vm_keys, shown, strict=True)
    )


def _packed(prediction: InterferencePrediction) -> Floats:
    """What an answer shows of a prediction, nan where unknown: band edges, `outside`, OF_CPUS and OF_BASIS; (K, N,
    columns)."""
    bands = [getattr(getattr(prediction, target), edge) for target in TARGETS for edge in EDGES]
    shape, pressure = prediction.outside.shape, prediction.pressure
    cpus = [np.full(shape, np.nan)] * len(OF_CPUS)
    if pressure is not None:
        whole = np.broadcast_to(pressure.crowded[:, None], shape)
        cpus = [pressure.share, pressure.worst, pressure.short, pressure.overloaded.astype(np.float64), whole]
    known = prediction.basis
    basis = [np.full(shape, np.nan) if known is None else getattr(known, name) for name in OF_BASIS]
    return np.stack([*bands, prediction.outside.astype(np.float64), *cpus, *basis], axis=2)


def _unpacked(values: Floats) -> InterferencePrediction:
    """The inverse of `_packed`, writable."""
    columns = np.moveaxis(values, 2, 0).copy()
    edges = len(TARGETS) * len(EDGES)
    throughput, latency, jitter = (Bands(*columns[first : first + len(EDGES)]) for first in range(0, edges, len(EDGES)))
    share, worst, short, overloaded, whole, *basis = columns[edges + 1 :]
    known = not np.isnan(share).all()
    pressure = CpuPressure(share, worst, short, overloaded > 0, whole[:, 0]) if known else None
    learned = None if np.isnan(basis[0]).all() else Basis(*basis)
    return InterferencePrediction(throughput, latency, jitter, columns[edges] > 0, pressure, basis=learned)


def scene_effects(prediction: InterferencePrediction, names: Sequence[str]) -> tuple[Effect, ...]:
    """The effects on every instance in a batch's only scene, in slot order."""
    return tuple(effect(name, prediction, 0, slot) for slot, name in enumerate(names))
