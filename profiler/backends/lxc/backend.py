"""Reads containers of any kind: control groups for CPU and disk, tasks for scheduling, namespaces for traffic."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from profiler.backends.base import BackendError, Counters, DomainCounters
from profiler.backends.linux import GONE, HostReader, or_none
from profiler.backends.lxc.container import ContainerReader
from profiler.backends.lxc.control_groups import Groups, GroupsMissingError, find_groups, group_number
from profiler.backends.lxc.listing import ContainerListing, ListedContainer
from profiler.backends.lxc.traffic import ContainerTraffic, HostInterfaces
from profiler.backends.memory import HostMemory
from profiler.backends.source import HostSource, LiveSource
from profiler.backends.stalls import TaskDelays
from profiler.instance_ids import instance_id
from profiler.observed import Instance, IsolationSettings, Pinning
from profiler.parse.text import ParseError


class LxcBackend:
    """Containers on Linux, version 1 and 2 control groups.

    `known` maps group paths to instances and replaces the search for containers.
    """

    name = "lxc"

    def __init__(
        self,
        source: HostSource | None = None,
        host: str | None = None,
        known: Mapping[str, Instance] | None = None,
    ) -> None:
        self._source = source or LiveSource()
        try:
            self._groups: Groups = find_groups(self._source)
        except (GroupsMissingError, ParseError, OSError) as error:
            raise BackendError(f"containers cannot be read: {error}") from None
        self.host = host or instance_id(socket.gethostname() or "localhost")
        self._listing = ContainerListing(self._source, self._groups, self.host, known)
        self._host_interfaces = HostInterfaces(self._source)
        self._readers: dict[str, ContainerReader] = {}
        self._host_reader = HostReader(self._source)
        self._delays = TaskDelays(self._source)
        self._memory = HostMemory(self._source)

    def list_instances(self) -> list[Instance]:
        return [container.instance for container in self._containers(self._source.clock()[1])]

    def read_counters(self) -> Counters:
        time_s, monotonic_s = self._source.clock()
        absent: dict[str, str] = {}
        self._host_interfaces.begin()
        instances: dict[str, DomainCounters] = {}
        vanished: list[str] = []
        readers: dict[str, ContainerReader] = {}
        for container in self._containers(monotonic_s):
            path, name = container.path, container.instance.id
            reader = readers[path] = self._reader(container)
            try:
                instances[name] = reader.read(container, monotonic_s)
            except OSError as error:
                if error.errno not in GONE:
                    raise BackendError(f"group {path} cannot be read ({error.strerror}): run as root") from None
                vanished.append(name)
                self._listing.forget()
            except ParseError as error:
                raise BackendError(f"group {path} cannot be read: {error}") from None
        self._readers = readers
        driver, whole = self._host_reader.read(absent)
        whole = self._memory.beside(whole, monotonic_s)
        self._source.sweep(ended=bool(vanished))
        return Counters(self.host, time_s, monotonic_s, instances, driver, whole, absent, tuple(vanished))

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        containers = self._containers(self._source.clock()[1])
        path = next((container.path for container in containers if container.instance.id == instance.id), None)
        if path is None:
            self._listing.forget()  # the instance may be newer than the list
            raise BackendError(f"instance {instance.id} is not on this host (list them with: cotenant-profiler once)")
        cpus = or_none(self._groups.cpus, path)
        quota = or_none(self._groups.quota, path)
        limit = or_none(self._groups.disk_limit_bytes, path)
        return IsolationSettings(
            pinning=Pinning.all_on(cpus, instance.vcpus) if cpus else None,
            cap_percent=quota.percent if quota else None,
            weight=or_none(self._groups.weight, path),
            disk_limit_mb_s=limit / 1e6 if limit else None,
        )

    def threads(self) -> Mapping[str, tuple[int, ...]]:
        names = {container.path: container.instance.id for container in self._containers(self._source.clock()[1])}
        return {names[path]: reader.threads for path, reader in self._readers.items() if path in names}

    def counted_groups(self) -> Mapping[str, str]:
        folders: dict[str, str] = {}
        for container in self._containers(self._source.clock()[1]):
            folder = self._groups.counted_folder(container.path)
            if folder and or_none(self._source.names, folder) is not None:
                folders[container.instance.id] = folder
        return folders

    def scheduling_groups(self) -> Mapping[int, str]:
        """Each container's group and those below it. In version 2 a group without the cpu controller is its parent."""
        numbers: dict[int, str] = {}
        for container in self._containers(self._source.clock()[1]):
            for path in (container.path, *container.below):
                number = or_none(group_number, self._source, self._groups.scheduler_folder(path))
                if number is not None:
                    numbers[number] = container.instance.id
        return numbers

    def close(self) -> None:
        self._source.close()

    def _reader(self, container: ListedContainer) -> ContainerReader:
        reader = self._readers.get(container.path)
        if reader is None:
            traffic = ContainerTraffic(self._source, self._host_interfaces)
            reader = ContainerReader(self._source, self._groups, traffic, self._delays)
        return reader

    def _containers(self, now_s: float) -> list[ListedContainer]:
        try:
            return self._listing.at(now_s)
        except OSError as error:
            raise BackendError(f"control groups cannot be listed ({error.strerror})") from None
