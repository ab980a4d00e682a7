"""The definitions of all hypervisors by the name of their backend, and the hypervisors' display names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from profiler.definitions.definition import Definition
from profiler.definitions.libvirt import LIBVIRT
from profiler.definitions.lxc import LXC
from profiler.definitions.xen import XEN

# Each holds the eight in the order of profiler.metrics.EIGHT.
DEFINITIONS: Mapping[str, tuple[Definition, ...]] = MappingProxyType({"xen": XEN, "libvirt": LIBVIRT, "lxc": LXC})
TITLES: Mapping[str, str] = MappingProxyType({"xen": "Xen", "libvirt": "KVM and QEMU (libvirt)", "lxc": "containers"})
