"""What the tool of each cloud can set; each has one module, and an entry point of the group `cotenant.renderers`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from advisor import plug_ins
from advisor.domain import Command
from advisor.render.change import RenderOptions, SettingsChange, Step
from advisor.render.names import RENDER
from profiler.observed import Host, Instance


class CloudTool(Protocol):
    """Commands of one cloud, each with its undo; a module, or an object. A command without argv says why there is none.

    What changes are made of stands in `advisor.render.change`, and what helps to write them in `names`, `groups` and
    `policing` beside it.
    """

    TOOL: str
    PINS_TRAVEL: bool  # whether an instance that moves keeps a pinning, which then speaks of the wrong host's CPUs

    def steps(self, change: SettingsChange, options: RenderOptions) -> Iterator[Step]:
        """Pins, weight, cap and disk limit."""
        ...

    def network(self, change: SettingsChange) -> Iterator[Step]:
        """The limit on what it sends."""
        ...

    def migrate(self, instance: Instance, source: Host, target: Host) -> Command:
        """The live migration."""
        ...

    def set_vcpus(self, host: Host, former: Instance, then: Instance) -> Command:
        """Another number of vCPUs where it is."""
        ...


def cloud_tool(name: str) -> CloudTool:
    """The tool of a cloud by the name that `names.target_of` took; InvalidInput where it cannot be imported."""
    tool: CloudTool = plug_ins.load(plug_ins.RENDERERS, name, "commands of", f"host.labels.{RENDER}")
    return tool
