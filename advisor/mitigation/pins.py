"""The mitigation step that pins instances that have no pins, from one instance to every instance on the host."""

from __future__ import annotations

from dataclasses import replace

from advisor.domain import Pinning
from advisor.mitigation.limit_violation import LimitViolation
from advisor.mitigation.shared_host import Trial
from advisor.scheduling import pinning
from profiler.observed import format_cpus

MOST_NAMED = 2  # instances named that keep off the victim's CPUs


def pins(violation: LimitViolation) -> list[Trial]:
    """Pinnings of the antagonist, the victim, both, and every instance off the victim's CPUs.

    Existing pins stay: the new VM's was requested or is already the best of its options.
    """
    antagonist, victim = violation.antagonist, violation.victim
    if antagonist is None or violation.shared.host.pcpus < 2:
        return []
    others = [at for at in range(len(violation.shared.parties)) if at != victim and _free(violation, at)]
    groups_off = [[antagonist]] if antagonist in others else []
    if others and others != [antagonist]:
        groups_off.append(others)
    trials = [_pinned(violation, {antagonist: pin}, []) for pin in _pinning_choices(violation, antagonist)]
    for victim_pins in _pinning_choices(violation, victim):
        trials.append(_pinned(violation, {victim: victim_pins}, []))
        trials += [
            _pinned(violation, {victim: victim_pins}, off)
            for off in groups_off
            if _remaining_cpus(violation, victim_pins)
        ]
    existing = violation.settings(victim).pinning
    if existing is not None and _remaining_cpus(violation, existing):
        trials += [_pinned(violation, {}, off) for off in groups_off]
    return trials


def _free(violation: LimitViolation, at: int) -> bool:
    now = violation.settings(at).pinning
    return now is None or not any(now.cpus)


def _pinning_choices(violation: LimitViolation, at: int) -> list[Pinning]:
    """The pinnings worth predicting for one party beside the others; none if it is pinned."""
    if not _free(violation, at):
        return []
    party = replace(violation.party(at), settings=violation.settings(at))
    host, scene = violation.shared.host, violation.shared.scenes([violation.trial("", {})], without=party.id)
    options = [option for option in pinning.options(scene, party, [host]) if option.pins and option.usable[0]]
    return [pin for option in options if (pin := pinning.as_pinning(option, 0, party.vcpus, host)) is not None]


def _remaining_cpus(violation: LimitViolation, taken: Pinning) -> tuple[int, ...]:
    """CPUs of who is not pinned other than the taken ones and the driver domain's own; () = none."""
    if not taken.union:
        return ()
    left = set(violation.shared.host.shared_cpus) - taken.union
    return tuple(sorted(left - set(violation.shared.host.driver_cpus)))


def _pinned(violation: LimitViolation, pinned: dict[int, Pinning], off: list[int]) -> Trial:
    """A trial that pins some parties and keeps those in `off` away from the victim's CPUs."""
    texts = [f"pin {violation.party(at).id} to {_cpus(tuple(pin.union))}" for at, pin in pinned.items()]
    pinned = dict(pinned)
    if off and (victim_pins := pinned.get(violation.victim) or violation.settings(violation.victim).pinning):
        rest = _remaining_cpus(violation, victim_pins)
        pinned |= {at: Pinning.all_on(rest, violation.party(at).vcpus) for at in off}
        names = " and ".join(violation.party(at).id for at in off)
        texts.append(f"keep {names if len(off) <= MOST_NAMED else f'the {len(off)} others'} on {_cpus(rest)}")
    text = " and ".join(texts)
    new = {at: replace(violation.settings(at), pinning=pin) for at, pin in pinned.items()}
    return violation.trial(text[:1].upper() + text[1:], new)


def _cpus(cpus: tuple[int, ...]) -> str:
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
