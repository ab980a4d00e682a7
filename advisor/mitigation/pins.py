"""The rung of the ladder that says which CPUs: pins for who has none, from one party to everybody on the host."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Pinning
from advisor.mitigation.limit_violation import Standing
from advisor.mitigation.shared_host import Trial
from advisor.scheduling import pinning
from profiler.observed import format_cpus

MOST_NAMED = 2  # of those who keep off the sufferer's CPUs


def pins(standing: Standing) -> list[Trial]:
    """Ways to pin who is not pinned yet: the culprit, the sufferer, both, and everybody off the sufferer's CPUs.

    Pins that exist stay as they are: the newcomer's was asked for, or is the best of its options already.
    """
    culprit, sufferer = standing.culprit, standing.sufferer
    if culprit is None or standing.shared.host.pcpus < 2:
        return []
    others = [at for at in range(len(standing.shared.parties)) if at != sufferer and _free(standing, at)]
    away = [[culprit]] if culprit in others else []
    if others and others != [culprit]:
        away.append(others)
    found = [_pinned(standing, {culprit: pin}, []) for pin in _ways(standing, culprit)]
    for own in _ways(standing, sufferer):
        found.append(_pinned(standing, {sufferer: own}, []))
        found += [_pinned(standing, {sufferer: own}, off) for off in away if _rest(standing, own)]
    now = standing.settings(sufferer).pinning
    if now is not None and _rest(standing, now):
        found += [_pinned(standing, {}, off) for off in away]
    return found


def _free(standing: Standing, at: int) -> bool:
    now = standing.settings(at).pinning
    return now is None or not any(now.cpus)


def _ways(standing: Standing, at: int) -> list[Pinning]:
    """The pinnings worth asking about for one party beside all the others; none for who is pinned."""
    if not _free(standing, at):
        return []
    party = replace(standing.party(at), settings=standing.settings(at))
    scene = standing.shared.scenes([standing.trial("", {})], without=party.id)
    options = [one for one in pinning.options(scene, party) if one.pins and one.usable[0]]
    return [pin for one in options if (pin := pinning.as_pinning(one, 0, party.vcpus)) is not None]


def _rest(standing: Standing, taken: Pinning) -> tuple[int, ...]:
    """CPUs beside those that are taken and the driver domain's own; () = none."""
    if not taken.union:
        return ()
    left = set(range(standing.shared.host.pcpus)) - taken.union
    return tuple(sorted(left - set(standing.shared.host.driver_cpus)))


def _pinned(standing: Standing, pinned: dict[int, Pinning], off: list[int]) -> Trial:
    """Pin some parties, and keep those in `off` away from the sufferer's CPUs."""
    says = [f"pin {standing.party(at).id} to {_cpus(tuple(pin.union))}" for at, pin in pinned.items()]
    pinned = dict(pinned)
    if off and (own := pinned.get(standing.sufferer) or standing.settings(standing.sufferer).pinning):
        rest = _rest(standing, own)
        pinned |= {at: Pinning.all_on(rest, standing.party(at).vcpus) for at in off}
        names = " and ".join(standing.party(at).id for at in off)
        says.append(f"keep {names if len(off) <= MOST_NAMED else f'the {len(off)} others'} on {_cpus(rest)}")
    text = " and ".join(says)
    new = {at: replace(standing.settings(at), pinning=pin) for at, pin in pinned.items()}
    return standing.trial(text[:1].upper() + text[1:], new)


def _cpus(cpus: tuple[int, ...]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
