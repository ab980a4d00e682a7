"""The profiler's Xen backend outside of Dom0: over the lab's wire it counts what it counts in a recording of Dom0."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from lab.emulated_xen.dom0_channel import Dom0Answer, Dom0Channel
from lab.emulated_xen.dom0_source import Dom0Source
from profiler.backends.source import RecordedReading, RecordedSource
from profiler.backends.xen.backend import XenBackend
from profiler.collectors import collect

RECORDING = Path(__file__).parents[1] / "recordings" / "xen-dom0.json"  # real output of a running Xen 4.17


class Dom0OfARecording:
    """Answers as the agent in Dom0 does, with what was recorded there."""

    def __init__(self, source: RecordedSource) -> None:
        self.source = source
        self.trace = b""

    def look(self, how: str, path: str) -> Any:
        return getattr(self.source, how)(path)

    def start(self, argv: Sequence[str], **_more: object) -> list[str]:
        return list(argv)

    def wait(self, _order: object) -> None:
        """It ended."""

    def run(self, argv: Sequence[str], **_more: object) -> Dom0Answer:
        output = b""
        if argv[0] == "tail":
            output = self.trace[int(argv[2]) - 1 :]
        elif argv[0] not in ("rm", "pkill"):
            output = str(self.source.value(" ".join(argv), lambda: "")).encode()
        return Dom0Answer(tuple(argv), 0, output, "")


def test_the_xen_backend_counts_over_the_wire_what_it_counts_in_a_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.emulated_xen.dom0_source._START_S", 0.0)
    document = json.loads(RECORDING.read_text("utf-8"))
    readings = [RecordedReading(**{**one, "clock": tuple(one["clock"])}) for one in document["readings"]]
    plain, wired = RecordedSource(readings), RecordedSource(readings)
    dom0 = Dom0OfARecording(wired)
    source = Dom0Source(cast("Dom0Channel", dom0))
    monkeypatch.setattr(source, "clock", wired.clock)
    expected, found = XenBackend(plain, "x", "full"), XenBackend(source, "x", "full")
    pairs = []
    for reading in readings:
        piece = reading.values["xentrace"][0]
        dom0.trace += base64.b64decode(piece["data"])
        pairs.append((expected.read_counters(), found.read_counters()))
        plain.advance()
        wired.advance()
    for by_recording, over_wire in pairs:
        assert over_wire.instances.keys() == by_recording.instances.keys()
        assert {n: d.tasks for n, d in over_wire.instances.items()} == {
            n: d.tasks for n, d in by_recording.instances.items()
        }
    assert {s.metric for s in collect(pairs[0][1], pairs[1][1]).samples} >= {"cpu", "waiting", "execution"}
