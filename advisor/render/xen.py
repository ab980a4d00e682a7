"""Xen: settings as xl commands and as lines of a domain's configuration, migrations, vCPUs, and the pCPUs of Dom0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from advisor.domain import Command
from advisor.render.change import Phase, RenderOptions, SettingsChange, Step, more, only_said, policed, replaced
from advisor.render.names import address, domain_name, mac_address
from profiler.observed import Host, Instance, format_cpus

# `-c` exists in both (tools/xl/xl_sched.c), although xl(1) leaves it out for credit2; caps in credit2 since Xen 4.10.
SCHEDULERS = {"credit": "sched-credit", "credit2": "sched-credit2"}
VIF_INTERVAL = "20ms"  # xl's default of 50 ms lets bursts and stalls of that length through
# For all domains of a CPU pool: `-s`, then timeslice (ms) and ratelimit (µs); xl(1), sched_credit2.pandoc
HINTS = {
    "credit": "xl sched-credit -s -t 5 -r 500 (defaults: -t 30 -r 1000)",
    "credit2": "xl sched-credit2 -s -r 500 (default: -r 1000)",
}
DOM0 = "Domain-0"


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """What xl can do of a change; see `Phase` for the order."""
    name = domain_name(change.instance)
    for vcpu, now, then in change.moved_vcpus():
        pin = ("xl", "vcpu-pin", name, str(vcpu))
        yield Step(Phase.PIN, Command("xl", (*pin, change.cpu_list(then, "all")), (*pin, change.cpu_list(now, "all"))))
    yield from _scheduling(change, name, options.scheduler)
    if change.desired.disk_limit_mb_s not in (None, change.current.disk_limit_mb_s):
        yield only_said("xl", f"xl cannot limit the disk throughput of {name}: Xen's block backend has no such setting")


def _scheduling(change: SettingsChange, name: str, scheduler: str) -> Iterator[Step]:
    now, then = cap(change, change.current.cap_percent), cap(change, change.desired.cap_percent)
    new_cap = change.desired.cap_percent is not None and now != then
    weights = change.weights(lambda weight: weight)  # xl's own scale, 1-65535 (xl(1))
    command = SCHEDULERS.get(scheduler)
    if command is None:
        if new_cap or (weights and weights[0] != weights[1]):
            known = " and ".join(SCHEDULERS)
            yield only_said("xl", f"scheduler {scheduler} has neither weight nor cap in xl; {known} have")
        return
    if weights:
        yield from replaced(
            "xl",
            *weights,
            lambda weight: ("xl", command, "-d", name, "-w", str(weight)),
            loosens=weights[1] > weights[0],
        )
    if new_cap:
        yield from replaced(
            "xl",
            now,
            then,
            lambda limit: ("xl", command, "-d", name, "-c", str(limit)),
            loosens=more(now or None, then),
        )


def cap(change: SettingsChange, percent: float | None) -> int:
    """xl's cap: percent of one pCPU for the whole domain, 0 = none.

    libxl refuses more than 100 per vCPU (sched_credit_domain_set), and rounding to 0 would lift the cap.
    """
    return 0 if percent is None else min(max(1, round(percent)), 100 * change.instance.vcpus)


def interface(change: SettingsChange) -> None:
    """None: the rate of a vif cannot be changed while its domain runs."""
    del change


def definition(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """Lines for the domain's configuration (xl.cfg, xl-network-configuration), so that it starts with its settings."""
    desired, instance = change.desired, change.instance
    lines = []
    if desired.pinning is not None:
        allowed = [change.allowed(desired.pinning, vcpu) for vcpu in range(instance.vcpus)]
        lines.append("cpus = [" + ", ".join(f'"{format_cpus(cpus)}"' for cpus in allowed) + "]")
    if desired.weight is not None:
        lines.append(f"cpu_weight = {desired.weight}")
    if desired.cap_percent is not None:
        lines.append(f"cap = {cap(change, desired.cap_percent)}")
    limit, mac = policed(desired.network), mac_address(instance)
    if limit is not None:
        address = f"mac={mac}," if mac else ""
        lines.append(f'vif = ["{address}rate={limit.kbit_s}Kb/s@{VIF_INTERVAL}"] (beside what the line has)')
    if lines:
        note = "; a vif's rate cannot be changed while it runs, tc on the uplink can" if limit else ""
        yield only_said(
            "xl", f"to start with it, write into the configuration of {instance.id}: {'; '.join(lines)}{note}"
        )
    is_set = desired.weight or desired.cap_percent or desired.pinning
    if instance.service == "latency" and options.scheduler in HINTS and is_set:
        hint = HINTS[options.scheduler]
        yield only_said("xl", f"shorter slices answer sooner, for every domain of the pool: {hint}")


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a domain, started where it runs."""
    name = domain_name(instance)
    return Command("xl", ("xl", "migrate", name, address(target)), ("xl", "migrate", name, address(source)))


def set_vcpus(former: Instance, then: Instance) -> Command:
    """Another number of vCPUs, up to those of its configuration."""
    name = domain_name(then)
    argv, undo = (("xl", "vcpu-set", name, str(count)) for count in (then.vcpus, former.vcpus))
    return Command("xl", argv, undo, "more than its definition's most needs that changed and a restart")


def move_driver(
    host: Host, now: tuple[int, ...], then: tuple[int, ...], residents: Sequence[Instance]
) -> Iterator[Command]:
    """Dom0 gets as many vCPUs as pCPUs (N11 counts them so), at most those it was started with (`dom0_max_vcpus`)."""
    del residents
    everywhere = tuple(host.cpus)
    pin, count = _pinned(now, then, everywhere), _counted(len(now), len(then))
    if len(then) == len(now):
        yield pin
    else:
        yield from (count, pin) if len(then) < len(now) else (pin, count)


def weigh_driver(host: Host, then: int, scheduler: str) -> Iterator[Command]:
    """Another scheduler weight of Dom0; without argv where the scheduler has none."""
    command = SCHEDULERS.get(scheduler)
    if command is None:
        yield Command("xl", (), (), f"scheduler {scheduler} has no weight in xl; {' and '.join(SCHEDULERS)} have")
        return
    argv, undo = (("xl", command, "-d", DOM0, "-w", str(weight)) for weight in (then, host.driver_weight))
    yield Command("xl", argv, undo)


def _pinned(now: tuple[int, ...], then: tuple[int, ...], everywhere: tuple[int, ...]) -> Command:
    argv, undo = (
        ("xl", "vcpu-pin", DOM0, "all", "all" if some == everywhere else format_cpus(some)) for some in (then, now)
    )
    return Command("xl", argv, undo)


def _counted(now: int, then: int) -> Command:
    whose = "" if then > now else "its undo: "
    note = f"{whose}xl refuses more vCPUs than dom0_max_vcpus of the boot line"
    return Command("xl", ("xl", "vcpu-set", DOM0, str(then)), ("xl", "vcpu-set", DOM0, str(now)), note)
