"""I/O and events of the Xen backend: rings, disks and interfaces, and what another domain drives."""

from __future__ import annotations

import errno

import pytest

from profiler.collectors import collect
from tests.profiler.xen_host import Guest, XenHost, a_second_later, backend_on, two_guests, values_of

WEB = "web_shop-87c9a8b1"


@pytest.fixture
def host() -> XenHost:
    return two_guests()


def test_pages_are_slots_of_rings_and_pages_of_disks(host: XenHost) -> None:
    backend = backend_on(host)
    first = backend.read_counters()
    host.guests[1].tx_slots += 70
    host.guests[1].rx_slots += 30
    host.guests[1].sectors = 800 + 80  # ten pages
    host.refresh()
    a_second_later(host)
    values = values_of(collect(first, backend.read_counters()), WEB)
    assert values["pages_exchanged"] == 110
    assert values["disk_mb_s"] == pytest.approx(80 * 512 / 1e6)


def test_pages_of_domains_that_ended_are_forgotten(host: XenHost) -> None:
    backend = backend_on(host)
    backend.read_counters()
    host.guests[3] = host.guests.pop(2)
    host.refresh()
    a_second_later(host)
    backend.read_counters()
    assert set(backend._io._slots) == {1, 3}


def test_rings_of_32_bits_wrap_and_a_reconnected_ring_starts_anew(host: XenHost) -> None:
    host.guests[2].tx_slots, host.guests[2].rx_slots = 2**32 - 10, 1000
    host.refresh()
    backend = backend_on(host)
    first = backend.read_counters().instances["vm2"].pages
    host.guests[2].tx_slots, host.guests[2].rx_slots = 5, 7
    host.refresh()
    second = backend.read_counters().instances["vm2"].pages
    assert first is not None
    assert second == first + 15 + 7


def test_all_queues_of_a_vif_are_counted_also_when_their_number_changes(host: XenHost) -> None:
    backend = backend_on(host)
    path = "/sys/kernel/debug/xen-netback/vif2.0/io_ring_q"
    seen = [backend.read_counters().instances["vm2"].pages]
    host.files[f"{path}1"] = host.files[f"{path}0"]
    for _ in range(30):
        a_second_later(host)
        counters = backend.read_counters()
    seen.append(counters.instances["vm2"].pages)
    del host.files[f"{path}1"]
    for _ in range(2):
        a_second_later(host)
        seen.append(backend.read_counters().instances["vm2"].pages)
    assert seen == [50, 100, None, 100]


def test_events_are_upcalls_of_dom0_and_an_ended_guests_stay_counted(host: XenHost) -> None:
    backend = backend_on(host)
    first = backend.read_counters()
    del host.guests[2]
    host.guests[1].upcalls += 40
    host.refresh()
    a_second_later(host)
    second = backend.read_counters()
    assert first.whole is not None
    assert first.whole.events == 1009 + 100 + 100 + 100
    assert values_of(collect(first, second), None, "host")["event"] == 40


def test_events_that_cannot_be_read_are_absent_with_the_reason(host: XenHost) -> None:
    host.files["/proc/interrupts"] = errno.EACCES
    whole = backend_on(host).read_counters().whole
    assert whole is not None
    assert whole.events is None
    assert "run as root" in whole.absent["events"]


def test_without_debugfs_pages_are_made_of_bytes(host: XenHost) -> None:
    for path in [path for path in host.files if "xen-netback" in path]:
        del host.files[path]
    vm2 = backend_on(host).read_counters().instances["vm2"]
    assert (vm2.pages, vm2.net_bytes) == (None, 6000)
    assert "debugfs" in vm2.absent["pages"]


def test_devices_of_a_driver_domain_are_absent_with_its_number(host: XenHost) -> None:
    host.guests[2].backend = 7
    host.refresh()
    vm2 = backend_on(host).read_counters().instances["vm2"]
    assert (vm2.net_bytes, vm2.pages) == (None, None)
    assert "driven by domain 7" in vm2.absent["net_bytes"]
    assert vm2.disk_bytes == 0


def test_a_disk_that_qemu_serves_is_absent(host: XenHost) -> None:
    where = "/local/domain/2/device/vbd/51712"
    store = f'{where}/backend = "/local/domain/0/backend/qdisk/2/51712"\n{where}/backend-id = "0"\n'
    host.values["xenstore-ls -f /local/domain"] += store
    vm2 = backend_on(host).read_counters().instances["vm2"]
    assert (vm2.disk_bytes, vm2.net_bytes) == (None, 6000)
    assert "QEMU" in vm2.absent["disk_bytes"]


@pytest.mark.parametrize("readable", [True, False])
def test_a_guest_without_devices_exchanges_nothing_only_if_xenstore_says_so(host: XenHost, readable: bool) -> None:
    host.guests[3] = Guest("quiet", vif=None)
    host.refresh()
    if not readable:
        host.values["xenstore-ls -f /local/domain"] = TimeoutError(errno.ETIMEDOUT, "xenstore-ls gave no answer")
    quiet = backend_on(host).read_counters().instances["quiet"]
    assert (quiet.net_bytes, quiet.pages) == ((0, 0) if readable else (None, None))
    assert readable or "xenstore" in quiet.absent["net_bytes"]


def test_an_interface_or_disk_that_only_xenstore_knows_is_absent_and_not_zero(host: XenHost) -> None:
    lines = str(host.files["/proc/net/dev"]).splitlines(keepends=True)
    host.files["/proc/net/dev"] = "".join(line for line in lines if "vif2.0" not in line)
    host.values["xenstore-ls -f /local/domain"] += (
        '/local/domain/1/device/vbd/51728/backend = "/local/domain/0/backend/vbd/1/51728"\n'
    )
    instances = backend_on(host).read_counters().instances
    assert (instances["vm2"].net_bytes, instances[WEB].disk_bytes) == (None, None)
    assert instances["vm2"].absent["net_bytes"] == "interface 0 is in xenstore and cannot be found in Dom0"
    assert instances[WEB].absent["disk_bytes"] == "disk 51728 is in xenstore and cannot be found in Dom0"


def test_an_interface_with_a_name_of_its_own_is_found(host: XenHost) -> None:
    host.guests[2].vif = "to-the-shop"
    host.refresh()
    backend = backend_on(host)
    for _ in range(2):
        vm2 = backend.read_counters().instances["vm2"]
        assert (vm2.net_bytes, vm2.pages) == (6000, 50)


def test_a_cd_drive_that_qemu_serves_hides_no_disk(host: XenHost) -> None:
    where = "/local/domain/1/device/vbd/5632"
    host.values["xenstore-ls -f /local/domain"] += (
        f'{where}/backend = "/local/domain/0/backend/qdisk/1/5632"\n{where}/device-type = "cdrom"\n'
    )
    assert backend_on(host).read_counters().instances[WEB].disk_bytes == 808 * 512


def test_an_interface_that_is_detached_is_missed_only_until_xenstore_is_read_again(host: XenHost) -> None:
    backend = backend_on(host)
    backend.read_counters()
    host.guests[2].vif = None
    host.refresh()
    seen = []
    for _ in range(6):
        a_second_later(host)
        seen.append(backend.read_counters().instances["vm2"].net_bytes)
    assert seen == [None] * 4 + [0, 0]
