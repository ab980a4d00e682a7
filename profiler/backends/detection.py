"""Chooses the backend: for this host by name or by detecting the hypervisor, for a recording by what recorded it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from profiler.backends.base import Backend, BackendError, Counters
from profiler.backends.lxc.backend import LxcBackend
from profiler.backends.sources import HostSource, LiveSource, RecordedReading, RecordedSource
from profiler.backends.xen import DEFAULT_MODE, Mode
from profiler.host_kinds import TRAITS
from profiler.observed import Instance, IsolationSettings

NAMES = ("auto", *(traits.backend for traits in TRAITS.values()))
_LIBVIRT_STATE = Path("/run/libvirt")


def find_backend(
    name: str = "auto", source: HostSource | None = None, host: str | None = None, trace: Mode = DEFAULT_MODE
) -> Backend:
    """Make the backend `name`; `auto` takes Xen in a Dom0, libvirt where it has guests, containers where there are
    some, and else libvirt where it is installed. `trace` is what Xen's scheduler trace holds.

    Raises BackendError, for `auto` only when nothing at all can be read, with the reason of each.
    """
    source = source or LiveSource()
    makers = _makers(source, host, trace)
    if name != "auto":
        return makers[name]()
    reasons: list[str] = []
    for kind in _candidates(source):
        try:
            return makers[kind]()
        except BackendError as error:
            reasons.append(f"{kind}: {error}")
    raise BackendError("; ".join(reasons) or "this host has no hypervisor that could be read")


def passed_over(chosen: str, source: HostSource | None = None) -> list[str]:
    """Why `auto` chose the backend of this name although the host has signs of one that comes before it."""
    source = source or LiveSource()
    makers = _makers(source, None, "off")  # a look must not touch Xen's trace
    reasons: list[str] = []
    for kind in _candidates(source):
        if kind == chosen:
            break
        try:
            makers[kind]().close()
        except BackendError as error:
            reasons.append(f"{kind}: {error}")
    return reasons


def _makers(source: HostSource, host: str | None, trace: Mode) -> dict[str, Callable[[], Backend]]:
    def xen() -> Backend:
        from profiler.backends.xen.backend import XenBackend

        return XenBackend(source, host, trace)

    def libvirt() -> Backend:
        from profiler.backends.libvirt.backend import LibvirtBackend

        return LibvirtBackend(source, host)

    return {"xen": xen, "libvirt": libvirt, "lxc": lambda: LxcBackend(source, host)}


def _candidates(source: HostSource) -> Iterator[str]:
    """Kinds of hypervisor of which a cheap look finds signs, the likeliest first; each at most once."""
    if _is_dom0(source):
        yield "xen"
    signs = _libvirt_signs(source)
    if "guests" in signs:
        yield "libvirt"
    if "guests" in signs or not signs or _has_containers(source):
        yield "lxc"
    else:  # a hypervisor that has no guest yet
        yield "libvirt"
        yield "lxc"


def _is_dom0(source: HostSource) -> bool:
    try:
        return "control_d" in source.read("/proc/xen/capabilities")
    except OSError:
        return False


def _has_containers(source: HostSource) -> bool:
    try:
        return bool(LxcBackend(source).list_instances())
    except BackendError:
        return False


def _libvirt_signs(source: HostSource) -> list[str]:
    try:
        return source.value("libvirt signs", _look_for_libvirt)
    except OSError:
        return []


def _look_for_libvirt() -> list[str]:
    """libvirt keeps a status file per running domain, and its daemons their sockets."""
    signs = ["guests"] if any(_LIBVIRT_STATE.glob("qemu/*.xml")) else []
    if any((_LIBVIRT_STATE / name).exists() for name in ("libvirt-sock-ro", "virtqemud-sock-ro")):
        signs.append("socket")
    return signs


# Replays readings from a real host through the backend that recorded them.


class RecordedBackend:
    """Each `read_counters` gives the next recorded reading; the last one is repeated."""

    name = "recorded"

    def __init__(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            readings = [RecordedReading.load(entry) for entry in document["readings"]]
            kind, host = document["backend"], document["host"]
            self._source = RecordedSource(readings)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise BackendError(
                f"{path} is no recording ({error}); make one with: cotenant-profiler once --record FILE"
            ) from None
        if kind not in NAMES[1:]:
            raise BackendError(f"{path} was recorded by backend {str(kind)[:60]!r}, which this version does not have")
        self._backend: Backend = find_backend(kind, self._source, host)
        self._begun = False

    @property
    def host(self) -> str:
        return self._backend.host

    def list_instances(self) -> list[Instance]:
        return self._backend.list_instances()

    def read_counters(self) -> Counters:
        if self._begun:
            self._source.advance()
        self._begun = True
        return self._backend.read_counters()

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        return self._backend.read_isolation(instance)

    def close(self) -> None:
        self._backend.close()
