"""Losses of a placement by resource: the victim, the size of its loss, and the antagonist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from advisor.domain import (
    LONGEST_KNOWN_LATENCY,
    Headroom,
    Host,
    Instance,
    Objective,
    Reason,
    listed,
    short_of_cpu,
    speed,
)
from advisor.prediction.active import cpu_time
from advisor.scheduling.scoring import Scores
from models.arrays import Floats, Once
from models.data.scene import SETTING_FIELDS, SceneBatch, setting_values, stack
from models.physics.cpu_speed import clock_speed, sibling_speed
from models.physics.demands import capacity, guessed
from models.physics.latency import flush_speed
from models.physics.prior import RESOURCES, PriorResult, solve
from models.prediction import InterferencePrediction, Predictor, rows_of
from profiler.host_kinds import TRAITS

# CandidateArrays: the candidates of an answer as arrays, the only input of an explanation.


@dataclass(frozen=True, slots=True)
class CandidateArrays:
    """The K best candidates of an answer, best first, and at least two where there are two.

    `residents[k]` are on `hosts[k]`, each in slot `slots[k][i]` of scene k; the new VM, as requested, is in the last
    slot with the settings chosen for it. `prediction` and `scores` belong to `scenes`; `before` (K, N) is expected T/B
    without the new VM, 1 for the new VM. `beside` are instances that must be on the host: counterfactuals never
    remove them. `headroom` is what would be left on each host, `reserved` what was taken off each
    score because others will want the place. `short_before` (K, N) is for which
    part of the time each was short of CPU without the new VM, None = not known. `home` is the host that it is on.
    `solved` is what the analytic model found of the hosts without the new VM and then with it, where the prediction
    has just been made of that.
    """

    hosts: tuple[Host, ...]
    residents: tuple[tuple[Instance, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    new_vm: Instance
    scenes: SceneBatch
    prediction: InterferencePrediction
    before: Floats
    scores: Scores
    objective: Objective
    predictor: Predictor
    beside: tuple[str, ...] = ()
    headroom: tuple[Headroom, ...] = ()
    reserved: tuple[float, ...] = ()
    short_before: Floats | None = None
    home: str | None = None
    solved: PriorResult | None = None
    once: Once = field(default_factory=Once, init=False, repr=False, compare=False)

    def involved(self, at: int) -> Mapping[int, Instance]:
        """The instances of scene `at` by slot: the new VM, then residents by id.

        Of equals the first is named, so that the text does not depend on the new VM's name.
        """
        return self.once(f"involved {at}", lambda: self._involved(at))

    def _involved(self, at: int) -> Mapping[int, Instance]:
        residents = sorted(zip(self.slots[at], self.residents[at], strict=True), key=lambda pair: pair[1].id)
        return {self.scenes.slots - 1: self.new_vm, **dict(residents)}

    def ratio(self, at: int, slot: int) -> float:
        """The expected T/B in the answer."""
        return float(self.prediction.throughput.expected[at, slot])

    def overloaded(self, at: int, slot: int) -> bool:
        """Whether more work arrives for an instance at its busy times than it is served then."""
        return self.prediction.pressure is not None and bool(self.prediction.pressure.overloaded[at, slot])

    def kept(self, at: int, slot: int) -> float:
        """Expected T/B over that without the new VM."""
        return self.ratio(at, slot) / float(self.before[at, slot])

    def known(self, at: int) -> Mapping[int, Mapping[str, float]]:
        """Known cap, weight, network class and disk limit of every instance, without those that mitigation sets."""
        return self.once(f"known {at}", lambda: self._known(at))

    def _known(self, at: int) -> Mapping[int, Mapping[str, float]]:
        return {
            slot: {name: float(value) for name, value in setting_values(instance).items()}
            for slot, instance in self.involved(at).items()
        }

    def changed(self, at: int) -> frozenset[int]:
        """The slots whose settings mitigation changes."""
        return self.once(f"changed {at}", lambda: self._changed(at))

    def _changed(self, at: int) -> frozenset[int]:
        return frozenset(
            slot
            for slot, values in self.known(at).items()
            if any(getattr(self.scenes, name)[at, slot] != value for name, value in values.items())
        )

    def worst_off(self, at: int) -> int:
        """The slot that keeps least; of equals the first."""
        return min(self.involved(at), key=lambda slot: round(self.kept(at, slot), 9))


# The five resources in words: names, demands, and the finding with the mechanism.

SlowBy = Literal["", "siblings", "clock", "flushes"]  # what slows a CPU beside want of its time
NAMES = {
    "cpu": "CPU",
    "driver_domain": "driver domain",
    "nic": "network link",
    "disk": "disk",
    "memory": "memory bandwidth",
}

BULK = 0.5  # share of the link; two such demands are the papers' network-bound pairs


@dataclass(frozen=True, slots=True)
class ResourceDemand:
    """The demand of an instance on a resource: CPUs, Mbit/s, or a share of the disk or of the memory bandwidth.

    `pages` = it exchanges pages through the driver domain.
    """

    instance: Instance
    amount: float
    pages: bool


def demand_text(resource: str, press: ResourceDemand) -> str:
    """The demand in the unit of the resource."""
    if resource in {"cpu", "driver_domain"}:
        return f"{press.instance.id} asks for {press.amount:.2f} CPUs of it"
    if resource == "nic":
        return f"{press.instance.id} asks for {press.amount:.0f} Mbit/s of it"
    return f"{press.instance.id} asks for {press.amount:.0%} of it"


def mechanism(
    resource: str, host: Host, victim: ResourceDemand, presses: ResourceDemand, slow_by: SlowBy
) -> tuple[str, str]:
    """The finding that shows the same effect ("" = none) and the mechanism in words."""
    if resource == "cpu" and slow_by == "clock":
        return "", "the clock is lower while more cores are busy"
    if resource == "cpu" and slow_by == "flushes":
        return "", "each write that it waits for comes back at the next tick of the busy CPU's clock"
    if resource == "cpu" and slow_by:
        return "", "their vCPUs run on two threads of one core"
    if resource == "cpu":
        if victim.pages and presses.pages:
            return "N5", "both exchange pages and wait for one CPU"
        return "L8", "both take turns on the same CPUs"
    if resource == "driver_domain":
        if TRAITS[host.kind].driver_servers == 1:
            return "N9", "one driver domain moves the pages of all instances"
        return "C4", "vhost and emulator threads move the packets of all instances"
    if resource == "nic":
        if victim.instance.service == "latency":
            return "L9", "its packets wait behind what others send"
        fill = min(victim.amount, presses.amount) >= BULK * (host.nic_mbit or np.inf)
        return ("N6", "both fill one link") if fill else ("", "both use one link")
    if resource == "disk":
        return "L6", "the disk serves all instances in turn"
    return "", "all instances stream from the same memory"


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
    solved = arrays.solved or solve(stack([_absent(arrays), arrays.scenes]))
    before, now = np.split(np.clip(solved.limits, 1e-3, 1.0), 2)
    before[:, -1] = 1.0
    cost = np.maximum(np.log(before / now), 0.0)
    wants = _asks(arrays, solved)
    slow_by = _slow_by(arrays, solved, now[:, :, RESOURCES.index("cpu")])
    return tuple(_of_host(arrays, at, cost[at], now[at], wants[at], slow_by[at]) for at in range(len(arrays.hosts)))


def _slow_by(arrays: CandidateArrays, solved: PriorResult, now: Floats) -> list[list[SlowBy]]:
    """What costs each instance more than want of CPU time, of which `now` (S, N) is what the CPU allows in all."""
    count = len(arrays.hosts)
    asked = np.minimum(solved.demands.cpu[count:], arrays.scenes.cap)
    siblings, clock = (speed(arrays.scenes, asked) for speed in (sibling_speed, clock_speed))
    flushes = flush_speed(arrays.scenes, rows_of(solved.demands, slice(count, None)))
    slowest = np.argmin([flushes, siblings, clock], axis=0)
    which = np.array(["flushes", "siblings", "clock"])[slowest]
    slow_by: list[list[SlowBy]] = np.where(now < solved.cpu.share[count:] ** 2, which, "").tolist()
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
    scenes, want = arrays.scenes, rows_of(prior.demands, slice(len(arrays.hosts), None))
    disk = np.broadcast_to(capacity(scenes, "disk_mb_s")[:, None], scenes.disk_limit.shape)
    most = np.divide(scenes.disk_limit, disk, out=np.full(disk.shape, np.inf), where=disk > 0)
    return np.stack(
        [
            np.minimum(want.cpu, scenes.cap),
            want.driver,
            np.minimum(want.net, scenes.net_ceil),
            np.minimum(want.disk, most),
            want.memory,
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
    unsaid = guessed(arrays.scenes)[at]
    unknown = [involved[slot].id for slot in unprofiled if unsaid[slot]]
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
