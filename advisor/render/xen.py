"""Settings → xl commands: vcpu-pin and the credit schedulers' weight and cap."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.domain import Command
from advisor.render.change import Phase, SettingsChange, Step, more, only_said, replaced
from advisor.render.names import domain_name

# `-c` exists in both (tools/xl/xl_sched.c), although xl(1) leaves it out for credit2; caps in credit2 since Xen 4.10.
SCHEDULERS = {"credit": "sched-credit", "credit2": "sched-credit2"}


def steps(change: SettingsChange, scheduler: str) -> Iterator[Step]:
    """What xl can do of a change; see `Phase` for the order."""
    name = domain_name(change.instance)
    for vcpu, now, then in change.moved_vcpus():
        pin = ("xl", "vcpu-pin", name, str(vcpu))
        yield Step(Phase.PIN, Command("xl", (*pin, change.cpu_list(then, "all")), (*pin, change.cpu_list(now, "all"))))
    yield from _scheduling(change, name, scheduler)
    if change.wanted.disk_limit_mb_s not in (None, change.current.disk_limit_mb_s):
        yield only_said("xl", f"xl cannot limit the disk throughput of {name}: Xen's block backend has no such setting")


def _scheduling(change: SettingsChange, name: str, scheduler: str) -> Iterator[Step]:
    now, then = cap(change, change.current.cap_percent), cap(change, change.wanted.cap_percent)
    new_cap = change.wanted.cap_percent is not None and now != then
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
