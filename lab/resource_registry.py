"""A list on disk of everything that a lab run created on this host, so that a later run can remove it after a crash.

An object is written here before it is made, and only when there is none of that name. The run holds a lock on its list
while it lives; only lists whose owner is dead are cleaned, and only objects whose names carry that run's id. An object
that cannot be removed stays on the list, and the others are removed all the same.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from lab.control_groups import group_places, remove_group
from lab.dom0_cpus import DOM0, Dom0Cpus, move_commands
from lab.errors import LabError, PreparationError, RunError
from lab.processes import call
from profiler.backends.sources import LiveSource
from profiler.observed import format_cpus, parse_cpus
from profiler.parse.proc import parse_mounts

DEFAULT_STATE = Path("/run/cotenant-lab")
_RUN_ID = re.compile(r"[0-9a-f]{6}\Z")
_PREFIXES = ("cotenant-", ".cotenant-")
_INTERFACES = Path("/sys/class/net")
_DESTROYED_WITHIN_S = 60.0  # a domain's memory is cleared before it is gone
_NAMESPACES = Path("/run/netns")


class ResourceRegistry:
    """Names and remembers the objects of one lab run."""

    def __init__(self, state: Path) -> None:
        self.run = _unused_id()
        self._state = state
        self._made: list[tuple[str, str]] = []
        self._lasting: set[tuple[str, str]] = set()
        self._at_end: list[Callable[[], None]] = []
        try:
            state.mkdir(parents=True, exist_ok=True)
            host_lock = _lock(state / "lock")
            if host_lock is None:
                raise PreparationError("another lab run is under way here and would disturb this one: let it end first")
            self._host_lock = host_lock
            self._path = state / f"{self.run}.jsonl"
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise PreparationError(
                f"{state} cannot be written ({error.strerror}): run as root or name another --state"
            ) from None

    def group(self, name: str, *, load: bool = False) -> str:
        """Name for a control group of an instance, or of its load generator."""
        return f"{'cotenant-load' if load else 'cotenant-lab'}-{self.run}.{name}"

    def network(self, name: str) -> str:
        """Name for a network namespace."""
        return f"cotenant-{self.run}-{name}"

    def driver(self, online: int, cpus: Sequence[int] | None) -> str:
        """Name that says what Dom0 had before it was moved: the number of its vCPUs, and its pCPUs, None = all."""
        where = "all" if cpus is None else format_cpus(tuple(cpus))
        return f"cotenant-{self.run}-{online}-on-{where}"

    def directory(self, parent: Path) -> Path:
        """Path for scratch files."""
        return parent / f".cotenant-lab-{self.run}"

    def made(self, kind: str, name: str, *, lasting: bool = False) -> None:
        """Remember an object that is about to be made; RunError when it is there already. Kinds: see `_REMOVERS`.

        An object that is `lasting` stays when a measurement ends, as directories do.
        """
        if any(path.exists() or path.is_symlink() for path in _PLACES[kind](name)):
            raise RunError(f"{kind} {name} is there already and was not made by this run: remove it or run again")
        if lasting or kind == "directory":
            self._lasting.add((kind, name))
        line = json.dumps({"kind": kind, "name": name}) + "\n"
        os.write(self._file, line.encode())
        self._made.append((kind, name))

    def remove(self, kind: str, name: str) -> None:
        """Remove one object now; nothing happens where it was never made, or is gone already."""
        _remove(self.run, kind, name)
        if (kind, name) in self._made:
            self._made.remove((kind, name))

    def remove_run(self) -> None:
        """Remove groups and namespaces of the measurement that ended, last made first; what is lasting stays."""
        self._remove_each([entry for entry in self._made if entry not in self._lasting])

    def at_end(self, action: Callable[[], None]) -> None:
        """Have this done before everything that is left is removed."""
        self._at_end.append(action)

    def remove_all(self) -> None:
        """Remove everything that is left, last made first."""
        self._remove_each(self._made.copy())

    def _remove_each(self, entries: Sequence[tuple[str, str]]) -> None:
        troubles = _in_turn([partial(self.remove, kind, name) for kind, name in reversed(entries)])
        if troubles:
            raise RunError("; ".join(troubles))

    def close(self) -> None:
        """Remove what is left and forget this run; what cannot be removed stays on its list, for `clean`."""
        troubles = _in_turn([*reversed(self._at_end), self.remove_all])
        self._at_end.clear()
        if not troubles:
            self._path.unlink(missing_ok=True)
        os.close(self._file)
        os.close(self._host_lock)
        if troubles:
            raise RunError("; ".join(troubles))


def clean(state: Path) -> list[str]:
    """Remove what dead lab runs left behind; returns `kind name` of each object, RunError names what stays."""
    removed: list[str] = []
    troubles: list[str] = []
    for path in sorted(state.glob("*.jsonl")) if state.is_dir() else []:
        if not _RUN_ID.match(path.stem):
            continue
        descriptor = _lock(path)
        if descriptor is None:
            continue  # its owner lives
        try:
            entries = [entry for entry in reversed(_read(path)) if _is_ours(path.stem, *entry)]
            failed = _in_turn([partial(_remove, path.stem, kind, name) for kind, name in entries])
            if not failed:
                path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        troubles += failed
        removed += [f"{kind} {name}" for kind, name in entries]
    if troubles:
        raise RunError("; ".join(troubles))
    return removed


def _in_turn(actions: Iterable[Callable[[], None]]) -> list[str]:
    """Do all of them, even when some fail; returns the errors."""
    troubles: list[str] = []
    for action in actions:
        try:
            action()
        except (LabError, OSError) as error:
            troubles.append(str(error))
    return troubles


def _unused_id() -> str:
    """An id that no group and no namespace on this host carries."""
    while True:
        run = secrets.token_hex(3)
        if not any(next(path.parent.glob(f"*{run}*"), None) for path in (*group_places(run), _NAMESPACES / run)):
            return run


def _read(path: Path) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            entry = json.loads(line)
            entries.append((str(entry["kind"]), str(entry["name"])))
        except (ValueError, KeyError, TypeError):
            continue  # an incomplete last line: its object was not made yet
    return entries


def _lock(path: Path) -> int | None:
    """Open and lock a file; None when another process holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _is_ours(run: str, kind: str, name: str) -> bool:
    """Whether this run can have given such a name; groups and namespaces are never below others."""
    last = name.rsplit("/", 1)[-1]
    paths = ("directory", "volume")
    return run in last and last.startswith(_PREFIXES) and kind in _REMOVERS and (kind in paths or last == name)


