"""KVM: settings as elements of a domain's definition (libvirt, formatdomain)."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

from advisor.render.change import RenderOptions, SettingsChange, Step, bytes_per_second, only_said
from advisor.render.groups import by_version, period_and_quota
from advisor.render.names import disk_target, iothreads, mac_address, vcpu_numbers
from advisor.render.policing import policed
from advisor.render.tc import on_uplink
from advisor.render.virsh import other_threads
from profiler.observed import format_cpus


def definition(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """Elements for the domain's definition (virsh edit), so that it starts with its settings."""
    parts = (_cputune(change, options), _iotune(change), _bandwidth(change, options.uplink))
    text = "".join(ElementTree.tostring(part, encoding="unicode") for part in parts if part is not None)
    if text:
        yield only_said("virsh", f"to start with it, write into the domain {change.instance.id} (virsh edit): {text}")


def _cputune(change: SettingsChange, options: RenderOptions) -> ElementTree.Element | None:
    desired, instance = change.desired, change.instance
    tune = ElementTree.Element("cputune")
    if desired.weight is not None:
        ElementTree.SubElement(tune, "shares").text = str(by_version(options)(desired.weight))
    if desired.cap_percent is not None:
        period, quota = period_and_quota(desired.cap_percent / 100 / instance.vcpus, instance)
        ElementTree.SubElement(tune, "period").text = str(period)
        ElementTree.SubElement(tune, "quota").text = str(quota)
    if desired.pinning is not None:
        for vcpu, number in enumerate(vcpu_numbers(instance)):
            cpus = change.allowed(desired.pinning, vcpu)
            if cpus != change.every_cpu:
                ElementTree.SubElement(tune, "vcpupin", vcpu=str(number), cpuset=format_cpus(cpus))
    _, others = other_threads(change)
    if others != change.every_cpu and (desired.pinning is not None or change.comes):
        ElementTree.SubElement(tune, "emulatorpin", cpuset=format_cpus(others))
        for thread in range(1, iothreads(instance) + 1):
            ElementTree.SubElement(tune, "iothreadpin", iothread=str(thread), cpuset=format_cpus(others))
    return tune if len(tune) else None


def _iotune(change: SettingsChange) -> ElementTree.Element | None:
    limit, target = bytes_per_second(change.desired.disk_limit_mb_s), disk_target(change.instance)
    if limit is None or target is None:
        return None
    disk = ElementTree.Element("disk")
    ElementTree.SubElement(disk, "target", dev=target)
    ElementTree.SubElement(ElementTree.SubElement(disk, "iotune"), "total_bytes_sec").text = str(limit)
    return disk


def _bandwidth(change: SettingsChange, uplink: str | None) -> ElementTree.Element | None:
    """The interface's limit where tc cannot hold it on the uplink, and a queue per vCPU for one that is shaped."""
    desired, mac = change.desired.network, mac_address(change.instance)
    limit = None if on_uplink(change.host, uplink) else policed(desired)
    queues = change.instance.vcpus if desired is not None and desired.mode != "none" else 1
    if mac is None or (limit is None and queues == 1):
        return None
    interface = ElementTree.Element("interface")
    ElementTree.SubElement(interface, "mac", address=mac)
    if limit is not None:
        ElementTree.SubElement(
            ElementTree.SubElement(interface, "bandwidth"),
            "outbound",
            average=str(limit.kbyte_s),
            peak=str(limit.kbyte_s),
            burst=str(limit.burst_kbyte),
        )
    if queues > 1:
        # One queue is the default and is served by one vhost thread; more than vCPUs serve no instance.
        ElementTree.SubElement(interface, "driver", name="vhost", queues=str(queues))
    return interface
