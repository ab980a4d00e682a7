"""Settings → the fields of a CloudStack service offering, said and not run.

An offering's CPU and rates cannot be changed once it is made, and a new one is known by an id that only its making
reports; so there is no command whose undo could be written down before. Fields by CreateServiceOfferingCmd.java
(`cmk create serviceoffering name=value ...`), moves by MigrateVMCmd.java; checked against those texts only, not run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace

from advisor.domain import Command
from advisor.render.change import RenderOptions, SettingsChange, Step, bytes_per_second, only_said, policed
from profiler.observed import Host, Instance, IsolationSettings

TOOL = "cmk"
PINS_TRAVEL = False  # it has none


def steps(change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
    """One sentence with the whole offering, and one for each thing that an offering cannot say."""
    del options
    whole = _complete(change)
    offered = " ".join(f"{name}={value}" for name, value in _fields(change, whole).items())
    if _fields(change, whole) != _fields(change, change.current):
        yield only_said(
            TOOL,
            f"give {change.instance.id} a service offering with {offered} "
            "(cmk create serviceoffering, then cmk scale virtualmachine); its undo is to scale back to the one it has",
        )
    for what, desired, now in (
        ("a pinning", change.desired.pinning, change.current.pinning),
        ("a weight of its own (it follows from cpunumber and cpuspeed)", change.desired.weight, change.current.weight),
    ):
        if desired not in (None, now):
            yield only_said(TOOL, f"a service offering cannot give {change.instance.id} {what}")
    if whole.cap_percent is not None and change.host.cpu_mhz is None:
        yield only_said(
            TOOL, f"a cap is a part of the clock rate, and that of host {change.host.id} (cpu_mhz) is not known"
        )
    network = change.desired.network
    if network is not None and network.mode == "shared" and network != change.current.network:
        yield only_said(TOOL, f"networkrate is a limit: it keeps no rate free for {change.instance.id}")


def network(change: SettingsChange) -> Iterator[Step]:
    """Nothing beside the offering."""
    del change
    return iter(())


def migrate(instance: Instance, source: Host, target: Host) -> Command:
    """The live migration of a VM, by the ids of VM and host."""
    call = (TOOL, "migrate", "virtualmachine", f"virtualmachineid={instance.id}")
    return Command(TOOL, (*call, f"hostid={target.id}"), (*call, f"hostid={source.id}"))


def set_vcpus(host: Host, former: Instance, then: Instance) -> Command:
    """Said: a size is a service offering."""
    del host, former
    size = f"{then.vcpus} vCPU{'s' if then.vcpus > 1 else ''}"
    text = f"give {then.id} a service offering of {size} ({TOOL} scale virtualmachine); which one is not known here"
    return Command(TOOL, (), (), text)


def _complete(change: SettingsChange) -> IsolationSettings:
    """What holds afterwards: an offering is whole or not at all."""
    desired = {f.name: value for f in fields(change.desired) if (value := getattr(change.desired, f.name)) is not None}
    return replace(change.current, **desired)


def _fields(change: SettingsChange, settings: IsolationSettings) -> dict[str, str]:
    instance, mhz = change.instance, change.host.cpu_mhz
    offering = {"cpunumber": str(instance.vcpus)}
    if mhz is not None:
        part = min(1.0, (settings.cap_percent or 100.0 * instance.vcpus) / 100 / instance.vcpus)
        offering |= {"cpuspeed": str(max(1, round(mhz * part)))}
        if settings.cap_percent is not None:
            offering["limitcpuuse"] = "true"
    if instance.memory_mb:
        offering["memory"] = str(round(instance.memory_mb))
    limit, disk = policed(settings.network), bytes_per_second(settings.disk_limit_mb_s)
    if limit is not None:
        offering["networkrate"] = str(max(1, round(limit.kbit_s / 1000)))  # whole Mbit/s
    if disk is not None:
        offering |= {"bytesreadrate": str(disk), "byteswriterate": str(disk)}
    return offering
