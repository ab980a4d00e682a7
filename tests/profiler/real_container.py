"""Real containers for tests: a control group on one CPU, a network namespace, a veth pair that ends on the host."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lab.control_groups import GroupMaker
from lab.processes import LabProcess, call
from lab.resource_registry import ResourceRegistry
from profiler.observed import IsolationSettings

ADDRESS, GATEWAY = "10.79.0.2", "10.79.0.1"


class RealContainers:
    """Context manager that removes on exit whatever was made. `add` gives the id that LxcBackend will have for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._registry = ResourceRegistry(folder / "state")
        self._maker = GroupMaker()
        self._maker.prepare()
        self._processes: list[LabProcess] = []

    def __enter__(self) -> RealContainers:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()
        self._registry.close()

    def add(
        self, name: str, command: Sequence[str], cpu: int | None = 0, settings: IsolationSettings = IsolationSettings()
    ) -> str:
        """`cpu` None = all there are."""
        network, group = self._registry.network(name), self._registry.group(name)
        self._registry.made("network", network)
        call(["ip", "netns", "add", network])
        call(["ip", "link", "add", self.interface(name), "type", "veth", "peer", "name", "eth0", "netns", network])
        call(["ip", "link", "set", self.interface(name), "addrgenmode", "none", "up"])
        inside = (
            f"link set lo up\nlink set eth0 addrgenmode none up\naddr add {ADDRESS}/24 dev eth0\n"
            f"neigh add {GATEWAY} lladdr 02:00:00:00:00:01 dev eth0 nud permanent\n"
        )
        call(["ip", "-n", network, "-batch", "-"], inside)
        self._registry.made("group", group)
        cpus = tuple(range(os.cpu_count() or 1)) if cpu is None else (cpu,)
        join = self._maker.make(group, cpus, settings, None)
        process = LabProcess(command, groups=join, network=f"/run/netns/{network}", directory=self._folder)
        self._processes.append(process)
        return group.removeprefix("cotenant-lab-")

    def interface(self, name: str) -> str:
        """The host's end of a container's pair."""
        return f"ct{self._registry.run}{name}"[:15]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def remove(self) -> None:
        """End and remove all of them."""
        self._registry.remove_run()
        for process in self._processes:
            process.stop(0)
        self._processes.clear()
