"""Four pCPUs and several Dom0 vCPUs: what the advisor renders for Dom0 works there, and so does pausing."""

from __future__ import annotations

import pytest

from advisor.render.whole import driver_commands
from lab.campaign import EmulatedXen
from lab.dom0_cpus import DOM0, Dom0Cpus
from lab.processes import wait_until
from profiler.observed import Host
from tests.xen.xen_lab import Lab

pytestmark = pytest.mark.xen
SHAPE = EmulatedXen()


def dom0_cpus(lab: Lab) -> Dom0Cpus:
    return Dom0Cpus.parse(lab.dom0.run(["xl", "vcpu-list", DOM0]).checked().text)


def test_the_advisors_commands_move_dom0_and_their_undo_brings_it_back(lab: Lab) -> None:
    assert dom0_cpus(lab) == Dom0Cpus(4, 4, None)
    host = Host("xen01", kind="xen", pcpus=4, memory_mb=2048)
    rendered = list(driver_commands(host, (0, 1), (), "native"))
    for command in rendered:
        lab.dom0.run(command.argv).checked()
    wait_until(lambda: dom0_cpus(lab).online == 2, 30)  # Dom0's kernel takes its vCPUs off line by itself
    assert dom0_cpus(lab) == Dom0Cpus(2, 4, (0, 1))
    for command in reversed(rendered):
        lab.dom0.run(command.undo).checked()
    wait_until(lambda: dom0_cpus(lab).online == 4, 30)
    assert dom0_cpus(lab) == Dom0Cpus(4, 4, None)


def test_a_guest_that_is_paused_does_nothing_until_it_is_let_go_on(lab: Lab) -> None:
    guest = lab.create("vm1", 1)
    with lab.spinning(guest):
        before = lab.times(guest)
        lab.dom0.switch(pause=[guest.domain])
        rows = [line.split() for line in lab.dom0.run(["xl", "list"]).checked().text.splitlines()]
        assert next(row[4] for row in rows if row[0] == "vm1") == "--p---"
        spent = [lab.dom0.run(["xl", "list", "vm1"]).checked().text.split()[-1] for _ in range(2)]
        assert spent[0] == spent[1]
        lab.dom0.switch(resume=[guest.domain])
        assert lab.times(guest).up_s > before.up_s
