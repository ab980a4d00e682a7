"""Losses of a placement by resource: the victim, the size of its loss, and the antagonist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import LONGEST_KNOWN_LATENCY, Instance, Reason, listed, short_of_cpu, speed
from advisor.explanation.candidate_arrays import CandidateArrays
from advisor.explanation.mechanisms import NAMES, ResourceDemand, SlowBy, demand_text, mechanism
from advisor.prediction.effects import cpu_time
from models.arrays import Floats
from models.data.scene import SETTING_FIELDS, SceneBatch, stack
from models.physics.cpu_speed import clock_speed, sibling_speed
from models.physics.demands import capacity, guessed
from models.physics.latency import flush_speed
from models.physics.prior import RESOURCES, PriorResult, solve
from models.prediction import rows_of

MIN_LOSS = 0.005  # log T/B; smaller losses are not reported
PAGE_EXCHANGE_CPUS = 0.005  # driver-domain CPUs above which an instance counts as exchanging pages
WORTH_NAMING = 0.005  # of the time that an instance is short of CPU more than before
LATE = 1.1  # latency ratio from which a latency instance is named
MAX_NAMED = 2  # resources named; a third one's share is always small


@dataclass(frozen=True, slots=True)
class ResourceLoss:
    """What one resource costs on one host.

    `share` is its part of all losses there (0-1); `victim` the slot that loses most by it; `antagonist` the slot that
    uses it most besides (None = no instance), with the demands of both in `asks`. `limit` is the ratio that the
    resource alone would allow the victim; `binding` whether no other resource allows it less; `slow_by` what costs it
    more than want of CPU time does: other vCPUs on the same cores, or the clock.
    """

    resource: str
    share: float
    victim: int
    antagonist: int | None
    limit: float
    binding: bool
    slow_by: SlowBy
    asks: tuple[ResourceDemand, ResourceDemand | None]


def losses(arrays: CandidateArrays) -> tuple[tuple[ResourceLoss, ...], ...]:
    """The losses on every host, the largest first.

    A loss is -log of the ratio that the resource alone allows, by the analytic model, relative to that without the
    new VM. Instances that lose nothing by the answer's own figures are not named.
    """
    solved = solve(stack([arrays.scenes, _absent(arrays)]))
    now, before = np.split(np.clip(solved.limits, 1e-3, 1.0), 2)
    before[:, -1] = 1.0
    cost = np.maximum(np.log(before / now), 0.0)
    wants = _asks(arrays, solved)
    slow_by = _slow_by(arrays, solved, now[:, :, RESOURCES.index("cpu")])
    return tuple(_of_host(arrays, at, cost[at], now[at], wants[at], slow_by[at]) for at in range(len(arrays.hosts)))


def _slow_by(arrays: CandidateArrays, solved: PriorResult, now: Floats) -> list[list[SlowBy]]:
    """What costs each instance more than want of CPU time, of which `now` (S, N) is what the CPU allows in all."""
    count = len(arrays.hosts)
    asked = np.minimum(solved.demands.cpu[:count], arrays.scenes.cap)
    siblings, clock = (speed(arrays.scenes, asked) for speed in (sibling_speed, clock_speed))
    flushes = flush_speed(arrays.scenes, rows_of(solved.demands, slice(count)))
    slowest = np.argmin([flushes, siblings, clock], axis=0)
    which = np.array(["flushes", "siblings", "clock"])[slowest]
    slow_by: list[list[SlowBy]] = np.where(now < solved.cpu.share[:count] ** 2, which, "").tolist()
    return slow_by


def _absent(arrays: CandidateArrays) -> SceneBatch:
    """The hosts without the new VM, with every instance's known settings."""
    fields = {name: getattr(arrays.scenes, name).copy() for name in ("present", *SETTING_FIELDS)}
    for at in range(len(arrays.hosts)):
        known = arrays.known(at)
        for slot in arrays.changed(at):
            for name, value in known[slot].items():
                fields[name][at, slot] = value
    fields["present"][:, -1] = False
    return replace(arrays.scenes, **fields)


