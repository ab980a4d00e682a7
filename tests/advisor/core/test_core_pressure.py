"""Pressure on hosts: demand over capacity by resource, against sums made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from advisor.domain import Host, Instance, WorkloadProfile
from advisor.snapshot.pressure import pressure
from models.data.demand_classes import day_one
from models.physics.demands import GOODPUT
from models.physics.prior import RESOURCES
from profiler.observed import NetworkSettings
from tests.advisor.core.core_clouds import cloud, vm

WEB = WorkloadProfile(
    "web", {"cpu": 70, "driver_domain.cpu": 40, "net_mbit": 200, "disk_mb_s": 30, "mem_bw_mb_s": 1000}
)


def asked(host: Host, *there: Instance) -> dict[str, float | None]:
    return dict(pressure(cloud([host], there, workloads=[WEB]))["h"])


def on(name: str, **more: Any) -> Instance:
    return vm(name, "web", on="h", **more)


HOST = Host("h", "kvm", pcpus=4, memory_mb=4096, nic_mbit=1000, disk_mb_s=100, mem_bw_mb_s=8000)


def test_demands_are_added_up_and_divided_by_what_there_is() -> None:
    found = asked(HOST, on("a"), on("b", load=0.5))
    assert tuple(found) == RESOURCES
    assert found == pytest.approx(
        {
            "cpu": 1.5 * (0.7 + 0.4) / 4,  # of the instances and of the driver domain
            "driver_domain": 1.5 * 0.4 / 4,
            "nic": 1.5 * 200 / (1000 * GOODPUT),
            "disk": 1.5 * 0.3,
            "memory": 1.5 / 8,
        }
    )


def test_caps_ceilings_and_disk_limits_hold_demand_back() -> None:
    network = NetworkSettings("shared", rate_mbit=10, ceil_mbit=50)
    found = asked(HOST, on("a", cap_percent=20, network=network, disk_limit_mb_s=10))
    assert found["cpu"] == pytest.approx((0.2 + 0.4) / 4)
    assert found["nic"] == pytest.approx(50 / (1000 * GOODPUT))
    assert found["disk"] == pytest.approx(0.1)


def test_an_unknown_value_is_not_a_number_and_an_empty_host_is_idle() -> None:
    bare = Host("h", "lxc", pcpus=4, memory_mb=4096)
    found = asked(bare, vm("u", None, on="h", vcpus=3))
    assert found["cpu"] == pytest.approx(0.75 * day_one(1).mean), "as virtual machines usually do"
    assert found["driver_domain"] is None, "a container has none"
    assert found["nic"] is None
    assert set(asked(HOST).values()) == {0.0}
    assert pressure(cloud([])) == {}
