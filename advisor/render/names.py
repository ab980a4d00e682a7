"""Names from outside, checked before they stand in a command: no options, no other domain, no path out of a group."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from advisor import plug_ins
from advisor.domain.rules import check_rule
from advisor.errors import InvalidInput
from profiler.names import instance_id, is_group_path
from profiler.observed import (
    ANTI_AFFINITY_MOST_LABEL,
    MOVED_LABEL,
    Host,
    Instance,
    parse_cpus,
)

# What the inventory may say about an instance in its labels, and about its host.
MAC, DISK, CGROUP, IOTHREADS, FLAVOR, PORT, POLICY = (
    "mac", "disk", "cgroup", "iothreads", "flavor", "port", "qos_policy",
)  # fmt: skip
VCPU_IDS = "vcpu_ids"  # the numbers of its vCPUs, where an unplug left gaps between them
NAME = "name"  # where it cannot be an id: the hypervisor knows the instance by it
UPLINK, KERNEL, RENDER, ADDRESS = "uplink", "kernel", "render", "address"
CGROUP_VERSION, SCHEDULER = "cgroup_version", "scheduler"  # of a host; agents announce them
DEFAULT_SCHEDULER = "credit2"  # since Xen 4.12
GUEST = "guest"  # how a cloud knows an instance, where that is not by its id: NAMESPACE/NAME in KubeVirt
NATIVE = "native"  # the hypervisor's own tools

_INTERFACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,14}\Z")  # 15 characters: IFNAMSIZ in linux/if.h
_DISK_TARGET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\Z")
_DISK_NUMBER = re.compile(r"\d{1,4}:\d{1,7}\Z")
_ANY_DISK = re.compile(f"{_DISK_TARGET.pattern}|{_DISK_NUMBER.pattern}")
_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?\Z")
_IOTHREADS = re.compile(r"[1-9]\d?\Z")
_KERNEL = re.compile(r"(\d{1,3})\.(\d{1,3})(?!\d)")
# OpenStack allows nearly everything in a name; an id or a plain name always does
_CLOUD_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:@ -]{0,253}[A-Za-z0-9._:@-])?\Z")
_MAC = re.compile(r"[0-9a-f]{2}(?::[0-9a-f]{2}){5}\Z")


def check_labels(one: Host | Instance) -> None:
    """Refuse a label of which no command could be made, or a rule that cannot be kept; InvalidInput names it in its
    field (`labels.uplink`)."""
    readers: Mapping[str, Callable[..., object]] = _OF_HOSTS if isinstance(one, Host) else _OF_INSTANCES
    for label, text in sorted(one.labels.items()):
        try:
            check_rule(label, text, one.id)
            if label in readers:
                readers[label](one)
        except InvalidInput as error:
            raise InvalidInput(error.message, field=f"labels.{label}") from error


def domain_name(instance: Instance) -> str:
    """The name by which xl and virsh find the instance and nothing else.

    Refused are names that would be read as an option, and names that mean another domain: both tools take a number for
    a domain id before they look at names (libxl_domain_qualifier_to_domid; virshLookupDomainInternal), so that a VM
    named `0` would be the driver domain on Xen.
    """
    own = instance.labels.get(NAME, "")
    name = not_an_option(own if own.isprintable() and instance_id(own) == instance.id else instance.id, "instance")
    if name.isdecimal() or name in ("Domain-0", ".", ".."):
        raise InvalidInput(
            f"no command can be rendered for instance {name!r}: tools would take that name for something else; "
            "give the VM a name with a letter in it",
            field="instance.id",
        )
    return name


def group_path(instance: Instance) -> str:
    """The control group of a container, below its hierarchy: the label `cgroup`, else where LXC 4 and later put it."""
    path = instance.labels.get(CGROUP) or f"lxc.payload.{instance.id}"
    if not is_group_path(not_an_option(path, "control group")):
        raise InvalidInput(
            f"instance {instance.id}: control group {path[:80]!r} is not a plain path below the hierarchy "
            "(such as lxc.payload.shop-7)",
            field=f"instance.labels.{CGROUP}",
        )
    return path


def uplink_name(host: Host, uplink: str | None) -> str | None:
    """The interface that carries the guests' traffic out of the host: as given, else the host's label, else None."""
    name = uplink if uplink is not None else host.labels.get(UPLINK)
    if name is not None and not _INTERFACE.match(name):
        raise InvalidInput(f"host {host.id}: uplink {name[:60]!r} is not an interface name", field="host.labels.uplink")
    return name


def mac_address(instance: Instance) -> str | None:
    """The label `mac`, in small letters, or None where there is none."""
    return labelled(instance, MAC, _MAC, "a MAC address (such as 52:54:00:12:34:56)")


def disk_target(instance: Instance) -> str | None:
    """The label `disk` as libvirt names a disk (`vda`), or None."""
    return labelled(instance, DISK, _DISK_TARGET, "a disk of the domain (such as vda)")


def disk_number(instance: Instance) -> str | None:
    """The label `disk` as control groups name a block device (`8:0`), or None."""
    return labelled(instance, DISK, _DISK_NUMBER, "a device number (major:minor, such as 8:0)")


def iothreads(instance: Instance) -> int:
    """The label `iothreads`: how many I/O threads the domain has, 0 where nothing is said."""
    return int(labelled(instance, IOTHREADS, _IOTHREADS, "a number of I/O threads (1-99)") or 0)


def vcpu_numbers(instance: Instance) -> tuple[int, ...]:
    """How the hypervisor numbers the instance's vCPUs: by the label `vcpu_ids`, else from 0.

    A label that does not fit the instance is not refused: only numbers of it are written into a command.
    """
    try:
        numbers = parse_cpus(instance.labels.get(VCPU_IDS, ""))
    except ValueError:
        numbers = ()
    return numbers if len(numbers) == instance.vcpus else tuple(range(instance.vcpus))


def cloud_name(instance: Instance, label: str) -> str | None:
    """A label that names something in OpenStack (`flavor`, `port`, `qos_policy`) by name or id, or None."""
    return labelled(instance, label, _CLOUD_NAME, f"a plain name or id of a {label.replace('_', ' ')}")


def kernel_version(host: Host) -> tuple[int, int] | None:
    """The label `kernel` of a host (`6.1.0-18-amd64`) as (major, minor); None where it says nothing readable.

    Unreadable is not refused: it is compared, and never written into a command.
    """
    version = _KERNEL.match(host.labels.get(KERNEL, ""))
    return (int(version[1]), int(version[2])) if version else None


def cgroup_version(host: Host) -> int | None:
    """The version of control groups that counts CPU time on a host: its label `cgroup_version`, None = not known."""
    text = host.labels.get(CGROUP_VERSION)
    if text not in ("1", "2", None):
        raise InvalidInput(
            f"host {host.id}: label {CGROUP_VERSION} {text[:60]!r} is not 1 or 2", field=f"host.labels.{CGROUP_VERSION}"
        )
    return None if text is None else int(text)


def target_of(host: Host, target: str | None) -> str:
    """Who runs the commands: as asked, else the host's label `render`, else the hypervisor's own tools."""
    name = target if target is not None else host.labels.get(RENDER, NATIVE)
    targets = (NATIVE, *plug_ins.names(plug_ins.RENDERERS))
    if name not in targets:
        field = "target" if target is not None else f"host.labels.{RENDER}"
        plug_ins.check_installed(plug_ins.RENDERERS, name, field)
        message = f"host {host.id}: commands can be rendered for {', '.join(targets)}, not for {name[:60]!r}"
        raise InvalidInput(message, field=field)
    return name


def address(host: Host) -> str:
    """The name by which other hosts reach it: the label `address`, else its id."""
    name = host.labels.get(ADDRESS, host.id)
    if not _HOST_NAME.match(name):
        message = (
            f"host {host.id}: {name[:60]!r} is no host name that others could reach it by; give it label {ADDRESS}"
        )
        raise InvalidInput(message, field=f"host.labels.{ADDRESS}")
    return name


def _any_disk(instance: Instance) -> str | None:
    """The label `disk` of an instance that may come to any kind of host."""
    return labelled(instance, DISK, _ANY_DISK, "a disk of a domain (such as vda) or a device number (such as 8:0)")


def labelled(instance: Instance, label: str, pattern: re.Pattern[str], expected: str) -> str | None:
    """A label that matches a pattern, or None where it has none; InvalidInput where it is not `expected`."""
    value = instance.labels.get(label)
    if value is None:
        return None
    if label == MAC:
        value = value.lower()
    if not pattern.match(value):
        raise InvalidInput(
            f"instance {instance.id}: label {label} {value[:60]!r} is not {expected}", field=f"instance.labels.{label}"
        )
    return value


def not_an_option(name: str, what: str, tool: str = "tools") -> str:
    """The same name; InvalidInput where a tool would read it as an option."""
    if name.startswith("-"):
        reads = "would read that name as an option" if tool == "tools" else "would read it as an option"
        message = f"no command can be rendered for {what} {name[:60]!r}: {tool} {reads}"
        raise InvalidInput(message, field="instance.id")
    return name


_OF_HOSTS: Mapping[str, Callable[[Host], object]] = {
    RENDER: partial(target_of, target=None), UPLINK: partial(uplink_name, uplink=None), ADDRESS: address,
    CGROUP_VERSION: cgroup_version,
}  # fmt: skip


def _anti_affinity_most(instance: Instance) -> None:
    if str(instance.anti_affinity_most) != instance.labels[ANTI_AFFINITY_MOST_LABEL]:
        raise InvalidInput(f"anti_affinity_most of {instance.id} is no whole number from 1 to 99,999")


def _moved_at(instance: Instance) -> None:
    for text in instance.labels[MOVED_LABEL].split(","):
        try:
            datetime.fromisoformat(text.strip())
        except ValueError:
            message = f"moved_at of {instance.id} has {text[:40]!r}, which is no moment like 2026-03-01T12:00Z"
            raise InvalidInput(message) from None


_OF_INSTANCES: Mapping[str, Callable[[Instance], object]] = {
    MOVED_LABEL: _moved_at,
    ANTI_AFFINITY_MOST_LABEL: _anti_affinity_most,
    MAC: mac_address,
    DISK: _any_disk,
    CGROUP: group_path,
    IOTHREADS: iothreads,
    **{label: partial(cloud_name, label=label) for label in (FLAVOR, PORT, POLICY)},
}
