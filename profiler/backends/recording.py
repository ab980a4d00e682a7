"""Replays readings from a real host through the backend that recorded them."""

from __future__ import annotations

import json
from pathlib import Path

from profiler.backends.base import Backend, BackendError, Counters
from profiler.backends.detection import NAMES, find_backend
from profiler.backends.source import RecordedReading, RecordedSource
from profiler.observed import Instance, IsolationSettings


class RecordedBackend:
    """Each `read_counters` gives the next recorded reading; the last one is repeated."""

    name = "recorded"

    def __init__(self, path: Path) -> None:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            readings = [RecordedReading.load(entry) for entry in document["readings"]]
            kind, host = document["backend"], document["host"]
            self._source = RecordedSource(readings)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BackendError(
                f"{path} is no recording ({error}); make one with: cotenant-profiler once --record FILE"
            ) from None
        if kind not in NAMES[1:]:
            raise BackendError(f"{path} was recorded by backend {str(kind)[:60]!r}, which this version does not have")
        self._backend: Backend = find_backend(kind, self._source, host)
        self._begun = False

    @property
    def host(self) -> str:
        return self._backend.host

    def list_instances(self) -> list[Instance]:
        return self._backend.list_instances()

    def read_counters(self) -> Counters:
        if self._begun:
            self._source.advance()
        self._begun = True
        return self._backend.read_counters()

    def read_isolation(self, instance: Instance) -> IsolationSettings:
        return self._backend.read_isolation(instance)

    def close(self) -> None:
        self._backend.close()
