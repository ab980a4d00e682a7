"""The xen backend inside a real Dom0 under the credit scheduler: every metric beside a source that it does not use."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from lab.processes import wait_until
from profiler.cli import main
from tests.xen.xen_lab import Lab
from tests.xen.xen_scene import Guest, Profiled, Scene
from tests.xen.xen_witness import Traced, dom0_busy_seconds, guest_upcalls, list_seconds, octets, packets, ring_slots

SCHEDULER = "credit"
pytestmark = [pytest.mark.xen, pytest.mark.timeout(1800)]  # the first test builds and boots


@pytest.fixture(scope="module")
def idle(lab: Lab, vm1: Guest, vm2: Guest) -> Scene:
    return lab.observe(vm1, vm2)


@pytest.fixture(scope="module")
def alone(lab: Lab, vm1: Guest, vm2: Guest) -> Scene:
    """vm1 has pCPU 1 nearly for itself."""
    with lab.spinning(vm1):
        return lab.observe(vm1, vm2)


@pytest.fixture(scope="module")
def served(lab: Lab, vm1: Guest, vm2: Guest) -> Profiled:
    """vm1 serves 1 KB, vm2 100 KB."""
    with lab.serving((vm1, "/1k"), (vm2, "/100k")):
        return lab.profile()


@pytest.mark.measured
def test_an_idle_guest_is_blocked_and_exchanges_nothing(idle: Scene, vm1: Guest, vm2: Guest) -> None:
    for guest in (vm1, vm2):
        assert idle.profiled.value("cpu", guest.name) < 8
        assert idle.profiled.value("waiting", guest.name) < 5
        assert idle.profiled.value("block", guest.name) == pytest.approx(idle.idle(guest), abs=10)
        assert idle.profiled.value("block", guest.name) > 90
        assert idle.profiled.value("pages_exchanged", guest.name) < 30


@pytest.mark.measured
def test_a_busy_guest_alone_runs_and_does_not_wait(alone: Scene, vm1: Guest, vm2: Guest) -> None:
    assert alone.profiled.value("cpu", vm1.name) > 80
    assert alone.profiled.value("waiting", vm1.name) < 20
    assert alone.profiled.value("block", vm1.name) < 10
    assert alone.profiled.value("block", vm2.name) > 85


@pytest.mark.measured
def test_two_busy_guests_on_one_pcpu_share_it_and_wait_for_each_other(
    shared: tuple[Scene, Traced], alone: Scene, vm1: Guest, vm2: Guest
) -> None:
    profiled = shared[0].profiled
    for guest in (vm1, vm2):
        assert profiled.value("cpu", guest.name) == pytest.approx(50, abs=8)
        assert profiled.value("waiting", guest.name) == pytest.approx(50, abs=10)
        assert profiled.value("block", guest.name) < 10
    assert profiled.value("waiting", vm1.name) > alone.profiled.value("waiting", vm1.name) + 25


@pytest.mark.measured
def test_running_waiting_and_blocked_fill_the_time_of_the_vcpu(
    idle: Scene, alone: Scene, shared: tuple[Scene, Traced], served: Profiled, vm1: Guest, vm2: Guest
) -> None:
    for profiled in (idle.profiled, alone.profiled, shared[0].profiled, served):
        for guest in (vm1, vm2):
            parts = [profiled.value(metric, guest.name) for metric in ("cpu", "waiting", "block")]
            assert sum(parts) == pytest.approx(100, abs=1)


@pytest.mark.measured
def test_cpu_is_what_xl_accounts(
    idle: Scene, alone: Scene, shared: tuple[Scene, Traced], served: Profiled, vm1: Guest, vm2: Guest
) -> None:
    for profiled in (idle.profiled, alone.profiled, shared[0].profiled, served):
        for guest in (vm1, vm2):
            accounted = 100 * profiled.witness.rate(list_seconds(guest.name), *profiled.window)
            assert profiled.value("cpu", guest.name) == pytest.approx(accounted, abs=7)


@pytest.mark.measured
def test_waiting_is_what_the_guest_sees_stolen(
    alone: Scene, shared: tuple[Scene, Traced], vm1: Guest, vm2: Guest
) -> None:
    for scene, guest in ((alone, vm1), (shared[0], vm1), (shared[0], vm2)):
        assert scene.profiled.value("waiting", guest.name) == pytest.approx(scene.stolen(guest), abs=10)


@pytest.mark.measured
def test_the_driver_domain_works_for_those_who_exchange_pages(
    served: Profiled, idle: Scene, vm1: Guest, vm2: Guest
) -> None:
    cpu = served.value("cpu", scope="driver_domain")
    accounted = 100 * served.witness.rate(list_seconds("Domain-0"), *served.window)
    in_its_kernel = 100 * served.witness.rate(dom0_busy_seconds, *served.window)
    assert cpu == pytest.approx(accounted, abs=10)
    assert 0.6 < cpu / in_its_kernel < 1.7  # its kernel counts ticks
    assert cpu > idle.profiled.value("cpu", scope="driver_domain") + 10
    small, large = (served.value("cpu", guest.name, "driver_domain") for guest in (vm1, vm2))
    assert small + large == pytest.approx(cpu, rel=0.01)
    assert large > small


@pytest.mark.measured
def test_pages_are_the_slots_of_the_rings(served: Profiled, vm1: Guest, vm2: Guest) -> None:
    for guest in (vm1, vm2):
        slots = served.witness.rate(ring_slots(guest.vif), *served.window)
        assert slots > 50
        assert served.value("pages_exchanged", guest.name) == pytest.approx(slots, rel=0.15)


@pytest.mark.measured
def test_pages_carry_the_packets_and_bytes_of_the_interface(served: Profiled, vm1: Guest, vm2: Guest) -> None:
    for guest in (vm1, vm2):
        pages = served.value("pages_exchanged", guest.name)
        in_packets = served.witness.rate(packets(guest.vif), *served.window)
        in_bytes = served.witness.rate(octets(guest.vif), *served.window) / 4096
        # a packet takes a page at least, a large one a page for each part, of which few are full
        assert 0.85 * max(in_packets, in_bytes) < pages < 1.15 * 2 * (in_packets + in_bytes)
    assert served.value("pages_exchanged", vm2.name) > served.value("pages_exchanged", vm1.name)


def test_pages_per_execution_is_their_quotient(served: Profiled, vm1: Guest) -> None:
    pages, executions = (served.value(metric, vm1.name) for metric in ("pages_exchanged", "execution"))
    assert served.value("pages_per_execution", vm1.name) == pytest.approx(pages / executions)


@pytest.mark.measured
def test_executions_and_switches_are_those_of_xenalyze(shared: tuple[Scene, Traced], vm1: Guest, vm2: Guest) -> None:
    scene, traced = shared
    for guest in (vm1, vm2):
        ratio = scene.profiled.value("execution", guest.name) / traced.executions_per_s(guest.domain)
        assert 0.6 < ratio < 1.6
    # credit's time slice is 30 ms: of two that never block, each is put on the pCPU every 60 ms
    assert scene.profiled.value("execution", vm1.name) == pytest.approx(1 / 0.06, rel=0.4)
    assert 0.5 < scene.profiled.value("switch", scope="host") / traced.executions_per_s() < 2.0


@pytest.mark.measured
def test_cpu_and_waiting_are_those_of_xenalyze(shared: tuple[Scene, Traced], vm1: Guest, vm2: Guest) -> None:
    scene, traced = shared
    for guest in (vm1, vm2):
        assert scene.profiled.value("cpu", guest.name) == pytest.approx(traced.percent(guest.domain, "running"), abs=10)
        waited = traced.percent(guest.domain, "runnable")
        assert scene.profiled.value("waiting", guest.name) == pytest.approx(waited, abs=10)


@pytest.mark.measured
def test_events_are_the_interrupts_of_the_guests_channels(served: Profiled, idle: Scene) -> None:
    events = served.value("event", scope="host")
    assert events == pytest.approx(served.witness.rate(guest_upcalls, *served.window), rel=0.2)
    assert events > 5 * idle.profiled.value("event", scope="host")


def test_settings_of_the_scheduler_are_shown(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    with (
        lab.changed(
            ["xl", "sched-credit", "-d", vm1.name, "-w", "512", "-c", "40"],
            ["xl", "sched-credit", "-d", vm1.name, "-w", "256", "-c", "0"],
        ),
        lab.changed(["xl", "vcpu-pin", vm1.name, "0", "0"], ["xl", "vcpu-pin", vm1.name, "0", "1"]),
    ):
        shown = {entry["id"]: entry for entry in lab.profile(1.0).said["instances"]}
    assert (shown["vm1"]["weight"], shown["vm1"]["cap_percent"], shown["vm1"]["pinning"]) == (512, 40, "0:0")
    assert (shown["vm2"]["weight"], shown["vm2"]["cap_percent"], shown["vm2"]["pinning"]) == (256, None, "0:1")


def test_who_may_use_every_cpu_is_not_pinned(lab: Lab, vm1: Guest) -> None:
    with lab.changed(["xl", "vcpu-pin", vm1.name, "0", "0-1"], ["xl", "vcpu-pin", vm1.name, "0", "1"]):
        shown = {entry["id"]: entry for entry in lab.profile(1.0).said["instances"]}
    assert shown["vm1"]["pinning"] is None


@pytest.mark.measured
def test_a_capped_guest_runs_as_long_as_its_cap(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    with (
        lab.changed(
            ["xl", "sched-credit", "-d", vm1.name, "-c", "40"], ["xl", "sched-credit", "-d", vm1.name, "-c", "0"]
        ),
        lab.spinning(vm1),
    ):
        profiled = lab.profile()
    accounted = 100 * profiled.witness.rate(list_seconds(vm1.name), *profiled.window)
    assert profiled.value("cpu", vm1.name) == pytest.approx(accounted, abs=7)
    assert 20 < profiled.value("cpu", vm1.name) < 60


@pytest.mark.measured
def test_a_guest_destroyed_between_readings_is_dropped_and_the_others_stay(lab: Lab, vm1: Guest, vm2: Guest) -> None:
    lab.create("doomed", 3)
    profiling = lab.start_profile(interval_s=8.0)
    assert wait_until(lambda: lab.dom0.run(["pgrep", "-x", "xentrace"]).code == 0, 60), "the first reading never began"
    time.sleep(4)  # the first reading ends meanwhile
    lab.dom0.run(["xl", "destroy", "doomed"]).checked()
    profiled = lab.end_profile(profiling)
    assert profiled.said["dropped"] == [{"instance": "doomed", "reason": "vanished"}]
    for guest in (vm1, vm2):
        assert math.isfinite(profiled.value("cpu", guest.name))


def test_a_recording_replays_elsewhere_to_the_same_values(
    lab: Lab, vm1: Guest, vm2: Guest, recording_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lab.spinning(vm1), lab.serving((vm2, "/100k")):
        profiled = lab.profile(1.0)
    recording_path.write_text(json.dumps(profiled.recording, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert main(["once", "--json", "--replay", str(recording_path)]) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == profiled.said["samples"]
