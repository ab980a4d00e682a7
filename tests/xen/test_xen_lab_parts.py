"""The lab's own parts, where no Xen is needed: the wire to Dom0, sources of packages."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lab.emulated_xen.dom0_channel import Dom0Channel, Dom0Error
from lab.emulated_xen.machine import FILES
from lab.emulated_xen.parts import machine_sources


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    spec = importlib.util.spec_from_file_location("xen_agent", FILES / "agent.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def channel(agent: ModuleType) -> Iterator[Dom0Channel]:
    """A channel to an agent that serves in a thread; the thread ends with the wire."""
    ours, theirs = socket.socketpair()
    with theirs, theirs.makefile("rb") as orders:
        serving = threading.Thread(target=agent.serve, args=(orders, theirs.fileno()))
        serving.start()
        with ours:
            made = Dom0Channel(ours)
            made.wait_ready(10)
            yield made
        serving.join(10)
        assert not serving.is_alive()


def test_a_command_that_aborts_is_run_again(channel: Dom0Channel, tmp_path: Path) -> None:
    once = tmp_path / "once"
    done = channel.run(["sh", "-c", f"test -e {once} || {{ touch {once}; kill -ABRT $$; }}; echo done"])
    assert (done.code, done.text) == (0, "done\n")


def test_a_command_gives_its_output_errors_and_code_unchanged(channel: Dom0Channel) -> None:
    content = bytes(range(256)) * 5000
    done = channel.run(["sh", "-c", "cat; echo oops >&2; exit 3"], stdin=content)
    assert (done.code, done.output, done.errors) == (3, content, "oops\n")
    with pytest.raises(Dom0Error, match="failed with 3: oops"):
        done.checked()


@pytest.mark.measured
def test_commands_do_not_wait_for_each_other(channel: Dom0Channel) -> None:
    slow = channel.start(["sleep", "1"])
    began = time.monotonic()
    assert channel.run(["echo", "quick"]).text == "quick\n"
    assert time.monotonic() - began < 0.9
    assert channel.wait(slow).code == 0


def test_a_command_that_takes_too_long_is_killed_and_says_so(channel: Dom0Channel) -> None:
    done = channel.run(["sleep", "60"], timeout_s=0.2)
    assert done.code is None
    assert "too long" in done.errors


def test_a_program_that_is_not_there_is_an_answer(channel: Dom0Channel) -> None:
    done = channel.run(["no-such-program"])
    assert done.code is None
    assert "no-such-program" in done.errors


def test_a_snapshot_keeps_what_each_look_gave_and_how_long_the_trace_was(channel: Dom0Channel, tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"12345")
    (tmp_path / "file").write_text("said")
    looks = [("read", str(tmp_path / "file")), ("names", str(tmp_path)), ("read", str(tmp_path / "nothing"))]
    channel.snapshot(looks, str(tmp_path / "trace"), str(tmp_path / "kept"))
    kept = json.loads(channel.fetch(str(tmp_path / "kept")))
    assert (kept["size"], kept["found"]) == (5, [{"found": "said"}, {"found": []}, {"errno": 2}])


def test_a_part_that_arrives_garbled_is_asked_for_again(
    channel: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(range(256)) * 200
    (tmp_path / "file").write_bytes(content)
    arrived = channel._line
    wrong: list[Callable[[bytes], bytes]] = [
        lambda line: line.replace(b'"crc32": ', b'"crc32": 1'), lambda line: line[:-9],
    ]  # fmt: skip
    monkeypatch.setattr(channel, "_line", lambda end: wrong.pop()(arrived(end)) if wrong else arrived(end))
    assert channel.fetch(str(tmp_path / "file")) == content
    assert channel.fetch(str(tmp_path / "file"), 20000) == content[:20000]


def test_a_part_that_never_arrives_whole_is_an_error(
    channel: Dom0Channel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    arrived = channel._line
    monkeypatch.setattr(channel, "_line", lambda end: arrived(end)[:-9])
    with pytest.raises(Dom0Error, match="arrived garbled 5 times"):
        channel.fetch(str(tmp_path / "file"))


def test_a_machine_that_goes_away_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(Dom0Error, match="went away"):
            Dom0Channel(ours).wait_ready(5)


def test_a_machine_that_is_silent_is_an_error() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Dom0Error, match="no answer"):
        Dom0Channel(ours).wait_ready(0.1)


def test_packages_come_from_this_machines_sources_of_this_release_only(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text(
        "# old\ndeb http://a.test/debian bookworm main\ndeb http://a.test/debian bookworm-security main\n"
        "deb http://b.test/x tools-bookworm main\ndeb-src http://a.test/debian bookworm main\n"
    )
    wanted = "Types: deb\nURIs: http://c.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
    other = "Types: deb\nURIs: http://d.test\nSuites: nodistro\nComponents: main\n"
    (tmp_path / "sources.list.d" / "c.sources").write_text(wanted + "\n" + other)
    one_line, deb822 = machine_sources(tmp_path, "bookworm")
    assert one_line.splitlines() == [
        "deb http://a.test/debian bookworm main",
        "deb http://a.test/debian bookworm-security main",
    ]
    assert deb822.strip() == wanted.strip()


def test_a_machine_without_sources_of_this_release_gives_none(tmp_path: Path) -> None:
    assert machine_sources(tmp_path, "bookworm") == []
