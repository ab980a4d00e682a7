"""The profiler's Xen backend outside of Dom0: over the lab's wire it counts what it counts in a recording of Dom0."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from lab.emulated_xen.dom0_channel import Dom0Answer, Dom0Channel
from lab.emulated_xen.dom0_source import Dom0Snapshots
from profiler.backends.sources import RecordedSource
from profiler.backends.xen.backend import XenBackend
from profiler.collectors import collect
from tests.profiler.recorded import recorded_readings

RECORDING = "xen-dom0.json"  # real output of a running Xen 4.17


class Dom0OfARecording:
    """Answers as the agent in Dom0 does, with what was recorded there."""

    def __init__(self, source: RecordedSource) -> None:
        self.source = source
        self.trace = b""
        self.kept: dict[str, bytes] = {}

    def look(self, how: str, path: str) -> Any:
        names = {"read": self.source.read, "names": self.source.names, "link": self.source.link}
        return names[how](path)

    def snapshot(self, looks: Sequence[tuple[str, str]], trace: str, into: str) -> None:
        answers: list[dict[str, Any]] = []
        for how, path in looks:
            try:
                answers.append({"found": self.look(how, path)})
            except OSError as error:
                answers.append({"errno": error.errno})
        self.kept[trace] = self.trace
        document = {"size": len(self.trace), "clock": self.source.clock(), "found": answers}
        self.kept[into] = json.dumps(document).encode()

    def fetch(self, path: str, most: int | None = None) -> bytes:
        return self.kept[path][:most]

    def start(self, argv: Sequence[str], **_more: object) -> list[str]:
        return list(argv)

    def wait(self, _order: object) -> None:
        """It ended."""

    def run(self, argv: Sequence[str], **_more: object) -> Dom0Answer:
        output = b""
        if argv[0] not in ("rm", "pkill"):
            output = str(self.source.value(" ".join(argv), lambda: "")).encode()
        return Dom0Answer(tuple(argv), 0, output, "")


def test_the_xen_backend_counts_by_snapshots_what_it_counts_in_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.emulated_xen.dom0_source._START_S", 0.0)
    readings = recorded_readings(RECORDING)
    plain, there = RecordedSource(readings), RecordedSource(readings)
    dom0 = Dom0OfARecording(there)
    snapshots = Dom0Snapshots(cast("Dom0Channel", dom0))
    snapshots.learn()
    snapshots.start()
    for reading in readings:
        dom0.trace += base64.b64decode(reading.values["xentrace"][0]["data"])
        snapshots.take()
        there.advance()
    fetched = snapshots.finish()
    replaying, fetching = XenBackend(plain, "x", "full"), XenBackend(fetched, "x", "full")
    pairs = []
    for _ in readings:
        pairs.append((replaying.read_counters(), fetching.read_counters()))
        plain.advance()
        fetched.advance()
    for by_recording, by_snapshots in pairs:
        assert by_snapshots.instances.keys() == by_recording.instances.keys()
        assert {n: d.tasks for n, d in by_snapshots.instances.items()} == {
            n: d.tasks for n, d in by_recording.instances.items()
        }
        assert by_snapshots.host == by_recording.host
    assert {s.metric for s in collect(pairs[0][1], pairs[1][1]).samples} >= {"cpu", "waiting", "execution"}
