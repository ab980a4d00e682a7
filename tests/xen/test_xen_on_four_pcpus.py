"""Four pCPUs and several Dom0 vCPUs: what the advisor renders for Dom0 works there, and so does pausing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from advisor.render.driver import commands
from lab.dom0_cpus import DOM0, Dom0Cpus
from lab.emulated_xen.machine import MachineShape, boot
from lab.emulated_xen.parts import prepare
from profiler.observed import Host
from tests.xen.conftest import CACHE
from tests.xen.xen_lab import Lab
from tests.xen.xen_needs import missing

pytestmark = pytest.mark.xen


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if reason := missing():
        pytest.skip(reason)
    parts = prepare(CACHE)
    shape = MachineShape(pcpus=4, dom0_vcpus=4, memory_mb=2048)
    with boot(parts, tmp_path_factory.mktemp("xen-four"), shape) as machine:
        yield Lab(machine, parts)


def dom0_cpus(lab: Lab) -> Dom0Cpus:
    return Dom0Cpus.parse(lab.dom0.run(["xl", "vcpu-list", DOM0]).checked().text)


def test_the_advisors_commands_move_dom0_and_their_undo_brings_it_back(lab: Lab) -> None:
    assert dom0_cpus(lab) == Dom0Cpus(4, 4, None)
    host = Host("xen01", kind="xen", pcpus=4, memory_mb=2048)
    rendered = list(commands(host, (0, 1), (), "native"))
    for command in rendered:
        lab.dom0.run(command.argv).checked()
    end = time.monotonic() + 30  # Dom0's kernel takes its vCPUs off line by itself
    while dom0_cpus(lab).online != 2 and time.monotonic() < end:
        time.sleep(0.5)
    assert dom0_cpus(lab) == Dom0Cpus(2, 4, (0, 1))
    for command in reversed(rendered):
        lab.dom0.run(command.undo).checked()
    end = time.monotonic() + 30
    while dom0_cpus(lab).online != 4 and time.monotonic() < end:
        time.sleep(0.5)
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
