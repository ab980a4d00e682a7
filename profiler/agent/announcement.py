"""What the agent reports of its host and the instances there: on each change, and once a minute anyway."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from profiler.agent.loop import Log
from profiler.backends import Backend
from profiler.backends.host_description import HostDescription
from profiler.observed import Instance, IsolationSettings

EVERY_S = 60.0  # sent again after so long without a change: so the server distinguishes a silent host from an idle one
_LIST_S = 9.5  # with a reading per second, instances are listed in every tenth
_SETTINGS_S = 4.5  # the settings of one instance are read at a time: on Xen that starts three tools
_DESCRIBE_S = 600.0
_MACHINE_ID = Path("/etc/machine-id")
Document = dict[str, Any]


class Announcer:
    """Collects what to tell the server. The thread that reads the backend calls `look`, the one that sends the rest.

    `describe` reads the host; `machine` distinguishes two machines that use the same id.
    """

    def __init__(
        self,
        describe: Callable[[], HostDescription],
        log: Log,
        *,
        version: str,
        clock: Callable[[], float] = time.monotonic,
        machine: str | None = None,
    ) -> None:
        self._describe = describe
        self._log = log
        self._version = version
        self._clock = clock
        self._machine = machine_digest() if machine is None else machine
        self._lock = threading.Lock()  # over what is below
        self._host: HostDescription | None = None
        self._instances: list[Instance] | None = None
        self._settings: dict[str, tuple[int, IsolationSettings]] = {}  # with the round in which they were read
        self._round = 0
        self._described_s = self._listed_s = self._settled_s = float("-inf")
        self._host_id = ""
        self._sending = self._delivered = ""  # the urgent part of what `due` gave last, and of what arrived last
        self._delivered_s = float("-inf")

    def look(self, backend: Backend) -> None:
        """Read what may have changed, a little after each reading. Whatever fails is tried again later."""
        now = self._clock()
        try:
            if now - self._described_s >= _DESCRIBE_S:
                self._described_s = now
                described = self._describe()
                with self._lock:
                    self._host, self._host_id = described, backend.host
            if now - self._listed_s >= _LIST_S:
                self._listed_s = now
                instances = backend.list_instances()
                with self._lock:
                    self._instances = instances
                    names = {instance.id for instance in instances}
                    self._settings = {name: known for name, known in self._settings.items() if name in names}
            if now - self._settled_s >= _SETTINGS_S:
                self._settled_s = now
                self._read_settings(backend)
        except Exception as error:  # noqa: BLE001 - a backend that fails costs news, never a reading
            self._log.warn("not_announced", same=type(error).__name__, error=f"{type(error).__name__}: {error}"[:1000])

    def due(self) -> bytes | None:
        """The announcement as JSON if it is time to send one: settings alone wait for the next minute."""
        with self._lock:
            document = self._document()
        if document is None:
            return None
        self._sending = _urgent_part(document)
        if self._sending == self._delivered and self._clock() - self._delivered_s < EVERY_S:
            return None
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps({**document, "time": now}, separators=(",", ":")).encode()

    def done(self) -> None:
        """Note that the server has what `due` gave last, or refused it: nothing is due until something changes."""
        self._delivered, self._delivered_s = self._sending, self._clock()

    def _read_settings(self, backend: Backend) -> None:
        """Read the settings of one instance: one whose settings are unknown, else the one that was read longest ago."""
        if not self._instances:
            return
        instance = min(self._instances, key=lambda each: (self._settings.get(each.id, (-1,))[0], each.id))
        settings = backend.read_isolation(instance)
        self._round += 1
        with self._lock:
            self._settings[instance.id] = (self._round, settings)

    def _document(self) -> Document | None:
        if self._host is None or self._instances is None:
            return None
        host = {name: value for name, value in asdict(self._host).items() if value not in (None, "", ())}
        cpus = frozenset(self._host.cpu_ids or range(self._host.pcpus or 0))
        anywhere = {frozenset(), cpus, cpus - frozenset(self._host.isolated_cpus)}
        return {
            "host": {**host, "id": self._host_id, "labels": {**self._host.labels, "agent": self._version}},
            "instances": [self._instance(instance, anywhere) for instance in self._instances],
            "machine": self._machine,
            "every_s": EVERY_S,
        }

    def _instance(self, instance: Instance, anywhere: Collection[frozenset[int]]) -> Document:
        entry: Document = {"id": instance.id, "vcpus": instance.vcpus, "labels": dict(instance.labels)}
        if instance.memory_mb:
            entry["memory_mb"] = round(instance.memory_mb, 3)
        if instance.id in self._settings:
            entry |= _settings(self._settings[instance.id][1], anywhere)
        return entry


def _urgent_part(document: Document) -> str:
    """All but settings, as text."""
    settings = {"isolation", "pinning"}
    instances = [{key: entry[key] for key in entry.keys() - settings} for entry in document["instances"]]
    return json.dumps({**document, "instances": instances}, sort_keys=True)


def machine_digest(file: Path = _MACHINE_ID) -> str:
    """A digest of this machine's id, which systemd asks to keep secret (machine-id(5)); empty = unknown."""
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(f"cotenant {text}".encode()).hexdigest()[:16] if text else ""


def _settings(settings: IsolationSettings, anywhere: Collection[frozenset[int]]) -> Mapping[str, Any]:
    """What holds an instance back; a pinning to every CPU, or to every one that is not isolated, is none."""
    pinning = settings.pinning
    unpinned = pinning is None or (pinning.union in anywhere and len(set(pinning.cpus)) == 1)
    network = settings.network
    isolation = {
        "cap_percent": settings.cap_percent,
        "weight": settings.weight,
        "disk_limit_mb_s": settings.disk_limit_mb_s,
        "network": asdict(network) if network is not None and network.mode != "none" else None,
    }
    pins = {} if unpinned or pinning is None else {str(vcpu): list(cpus) for vcpu, cpus in enumerate(pinning.cpus)}
    return {
        "isolation": {name: value for name, value in isolation.items() if value is not None},
        "pinning": pins or None,
    }
