"""Recordings as a backend: replayed in order, refused where they are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profiler.backends import BackendError, RecordedBackend


def test_a_recording_replays_its_readings_in_order(recording: Path) -> None:
    backend = RecordedBackend(recording)
    first, second, third = backend.read_counters(), backend.read_counters(), backend.read_counters()
    assert second.monotonic_s > first.monotonic_s
    assert third.monotonic_s == second.monotonic_s
    assert all(second.instances[name].cpu_ns > one.cpu_ns for name, one in first.instances.items())  # type: ignore[operator]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"readings": [], "backend": "lxc", "host": "h"}', "\x00"])
def test_a_broken_recording_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(BackendError, match=r"broken\.json is no recording"):
        RecordedBackend(path)


def test_a_recording_of_an_unknown_backend_is_refused(tmp_path: Path, recording: Path) -> None:
    document = json.loads(recording.read_text())
    document["backend"] = "hyperx"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    with pytest.raises(BackendError, match="hyperx"):
        RecordedBackend(path)
