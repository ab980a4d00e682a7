"""Lists the containers on this host with groups, ids, CPUs and names; the list is cached for a few seconds."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any

from profiler.backends.linux import or_none
from profiler.backends.lxc.control_groups import Groups, walk
from profiler.backends.sources import HostSource
from profiler.names import instance_id, name_label
from profiler.observed import Instance
from profiler.parse.cgroup import parse_cpuset

# Docker's and Podman's names of a container and its image, from their files; no daemon is asked.

_DOCKER = "/var/lib/docker/containers/{id}/config.v2.json"
_PODMAN = "/var/lib/containers/storage/{driver}-containers/containers.json"
_DRIVERS = ("overlay", "vfs")
_ID = re.compile(r"(?:docker[/-]|libpod-)(?P<id>[0-9a-f]{64})(?:\.scope)?\Z")
_LONGEST = 255


def names_of(source: HostSource, path: str) -> Mapping[str, str]:
    """`name` and `image` of the container of this group, as far as they are known."""
    match = _ID.search(path)
    if match is None:
        return {}
    docker = _json(source, _DOCKER.format(id=match["id"]))
    if isinstance(docker, dict):
        config = docker.get("Config")
        image = config.get("Image") if isinstance(config, dict) else None
        return _texts(name=str(docker.get("Name", "")).lstrip("/"), image=image)
    for driver in _DRIVERS:
        listed = _json(source, _PODMAN.format(driver=driver))
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == match["id"]:
                metadata = _podman_metadata(entry)
                return _texts(name=metadata.get("name"), image=metadata.get("image-name"))
    return {}


def _podman_metadata(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Podman keeps it as JSON inside a text."""
    try:
        metadata = json.loads(entry.get("metadata") or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return metadata if isinstance(metadata, dict) else {}


def _json(source: HostSource, path: str) -> Any:
    try:
        return json.loads(source.read(path))
    except (OSError, ValueError, RecursionError):
        return None


def _texts(**values: object) -> Mapping[str, str]:
    return {
        name: "".join(char if char.isprintable() else " " for char in text)[:_LONGEST]
        for name, text in values.items()
        if isinstance(text, str) and text
    }


# Groups of the container programs in use; `name` becomes the instance's id.
_CONTAINERS = (
    re.compile(r"(?:^|/)lxc(?:/|\.payload[./])(?P<name>[^/]+)\Z"),
    re.compile(r"(?:^|/)docker/(?P<name>[0-9a-f]{64})\Z"),
    re.compile(r"(?:^|/)(?:docker|libpod|crio|cri-containerd)-(?P<name>[0-9a-f]{64})(?:\.scope)?\Z"),
    re.compile(r"(?:^|/)machine\.slice/machine-(?!qemu|lxc)(?P<name>.+)\.scope\Z"),
    re.compile(r"(?:^|/)cotenant-lab-(?P<name>[^/]+)\Z"),
)
_UID = "[-_]".join(f"([0-9a-f]{{{digits}}})" for digits in (8, 4, 4, 4, 12))
_STATIC = "([0-9a-f]{32})"  # of a static pod: a hash of its file (k8s.io/kubernetes/pkg/kubelet/config/common.go)
_POD = re.compile(rf"/[^/]*pod(?:{_UID}|{_STATIC})(?:\.slice)?(?:/|\Z)")
_HEX_ID = 64
_SHORT_ID = 12  # what the container programs themselves show
_ISOLATED = "/sys/devices/system/cpu/isolated"
_KEEP_LIST_S = 4.5  # with a reading per second they are listed in every fifth
_KEEP_CPUS_S = 15.0  # a changed cpuset or quota is seen after that long; it changes what waiting and block refer to


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """One container: its group, and the groups below it (an init system makes some)."""

    path: str
    instance: Instance
    below: tuple[str, ...] = ()


class ContainerListing:
    """The containers on this host, ordered by id; `known` maps group paths to instances and replaces the search."""

    def __init__(
        self, source: HostSource, groups: Groups, host: str, known: Mapping[str, Instance] | None = None
    ) -> None:
        self._source = source
        self._groups = groups
        self._host = host
        self._known = dict(known) if known is not None else None
        self._containers: list[ListedContainer] = []
        self._listed_s: float | None = None
        self._isolated: frozenset[int] = frozenset()
        self._sizes: dict[str, tuple[float, int, float]] = {}  # by group: when it was read, CPUs, MB

    def at(self, now_s: float) -> list[ListedContainer]:
        """The containers at this time of the monotonic clock, by a list that is at most some seconds old.

        Raises OSError when control groups cannot be listed at all.
        """
        if self._listed_s is None or not 0 <= now_s - self._listed_s < _KEEP_LIST_S:
            containers = self._search(now_s) if self._known is None else self._look_up(self._known)
            self._containers = sorted(containers, key=lambda container: container.instance.id)
            self._sizes = {each.path: self._sizes[each.path] for each in containers if each.path in self._sizes}
            self._listed_s = now_s
        return self._containers

    def forget(self) -> None:
        """Search again next time: the list is out of date."""
        self._listed_s = None

    def _look_up(self, known: Mapping[str, Instance]) -> list[ListedContainer]:
        return [ListedContainer(path, instance, tuple(walk(self._groups, path))) for path, instance in known.items()]

    def _search(self, now_s: float) -> list[ListedContainer]:
        self._isolated = frozenset(or_none(self._read_isolated) or ())
        paths = [path for top in self._groups.children("") for path in (top, *walk(self._groups, top))]
        before = {container.path: container for container in self._containers}
        by_id: dict[str, ListedContainer] = {}
        for position, path in enumerate(paths):
            identifier = _instance(path)
            if identifier is None or identifier in by_id:
                continue
            (vcpus, memory_mb), below = self._size_of(path, now_s), _below(paths, position)
            container = before.get(path)
            if container is None:
                labels = {"cgroup": path, **name_label(_name(path) or ""), **names_of(self._source, path)}
                instance = Instance(identifier, vcpus, memory_mb, host=self._host, labels=labels)
                container = ListedContainer(path, instance, below)
            elif (container.below, container.instance.vcpus, container.instance.memory_mb) != (below, vcpus, memory_mb):
                instance = replace(container.instance, vcpus=vcpus, memory_mb=memory_mb)
                container = ListedContainer(path, instance, below)
            by_id[identifier] = container
        return list(by_id.values())

    def _size_of(self, path: str, now_s: float) -> tuple[int, float]:
        read_s, vcpus, memory_mb = self._sizes.get(path, (None, 0, 0.0))
        if read_s is None or not 0 <= now_s - read_s < _KEEP_CPUS_S:
            vcpus = self._read_vcpus(path)
            memory_mb = (or_none(self._groups.memory_limit_bytes, path) or 0) / (1 << 20)
            self._sizes[path] = (now_s, vcpus, memory_mb)
        return vcpus, memory_mb

    def _read_isolated(self) -> tuple[int, ...]:
        return parse_cpuset(self._source.read(_ISOLATED), _ISOLATED)

    def _read_vcpus(self, path: str) -> int:
        """A container has no vCPUs: as many CPUs as it may use at once, by its cpuset and its quota.

        Isolated CPUs count where it may use no others: the scheduler moves nothing to them.
        """
        cpus = frozenset(or_none(self._groups.cpus, path) or ())
        allowed = len(cpus - self._isolated or cpus) or os.cpu_count() or 1
        quota = or_none(self._groups.quota, path)
        if quota is None or quota.percent is None:
            return allowed
        return max(1, min(allowed, -int(-quota.percent // 100)))


@lru_cache(maxsize=1 << 12)  # the same paths are looked at every few seconds
def _instance(path: str) -> str | None:
    """The instance's id of a group: a Kubernetes pod's UID, by which its scheduler knows it, else a container's."""
    pod = _POD.search(f"/{path}")
    if pod is None:
        return _identifier(path)
    return _uid(pod) if not pod[0].endswith("/") else None  # its containers are parts of it


def _identifier(path: str) -> str | None:
    """The id of a container's group; None for any other group."""
    name = _name(path)
    return None if name is None else instance_id(name)


def _name(path: str) -> str | None:
    """The name of a container by its group; None for any other group."""
    match = next((match for pattern in _CONTAINERS if (match := pattern.search(path))), None)
    if match is None:
        return None
    name = match["name"]
    return name[:_SHORT_ID] if len(name) == _HEX_ID else name


def names_in_group(path: str) -> tuple[str, ...]:
    """What the name of a control group says: the id here of its container, and the UID of its Kubernetes pod.

    systemd's names have `_` in place of the UID's `-`, which would stand for a step down in a slice.
    """
    container, pod = _identifier(path), _POD.search(path)
    return tuple(filter(None, (container, _uid(pod) if pod else None)))


def _uid(pod: re.Match[str]) -> str:
    return "-".join(filter(None, pod.groups()))


def _below(paths: list[str], position: int) -> tuple[str, ...]:
    """The groups below one of them; `walk` gives them right after it."""
    prefix = f"{paths[position]}/"
    return tuple(takewhile(lambda path: path.startswith(prefix), islice(paths, position + 1, None)))
