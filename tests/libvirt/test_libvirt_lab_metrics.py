"""Every metric of real guests: its direction, and its size against a source that the backend does not use."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lab.processes import wait_until
from profiler.backends.libvirt.backend import LibvirtBackend
from tests.lab.qemu_accounts import cpu_seconds
from tests.libvirt.guests import Guest, Lab
from tests.libvirt.measuring import Window, driver_threads, during, on_one_cpu, over, switches, vcpu_threads

# the time of three tries, with guests booted anew for each
pytestmark = [pytest.mark.libvirt, pytest.mark.measured, pytest.mark.timeout(900)]

LAST_CPU = 1
BUSY_S = 0.3  # of CPU: more than to answer
WRITTEN_MB = 16


def _parts(window: Window, guest: Guest) -> float:
    return sum(window.of(guest, metric) for metric in ("cpu", "waiting", "block"))


def _quiet() -> None:
    """Let the last packets and the last writes through."""
    time.sleep(0.3)


@pytest.fixture
def shop(lab: Lab) -> Guest:
    return lab.guests[0]


@pytest.fixture
def web(lab: Lab) -> Guest:
    return lab.guests[1]


def _spin(lab: Lab, seconds: int, *guests: Guest) -> None:
    """Make guests busy for so many seconds, and see that they are."""
    for guest in guests:
        threads = vcpu_threads(lab, guest)
        before = sum(map(cpu_seconds, threads))
        lab.ask(guest, f"cgi-bin/spin?{seconds}")
        assert wait_until(lambda: sum(map(cpu_seconds, threads)) > before + BUSY_S, seconds), "it does not get busy"  # noqa: B023


def _until_idle(backend: LibvirtBackend, lab: Lab) -> None:
    """Wait for the work of the test before to end."""

    def idle() -> bool:
        window = over(backend, 0.5)
        return all(window.of(guest, "cpu") < 5 for guest in lab.guests)

    assert wait_until(idle, 30), "the guests do not become idle"


def test_idle_guests_use_no_cpu_and_are_blocked(lab: Lab, backend: LibvirtBackend) -> None:
    _until_idle(backend, lab)
    window = over(backend, 2.0)
    for guest in lab.guests:
        assert window.of(guest, "cpu") < 5
        assert window.of(guest, "block") > 90
        assert window.of(guest, "execution") > 0
        assert _parts(window, guest) == pytest.approx(100 * guest.vcpus)


def test_cpu_is_what_the_kernel_accounts_to_the_vcpu_threads(lab: Lab, backend: LibvirtBackend, shop: Guest) -> None:
    """Taken outside and inside of the readings: the backend must lie between, but for two ticks of 10 ms."""
    _spin(lab, 6, shop)
    (thread,) = vcpu_threads(lab, shop)
    inner = 0.0

    def wait() -> None:
        nonlocal inner
        inner = cpu_seconds(thread)
        time.sleep(3.0)
        inner = cpu_seconds(thread) - inner

    outer = cpu_seconds(thread)
    window = during(backend, wait)
    outer = cpu_seconds(thread) - outer
    assert inner > 0.5
    assert inner - 0.02 <= window.of(shop, "cpu") / 100 * window.seconds <= outer + 0.02
    assert _parts(window, shop) == pytest.approx(100)


def test_guests_and_their_driver_domain_together_are_the_qemu_processes(lab: Lab, backend: LibvirtBackend) -> None:
    processes = [Path(f"/proc/{lab.qemu_pid(guest)}") for guest in lab.guests]
    _spin(lab, 5, *lab.guests)
    before = sum(map(cpu_seconds, processes))
    with lab.load(lab.guests[0]):
        window = over(backend, 3.0)
    used = sum(map(cpu_seconds, processes)) - before
    vcpus_ns = sum(
        task.run_ns - window.first.instances[name].tasks[key].run_ns
        for name, domain in window.second.instances.items()
        for key, task in domain.tasks.items()
    )
    assert window.first.driver is not None
    assert window.second.driver is not None
    emulators_ns = sum(
        task.run_ns - window.first.driver.tasks[key].run_ns
        for key, task in window.second.driver.tasks.items()
        if key.startswith(tuple(window.second.instances)) and key in window.first.driver.tasks
    )
    assert (vcpus_ns + emulators_ns) / 1e9 == pytest.approx(used, rel=0.1)


def test_pages_are_the_bytes_of_the_tap(lab: Lab, backend: LibvirtBackend, shop: Guest, web: Guest) -> None:
    _until_idle(backend, lab)
    before = lab.tap_bytes(shop)

    def load() -> None:
        lab.throughput(shop, 2, "100k")
        _quiet()

    window = during(backend, load)
    carried = lab.tap_bytes(shop) - before
    assert carried > 1_000_000
    assert window.of(shop, "pages_exchanged") * 4096 * window.seconds == pytest.approx(carried, rel=0.02)
    assert window.of(shop, "pages_exchanged") > 20 * window.of(web, "pages_exchanged")
    per_execution = window.of(shop, "pages_exchanged") / window.of(shop, "execution")
    assert window.of(shop, "pages_per_execution") == pytest.approx(per_execution)
    assert window.of(shop, "net_mbit") == pytest.approx(carried * 8 / 1e6 / window.seconds, rel=0.02)


@pytest.mark.parametrize("number", [0, 1], ids=["bypassing the page cache", "through the page cache"])
def test_what_a_guest_writes_to_its_disk_counts_as_pages(lab: Lab, backend: LibvirtBackend, number: int) -> None:
    _until_idle(backend, lab)
    guest = lab.guests[number]
    window = during(backend, lambda: lab.ask(guest, f"cgi-bin/write?{WRITTEN_MB}"))
    written = window.of(guest, "disk_mb_s") * 1e6 * window.seconds
    assert written == pytest.approx(WRITTEN_MB << 20, rel=0.1)
    assert window.of(guest, "pages_exchanged") * window.seconds >= written / 4096


def test_waiting_rises_when_two_busy_vcpus_share_one_cpu(
    lab: Lab, backend: LibvirtBackend, shop: Guest, web: Guest
) -> None:
    _until_idle(backend, lab)
    with on_one_cpu(lab, LAST_CPU):
        _spin(lab, 12, shop)
        alone = min((over(backend, 1.0) for _ in range(4)), key=lambda window: window.of(shop, "waiting"))
        assert alone.of(shop, "waiting") < 15
        assert alone.of(shop, "cpu") > 80
        _spin(lab, 6, web)
        time.sleep(0.5)
        together = over(backend, 3.0)
    for guest in (shop, web):
        assert 35 < together.of(guest, "waiting") < 60
        assert _parts(together, guest) == pytest.approx(100)
    assert together.of(shop, "waiting") > alone.of(shop, "waiting") + 25


def test_executions_and_switches_are_the_switches_that_the_kernel_counts(
    lab: Lab, backend: LibvirtBackend, shop: Guest
) -> None:
    """Counted outside and inside of the readings: what the backend says must lie between."""
    _until_idle(backend, lab)
    (thread,) = vcpu_threads(lab, shop)
    with lab.load(shop):
        outer = switches(thread)
        first = backend.read_counters()
        inner = switches(thread)
        time.sleep(2)
        inner = switches(thread) - inner
        second = backend.read_counters()
        outer = switches(thread) - outer
    (before,), (after,) = (list(one.instances["shop"].tasks.values()) for one in (first, second))
    assert inner > 100
    assert inner - 1 <= after.timeslices - before.timeslices <= outer + 1


def test_load_raises_events_and_the_driver_domains_cpu(lab: Lab, backend: LibvirtBackend, shop: Guest) -> None:
    _until_idle(backend, lab)
    idle = over(backend, 2.0)
    before = sum(map(cpu_seconds, driver_threads(lab)))
    with lab.load(shop, "100k"):
        time.sleep(0.3)
        loaded = over(backend, 3.0)
    spent = 100 * (sum(map(cpu_seconds, driver_threads(lab))) - before) / loaded.seconds
    assert loaded.host("event") > 2 * idle.host("event")
    assert loaded.host("switch") > idle.host("switch")
    assert loaded.host("cpu", "driver_domain") > idle.host("cpu", "driver_domain")
    assert spent > 0.5
    assert loaded.of(shop, "cpu", "driver_domain") > 0.9 * loaded.host("cpu", "driver_domain")
