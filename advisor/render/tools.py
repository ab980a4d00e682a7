"""Tools: who runs the commands on a host, and the parts of a change that each of them renders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.render import cloudstack, definitions, libvirt, lxc, openstack, tc, xen
from advisor.render.change import SettingsChange, Step
from advisor.render.names import target_of
from profiler.observed import Host, Instance


@dataclass(frozen=True, slots=True)
class Tools:
    """`target` is native, openstack or cloudstack, `scheduler` Xen's, `cgroup` the version on Linux."""

    target: str
    scheduler: str
    cgroup: int
    uplink: str | None

    @classmethod
    def of(cls, host: Host, target: str | None, scheduler: str, cgroup: int, uplink: str | None) -> Tools:
        """InvalidInput for a target or a version that there is not."""
        if cgroup not in (1, 2):
            raise InvalidInput(f"control groups have version 1 or 2, not {cgroup}", field="cgroup")
        return cls(target_of(host, target), scheduler, cgroup, uplink)

    def cpu_and_disk(self, change: SettingsChange) -> Iterator[Step]:
        """Pins, weight, cap and disk limit; for CloudStack the whole offering."""
        if self.target == "openstack":
            return openstack.steps(change, self.cgroup)
        if self.target == "cloudstack":
            return cloudstack.steps(change)
        if change.host.kind == "xen":
            return xen.steps(change, self.scheduler)
        if change.host.kind == "kvm":
            return libvirt.steps(change, self.cgroup)
        return lxc.steps(change, self.cgroup)

    def network(self, change: SettingsChange, neighbours: Sequence[Instance] | None) -> Iterator[Step]:
        """The network limit: on the uplink where it can be shaped, else where the target can."""
        if self.target == "openstack":
            return openstack.network(change)
        if self.target == "cloudstack":
            return iter(())
        if change.host.kind == "kvm" and not tc.on_uplink(change.host, self.uplink) and libvirt.can_police(change):
            return libvirt.interface(change)
        return tc.steps(change, self.uplink, neighbours)

    def definition(self, change: SettingsChange) -> Iterator[Step]:
        """What keeps the settings over a restart; clouds keep theirs."""
        if self.target != "native":
            return iter(())
        return definitions.steps(change, scheduler=self.scheduler, cgroup=self.cgroup, uplink=self.uplink)
