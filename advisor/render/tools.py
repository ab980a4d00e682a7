"""Tools: who runs the commands on a host, and the parts of a change that each of them renders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from advisor.errors import InvalidInput
from advisor.render import tc
from advisor.render.change import RenderOptions, SettingsChange, Step
from advisor.render.cloud_tools import cloud_tool
from advisor.render.host_tools import HOST_TOOLS
from advisor.render.names import DEFAULT_SCHEDULER, NATIVE, SCHEDULER, cgroup_version, target_of
from profiler.observed import Host, Instance


@dataclass(frozen=True, slots=True)
class Tools:
    """`target` is native, or the name of a cloud."""

    target: str
    options: RenderOptions

    @classmethod
    def of(cls, host: Host, target: str | None, scheduler: str | None, cgroup: int | None, uplink: str | None) -> Tools:
        """What is not given stands in the host's labels; InvalidInput for a target or a version that does not exist."""
        if cgroup not in (1, 2, None):
            raise InvalidInput(f"control groups have version 1 or 2, not {cgroup}", field="cgroup")
        version = cgroup or cgroup_version(host)
        options = RenderOptions(
            scheduler or host.labels.get(SCHEDULER) or DEFAULT_SCHEDULER,
            version or 2,
            uplink,
            cgroup_assumed=not version,
        )
        return cls(target_of(host, target), options)

    def cpu_and_disk(self, change: SettingsChange) -> Iterator[Step]:
        """Pins, weight, cap and disk limit."""
        if self.target != NATIVE:
            return cloud_tool(self.target).steps(change, self.options)
        return HOST_TOOLS[change.host.kind].steps(change, self.options)

    def network(self, change: SettingsChange, neighbours: Sequence[Instance] | None) -> Iterator[Step]:
        """The network limit: on the uplink where it can be shaped, else where the target can."""
        if self.target != NATIVE:
            return cloud_tool(self.target).network(change)
        if not tc.on_uplink(change.host, self.options.uplink):
            limited = HOST_TOOLS[change.host.kind].interface(change)
            if limited is not None:
                return limited
        return tc.steps(change, self.options.uplink, neighbours)

    def definition(self, change: SettingsChange) -> Iterator[Step]:
        """What keeps the settings over a restart; clouds keep theirs."""
        if self.target != NATIVE:
            return iter(())
        return HOST_TOOLS[change.host.kind].definition(change, self.options)
