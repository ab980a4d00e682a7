"""Hosts made of control groups: one group per host, and in it one group per container (version 1 control groups).

The name of a host's group is on a list on disk before it is made. Who starts next, after whatever end, removes what is
on the list; a lock says that its owner lives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from lab.control_groups import GroupMaker, group_places, remove_group
from lab.errors import LabError, PreparationError, RunError
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from profiler.observed import MAX_WEIGHT, IsolationSettings
from research.contention.container_mixes import MixHost, PlannedContainer

STATE = Path("/run/cotenant-contention")
_NAME = re.compile(r"cotenant-contention-[0-9a-f]{6}-h\d{1,3}\Z")
_DEFAULT_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class MadeContainer:
    """`path` below every root of the control groups; `join` are the files that a process id is written to."""

    path: str
    join: tuple[str, ...]


class HostGroups:
    """Context manager; on exit nothing of it is left.

    PreparationError without version 1 control groups or the right to make them, or when another one is under way.
    """

    def __init__(self, state: Path = STATE) -> None:
        self._state = state
        self.prefix = f"cotenant-contention-{secrets.token_hex(3)}"  # of the names of its hosts
        self._made: list[str] = []

    def __enter__(self) -> HostGroups:
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self.mounts = find_mounts(LiveSource())
            self._maker = GroupMaker(self.mounts)
        except OSError as error:
            raise PreparationError(f"control groups cannot be made ({error.strerror}): run as root") from None
        if self._maker.version != 1:
            os.close(self._lock)
            raise PreparationError("hosts made of control groups need version 1: boot with cgroup v1 controllers")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise PreparationError("another measurement is under way here: let it end first") from None
        self._list = self._state / "groups"
        for name in listed(self._list):
            _remove_host(name)
        self._list.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.remove()
            self._list.unlink(missing_ok=True)
        finally:
            os.close(self._lock)

    def make(self, host: MixHost) -> list[MadeContainer]:
        """Make the groups of a host and of its containers; RunError when that cannot be."""
        name = f"{self.prefix}-{host.id}"
        if any(place.exists() for place in group_places(name)):
            raise RunError(f"control group {name} is there already: remove it or run again")
        with self._list.open("a", encoding="ascii") as names:
            names.write(f"{name}\n")
            names.flush()
            os.fsync(names.fileno())
        self._made.append(name)
        # The host outweighs whatever else runs on the machine: what its containers wait for is each other.
        quota = None if host.quota_cpus is None else 100.0 * host.quota_cpus
        self._maker.make(name, host.cpus, IsolationSettings(cap_percent=quota, weight=MAX_WEIGHT), None)
        if host.quota_cpus is not None:
            self._shorten(name, host.quota_cpus, host.period_ms * 1000)
        return [self.add(host, container) for container in host.containers]

    def add(self, host: MixHost, container: PlannedContainer) -> MadeContainer:
        """Make the group of one more container of a host that `make` made; RunError when that cannot be."""
        spec = container.spec
        path = f"{self.prefix}-{host.id}/{spec.id}"
        cap = None if spec.cap_cpus == float("inf") else 100.0 * spec.cap_cpus
        settings = IsolationSettings(cap_percent=cap, weight=round(spec.weight))
        return MadeContainer(path, tuple(self._maker.make(path, spec.pin or host.cpus, settings, None)))

    def _shorten(self, name: str, quota_cpus: float, period_us: int) -> None:
        folder = Path(self.mounts["cpu"], name)
        if period_us != _DEFAULT_PERIOD_US:  # the quota first: a group never has more than it is to have
            (folder / "cpu.cfs_quota_us").write_text(str(round(quota_cpus * period_us)), "ascii")
            (folder / "cpu.cfs_period_us").write_text(str(period_us), "ascii")

    def remove(self) -> None:
        """End every instance in the hosts of this mix and remove their groups."""
        while self._made:
            _remove_host(self._made[-1])
            self._made.pop()


def listed(path: Path) -> list[str]:
    """Names of hosts on a list that one run left behind; lines that no run can have written are passed over."""
    try:
        lines = path.read_text("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return [line for line in lines if _NAME.match(line)]


def _remove_host(name: str) -> None:
    if not _NAME.match(name):
        raise RunError(f"{name} is not a group of this measurement")
    children = {
        child.name for place in group_places(name) if place.is_dir() for child in place.iterdir() if child.is_dir()
    }
    troubles = []
    for path in [*(f"{name}/{child}" for child in sorted(children)), name]:
        with contextlib.suppress(FileNotFoundError):
            try:
                remove_group(path)
            except LabError as error:
                troubles.append(str(error))
    if troubles:
        raise RunError("; ".join(troubles))
