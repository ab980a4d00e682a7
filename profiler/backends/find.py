"""Which backend reads this host: chosen by name, or found by what the host has."""

from __future__ import annotations

from collections.abc import Callable

from profiler.backends.base import Backend, BackendError
from profiler.backends.lxc import LxcBackend
from profiler.backends.source import LiveSource, Source

NAMES = ("auto", "xen", "libvirt", "lxc")


def find_backend(name: str = "auto", source: Source | None = None, host: str | None = None) -> Backend:
    """Make the backend `name`; `auto` takes Xen in a Dom0, libvirt where it has guests, else containers.

    Raises BackendError, for `auto` only when nothing at all can be read, with the reason of each.
    """
    source = source or LiveSource()
    makers = _makers(source, host)
    if name != "auto":
        return makers[name]()
    reasons: list[str] = []
    for kind in NAMES[1:]:
        if not _looks_like(kind, source):
            continue
        try:
            return makers[kind]()
        except BackendError as error:
            reasons.append(f"{kind}: {error}")
    raise BackendError("; ".join(reasons) or "this host has no hypervisor that could be read")


def passed_over(chosen: str, source: Source | None = None) -> list[str]:
    """Why `auto` chose the backend of this name although the host has signs of one that comes before it."""
    source = source or LiveSource()
    reasons: list[str] = []
    for kind in NAMES[1 : NAMES.index(chosen)]:
        if _looks_like(kind, source):
            try:
                _makers(source, None)[kind]().close()
            except BackendError as error:
                reasons.append(f"{kind}: {error}")
    return reasons


def _makers(source: Source, host: str | None) -> dict[str, Callable[[], Backend]]:
    def xen() -> Backend:
        from profiler.backends.xen import XenBackend

        return XenBackend(source, host)

    def libvirt() -> Backend:
        from profiler.backends.libvirt import LibvirtBackend

        return LibvirtBackend(source, host)

    return {"xen": xen, "libvirt": libvirt, "lxc": lambda: LxcBackend(source, host)}


def _looks_like(kind: str, source: Source) -> bool:
    """Cheap signs: the control domain's mark of Xen, a running guest of libvirt."""
    try:
        if kind == "xen":
            return "control_d" in source.read("/proc/xen/capabilities")
        if kind == "libvirt":
            # libvirt keeps one status file per running domain; its folder alone only says that it was installed
            return bool(source.value("libvirt guests", _libvirt_guests))
    except OSError:
        return False
    return True


def _libvirt_guests() -> list[str]:
    from pathlib import Path

    return sorted(path.stem for path in Path("/run/libvirt/qemu").glob("*.xml"))
