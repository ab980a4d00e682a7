"""The wire to Dom0 and the agent at its other end: files come whole, also where a part of one arrives garbled."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.emulated_xen.dom0_channel import Dom0Channel, Dom0Error
from lab.emulated_xen.machine import FILES


@pytest.fixture
def dom0() -> Iterator[Dom0Channel]:
    """The agent itself, which here answers about this machine's files."""
    spec = importlib.util.spec_from_file_location("dom0_agent", FILES / "agent.py")
    assert spec is not None
    assert spec.loader is not None
    agent = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(agent)
    ours, theirs = socket.socketpair()
    with ours, theirs, theirs.makefile("rb") as orders:
        serving = threading.Thread(target=agent.serve, args=(orders, theirs.fileno()))
        serving.start()
        channel = Dom0Channel(ours)
        channel.wait_ready(10)
        yield channel
        ours.shutdown(socket.SHUT_RDWR)
        serving.join(10)


def test_a_snapshot_keeps_what_each_look_gave_and_how_long_the_trace_was(dom0: Dom0Channel, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"12345")
    (tmp_path / "file").write_text("said")
    looks = [("read", str(tmp_path / "file")), ("names", str(tmp_path)), ("read", str(tmp_path / "nothing"))]
    dom0.snapshot(looks, str(tmp_path / "trace"), str(tmp_path / "kept"))
    kept = json.loads(dom0.fetch(str(tmp_path / "kept")))
    assert (kept["size"], kept["found"]) == (5, [{"found": "said"}, {"found": []}, {"errno": 2}])


def test_a_part_that_arrives_garbled_is_asked_for_again(
    dom0: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 200
    (tmp_path / "file").write_bytes(content)
    arrived = dom0._line
    wrong: list[Callable[[bytes], bytes]] = [
        lambda line: line.replace(b'"crc32": ', b'"crc32": 1'), lambda line: line[:-9],
    ]  # fmt: skip
    monkeypatch.setattr(dom0, "_line", lambda end: wrong.pop()(arrived(end)) if wrong else arrived(end))
    assert dom0.fetch(str(tmp_path / "file")) == content
    assert dom0.fetch(str(tmp_path / "file"), 20000) == content[:20000]


def test_a_part_that_never_arrives_whole_is_an_error(
    dom0: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    arrived = dom0._line
    monkeypatch.setattr(dom0, "_line", lambda end: arrived(end)[:-9])
    with pytest.raises(Dom0Error, match="arrived garbled 5 times"):
        dom0.fetch(str(tmp_path / "file"))
