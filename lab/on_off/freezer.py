"""Freezes and thaws control groups, of version 1 (freezer) and version 2 (cgroup.freeze)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Self

from lab.errors import PreparationError, RunError
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource

_POLL_S = 0.0003
_MOST_S = 1.0


class Freezer:
    """Context manager over the groups of each position: an instance's and its load generator's are frozen together.

    On exit all are thawed. PreparationError where groups cannot be frozen, RunError where one does not freeze in time.
    """

    def __init__(self, groups: Sequence[Sequence[str]], mounts: Mapping[str, str] | None = None) -> None:
        mounts = find_mounts(LiveSource()) if mounts is None else mounts
        self._version_1 = "freezer" in mounts
        root = mounts.get("freezer") or ("" if "cpuacct" in mounts else mounts.get("unified", ""))
        if not root:
            raise PreparationError("groups cannot be frozen here: mount the freezer controller beside the others")
        files = ("freezer.state", "freezer.state") if self._version_1 else ("cgroup.freeze", "cgroup.events")
        self._paths = [[(f"{root}/{name}/{files[0]}", f"{root}/{name}/{files[1]}") for name in own] for own in groups]
        self._open: list[list[tuple[int, int]]] = []
        self._frozen: set[int] = set()

    def __enter__(self) -> Self:
        try:
            for own in self._paths:
                self._open.append([])
                for state, events in own:
                    self._open[-1].append((os.open(state, os.O_RDWR | os.O_CLOEXEC), os.open(events, os.O_RDONLY)))
        except OSError as error:
            self._close()
            raise RunError(f"{error.filename} cannot be opened: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._write(sorted(self._frozen), freeze=False)
        self._close()

    def switch(self, working: Sequence[int]) -> None:
        """Let these positions work and no others; returns when the others are frozen."""
        begin = time.monotonic()
        off = [place for place in range(len(self._open)) if place not in working and place not in self._frozen]
        on = [place for place in working if place in self._frozen]
        self._write(off, freeze=True)
        while not all(self._is_frozen(place) for place in off):
            if time.monotonic() > begin + _MOST_S:
                raise RunError(f"{self._paths[off[0]][0][0]} did not freeze within {_MOST_S:g} s")
            time.sleep(_POLL_S)
        self._write(on, freeze=False)

    def _write(self, places: Sequence[int], *, freeze: bool) -> None:
        word = (b"FROZEN" if freeze else b"THAWED") if self._version_1 else (b"1" if freeze else b"0")
        for place in places:
            for state, _ in self._open[place]:
                os.pwrite(state, word, 0)
            (self._frozen.add if freeze else self._frozen.discard)(place)

    def _is_frozen(self, place: int) -> bool:
        frozen = b"FROZEN" if self._version_1 else b"frozen 1"
        return all(frozen in os.pread(events, 64, 0) for _, events in self._open[place])

    def _close(self) -> None:
        for own in self._open:
            for state, events in own:
                os.close(state)
                os.close(events)
        self._open.clear()
