"""What a plan says to write into an instance's definition, so that a start or restart has the settings."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from advisor.render import plan
from profiler.observed import Host, Instance, IsolationSettings, NetworkSettings, Pinning

XEN = Host("h1", "xen", pcpus=4, memory_mb=8192, nic_mbit=1000, labels={"uplink": "eth0"})
KVM = replace(XEN, kind="kvm", driver_cpus=(0,))
SHOP = Instance("shop-7", vcpus=2, labels={"mac": "52:54:00:12:34:56", "disk": "vda", "iothreads": "1"})
WANTED = IsolationSettings(Pinning(((2,), (1, 3))), 50, 512, NetworkSettings("dedicated", 100), 20)


def said(host: Host, tool: str, instance: Instance = SHOP, wanted: IsolationSettings = WANTED) -> list[str]:
    made = plan(host, instance, wanted, (), {})
    return [command.note for command in made if command.tool == tool and not command.argv]


def test_xen_s_configuration_has_a_line_for_each_setting_and_the_vif_its_rate() -> None:
    text = said(XEN, "xl")[0]
    assert 'cpus = ["2", "1,3"]; cpu_weight = 512; cap = 50; ' in text
    assert 'vif = ["mac=52:54:00:12:34:56,rate=100000Kb/s@20ms"]' in text
    assert "cannot be changed while it runs" in text


def test_a_rate_that_may_be_exceeded_is_no_limit_of_the_vif() -> None:
    (text,) = said(XEN, "xl", wanted=IsolationSettings(cap_percent=50, network=NetworkSettings("shared", 100)))
    assert "vif" not in text


def test_shorter_slices_are_only_a_hint_for_a_latency_instance_on_xen() -> None:
    (hint,) = said(XEN, "xl", replace(SHOP, service="latency"))[1:2]
    assert "every domain of the pool: xl sched-credit2 -s -r 500" in hint
    assert not any("slices" in text for text in said(XEN, "xl"))


def domain(host: Host) -> ElementTree.Element:
    (text,) = said(host, "virsh")
    return ElementTree.fromstring(f"<domain>{text[text.index('<') :]}</domain>")


def test_libvirt_s_fragments_are_xml_of_what_is_wanted() -> None:
    found = domain(KVM)
    tuned = {one.tag: one.text for one in found.findall("cputune/*") if one.text}
    assert tuned == {"shares": "200", "period": "100000", "quota": "25000"}
    for pin, cpus in {
        "vcpupin": [{"vcpu": "0", "cpuset": "2"}, {"vcpu": "1", "cpuset": "1,3"}],
        "emulatorpin": [{"cpuset": "0"}],
        "iothreadpin": [{"iothread": "1", "cpuset": "0"}],
    }.items():
        assert [one.attrib for one in found.findall(f"cputune/{pin}")] == cpus
    assert found.findtext("disk/iotune/total_bytes_sec") == "20000000"
    assert found.find("disk/target").get("dev") == "vda"  # type: ignore[union-attr]
    assert found.find("interface/driver").attrib == {"name": "vhost", "queues": "2"}  # type: ignore[union-attr]


def test_the_interface_is_limited_in_the_definition_only_where_the_uplink_is_not_shaped() -> None:
    assert domain(KVM).find("interface/bandwidth") is None
    (outbound,) = domain(replace(KVM, labels={})).findall("interface/bandwidth/outbound")
    assert outbound.attrib == {"average": "12500", "peak": "12500", "burst": "10000"}


def test_residents_get_their_definitions_after_everything_that_runs() -> None:
    resident = Instance("batch", settings=IsolationSettings(pinning=Pinning(((2,),))))
    made = plan(KVM, SHOP, WANTED, (resident,), {"batch": IsolationSettings(pinning=Pinning(((3,),)))})
    assert made[-1].argv == ()
    assert '<vcpupin vcpu="0" cpuset="3" />' in made[-1].note


def test_containers_and_clouds_have_no_definition_of_ours() -> None:
    for host in (replace(XEN, kind="lxc"), replace(KVM, labels={"render": "openstack"})):
        instance = replace(SHOP, labels={"mac": "52:54:00:12:34:56", "disk": "8:0" if host.kind == "lxc" else "vda"})
        assert not any("to start with it" in one.note for one in plan(host, instance, WANTED, (), {}))
