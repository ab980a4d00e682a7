"""Moving the driver domain: exact words, and an undo that leads back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.domain import Command
from advisor.render import plan, whole
from profiler.observed import Host, Instance, IsolationSettings, Pinning

XEN = Host("x1", "xen", 4, 8192)
KVM = Host("k1", "kvm", 4, 8192, driver_cpus=(0, 1))
WEB, SHOP = Instance("web", host="k1"), Instance("shop", host="k1")


def words(host: Host, cpus: tuple[int, ...], target: str = "native") -> list[tuple[str, str]]:
    return [(" ".join(one.argv), " ".join(one.undo)) for one in whole.driver_commands(host, cpus, [WEB, SHOP], target)]


def test_on_xen_dom0_loses_its_spare_vcpus_before_it_is_pinned() -> None:
    """Where it is not known on which CPUs Dom0 runs it may have fewer vCPUs than the host has CPUs."""
    assert words(XEN, (2,)) == [
        ("xl vcpu-set Domain-0 1", "xl vcpu-set Domain-0 4"),
        ("xl vcpu-pin Domain-0 all 2", "xl vcpu-pin Domain-0 all all"),
    ]
    count, _ = whole.driver_commands(XEN, (2,), [], "native")
    assert count.note == "its undo: xl refuses more vCPUs than dom0_max_vcpus of the boot line"


def test_on_xen_dom0_may_run_on_a_further_cpu_before_it_gets_a_vcpu_for_it() -> None:
    pinned = replace(XEN, driver_cpus=(0,))
    assert words(pinned, (0, 3)) == [
        ("xl vcpu-pin Domain-0 all 0,3", "xl vcpu-pin Domain-0 all 0"),
        ("xl vcpu-set Domain-0 2", "xl vcpu-set Domain-0 1"),
    ]
    assert "dom0_max_vcpus" in list(whole.driver_commands(pinned, (0, 3), [], "native"))[1].note


def test_on_kvm_the_emulator_threads_of_every_guest_move() -> None:
    starts = [f"virsh emulatorpin --domain {name} --live --cpulist" for name in ("web", "shop")]
    assert words(KVM, (3,)) == [(f"{start} 3", f"{start} 0-1") for start in starts]


@pytest.mark.parametrize("host", [XEN, KVM])
def test_a_driver_domain_that_is_there_already_stays(host: Host) -> None:
    assert words(host, host.driver_cpus or (0, 1, 2, 3)) == []


def test_a_cloud_is_described_in_words_and_a_container_host_has_none() -> None:
    (said,) = whole.driver_commands(XEN, (1,), [], "openstack")
    assert said == Command("openstack", (), (), "keep the driver domain of x1 to CPUs 1 with the host's own tools")
    assert words(replace(XEN, kind="lxc"), (1,)) == []


def test_in_a_plan_who_is_pinned_has_its_threads_where_the_driver_domain_moves_to() -> None:
    pinned = IsolationSettings(pinning=Pinning(((2,),)))
    found = plan(KVM, Instance("new"), pinned, [WEB], {"web": pinned}, driver_cpus=(3,))
    for name in ("web", "new"):
        threads = [one.argv[-1] for one in found if one.argv[:4] == ("virsh", "emulatorpin", "--domain", name)]
        assert threads and set(threads) == {"3"}
    (text,) = [one.note for one in found if "<domain" in one.note or "<cputune" in one.note][:1]
    assert 'emulatorpin cpuset="3"' in text


def test_in_a_plan_who_comes_unpinned_has_its_threads_where_the_driver_domain_is() -> None:
    """Its work for the driver domain was predicted there."""
    start = "virsh emulatorpin --domain new --live --cpulist"
    for cpus, there in (((3,), "3"), (None, "0-1")):
        found = plan(KVM, Instance("new"), IsolationSettings(), [WEB], {}, driver_cpus=cpus)
        mine = [(" ".join(one.argv), " ".join(one.undo)) for one in found if "new" in one.argv]
        assert mine == [(f"{start} {there}", f"{start} r")]
        assert any(f'emulatorpin cpuset="{there}"' in one.note for one in found)
    anywhere = replace(KVM, driver_cpus=())
    assert plan(anywhere, Instance("new"), IsolationSettings(), [WEB], {}) == ()
    assert plan(replace(XEN, driver_cpus=(0,)), Instance("new"), IsolationSettings(), [], {}) == ()


def test_in_a_plan_the_driver_domain_moves_before_any_instance_comes() -> None:
    new_vm = Instance("new")
    found = plan(XEN, new_vm, IsolationSettings(weight=512), [], {}, driver_cpus=(1,))
    argv = [one.argv for one in found if one.argv]
    assert argv[:2] == [("xl", "vcpu-set", "Domain-0", "1"), ("xl", "vcpu-pin", "Domain-0", "all", "1")]
    assert any("new" in one for one in argv[2:])