def _asks(arrays: CandidateArrays, prior: PriorResult) -> Floats:
    """The demand of every instance on each of RESOURCES under its settings; (K, N, 5) in the units of
    ResourceDemand."""
    scenes, want, count = arrays.scenes, prior.demands, len(arrays.hosts)
    disk = np.broadcast_to(capacity(scenes, "disk_mb_s")[:, None], scenes.disk_limit.shape)
    most = np.divide(scenes.disk_limit, disk, out=np.full(disk.shape, np.inf), where=disk > 0)
    return np.stack(
        [
            np.minimum(want.cpu[:count], scenes.cap),
            want.driver[:count],
            np.minimum(want.net[:count], scenes.net_ceil),
            np.minimum(want.disk[:count], most),
            want.memory[:count],
        ],
        axis=2,
    )


def _of_host(
    arrays: CandidateArrays, at: int, cost: Floats, limits: Floats, wants: Floats, slow_by: Sequence[SlowBy]
) -> tuple[ResourceLoss, ...]:
    involved = arrays.involved(at)
    losers = [slot for slot in involved if arrays.kept(at, slot) < 1 - MIN_LOSS]
    if not losers:
        return ()
    sized_losses = []
    for number, resource in enumerate(RESOURCES):
        victim = min(losers, key=lambda slot: -round(cost[slot, number], 9))
        if cost[victim, number] <= MIN_LOSS:
            continue
        limit = float(limits[victim, number])
        slow: SlowBy = slow_by[victim] if resource == "cpu" else ""
        antagonist = _antagonist(arrays, at, number, victim, wants, involved, slow)
        binding = limit <= limits[victim].min() * (1 + 1e-6)
        pair = (
            ResourceDemand(involved[victim], float(wants[victim, number]), bool(wants[victim, 1] > PAGE_EXCHANGE_CPUS)),
            None
            if antagonist is None
            else ResourceDemand(
                involved[antagonist], float(wants[antagonist, number]), bool(wants[antagonist, 1] > PAGE_EXCHANGE_CPUS)
            ),
        )
        sized_losses.append(
            (float(cost[victim, number]), ResourceLoss(resource, 0.0, victim, antagonist, limit, binding, slow, pair))
        )
    total = sum(size for size, _ in sized_losses)
    return tuple(replace(loss, share=size / total) for size, loss in sorted(sized_losses, key=lambda pair: -pair[0]))


def _antagonist(
    arrays: CandidateArrays,
    at: int,
    number: int,
    victim: int,
    wants: Floats,
    involved: Mapping[int, Instance],
    slow_by: SlowBy,
) -> int | None:
    """The other slot with the largest demand; for CPU time only on shared CPUs. Of equals the new VM, then by id."""
    affinity, last = arrays.scenes.affinity[at], arrays.scenes.slots - 1
    others = [
        slot
        for slot in involved
        if slot != victim
        and wants[slot, number] > 0
        and (RESOURCES[number] != "cpu" or slow_by or (affinity[slot] & affinity[victim]).any())
    ]
    return min(others, key=lambda slot: (-round(wants[slot, number], 9), slot != last), default=None)


def sentences(arrays: CandidateArrays, at: int, host_losses: Sequence[ResourceLoss]) -> tuple[Reason, ...]:
    """The largest losses of one host as reasons, or one reason that there is none.

    The first also names a latency instance with a long response time and the most contended one, which throughput
    does not show.
    """
    first, *others = _of_throughput(arrays, at, host_losses)
    return (replace(first, text=first.text + _late(arrays, at) + _short(arrays, at)), *others)


def _of_throughput(arrays: CandidateArrays, at: int, host_losses: Sequence[ResourceLoss]) -> tuple[Reason, ...]:
    if not host_losses:
        worst = arrays.worst_off(at)
        if arrays.kept(at, worst) >= 1 - MIN_LOSS:
            return (Reason("none", 0.0, _nothing_lost(arrays, at)),)
        text = f"{_state(arrays, at, worst)}; the analytic model does not attribute the loss to a resource."
        return (Reason("unknown", 1.0, text, ratio=arrays.ratio(at, worst)),)
    reasons = []
    named: set[int] = set()
    for loss in host_losses[:MAX_NAMED]:
        victim, antagonist = loss.asks
        finding, because = "", "no neighbour competes for it"
        if loss.victim in arrays.changed(at):
            antagonist, because = None, "the settings that it gets here allow no more"
        own = arrays.scenes.own_cpus[at]
        if antagonist is None and loss.resource == "cpu" and own > 0:
            because = f"the host itself uses {own:.1f} CPUs"
        if antagonist is not None:
            finding, how = mechanism(loss.resource, arrays.hosts[at], victim, antagonist, loss.slow_by)
            got = " under the settings that it gets here" if loss.antagonist in arrays.changed(at) else ""
            because = f"{demand_text(loss.resource, antagonist)}{got}, and {how}{f' ({finding})' if finding else ''}"
        ratio = loss.limit
        text = f"The {NAMES[loss.resource]} alone would let {victim.instance.id} run at {speed(ratio)}: {because}."
        if loss.binding and loss.victim not in named:
            ratio = arrays.ratio(at, loss.victim)
            text = f"{_state(arrays, at, loss.victim)}, limited by the {NAMES[loss.resource]}: {because}."
        named.add(loss.victim)
        by = None if antagonist is None else antagonist.instance.id
        reasons.append(Reason(loss.resource, round(loss.share, 3), text, by, finding=finding, ratio=ratio))
    return tuple(reasons)


