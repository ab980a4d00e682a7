"""Where the CPUs are that a domain requires: libvirt itself compares what a domain has with each kind of CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from advisor.domain.rules import ANY
from advisor.inventories.libvirt.virsh import VirshError
from profiler.observed import REQUIRE_LABEL
from profiler.parse.libvirt import CpuNeed
from profiler.parse.libvirt_hosts import parse_cpu_name
from profiler.parse.text import ParseError

Ask = Callable[[str, Sequence[str]], list[str]]
CPU = "cpu_host"  # label of a host: hosts with the same one have the same CPUs to libvirt
CPU_LABELS = frozenset({CPU, f"{REQUIRE_LABEL}{CPU}", f"{ANY}{CPU}"})
_MOST_NAMED = 4  # kinds of CPUs in one label; a name has at most 49 characters
# What KVM gives a guest on any host, so that a comparison with the bare machine would miss it (KVM_GET_EMULATED_CPUID).
_EMULATED = frozenset({"hypervisor", "x2apic", "tsc-deadline", "tsc_adjust", "arat", "cmp_legacy", "umip"})


def cpu_name(capabilities: str) -> str:
    """The name of a host's CPUs; empty where none is reported."""
    try:
        return parse_cpu_name(capabilities)
    except ParseError:
        return ""


class CpuRules:
    """Which kinds of CPUs suit which domains; what libvirt answered once is kept, because neither changes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._hosts: dict[str, str] = {}  # name of its CPUs by the URI of the host
        self._suits: dict[tuple[CpuNeed, str], bool | None] = {}  # None = libvirt did not say

    def add_host(self, uri: str, name: str) -> None:
        """Take note of a host, also of one that does not answer the next time."""
        self._hosts[uri] = name

    @property
    def _names(self) -> list[str]:
        return sorted(set(filter(None, self._hosts.values())))

    def of_host(self, name: str) -> dict[str, str]:
        """The label of a host where not all hosts are alike."""
        return {CPU: name} if name and len(self._names) > 1 else {}

    def of_domain(self, need: CpuNeed, own: str) -> dict[str, str]:
        """The rule of a domain on a host with these CPUs; nothing where it may run on all, or libvirt does not say."""
        names = self._names
        if len(names) < 2 or not own or not (need.whole_host or need.model):
            return {}
        if need.whole_host:
            return {f"{REQUIRE_LABEL}{CPU}": own}
        fits = [name for name in names if name == own or self._fits(need, name)]
        if not self._fits(need, own) or len(fits) == len(names):
            return {}  # it runs there: a comparison that denies that says nothing about others
        return {f"{ANY}{CPU}": ", ".join([own, *(name for name in fits if name != own)][:_MOST_NAMED])}

    def _fits(self, need: CpuNeed, name: str) -> bool:
        if (need, name) not in self._suits:
            self._suits[need, name] = self._compared(need, name)
        return self._suits[need, name] is not False

    def _compared(self, need: CpuNeed, name: str) -> bool | None:
        """What `virsh cpu-compare` says of one host with these CPUs; the read-only connection allows nothing finer."""
        uri = next(uri for uri, other in self._hosts.items() if other == name)
        features = "".join(f"<feature policy='require' name='{one}'/>" for one in need.features if one not in _EMULATED)
        with tempfile.TemporaryDirectory(prefix="cotenant-cpu-") as folder, suppress(VirshError, OSError):
            file = Path(folder) / "cpu.xml"
            file.write_text(f"<cpu mode='custom' match='exact'><model>{need.model}</model>{features}</cpu>", "utf-8")
            (answer,) = self._ask(uri, [f"cpu-compare '{file}'"])
            words = answer.lower()
            if "incompatible" in words:
                return False
            return True if "superset" in words or "identical" in words else None
        return None
