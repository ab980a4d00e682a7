"""The xen backend inside a real Dom0 under credit2: what depends on the scheduler, and what `auto` finds."""

from __future__ import annotations

import json

import pytest

from tests.xen.xen_lab import Lab
from tests.xen.xen_scene import Guest, Scene
from tests.xen.xen_witness import Traced, list_seconds

SCHEDULER = "credit2"
# As the drop-in for Xen starts the agent: root without any capability, the kernel's file systems read-only.
CLOSED = (
    "unshare", "--mount", "--propagation", "private", "sh", "-ec",
    'for at in /proc /sys /sys/kernel/debug; do mount -o remount,bind,ro "$at"; done; exec "$@"', "sh",
    "setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs",
)  # fmt: skip
pytestmark = [pytest.mark.xen, pytest.mark.timeout(1800)]


@pytest.mark.measured
def test_two_busy_guests_on_one_pcpu_share_it_and_wait_for_each_other(
    shared: tuple[Scene, Traced], vm1: Guest, vm2: Guest
) -> None:
    scene = shared[0]
    for guest in (vm1, vm2):
        accounted = 100 * scene.profiled.witness.rate(list_seconds(guest.name), *scene.profiled.window)
        assert scene.profiled.value("cpu", guest.name) == pytest.approx(accounted, abs=7)
        assert scene.profiled.value("cpu", guest.name) == pytest.approx(50, abs=10)
        assert scene.profiled.value("waiting", guest.name) == pytest.approx(scene.stolen(guest), abs=10)
        assert scene.profiled.value("block", guest.name) < 10


@pytest.mark.measured
def test_executions_are_those_of_xenalyze(shared: tuple[Scene, Traced], vm1: Guest, vm2: Guest) -> None:
    scene, traced = shared
    for guest in (vm1, vm2):
        assert 0.5 < scene.profiled.value("execution", guest.name) / traced.executions_per_s(guest.domain) < 2.0


@pytest.mark.measured
def test_a_weight_gives_its_share_and_is_shown(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    weight = ["xl", "sched-credit2", "-d", vm1.name, "-w"]
    with lab.changed([*weight, "768"], [*weight, "256"]), lab.spinning(vm1, vm2):
        profiled = lab.profile()
    shown = {entry["id"]: entry for entry in profiled.said["instances"]}
    assert (shown["vm1"]["weight"], shown["vm2"]["weight"]) == (768, 256)
    assert profiled.value("cpu", vm1.name) == pytest.approx(75, abs=10)
    assert profiled.value("waiting", vm2.name) == pytest.approx(75, abs=12)


def test_auto_takes_xen_and_a_cap_is_shown(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    cap = ["xl", "sched-credit2", "-d", vm1.name, "-c"]
    with lab.changed([*cap, "40"], [*cap, "0"]):
        said = json.loads(lab.profiler("once", "--json").checked().text)
    shown = {entry["id"]: (entry["cap_percent"], entry["pinning"]) for entry in said["instances"]}
    assert shown == {"vm1": (40, "0:1"), "vm2": (None, "0:1")}


def test_check_looks_at_this_xen(lab: Lab) -> None:
    checks = json.loads(lab.profiler("check", "--json").checked().text)["checks"]
    assert any("xen" in json.dumps(check).lower() for check in checks)


def test_root_without_any_capability_reads_as_much(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    once = ("once", "--backend", "xen", "--json")
    # Both serve all the time: while no guest exchanges a page, none has a part of the driver domain's CPU.
    with lab.serving((vm1, "/1k"), (vm2, "/100k")):
        free, closed = (json.loads(lab.profiler(*once, under=under).checked().text) for under in ((), CLOSED))
    names = [{(one["instance"], one["scope"], one["metric"]) for one in said["samples"]} for said in (free, closed)]
    assert names[0] == names[1]
    assert {"cpu", "waiting", "pages_exchanged", "event"} <= {metric for _, _, metric in names[1]}
    assert closed["absent"] == free["absent"]
    status = lab.dom0.run([*CLOSED, "cat", "/proc/self/status"]).checked().text
    assert "CapEff:\t0000000000000000" in status
