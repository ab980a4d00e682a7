"""Repairs: which instances have to leave their hosts so that the rules hold again, and what each breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.domain import Host, Instance
from advisor.domain.rules import Violation, parted, rules_of, violations
from advisor.rounding import with_slack
from advisor.snapshot import ClusterSnapshot, promised_vcpus

Size = Callable[[Instance], float]


@dataclass(frozen=True, slots=True)
class Repair:
    """Ids of instances that leave their hosts, each with what it breaks there; and notes of what stays."""

    leaving: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def repair_of(snapshot: ClusterSnapshot, may_move: Callable[[Instance], bool]) -> Repair:
    """The fewest instances, the smallest of them first, whose leaving ends each violation.

    Of an affinity group on several hosts those leave that are not where most are. A violation that no instance which
    `may_move` can end is in the notes.
    """
    leaving: dict[str, str] = {}
    notes: list[str] = []
    found = parted(snapshot.hosts, snapshot.residents)
    by_id = {one.id: one for residents in snapshot.residents for one in residents}
    for violation in found:
        movers = [name for name in violation.instances if may_move(by_id[name])]
        leaving.update(dict.fromkeys(movers, violation.text))
        if len(movers) < len(violation.instances):
            notes.append(_stays(violation.text))
    for at, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        for violation in (*violations(host, residents), *crowded(snapshot, at)):
            here = [one for one in residents if one.id not in leaving]
            if violation.what not in {other.what for other in (*violations(host, here), *_crowded(snapshot, at, here))}:
                continue  # those that leave anyway end it
            choice = _fewest(host, here, violation, snapshot, at, may_move)
            leaving.update(dict.fromkeys(choice, violation.text))
            if not choice:
                notes.append(_stays(violation.text))
    return Repair(leaving, tuple(notes))


def crowded(snapshot: ClusterSnapshot, at: int) -> Iterator[Violation]:
    """Sizes of which a host promises more than it may, and an instance that shares its host against its will."""
    return _crowded(snapshot, at, snapshot.residents[at])


def every_violation(snapshot: ClusterSnapshot) -> Iterator[Violation]:
    """All rules and sizes of a cloud that do not hold."""
    for at, (host, residents) in enumerate(zip(snapshot.hosts, snapshot.residents, strict=True)):
        yield from violations(host, residents)
        yield from crowded(snapshot, at)
    yield from parted(snapshot.hosts, snapshot.residents)


def _crowded(snapshot: ClusterSnapshot, at: int, residents: Sequence[Instance]) -> Iterator[Violation]:
    host = snapshot.hosts[at]
    for what, (size, room) in _sizes(snapshot, at).items():
        used = sum(map(size, residents))
        if used > with_slack(room):
            text = f"{host.id} promises {used:,.0f} of {room:,.0f} {what}"
            yield Violation(host.id, f"size {what}", text, tuple(one.id for one in residents if size(one) > 0))
    alone = [one.id for one in residents if one.exclusive]
    if alone and len(residents) > 1:
        text = f"{host.id} has {alone[0]}, which requires the host for itself, and others"
        yield Violation(host.id, "exclusive", text, tuple(one.id for one in residents))


def _sizes(snapshot: ClusterSnapshot, at: int) -> dict[str, tuple[Size, float]]:
    host = snapshot.hosts[at]
    return {
        "vCPUs": (lambda one: promised_vcpus(host, one), float(snapshot.room_vcpus[at])),
        "MB of memory": (lambda one: one.ordinary_memory_mb, float(snapshot.room_memory_mb[at])),
        "GB of disk": (lambda one: one.disk_gb, float(snapshot.room_disk_gb[at])),
        "dedicated CPUs": (lambda one: float(one.dedicated_vcpus), float(snapshot.room_own[at])),
    }


def _fewest(
    host: Host,
    here: Sequence[Instance],
    violation: Violation,
    snapshot: ClusterSnapshot,
    at: int,
    may_move: Callable[[Instance], bool],
) -> list[str]:
    """Ids of the fewest movable instances without which this violation does not hold; none where no set of them ends
    it. One that suffices alone goes before several, the smallest first; of several the largest go first."""
    movable = [one for one in here if one.id in violation.instances and may_move(one)]

    def ends(gone: Sequence[Instance]) -> bool:
        left = [one for one in here if one not in gone]
        return violation.what not in {other.what for other in (*violations(host, left), *_crowded(snapshot, at, left))}

    by_memory = sorted(movable, key=lambda one: (one.memory_mb, one.vcpus, one.id))
    single = next((one for one in by_memory if ends([one])), None)
    if single is not None:
        return [single.id]
    gone: list[Instance] = []
    for one in _largest_first(violation, by_memory, snapshot, at):
        gone.append(one)
        if ends(gone):
            return [each.id for each in gone]
    return []


def _largest_first(
    violation: Violation, by_memory: Sequence[Instance], snapshot: ClusterSnapshot, at: int
) -> Sequence[Instance]:
    """Those that take most of what is short go first; where nothing is counted, the smallest."""
    kind, _, name = violation.what.partition(" ")
    if kind == "size":
        size, _ = _sizes(snapshot, at)[name]
    elif kind == "needs":

        def size(one: Instance) -> float:
            return rules_of(one).needs.get(name, 0.0)

    else:
        return by_memory
    return sorted(by_memory, key=lambda one: (-size(one), one.id))


def _stays(text: str) -> str:
    return f"{text}; no instance that may move can end that."
