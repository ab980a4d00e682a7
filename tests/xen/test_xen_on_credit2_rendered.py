"""Rendered xl commands in a real Dom0 under credit2: a cap measured, pins shown, undo compared, the hint accepted."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from advisor.domain import Command
from advisor.render import commands, plan
from advisor.render.xen import HINTS
from profiler.observed import Host, Instance, IsolationSettings, Pinning
from tests.xen.xen_lab import Lab
from tests.xen.xen_scene import Guest

SCHEDULER = "credit2"
pytestmark = [pytest.mark.xen, pytest.mark.timeout(1800)]

HOST = Host("xen-lab", "xen", pcpus=2, memory_mb=2048)
NOTHING = IsolationSettings()
SECOND = IsolationSettings(pinning=Pinning(((1,),)))  # where the lab's guests start


def do(lab: Lab, made: Sequence[Command]) -> None:
    for command in made:
        if command.argv:
            lab.dom0.run(list(command.argv)).checked()


def undo(lab: Lab, made: Sequence[Command]) -> None:
    for command in reversed(made):
        if command.undo:
            lab.dom0.run(list(command.undo)).checked()


def dump(lab: Lab) -> tuple[str, dict[tuple[str, str], str]]:
    """Weights and caps, and where each vCPU may run, as xl shows them."""
    pins = {}
    for line in lab.dom0.run(["xl", "vcpu-list"]).checked().text.splitlines()[1:]:
        name, _, vcpu, _, _, _, *affinity = line.split()
        pins[name, vcpu] = " ".join(affinity)
    return lab.dom0.run(["xl", "sched-credit2"]).checked().text, pins


def cpu_percent(lab: Lab, guest: Guest, seconds: float = 10.0) -> float:
    """What xl accounts to the guest, by Dom0's own clock."""
    first, since = _accounted(lab, guest)
    time.sleep(seconds)
    second, ended = _accounted(lab, guest)
    return 100 * (second - first) / (ended - since)


def _accounted(lab: Lab, guest: Guest) -> tuple[float, float]:
    uptime = lab.dom0.run(["cat", "/proc/uptime"]).checked().text
    listed = lab.dom0.run(["xl", "list", guest.name]).checked().text
    return float(listed.split()[-1]), float(uptime.split()[0])


@pytest.mark.measured
def test_a_rendered_cap_holds_and_undo_restores_what_xl_shows(lab: Lab, vm1: Guest) -> None:
    before = dump(lab)
    made = commands(HOST, Instance(vm1.name), NOTHING, IsolationSettings(cap_percent=40))
    with lab.spinning(vm1):
        do(lab, made)
        assert cpu_percent(lab, vm1) == pytest.approx(40, rel=0.05)
        undo(lab, made)
    assert dump(lab) == before


def test_a_whole_plan_moves_the_resident_first_and_undo_restores_both(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    free = commands(HOST, Instance(vm1.name), SECOND, IsolationSettings(pinning=Pinning(((),))))
    do(lab, free)
    try:
        before = dump(lab)
        resident = Instance(vm2.name, settings=SECOND)
        wanted = replace(SECOND, weight=512)
        moved = {vm2.name: IsolationSettings(pinning=Pinning(((0,),)), cap_percent=50)}
        made = plan(HOST, Instance(vm1.name, service="latency"), wanted, (resident,), moved)
        run = [command.argv for command in made if command.argv]
        assert run[0] == ("xl", "sched-credit2", "-d", vm2.name, "-c", "50")
        assert run[1] == ("xl", "vcpu-pin", vm2.name, "0", "0")
        do(lab, made)
        scheduled, pins = dump(lab)
        assert (pins[vm1.name, "0"].split()[0], pins[vm2.name, "0"].split()[0]) == ("1", "0")
        assert re.search(rf"{vm1.name} +\d+ +512 +0", scheduled)
        assert re.search(rf"{vm2.name} +\d+ +256 +50", scheduled)
        undo(lab, made)
        assert dump(lab) == before
    finally:
        undo(lab, free)


def test_the_hint_of_a_shorter_slice_is_accepted_by_xl(lab: Lab) -> None:
    argv = HINTS[SCHEDULER].split(" (")[0].split()
    default = HINTS[SCHEDULER].split("default: ")[1].rstrip(")").split()
    assert "ratelimit=1000us" in lab.dom0.run(["xl", "sched-credit2", "-s"]).checked().text
    with lab.changed(argv, [*argv[:3], *default]):
        assert "ratelimit=500us" in lab.dom0.run(["xl", "sched-credit2", "-s"]).checked().text
    assert "ratelimit=1000us" in lab.dom0.run(["xl", "sched-credit2", "-s"]).checked().text
