"""Right-sizing: the size and cap that suit each instance, by its measured demand and the prediction for its host."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from advisor.domain import Band, ClassSizing, Host, Instance, Pinning, Usage, listed, time_part
from advisor.planning.cpu_demand import (
    MIN_WINDOWS,
    SATURATED,
    CpuPeaks,
    Measured,
    cpu_demand,
    demand_scaled,
    usable_cpus,
)
from advisor.planning.migration_order import NO_NAMES, FeasibilityChecker, HostViolations, InstanceChange, new_violation
from advisor.planning.plan_context import PlanContext
from advisor.prediction.active import band
from advisor.snapshot import ClusterSnapshot
from advisor.snapshot.layout import lay_out, promised_vcpus, room_own_of, shared_pcpus_of
from models.data.demand_classes import stem_of

# Thresholds: an instance that demands four fifths of its CPUs has room for peaks. Only one that demands less than half
# is made smaller, so that a suggested size is not revised by the next plan.
TARGET_USE, SHRINK_BELOW = 0.8, 0.5
# Windows are means: within one, work comes in bursts and waits where all CPUs are busy. Few CPUs must be busy less for
# the same wait (square-root staffing; Halfin and Whitt, Operations Research 29, 1981): with 0.7, at busy times about
# 37 % of what arrives waits, 1 vCPU is at most 50 % busy, 4 are 71 % and from 10 on TARGET_USE decides.
BURST_MARGIN = 0.7
# One that is measured by its latency waits less: with 1.4, at busy times about a tenth of what arrives waits.
LATENCY_MARGIN = 1.4
CAP_SHARES = (0.9, 0.75, 0.6, 0.5)  # caps relative to demand, tried in this order where a neighbour is below a limit
REPORTED_CHANGE = 0.005  # T/B: smaller changes are not reported
MAX_TURNS = 8  # passes over a host; of 965 synthetic hosts 20 took two and 3 took three
USAGE_BATCH = 256  # instances whose usage is read together, between two looks at the clock
MEMORY_STEP_MB = 256
NOTICED_SWAP = 0.05  # of its memory that is swapped out: less is not named
MOST_MEMORY_NOTES = 8
MAX_LOSS = 0.02  # T/B that an instance may lose when it is made smaller


@dataclass(frozen=True, slots=True)
class SizingResult:
    """Changes of sizes and caps, notes, and what sizes save and risk by class.

    `of_all` = every instance was judged, so that no change means that all is fine; `in_time` = every host was examined.
    """

    changes: tuple[InstanceChange, ...]
    notes: tuple[str, ...]
    by_class: tuple[ClassSizing, ...]
    of_all: bool
    in_time: bool


@dataclass(frozen=True, slots=True)
class _SizeProposal:
    """A proposed size or cap; `must_gain` = accepted only if an instance gains."""

    then: Instance
    must_gain: bool = False
    may_lose: float = math.inf


def right_size(context: PlanContext, snapshot: ClusterSnapshot, measured: Measured) -> SizingResult:
    """Changes of sizes and caps after which no instance newly violates a limit.

    Instances with too little measured are left alone, and so are those that use all they have. The same measurements on
    the changed cloud lead to no further change.
    """
    batches, usage = _pieces(snapshot.residents), dict[str, Usage]()
    sizing = _Sizing(
        context, snapshot, FeasibilityChecker(snapshot, context.chosen.predictor, context.request.keep_ratio)
    )
    changes: list[InstanceChange] = []
    peaks: dict[str, CpuPeaks] = {}
    unknown, full, unseen = 0, [], 0
    memory: list[str] = []
    for number, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        if context.left_s <= 0:
            unseen = len(snapshot.hosts) - number
            break
        context.say(f"sizing on {host.id}", number / len(snapshot.hosts))
        if number in batches:
            usage = dict(measured(batches[number]))
        demands: dict[str, CpuPeaks] = {}
        for instance in residents:
            demand = cpu_demand(snapshot, host, instance, usage.get(instance.id))
            if demand is None:
                unknown += 1
            elif instance.id in snapshot.names.placed:
                demands[instance.id] = demand
                memory += memory_notes(instance, usage.get(instance.id))
                full += [instance.id] if SATURATED * instance.vcpus <= demand.p95 <= instance.vcpus else []
        changes += sizing.of_host(number, demands)
        peaks |= demands
    notes = []
    if unknown:
        skipped_text = "1 instance is" if unknown == 1 else f"{unknown} instances are"
        they_ask = "it asks" if unknown == 1 else "they ask"
        notes.append(
            f"{skipped_text} left out: too little is known of how much CPU {they_ask} for. A mean of its demand is "
            "enough; its p95 or an hour of an agent is better."
        )
    if by_mean := sum(demand.from_mean for demand in peaks.values()):
        known = "1 instance is" if by_mean == 1 else f"{by_mean:,} instances are"
        notes.append(
            f"{known} known by a mean only: a size counts with the peaks that public traces show at the upper edge of "
            "such a mean, and none is made larger."
        )
    notes += memory[:MOST_MEMORY_NOTES]
    if len(memory) > MOST_MEMORY_NOTES:
        notes.append(f"{len(memory) - MOST_MEMORY_NOTES:,} more instances have more or less memory than suits them.")
    if full:
        use = "uses all of its" if len(full) == 1 else "use all of their"
        notes.append(f"{listed(sorted(full))} {use} vCPUs: how much more they would use is not known.")
    if unseen:
        notes.append(f"Time limit reached before {unseen} of {len(snapshot.hosts)} hosts were looked at.")
    by_class = _by_class(changes, peaks)
    return SizingResult(tuple(changes), tuple(notes), by_class, of_all=not (unknown or unseen), in_time=not unseen)


def memory_notes(instance: Instance, used: Usage | None) -> Iterator[str]:
    """Which size of memory would suit an instance by what its agent measured, where that differs.

    It is no step: a running guest gets less memory only by a balloon, and more only where that was planned for.
    """
    if used is None or used.windows < MIN_WINDOWS or not instance.memory_mb:
        return
    if (used.swapped_mb or 0.0) >= NOTICED_SWAP * instance.memory_mb:
        yield (
            f"{instance.id} has {used.swapped_mb:,.0f} MB swapped out beside its {instance.memory_mb:,.0f} MB of "
            "memory: it needs more."
        )
    elif used.memory_mb is not None and used.memory_mb <= SHRINK_BELOW * instance.memory_mb:
        enough = MEMORY_STEP_MB * math.ceil(used.memory_mb / TARGET_USE / MEMORY_STEP_MB)
        if enough < instance.memory_mb:
            yield (
                f"{instance.id} held at most {used.memory_mb:,.0f} of its {instance.memory_mb:,.0f} MB of memory in "
                f"{used.windows:,} windows: {enough:,} MB are enough."
            )


def _by_class(changes: Sequence[InstanceChange], peaks: Mapping[str, CpuPeaks]) -> tuple[ClassSizing, ...]:
    """What new sizes save and risk, for each class of instances, those that save most first."""
    by_class: dict[str, list[tuple[Instance, Instance]]] = {}
    for change in changes:
        if change.former is not None and change.then.vcpus != change.former.vcpus:
            by_class.setdefault(class_of(change.then), []).append((change.former, change.then))
    rows = []
    for name, sized in by_class.items():
        short = {then.id: peaks[then.id].short(then.vcpus) for _, then in sized}
        riskiest = max(sorted(short), key=short.__getitem__)
        rows.append(
            ClassSizing(
                name,
                len(sized),
                sum(former.vcpus for former, _ in sized),
                sum(then.vcpus for _, then in sized),
                short[riskiest],
                sum(short.values()) / len(short),
                riskiest,
                max(peaks[then.id].p95 / then.vcpus for _, then in sized),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.saved, row.name)))


def class_of(instance: Instance) -> str:
    """What an instance is counted under: its label `class`, else its name without a number, else its workload."""
    return instance.labels.get("class") or stem_of(instance) or instance.workload or "others"


def _pieces(residents: Sequence[Sequence[Instance]]) -> dict[int, list[str]]:
    """Batches of instances whose usage is read together, by the position of their first host."""
    batches: dict[int, list[str]] = {}
    latest: list[str] = []
    for number, here in enumerate(residents):
        if not latest or len(latest) + len(here) > USAGE_BATCH:
            latest = batches[number] = []
        latest += [instance.id for instance in here]
    return batches


EvaluatedHost = tuple[HostViolations, dict[str, Band]]  # violations of a host, and T/B of every instance there


@dataclass(frozen=True, slots=True)
class _Sizing:
    context: PlanContext
    snapshot: ClusterSnapshot
    checker: FeasibilityChecker

    def of_host(self, number: int, demands: Mapping[str, CpuPeaks]) -> Iterator[InstanceChange]:
        """One host's changes in order, each described with the previous ones carried out.

        A change may no longer suit once others have changed, so the host is examined until nothing changes.
        """
        first = {instance.id: instance for instance in self.snapshot.residents[number]}
        then, done = dict(first), dict[str, None]()
        for _ in range(MAX_TURNS):
            changed = list(self._turn(number, then, demands))
            if not changed:
                break
            for name in changed:
                done.pop(name, None)  # the order follows the last change
                done[name] = None
        changes = [then[name] for name in done if then[name] != first[name]]
        states = self._one_by_one(number, first, changes)
        for instance, (was, had), (will, has) in zip(changes, states, states[1:], strict=False):
            reason = _reason(first[instance.id], instance, demands[instance.id], sorted(was.below - will.below))
            yield InstanceChange(instance, first[instance.id], _gain(had, has), f"{reason}; {_effects(had, has)}")

    def _turn(self, number: int, residents: dict[str, Instance], demands: Mapping[str, CpuPeaks]) -> Iterator[str]:
        """Apply suitable proposals to the residents, and one cap where an instance is below a limit.

        Yields the changed ids.
        """
        host = self.snapshot.hosts[number]
        proposals = (_proposal(host, residents[name], peaks) for name, peaks in sorted(demands.items()))
        pending = [proposal for proposal in proposals if proposal is not None]
        while pending:
            states = self._one_by_one(number, residents, [proposal.then for proposal in pending])
            granted = 0
            while granted < len(pending) and _granted(pending[granted], *states[granted : granted + 2]):
                residents[pending[granted].then.id] = pending[granted].then
                yield pending[granted].then.id
                granted += 1
            pending = pending[granted + 1 :]  # without the rejected proposal; the later ones are evaluated again
        below = self.checker.of([(number, tuple(residents.values()))])[0].below
        others = {name: peaks.p95 for name, peaks in demands.items() if name not in below and not peaks.from_mean}
        held = self._held_back(number, residents, others) if below else None
        if held is not None:
            residents[held.id] = held
            yield held.id

    def _one_by_one(
        self, number: int, residents: Mapping[str, Instance], changes: Sequence[Instance]
    ) -> list[EvaluatedHost]:
        """The host before these changes, and after each of them."""
        states = list(
            accumulate(
                changes,
                lambda residents_then, instance: {**residents_then, instance.id: instance},
                initial=dict(residents),
            )
        )
        all_states = [tuple(state.values()) for state in states]
        violations = self.checker.of([(number, state) for state in all_states])
        return list(zip(violations, self._ratios(number, all_states), strict=True))

    def _held_back(
        self, number: int, residents: Mapping[str, Instance], demands: Mapping[str, float]
    ) -> Instance | None:
        """The instance with the highest demand whose cap helps, with its mildest such cap; None where no cap helps.

        A cap helps if it brings neighbours back within a limit. The capped instance must keep the ratio required
        without a cap; otherwise its cap would lower its own limit.
        """
        keep = self.context.request.keep_ratio
        for name, cpus in sorted(demands.items(), key=lambda pair: (-pair[1], pair[0])):
            instance = residents[name]
            caps = [float(max(1, round(100 * share * min(cpus, usable_cpus(instance))))) for share in CAP_SHARES]
            capped = [replace(instance, settings=replace(instance.settings, cap_percent=cap)) for cap in caps]
            min_ratio = keep if instance.min_throughput_ratio is None else instance.min_throughput_ratio
            judged = [replace(option, min_throughput_ratio=min_ratio) for option in capped]
            states = [(number, tuple({**residents, name: option}.values())) for option in judged]
            was, *will = self.checker.of([(number, tuple(residents.values())), *states])
            for option, violations in zip(capped, will, strict=True):
                if violations.below < was.below:
                    return option
        return None

    def _ratios(self, number: int, states: Sequence[Sequence[Instance]]) -> list[dict[str, Band]]:
        scenes = self.snapshot.scenes
        hosts = [self.snapshot.hosts[number]] * len(states)
        rows = lay_out(hosts, states, scenes.table, scenes.driver_cpus.shape[1])
        throughput = self.context.chosen.predictor.predict(rows.scenes, ("throughput",)).throughput
        return [
            {instance.id: band(throughput, row, slot) for slot, instance in enumerate(residents)}
            for row, residents in enumerate(rows.residents)
        ]


def _granted(proposal: _SizeProposal, before: EvaluatedHost, after: EvaluatedHost) -> bool:
    """Whether a proposal violates nothing and is worth it."""
    (was, had), (will, has) = before, after
    if new_violation(will, was, NO_NAMES):
        return False
    own = has[proposal.then.id].expected - had[proposal.then.id].expected
    gained = max(has[name].expected - had[name].expected for name in has)
    return own >= -proposal.may_lose and not (proposal.must_gain and gained < REPORTED_CHANGE)


def enough_vcpus(peaks: CpuPeaks, *, latency: bool = False) -> int:
    """The fewest vCPUs with room for bursts at the p95, and for the p99 itself, so that it is short 1 % of the time.

    `latency` = it is its latency that counts, so bursts find more room.
    """
    with_bursts = peaks.p95 + (LATENCY_MARGIN if latency else BURST_MARGIN) * math.sqrt(peaks.p95)
    return max(1, math.ceil(max(peaks.p95 / TARGET_USE, with_bursts, peaks.p99) - 1e-9))


def _latency_counts(instance: Instance) -> bool:
    return instance.service == "latency" or instance.max_latency_ratio is not None


def _proposal(host: Host, instance: Instance, peaks: CpuPeaks) -> _SizeProposal | None:
    """What suits an instance by itself, None = no change; neighbours are checked by the caller."""
    cpus, vcpus = peaks.p95, enough_vcpus(peaks, latency=_latency_counts(instance))
    cap = instance.settings.cap_percent
    if not peaks.from_mean and cap is not None and cap < 100 * instance.vcpus and cpus > SATURATED * cap / 100:
        raised_cap = float(min(100 * instance.vcpus, math.ceil(100 * cpus / TARGET_USE)))
        return _SizeProposal(
            replace(instance, settings=replace(instance.settings, cap_percent=raised_cap)), must_gain=True
        )
    if vcpus < instance.vcpus and cpus <= SHRINK_BELOW * instance.vcpus:
        return _SizeProposal(_sized(instance, vcpus), may_lose=MAX_LOSS)
    if not peaks.from_mean and cpus > instance.vcpus and instance.settings.pinning is None:
        grown = _sized(instance, vcpus)
        fits = promised_vcpus(host, grown) <= shared_pcpus_of(host) and grown.dedicated_vcpus <= room_own_of(host)
        return _SizeProposal(grown) if fits else None
    return None


def _reason(former: Instance, then: Instance, peaks: CpuPeaks, helped: Sequence[str]) -> str:
    """Why an instance should change, by its demand; `helped` are the neighbours brought back within a limit."""
    why = peaks.source
    if then.vcpus < former.vcpus:
        why += f": {then.vcpus} of its {former.vcpus} vCPUs are enough"
        if not peaks.steady:
            why += f", at a risk of contention in {time_part(peaks.short(then.vcpus))} of the time"
    elif then.vcpus > former.vcpus:
        why += f" and has {former.vcpus} vCPU{'s' if former.vcpus > 1 else ''}: {then.vcpus} would do"
    was, cap = former.settings.cap_percent, then.settings.cap_percent
    if cap is not None and was is not None and cap > was:
        why += f", and its cap of {was:g} % holds it back: {cap:g} %"
    elif cap is not None and helped:
        why += f"; a cap of {cap:g} % brings {', '.join(helped)} back within its limit"
    return why


def _sized(instance: Instance, vcpus: int) -> Instance:
    """With so many vCPUs: all of them are dedicated where all were, else as many as were and remain."""
    own = min(instance.dedicated_vcpus, vcpus) if instance.shared_vcpus else vcpus
    pinning, cap = instance.settings.pinning, instance.settings.cap_percent
    remaining = None if pinning is None else Pinning(pinning.cpus[:vcpus])
    most = None if cap is None else min(cap, 100.0 * vcpus)
    settings = replace(instance.settings, pinning=remaining, cap_percent=most)
    return replace(
        instance, vcpus=vcpus, dedicated_vcpus=own, settings=settings, demand=demand_scaled(instance, 1.0, vcpus)
    )


def _gain(before: Mapping[str, Band], after: Mapping[str, Band]) -> Band:
    """The gain of the most affected on the host (T/B), between the extremes that the intervals allow."""
    was = min(before.values(), key=lambda band: band.expected)
    will = min(after.values(), key=lambda band: band.expected)
    return Band(will.expected - was.expected, will.lower - was.upper, will.upper - was.lower)


def _effects(before: Mapping[str, Band], after: Mapping[str, Band]) -> str:
    """The changed ratios in words, largest losses first."""
    moved = sorted((after[name].expected - before[name].expected, name) for name in after)
    texts = [
        f"{name} {100 * before[name].expected:.0f} -> {100 * after[name].expected:.0f} %"
        for change, name in moved
        if abs(change) >= REPORTED_CHANGE
    ]
    if not texts:
        return "no instance there gains or loses"
    return f"part of the uncontended speed: {listed(texts, 4)}"
