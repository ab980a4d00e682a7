"""What a placement costs, resource by resource: who loses most by it, how much, and who presses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.domain import LONGEST_KNOWN_LATENCY, Instance, Reason
from advisor.explanation.candidate_arrays import SETTINGS, CandidateArrays
from advisor.explanation.mechanisms import NAMES, Press, asked, mechanism
from models.arrays import Floats
from models.data.scene import SceneBatch, stack
from models.physics.demands import capacity
from models.physics.prior import RESOURCES, PriorResult, solve

WORTH_NAMING = 0.005  # of log T/B; smaller losses are not worth a sentence
EXCHANGES = 0.005  # CPUs asked of the driver domain, over which somebody exchanges pages: every guest sends something
LATE = 1.1  # times as long to answer as alone, from which on a latency instance is named
MOST_NAMED = 2  # resources; the third one's part is small wherever there is one


@dataclass(frozen=True, slots=True)
class Loss:
    """What one resource costs on one host: `share` of all that is lost there (0-1), the slot that loses most by it and
    the one that presses on it hardest beside (None = nobody), with what each asks for. `limit` is how far the resource
    alone would let the victim go, `binding` whether no other one holds it back more."""

    resource: str
    share: float
    victim: int
    presser: int | None
    limit: float
    binding: bool
    asks: tuple[Press, Press | None]


def losses(shown: CandidateArrays) -> tuple[tuple[Loss, ...], ...]:
    """The losses on every host, the largest first.

    The loss by a resource is -log of how far it alone lets an instance go, by the queueing prior, over the same without
    the newcomer. Who loses nothing by the answer's own figures is not named.
    """
    both = solve(stack([shown.scenes, _absent(shown)]))
    now, before = np.split(np.clip(both.limits, 1e-3, 1.0), 2)
    before[:, -1] = 1.0
    cost = np.maximum(np.log(before / now), 0.0)
    wants = _asks(shown, both)
    return tuple(_of_host(shown, at, cost[at], now[at], wants[at]) for at in range(len(shown.hosts)))


def _absent(shown: CandidateArrays) -> SceneBatch:
    """The hosts without the newcomer, everybody under the settings known of it."""
    fields = {name: getattr(shown.scenes, name).copy() for name in ("present", *SETTINGS)}
    for at in range(len(shown.hosts)):
        for slot in shown.changed(at):
            for name, value in shown.known(at)[slot].items():
                fields[name][at, slot] = value
    fields["present"][:, -1] = False
    return replace(shown.scenes, **fields)


def _asks(shown: CandidateArrays, prior: PriorResult) -> Floats:
    """What everybody asks of each of RESOURCES at most under its settings; (K, N, 5) in the units of Press."""
    scenes, want, count = shown.scenes, prior.demands, len(shown.hosts)
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


def _of_host(shown: CandidateArrays, at: int, cost: Floats, limits: Floats, wants: Floats) -> tuple[Loss, ...]:
    there = shown.involved(at)
    suffering = [slot for slot in there if shown.kept(at, slot) < 1 - WORTH_NAMING]
    if not suffering:
        return ()
    found = []
    for number, resource in enumerate(RESOURCES):
        victim = min(suffering, key=lambda slot: -round(cost[slot, number], 9))
        if cost[victim, number] <= WORTH_NAMING:
            continue
        limit = float(limits[victim, number])
        presser = _presser(shown, at, number, victim, wants, there)
        binding = limit <= limits[victim].min() * (1 + 1e-6)
        pair = (
            Press(there[victim], float(wants[victim, number]), bool(wants[victim, 1] > EXCHANGES)),
            None
            if presser is None
            else Press(there[presser], float(wants[presser, number]), bool(wants[presser, 1] > EXCHANGES)),
        )
        found.append((float(cost[victim, number]), Loss(resource, 0.0, victim, presser, limit, binding, pair)))
    total = sum(size for size, _ in found)
    return tuple(replace(one, share=size / total) for size, one in sorted(found, key=lambda pair: -pair[0]))


def _presser(
    shown: CandidateArrays, at: int, number: int, victim: int, wants: Floats, there: Mapping[int, Instance]
) -> int | None:
    """Who else asks for most of the resource, on the victim's CPUs where it is the CPU; of equals the newcomer, for
    it is what changes, then the first by id."""
    affinity, last = shown.scenes.affinity[at], shown.scenes.slots - 1
    others = [
        slot
        for slot in there
        if slot != victim
        and wants[slot, number] > 0
        and (RESOURCES[number] != "cpu" or (affinity[slot] & affinity[victim]).any())
    ]
    return min(others, key=lambda slot: (-round(wants[slot, number], 9), slot != last), default=None)


def sentences(shown: CandidateArrays, at: int, found: Sequence[Loss]) -> tuple[Reason, ...]:
    """The largest losses of one host as reasons; where there is none, that is one. The first also tells which latency
    instance waits for long there, for nobody's throughput shows that."""
    first, *others = _of_throughput(shown, at, found)
    return (replace(first, text=first.text + _late(shown, at)), *others)


