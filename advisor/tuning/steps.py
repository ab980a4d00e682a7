"""The changes of a tuning as steps: in words, and as commands with their undo."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from advisor.domain import Command, Effect, Host, Instance, IsolationSettings, TuningStep
from advisor.errors import InvalidInput
from advisor.render import commands, whole
from advisor.render.migrations import explicit
from advisor.render.names import target_of
from advisor.tuning.host import TunedChange
from profiler.observed import DEFAULT_WEIGHT, format_cpus

MOST_NAMED = 3  # instances that a step's reason names


def steps_of(
    host: Host, residents: Sequence[Instance], changes: Sequence[TunedChange], *, commanded: bool
) -> Iterator[TuningStep]:
    """The changes of a host that stands as `host` with its `residents`, in their order; commands where `commanded`."""
    there = {resident.id: resident for resident in residents}
    for change in changes:
        rendered, notes = _rendered(host, there, change) if commanded else ((), ())
        driven = change.then is None
        yield TuningStep(
            instance=change.then.id if change.then else "",
            why=_why(host, change, there),
            settings=change.then.settings if change.then else None,
            driver_cpus=driver_cpus(change.host) if driven else (),
            driver_weight=driver_weight(change.host, host) if driven else None,
            effects=change.effects,
            commands=rendered,
            notes=notes,
        )
        host = change.host
        if change.then is not None:
            there[change.then.id] = change.then


def driver_cpus(host: Host) -> tuple[int, ...]:
    """The pCPUs of its driver domain."""
    return host.driver_cpus or host.shared_cpus or tuple(host.cpus)


def driver_weight(host: Host, former: Host) -> int | None:
    """The weight of its driver domain, None where it is as it was."""
    return host.driver_weight if host.driver_weight != former.driver_weight else None


def _rendered(
    host: Host, there: Mapping[str, Instance], change: TunedChange
) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Commands of one change on a host as it is before it, and notes about missing ones."""
    try:
        if change.then is None or change.former is None:
            rendered = tuple(_driver_commands(host, there, change.host))
        else:
            beside = [one for name, one in sorted(there.items()) if name != change.then.id]
            desired = explicit(change.former, change.then)
            rendered = commands(host, change.then, change.former.settings, desired, neighbours=beside)
    except InvalidInput as error:
        return (), (error.message,)
    return rendered, tuple(command.note for command in rendered if not command.argv and command.note)


def _driver_commands(host: Host, there: Mapping[str, Instance], then: Host) -> Iterator[Command]:
    target = target_of(host, None)
    yield from whole.driver_commands(host, driver_cpus(then), [there[name] for name in sorted(there)], target)
    yield from whole.weigh_driver(host, then.driver_weight, target)


def _why(host: Host, change: TunedChange, there: Mapping[str, Instance]) -> str:
    """What changes, and its effects."""
    minding = {name for name, one in there.items() if one.service == "latency"}
    return ": ".join(filter(None, (", ".join(_what(host, change)), _effects(change.effects, minding))))


def _what(host: Host, change: TunedChange) -> Iterator[str]:
    if change.then is None or change.former is None:
        if host.driver_cpus != change.host.driver_cpus:
            cpus = change.host.driver_cpus
            yield f"keeps to CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}" if cpus else "may use any CPU"
        if host.driver_weight != change.host.driver_weight:
            yield f"gets the weight {change.host.driver_weight}"
        return
    now, then = change.former.settings, change.then.settings
    if now.pinning is not None and now.pinning.named and then.pinning is None:
        yield f"gives up its pins to CPU{'s' if len(now.pinning.named) > 1 else ''} {format_cpus(now.pinning.named)}"
    yield from _set(now, then)


def _set(now: IsolationSettings, then: IsolationSettings) -> Iterator[str]:
    if then.pinning is not None and then.pinning != now.pinning:
        cpus = then.pinning.named
        yield f"keeps to CPU{'s' if len(cpus) > 1 else ''} {format_cpus(cpus)}"
    if then.weight != now.weight:
        yield f"weighs {(then.weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT:g} times the default"
    if then.cap_percent != now.cap_percent and then.cap_percent is not None:
        held = now.cap_percent
        yield (
            f"uses at most {then.cap_percent:g} % of a CPU"
            if held is None or then.cap_percent < held
            else f"may use {then.cap_percent:g} % of a CPU, its cap was {held:g} % and may be what its owner pays for"
        )
    if then.network != now.network and then.network is not None and then.network.rate_mbit is not None:
        yield f"gets a {then.network.mode} traffic class of {then.network.rate_mbit:g} Mbit/s"
    if then.disk_limit_mb_s != now.disk_limit_mb_s and then.disk_limit_mb_s is not None:
        yield f"moves at most {then.disk_limit_mb_s:g} MB/s on its disk"


def _effects(effects: Sequence[Effect], minding: Collection[str]) -> str:
    """The effects that a change changes most, from what to what, with the latency of who is `minding` it."""
    known = [(one, one.before) for one in effects if one.before is not None]
    known.sort(key=lambda pair: -abs(pair[0].throughput_ratio.expected - pair[1].expected))
    named = [
        f"{one.instance} {before.expected:.2f} -> {one.throughput_ratio.expected:.2f}"
        + (
            f" (latency {one.latency_ratio.expected:.2f} times)"
            if one.instance in minding and not one.overloaded
            else ""
        )
        for one, before in known[:MOST_NAMED]
    ]
    more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
    return ", ".join(named) + more
