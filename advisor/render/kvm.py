"""KVM by libvirt: what runs is changed by virsh, what starts by the domain's definition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from advisor.domain import Command
from advisor.render.change import (
    Phase,
    Policed,
    RenderOptions,
    SettingsChange,
    Step,
    by_version,
    bytes_per_second,
    disk_limited,
    loosens,
    more,
    only_said,
    period_and_quota,
    policed,
    quota_note,
    replaced,
    weighted,
)
from advisor.render.names import address, disk_target, domain_name, iothreads, mac_address, vcpu_numbers
from advisor.render.tc import on_uplink
from models.physics.cpu_speed import DEFAULT_US
from profiler.observed import Host, Instance, format_cpus

# KVM: virsh commands for a running domain; `--live` only, a restart brings the defined state back.

NO_QUOTA = -1  # any negative value (virsh(1), schedinfo)


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """What virsh can do of a change, but the network; see `Phase` for the order."""
    name = domain_name(change.instance)
    numbers = vcpu_numbers(change.instance)
    for vcpu, now, then in change.moved_vcpus():
        pin = ("virsh", "vcpupin", "--domain", name, "--vcpu", str(numbers[vcpu]), "--live", "--cpulist")
        # `r` is every CPU (virsh(1), vcpupin)
        yield Step(Phase.PIN, Command("virsh", (*pin, change.cpu_list(then, "r")), (*pin, change.cpu_list(now, "r"))))
    yield from _driver_threads(change, name)
    # libvirt hands cpu_shares on as they are: cpu.shares on version 1, cpu.weight on version 2 (formatdomain, shares).
    yield from weighted("virsh", change, options, lambda value: _schedinfo(name, f"cpu_shares={value}"))
    yield from _cap(change, name)
    tune = ("virsh", "blkdeviotune", "--domain", name, "--device")
    yield from disk_limited(
        "virsh",
        change,
        disk_target(change.instance),
        "which one it is, such as vda",
        lambda disk, limit: (*tune, disk, "--live", "--total-bytes-sec", str(limit or 0)),
    )


def interface(change: SettingsChange) -> Iterator[Step] | None:
    """The limit on what the guest sends at its own interface; None where its MAC address is not known.

    Guest outbound is a policer on the tap that drops what is too much (libvirt, virnetdevbandwidth.c), where the class
    on the uplink lets it wait; guest inbound would be an HTB class, and is left alone.
    """
    mac = mac_address(change.instance)
    return None if mac is None else _policed(change, mac)


def _policed(change: SettingsChange, mac: str) -> Iterator[Step]:
    name = domain_name(change.instance)
    now, then = policed(change.current.network), policed(change.desired.network)
    if change.desired.network in (None, change.current.network):
        return
    if change.desired.network is not None and change.desired.network.mode == "shared":
        yield only_said("virsh", f"the interface of {name} can be limited, but no rate can be kept free for it there")
    tune = ("virsh", "domiftune", "--domain", name, "--interface", mac, "--live", "--outbound")
    yield from replaced(
        "virsh",
        now,
        then,
        lambda limit: (*tune, _outbound(limit)),
        loosens=loosens(now, then),
        note="what the guest sends beyond its rate is dropped; it waits instead where the host's uplink is known",
    )


def other_threads(change: SettingsChange) -> tuple[frozenset[int], frozenset[int]]:
    """Where its other threads (emulator, vhost, I/O) are and belong afterwards.

    On the driver's CPUs once any vCPU is pinned. Those of who comes belong there in any case, for that is where its
    work for the driver domain was predicted.
    """
    driver = frozenset(change.host.driver_cpus) or change.every_cpu
    was = change.pinned(change.current.pinning)
    will = was if change.desired.pinning is None else change.pinned(change.desired.pinning)
    return driver if was else change.every_cpu, driver if will or change.comes else change.every_cpu


def _outbound(limit: Policed | None) -> str:
    """average,peak,burst in kilobytes (per second); 0 clears it (virsh(1), domiftune)."""
    return f"{limit.kbyte_s},{limit.kbyte_s},{limit.burst_kbyte}" if limit else "0"


def _driver_threads(change: SettingsChange, name: str) -> Iterator[Step]:
    now, then = other_threads(change)
    if now == then:
        return
    emulator = ("virsh", "emulatorpin", "--domain", name, "--live", "--cpulist")
    yield Step(
        Phase.PIN, Command("virsh", (*emulator, change.cpu_list(then, "r")), (*emulator, change.cpu_list(now, "r")))
    )
    everywhere = format_cpus(tuple(change.host.cpus))  # iothreadpin has no word for it
    for thread in range(1, iothreads(change.instance) + 1):
        pin = ("virsh", "iothreadpin", "--domain", name, "--iothread", str(thread), "--live", "--cpulist")
        argv, undo = ((*pin, change.cpu_list(cpus, everywhere)) for cpus in (then, now))
        yield Step(Phase.PIN, Command("virsh", argv, undo))


def _schedinfo(name: str, *parameters: str) -> tuple[str, ...]:
    sets = (part for text in parameters for part in ("--set", text))
    return ("virsh", "schedinfo", "--domain", name, "--live", *sets)


def _cap(change: SettingsChange, name: str) -> Iterator[Step]:
    vcpus, now, then = change.instance.vcpus, change.current.cap_percent, change.desired.cap_percent
    if then is None:
        return
    # vcpu_quota holds for each vCPU alone (formatdomain, quota), so the instance's cap is divided among them.
    note = quota_note(then / 100 / vcpus, change.instance)
    if vcpus > 1 and not note:
        note = f"the cap of {then:g} % is divided among {vcpus} vCPUs: one busy vCPU alone gets {then / vcpus:g} %"
    yield from replaced(
        "virsh",
        (DEFAULT_US, NO_QUOTA) if now is None else period_and_quota(now / 100 / vcpus, change.instance),
        period_and_quota(then / 100 / vcpus, change.instance),
        lambda pair: _schedinfo(name, f"vcpu_period={pair[0]}", f"vcpu_quota={pair[1]}"),
        loosens=more(now, then),
        note=note,
    )


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a domain, started where it runs."""
    how = ("--live", "--persistent", "--undefinesource")
    start = ("virsh", "migrate", *how, "--domain", domain_name(instance), "--desturi")
    argv, undo = ((*start, f"qemu+ssh://{address(host)}/system") for host in (target, source))
    return Command("virsh", argv, undo, "disks of their own need --copy-storage-all")


