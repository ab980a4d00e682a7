"""What holds a guest of Xen back, by every scheduler, and what cannot be read of it."""

from __future__ import annotations

import errno

import pytest

from profiler.observed import Instance
from tests.profiler.xen_host import XenHost, backend_on, two_guests

WEB = "web_shop-87c9a8b1"


@pytest.fixture
def host() -> XenHost:
    return two_guests()


@pytest.mark.parametrize("scheduler", ["credit", "credit2"])
def test_isolation_is_read_from_the_scheduler_that_runs(host: XenHost, scheduler: str) -> None:
    host.scheduler = scheduler
    host.values.pop("xl sched-credit")
    host.refresh()
    backend = backend_on(host)
    web, vm2 = (backend.read_isolation(Instance(name)) for name in (WEB, "vm2"))
    assert (str(web.pinning), web.cap_percent, web.weight) == ("0:1", 50.0, 512)
    assert web.network is not None
    assert (web.network.mode, web.network.rate_mbit) == ("dedicated", 10.0)
    assert (str(vm2.pinning), vm2.cap_percent, vm2.weight, vm2.network) == ("0:0-1", None, 256, None)


def test_affinity_is_that_of_the_vcpus_that_are_online_by_the_numbers_of_the_host(host: XenHost) -> None:
    header, *_ = str(host.values["xl vcpu-list"]).splitlines()
    rows = (("4", "28,30 / all"), ("-", "all / all"), ("28", "28,30 / 30"))
    states = {"-": "--p"}
    host.values["xl vcpu-list"] = "\n".join(
        [
            header,
            *(
                f"vm2  2  {vcpu}  {cpu}  {states.get(cpu, '-b-')}  17.3  {where}"
                for vcpu, (cpu, where) in enumerate(rows)
            ),
        ]
    )
    assert str(backend_on(host).read_isolation(Instance("vm2")).pinning) == "0:28,30|1:28,30"


def test_a_domain_that_may_run_anywhere_has_no_pin_whatever_its_soft_affinity(host: XenHost) -> None:
    header, *_ = str(host.values["xl vcpu-list"]).splitlines()
    host.values["xl vcpu-list"] = f"{header}\nvm2  2  0  1  -b-  17.3  all / 0\n"
    assert backend_on(host).read_isolation(Instance("vm2")).pinning is None


def test_isolation_that_cannot_be_read_is_unknown(host: XenHost) -> None:
    host.values["xl info"] = str(host.values["xl info"]).replace("credit", "rtds")
    host.values["xl vcpu-list"] = OSError(errno.EIO, "xl failed with 1: libxl_list_vcpu failed")
    host.values["xenstore-ls -f /local/domain/0/backend/vif"] = PermissionError(errno.EACCES, "Permission denied")
    settings = backend_on(host).read_isolation(Instance("vm2"))
    assert (settings.pinning, settings.cap_percent, settings.weight, settings.network) == (None,) * 4


def test_sched_params_that_libxl_cannot_read_are_unknown(host: XenHost) -> None:
    host.values["xl sched-credit"] = "Cpupool Pool-0: [sched params unavailable]\n"
    settings = backend_on(host).read_isolation(Instance("vm2"))
    assert (settings.weight, settings.cap_percent, str(settings.pinning)) == (None, None, "0:0-1")
