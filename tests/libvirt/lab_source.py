"""The live host as a process inside the lab's namespaces sees it: libvirt's state is at its usual place."""

from __future__ import annotations

from pathlib import Path

from profiler.backends.sources import LiveSource


class LabSource(LiveSource):
    """Reads below /run/libvirt go to the lab's folder, so that recordings hold the usual paths."""

    def __init__(self, state: Path) -> None:
        super().__init__()
        self._state = str(state)

    def read(self, path: str) -> str:
        if path.startswith("/run/libvirt/"):
            path = path.replace("/run/libvirt", self._state, 1)
        return super().read(path)