def _remove(run: str, kind: str, name: str) -> None:
    if _is_ours(run, kind, name):
        _REMOVERS[kind](name)


def _remove_network(name: str) -> None:
    if (_NAMESPACES / name).exists():
        call(["ip", "netns", "delete", name])


def volume_parts(directory: Path) -> tuple[Path, Path]:
    """Of a volume in this directory, see `lab.volume`: where it is a file, and where that file is mounted."""
    return directory / "volume.exported", directory / "volume"


def _remove_volume(name: str) -> None:
    mounted = {mount.target for mount in parse_mounts(LiveSource().read("/proc/self/mounts"), "/proc/self/mounts")}
    for part in reversed(volume_parts(Path(name))):
        if str(part) in mounted:
            call(["umount", str(part)])


def _remove_bridge(name: str) -> None:
    if (_INTERFACES / name).exists():
        call(["ip", "link", "delete", name])


def _remove_domain(name: str) -> None:
    if name in call(["xl", "list"]).split():
        call(["xl", "destroy", name], timeout_s=_DESTROYED_WITHIN_S)


def _remove_driver(name: str) -> None:
    """Put Dom0 back to where it was."""
    before = re.fullmatch(r"cotenant-[0-9a-f]{6}-(\d+)-on-(all|[\d,-]+)", name)
    if before is None:
        return
    count, where = int(before[1]), before[2]
    now = Dom0Cpus.parse(call(["xl", "vcpu-list", DOM0]))
    for command in move_commands(now.online, count, None if where == "all" else parse_cpus(where)):
        call(command)


_REMOVERS: dict[str, Callable[[str], None]] = {
    "group": remove_group,
    "network": _remove_network,
    "volume": _remove_volume,
    "directory": partial(shutil.rmtree, ignore_errors=True),
    "bridge": _remove_bridge,
    "domain": _remove_domain,
    "driver": _remove_driver,
}
_PLACES: dict[str, Callable[[str], list[Path]]] = {
    "group": group_places,
    "network": lambda name: [_NAMESPACES / name],
    "volume": lambda name: list(volume_parts(Path(name))),
    "directory": lambda name: [Path(name)],
    "bridge": lambda name: [_INTERFACES / name],
    "driver": lambda _name: [],
    "domain": lambda _name: [],  # xl refuses a second one of the same name
}