def _nothing_lost(arrays: CandidateArrays, at: int) -> str:
    involved, last = arrays.involved(at), arrays.scenes.slots - 1
    own = arrays.scenes.own_cpus[at]
    if len(involved) == 1 and own:
        return f"No contention is expected beside the {own:.1f} CPUs that the host uses itself."
    if len(involved) == 1:
        return "No contention is expected: it would be alone on this host."
    unprofiled = [slot for slot in involved if arrays.scenes.profile[at, slot] == 0]
    unknown = [involved[slot].id for slot in unprofiled if guessed(arrays.scenes)[at, slot]]
    slow = min(involved, key=lambda slot: round(arrays.ratio(at, slot), 9))
    if slow == last or arrays.ratio(at, slow) >= 1 - MIN_LOSS:
        if _late(arrays, at):
            return "No instance loses throughput."
        if unknown:
            return f"No contention is expected, but nothing is known of what runs in {listed(unknown)}."
        if unprofiled:
            names = listed([involved[slot].id for slot in unprofiled])
            return f"No contention is expected by the known demands; no profile describes what runs in {names}."
        return "No contention is expected: no instance uses what another one needs."
    return f"{involved[last].id} costs no instance throughput: {_state(arrays, at, slow)}."


def _late(arrays: CandidateArrays, at: int) -> str:
    """The latency instance with the longest response time in a sentence; "" where none is slow."""
    involved, band = arrays.involved(at), arrays.prediction.latency
    waiting = [
        slot
        for slot, instance in involved.items()
        if instance.service == "latency" and band.expected[at, slot] >= LATE and not arrays.overloaded(at, slot)
    ]
    if not waiting:
        return ""
    slot = min(waiting, key=lambda slot: -round(float(band.expected[at, slot]), 9))
    expected, low, high = (float(edge[at, slot]) for edge in (band.expected, band.lower, band.upper))
    is_known = high <= LONGEST_KNOWN_LATENCY
    edges = f"{low:.2f}-{high:.2f}" if is_known else f"{low:.2f} or more: how much more is not known"
    return f" {involved[slot].id} takes {expected:.2f} times as long to answer as alone ({edges})."


def _short(arrays: CandidateArrays, at: int) -> str:
    """Whose contended time grows most, in a sentence, an overloaded instance first; "" where that of none does."""
    pressure, former = arrays.prediction.pressure, arrays.short_before
    if pressure is None or former is None:
        return ""
    more, involved = np.round(pressure.short[at] - former[at], 9), arrays.involved(at)
    overloaded = [slot for slot in involved if arrays.overloaded(at, slot)]
    named = overloaded or [slot for slot in involved if more[slot] >= WORTH_NAMING]
    if not named:
        return ""
    slot = max(named, key=lambda slot: more[slot])
    was = None if slot == arrays.scenes.slots - 1 else float(former[at, slot])
    return f" {short_of_cpu(involved[slot].id, cpu_time(pressure, at, slot, was))}"


def _state(arrays: CandidateArrays, at: int, slot: int) -> str:
    """At what part of its uncontended speed an instance runs, and ran without the new VM, in the answer's figures."""
    name, had = arrays.involved(at)[slot].id, float(arrays.before[at, slot])
    was = f" ({100 * had:.0f} % without {arrays.new_vm.id})" if slot != arrays.scenes.slots - 1 else ""
    return f"{name} runs at {speed(arrays.ratio(at, slot))}{was}"
