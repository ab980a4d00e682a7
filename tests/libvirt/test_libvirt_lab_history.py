"""`cotenant history libvirt-exporter` against what Debian's exporter really reports about real guests."""

from __future__ import annotations

import pytest

from advisor.telemetry.monitoring_history import load_preset
from tests.libvirt.guests import Lab
from tests.servers.exporters import answers, scraped
from tests.servers.running import NotInstalled

pytestmark = pytest.mark.libvirt
# libvirt 9.0 with this exporter, 0.2.0, reports no delay of vCPUs; `waiting` counts where an exporter does.
REPORTED = {"cpu", "net_mbit", "disk_mb_s"}


def test_what_the_preset_asks_for_is_there_and_a_busy_guest_is_distinguished_from_an_idle_one(lab: Lab) -> None:
    preset = load_preset("libvirt-exporter")
    busy, idle = lab.guests[:2]
    try:
        with scraped("prometheus-libvirt-exporter", f"--libvirt.uri={lab.uri}") as store, lab.load(busy):
            of_busy = answers(store, preset, sorted(REPORTED), busy.name)
            of_idle = answers(store, preset, sorted(REPORTED), idle.name)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    assert set(of_busy) == set(of_idle) == REPORTED
    assert of_busy["cpu"] > 2 * of_idle["cpu"]
    assert of_busy["net_mbit"] > of_idle["net_mbit"]