def _of_throughput(shown: CandidateArrays, at: int, found: Sequence[Loss]) -> tuple[Reason, ...]:
    if not found:
        worst = shown.worst_off(at)
        if shown.kept(at, worst) >= 1 - WORTH_NAMING:
            return (Reason("none", 0.0, _nothing_lost(shown, at)),)
        text = f"{_state(shown, at, worst)}; which resource costs that, the queueing prior cannot tell."
        return (Reason("unknown", 1.0, text, ratio=shown.ratio(at, worst)),)
    reasons = []
    told: set[int] = set()
    for one in found[:MOST_NAMED]:
        victim, presser = one.asks
        finding, because = "", "no neighbour presses on it"
        if one.victim in shown.changed(at):
            presser, because = None, "the settings that it gets here allow no more"
        if presser is not None:
            finding, how = mechanism(one.resource, shown.hosts[at], victim, presser)
            got = " under the settings that it gets here" if one.presser in shown.changed(at) else ""
            because = f"{asked(one.resource, presser)}{got}, and {how}{f' ({finding})' if finding else ''}"
        ratio = one.limit
        text = f"The {NAMES[one.resource]} alone would let {victim.instance.id} keep {ratio:.2f}: {because}."
        if one.binding and one.victim not in told:
            ratio = shown.ratio(at, one.victim)
            text = f"{_state(shown, at, one.victim)}, held back by the {NAMES[one.resource]}: {because}."
        told.add(one.victim)
        by = None if presser is None else presser.instance.id
        reasons.append(Reason(one.resource, round(one.share, 3), text, by, finding=finding, ratio=ratio))
    return tuple(reasons)


def _nothing_lost(shown: CandidateArrays, at: int) -> str:
    there, last = shown.involved(at), shown.scenes.slots - 1
    if len(there) == 1:
        return "No contention is expected: it would be alone on this host."
    unknown = [one.id for slot, one in there.items() if shown.scenes.profile[at, slot] == 0]
    slow = min(there, key=lambda slot: round(shown.ratio(at, slot), 9))
    if slow == last or shown.ratio(at, slow) >= 1 - WORTH_NAMING:
        if _late(shown, at):
            return "Nobody loses throughput."
        if unknown:
            return f"No contention is expected, but nothing is known of what runs in {', '.join(unknown)}."
        return "No contention is expected: no instance uses what another one needs."
    return f"{there[last].id} costs nobody throughput: {_state(shown, at, slow)}."


def _late(shown: CandidateArrays, at: int) -> str:
    """The latency instance that waits longest there as a sentence of its own; "" where none waits for long."""
    there, band = shown.involved(at), shown.prediction.latency
    waiting = [slot for slot, one in there.items() if one.service == "latency" and band.expected[at, slot] >= LATE]
    if not waiting:
        return ""
    slot = min(waiting, key=lambda slot: -round(float(band.expected[at, slot]), 9))
    told, low, high = (float(edge[at, slot]) for edge in (band.expected, band.lower, band.upper))
    is_known = high <= LONGEST_KNOWN_LATENCY
    edges = f"{low:.2f}-{high:.2f}" if is_known else f"{low:.2f} or more: how much more is not known"
    return f" {there[slot].id} takes {told:.2f} times as long to answer as alone ({edges})."


def _state(shown: CandidateArrays, at: int, slot: int) -> str:
    """What somebody keeps, and what it had, in the answer's own figures."""
    name, had = shown.involved(at)[slot].id, float(shown.before[at, slot])
    was = f" ({had:.2f} without {shown.newcomer.id})" if slot != shown.scenes.slots - 1 else ""
    return f"{name} keeps {shown.ratio(at, slot):.2f} of its own speed{was}"