def set_vcpus(former: Instance, then: Instance) -> Command:
    """Another number of vCPUs.

    Only vCPUs that were plugged in can be taken out of a running domain (virsh(1), setvcpus), so fewer come by its
    definition; what is live alone would be lost when it starts again.
    """
    more_come = then.vcpus > former.vcpus
    how = ("--live", "--config") if more_come else ("--config",)
    start = ("virsh", "setvcpus", "--domain", domain_name(then), *how, "--count")
    note = "more than its definition's most needs that changed and a restart"
    later = "holds from its next start; --live does it at once where they are hot-pluggable"
    return Command("virsh", (*start, str(then.vcpus)), (*start, str(former.vcpus)), note if more_come else later)


def move_driver(
    host: Host, now: tuple[int, ...], then: tuple[int, ...], residents: Sequence[Instance]
) -> Iterator[Command]:
    """The emulator threads of every guest; vhost threads follow them (libvirt, formatdomain, emulatorpin)."""
    everywhere = tuple(host.cpus)
    for resident in residents:
        start = ("virsh", "emulatorpin", "--domain", domain_name(resident), "--live", "--cpulist")
        argv, undo = ((*start, "r" if cpus == everywhere else format_cpus(cpus)) for cpus in (then, now))
        yield Command("virsh", argv, undo)


# KVM: settings as elements of a domain's definition (libvirt, formatdomain).


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
