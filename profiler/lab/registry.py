"""The list, on disk, of everything a lab run made on this host, so that a later run can remove it after a crash.

An object is written here before it is made. The run holds a lock on its list while it lives; only lists whose owner is
dead are cleaned, and only objects whose names carry that run's id.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from profiler.lab.control_groups import remove_group
from profiler.lab.errors import PreparationError
from profiler.lab.processes import call

DEFAULT_STATE = Path("/run/cotenant-lab")
_RUN_ID = re.compile(r"[0-9a-f]{6}\Z")
_PREFIXES = ("cotenant-", ".cotenant-")


class Registry:
    """Names and remembers the objects of one lab run."""

    def __init__(self, state: Path = DEFAULT_STATE) -> None:
        self.run = secrets.token_hex(3)
        self._state = state
        self._made: list[tuple[str, str]] = []
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

    def directory(self, parent: Path) -> Path:
        """Path for scratch files."""
        return parent / f".cotenant-lab-{self.run}"

    def made(self, kind: str, name: str) -> None:
        """Remember an object that is about to be made: `group`, `network` or `directory`."""
        line = json.dumps({"kind": kind, "name": name}) + "\n"
        os.write(self._file, line.encode())
        self._made.append((kind, name))

    def remove(self, kind: str, name: str) -> None:
        """Remove one object now; what was never made, or is gone already, is fine."""
        _remove(self.run, kind, name)
        if (kind, name) in self._made:
            self._made.remove((kind, name))

    def remove_run(self) -> None:
        """Remove groups and namespaces of the measurement that ended, last made first; scratch files stay."""
        for kind, name in reversed(self._made.copy()):
            if kind != "directory":
                self.remove(kind, name)

    def remove_all(self) -> None:
        """Remove everything that is left, last made first."""
        for kind, name in reversed(self._made.copy()):
            self.remove(kind, name)

    def close(self) -> None:
        """Remove what is left and forget this run."""
        self.remove_all()
        self._path.unlink(missing_ok=True)
        os.close(self._file)
        os.close(self._host_lock)


def clean(state: Path = DEFAULT_STATE) -> list[str]:
    """Remove what dead lab runs left behind; returns `kind name` of each object."""
    removed: list[str] = []
    for path in sorted(state.glob("*.jsonl")) if state.is_dir() else []:
        if not _RUN_ID.match(path.stem):
            continue
        descriptor = _lock(path)
        if descriptor is None:
            continue  # its owner lives
        try:
            for kind, name in reversed(_read(path)):
                _remove(path.stem, kind, name)
                removed.append(f"{kind} {name}")
            path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
    return removed


def _read(path: Path) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            entry = json.loads(line)
            entries.append((str(entry["kind"]), str(entry["name"])))
        except (ValueError, KeyError, TypeError):
            continue  # a torn last line: its object was not made yet
    return entries


def _lock(path: Path) -> int | None:
    """Open and lock a file; None when somebody else holds it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _remove(run: str, kind: str, name: str) -> None:
    last = name.rsplit("/", 1)[-1]
    if run not in last or not last.startswith(_PREFIXES):
        return  # not a name that this run can have given
    remove = _REMOVERS.get(kind)
    if remove is not None:
        remove(name)


def _remove_network(name: str) -> None:
    if os.path.lexists(f"/run/netns/{name}"):
        call(["ip", "netns", "delete", name])


def _remove_directory(name: str) -> None:
    shutil.rmtree(name, ignore_errors=True)


_REMOVERS: dict[str, Callable[[str], None]] = {
    "group": remove_group,
    "network": _remove_network,
    "directory": _remove_directory,
}
