"""Reads containers of any kind: control groups for CPU and disk, tasks for scheduling, namespaces for traffic."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import socket
from collections.abc import Mapping

from profiler.backends.base import BackendError, Counters, DomainCounters
from profiler.backends.groups import Groups, GroupsMissingError, find_groups, walk
from profiler.backends.linux import HostReader, attempt, read_interfaces, read_tasks
from profiler.backends.source import LiveSource, Source
from profiler.observed import Instance, IsolationSettings, Pinning
from profiler.parse import InterfaceBytes, ParseError

# Groups of the container programs in use; `name` becomes the instance's id.
_CONTAINERS = (
    re.compile(r"(?:^|/)lxc(?:/|\.payload[./])(?P<name>[^/]+)\Z"),
    re.compile(r"(?:^|/)docker/(?P<name>[0-9a-f]{64})\Z"),
    re.compile(r"(?:^|/)(?:docker|libpod|crio|cri-containerd)-(?P<name>[0-9a-f]{64})\.scope\Z"),
    re.compile(r"(?:^|/)machine\.slice/machine-(?!qemu|lxc)(?P<name>.+)\.scope\Z"),
    re.compile(r"(?:^|/)cotenant-lab-(?P<name>[^/]+)\Z"),
)
_HEX_ID = 64
_SHORT_ID = 12  # what the container programs themselves show
_LONGEST_ID = 255
_GONE = (errno.ENOENT, errno.ENODEV, errno.ESRCH)


class LxcBackend:
    """Containers on Linux, version 1 and 2 control groups.

    `known` maps group paths to instances and replaces the search for containers; `interfaces` maps instance ids to the
    host side of their veth pair. Without one, the counters inside the instance's network namespace are read.
    """

    name = "lxc"

    def __init__(
        self,
        source: Source | None = None,
        host: str | None = None,
        known: Mapping[str, Instance] | None = None,
        interfaces: Mapping[str, str] | None = None,
    ) -> None:
        self._source = source or LiveSource()
        try:
            self._groups: Groups = find_groups(self._source)
        except (GroupsMissingError, ParseError, OSError) as error:
            raise BackendError(f"containers cannot be read: {error}") from None
        self.host = host or instance_id(socket.gethostname() or "localhost")
        self._known = dict(known) if known is not None else None
        self._interfaces = dict(interfaces or {})
        self._host_reader = HostReader(self._source)

    def list_instances(self) -> list[Instance]:
        return [instance for _, instance in self._found()]

    def read_counters(self) -> Counters:
        time_s, monotonic_s = self._source.clock()
        absent: dict[str, str] = {}
        outside = attempt(absent, "net_bytes", read_interfaces, self._source) or {}
        host_network = attempt({}, "", self._source.link, "/proc/1/ns/net")
        instances: dict[str, DomainCounters] = {}
        vanished: list[str] = []
        for path, instance in self._found():
            try:
                instances[instance.id] = self._instance(path, instance, outside, host_network)
            except OSError as error:
                if error.errno not in _GONE:
                    raise BackendError(f"group {path} cannot be read ({error.strerror}): run as root") from None
                vanished.append(instance.id)
        driver, whole = self._host_reader.read(absent)
        return Counters(self.host, time_s, monotonic_s, instances, driver, whole, absent, tuple(vanished))

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        path = next((path for path, found in self._found() if found.id == instance.id), None)
        if path is None:
            raise BackendError(f"instance {instance.id} is not on this host (list them with: cotenant-profiler once)")
        unread: dict[str, str] = {}
        cpus = attempt(unread, "pinning", self._groups.cpus, path)
        quota = attempt(unread, "cap_percent", self._groups.quota, path)
        limit = attempt(unread, "disk_limit_mb_s", self._groups.disk_limit_bytes, path)
        return IsolationSettings(
            pinning=Pinning.all_on(cpus, instance.vcpus) if cpus else None,
            cap_percent=quota.percent if quota else None,
            weight=attempt(unread, "weight", self._groups.weight, path),
            disk_limit_mb_s=limit / 1e6 if limit else None,
        )

    def close(self) -> None:
        """Nothing is kept open."""

    def _found(self) -> list[tuple[str, Instance]]:
        if self._known is not None:
            return sorted(self._known.items(), key=lambda item: item[1].id)
        found: dict[str, tuple[str, Instance]] = {}
        for path in walk(self._groups):
            match = next((match for pattern in _CONTAINERS if (match := pattern.search(path))), None)
            if match is None:
                continue
            name = match["name"]
            identifier = instance_id(name[:_SHORT_ID] if len(name) == _HEX_ID else name)
            found.setdefault(identifier, (path, Instance(identifier, vcpus=self._vcpus(path), host=self.host)))
        return [found[identifier] for identifier in sorted(found)]

    def _vcpus(self, path: str) -> int:
        """A container has no vCPUs: as many CPUs as it may use at once, by its cpuset and its quota."""
        unread: dict[str, str] = {}
        allowed = len(attempt(unread, "cpus", self._groups.cpus, path) or ()) or os.cpu_count() or 1
        quota = attempt(unread, "quota", self._groups.quota, path)
        if quota is None or quota.percent is None:
            return allowed
        return max(1, min(allowed, -int(-quota.percent // 100)))

    def _instance(
        self, path: str, instance: Instance, outside: Mapping[str, InterfaceBytes], host_network: str | None
    ) -> DomainCounters:
        tids = self._groups.tasks(path)
        absent: dict[str, str] = {}
        cpu_ns = attempt(absent, "cpu_ns", self._groups.cpu_ns, path)
        disk_bytes = attempt(absent, "disk_bytes", self._groups.disk_bytes, path)
        tasks, rss_mb = read_tasks(self._source, tids, with_io=disk_bytes is None)
        if disk_bytes is None:  # the tasks' own counts take its place
            if all(task.io_bytes is not None for task in tasks.values()):
                absent.pop("disk_bytes", None)
            else:
                absent["disk_bytes"] = "neither its group nor its tasks show block I/O (run as root)"
        return DomainCounters(
            instance.vcpus,
            tasks,
            cpu_ns,
            net_bytes=self._net_bytes(instance, tids, outside, host_network, absent),
            disk_bytes=disk_bytes,
            further=self._further(path, absent),
            gauges={"rss_mb": rss_mb},
            absent=absent,
        )

    def _further(self, path: str, absent: dict[str, str]) -> dict[str, int]:
        """Counters beyond the eight: time in the kernel, time held back by the cap, pressure stalls."""
        cpu_pressure = attempt(absent, "psi_cpu_us", self._groups.pressure, path, "cpu")
        io_pressure = attempt(absent, "psi_io_us", self._groups.pressure, path, "io")
        counters = {
            "system_ns": attempt(absent, "system_ns", self._groups.system_ns, path),
            "throttled_ns": attempt(absent, "throttled_ns", self._groups.throttled_ns, path),
            "psi_cpu_us": cpu_pressure.some_us if cpu_pressure else None,
            "psi_io_us": io_pressure.some_us if io_pressure else None,
        }
        return {name: value for name, value in counters.items() if value is not None}

    def _net_bytes(
        self,
        instance: Instance,
        tids: list[int],
        outside: Mapping[str, InterfaceBytes],
        host_network: str | None,
        absent: dict[str, str],
    ) -> int | None:
        name = self._interfaces.get(instance.id)
        if name is not None and name in outside:
            return outside[name].received + outside[name].sent
        for tid in tids:
            network = attempt({}, "", self._source.link, f"/proc/{tid}/ns/net")
            if network is None:
                continue
            if network == host_network:
                absent["net_bytes"] = "it uses the host's own network, where traffic cannot be told apart"
                return None
            inside = attempt(absent, "net_bytes", read_interfaces, self._source, str(tid))
            if inside is not None:
                absent.pop("net_bytes", None)
                return sum(link.received + link.sent for name, link in inside.items() if name != "lo")
        absent.setdefault("net_bytes", "it has no task whose network namespace could be read")
        return None


def instance_id(name: str) -> str:
    """Make an id of the contract from any name; a name that had to change gets a digest so that two stay two."""
    decoded = re.sub(r"\\x([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), name)  # systemd escapes unit names
    clean = re.sub(r"[^A-Za-z0-9._:-]", "_", decoded)
    if clean == name and 0 < len(clean) <= _LONGEST_ID:
        return clean
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{clean[:200]}-{digest}"
