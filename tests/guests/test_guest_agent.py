"""The guest's agent, run here as a plain process, and the lab's side of it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import RunError
from lab.guests.channel import AgentChannel, GuestProgram
from lab.guests.image import AGENT
from lab.processes import wait_until
from tests.servers.running import free_port


def _connect(port: int) -> socket.socket:
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def channel() -> Iterator[AgentChannel]:
    """A channel to a real agent, which here is not the first process."""
    port = free_port()
    agent = subprocess.Popen([sys.executable, "-I", "-S", "-B", str(AGENT), str(port)])
    made = AgentChannel(_connect(port), "here", lambda: "end of the console")
    try:
        assert made.wait_up(20)
        yield made
    finally:
        agent.kill()
        agent.wait()
        made.close()


def _end(program: GuestProgram) -> int:
    assert wait_until(lambda: program.returncode is not None, 20)
    return int(program.returncode or 0)


def test_a_program_gives_its_output_its_complaint_and_its_status(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["sh", "-c", "pwd; echo trouble >&2; exit 3"], tmp_path)
    assert _end(program) == 3
    assert program.output() == f"{tmp_path}\n"
    assert program.errors() == "trouble"
    with pytest.raises(RunError, match="sh ended with status 3: trouble"):
        program.check()


def test_a_program_that_waits_begins_when_it_is_released(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["touch", "begun"], tmp_path, wait=True)
    time.sleep(0.3)
    assert program.returncode is None
    assert not (tmp_path / "begun").exists()
    program.release()
    assert _end(program) == 0
    assert (tmp_path / "begun").exists()


def test_output_of_a_program_that_runs_can_be_read(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["sh", "-c", "echo early; exec sleep 60"], tmp_path)
    wait_until(lambda: bool(program.output()), 20)
    assert program.output() == "early\n"
    program.stop()


def test_stopping_is_polite_first(channel: AgentChannel, tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    program = channel.start(["sh", "-c", script], tmp_path)
    while "up" not in program.output():
        time.sleep(0.01)
    program.stop(patience_s=10)
    assert program.returncode == 0
    assert program.output().endswith("bye\n")


def test_a_program_is_asked_to_end_once(channel: AgentChannel, tmp_path: Path) -> None:
    script = "trap 'echo asked' TERM; echo up; while :; do sleep 0.05; done"
    program = channel.start(["sh", "-c", script], tmp_path)
    assert wait_until(lambda: "up" in program.output(), 20)
    program.terminate()
    assert wait_until(lambda: "asked" in program.output(), 20)
    program.terminate()
    program.stop(patience_s=0.5)
    assert program.output() == "up\nasked\n"


def test_who_ignores_politeness_is_killed_with_its_children(channel: AgentChannel, tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 61.5 & echo $! >{tmp_path}/child; while :; do sleep 0.05; done"
    program = channel.start(["sh", "-c", script], tmp_path)
    assert wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "", 20)
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "cmdline")
    assert b"61.5" in child.read_bytes()
    program.stop(patience_s=0.2)
    assert program.returncode == -signal.SIGKILL
    assert wait_until(lambda: not child.exists() or not child.read_bytes(), 20)
    program.stop()  # again: harmless


def test_of_a_program_that_ends_while_it_is_asked_the_last_word_counts(
    channel: AgentChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = channel.start(["echo", "last"], tmp_path, wait=True)
    ask = channel.ask

    def late(do: str, **details: object) -> dict[str, Any]:
        program.release()
        assert wait_until(lambda: channel.ended(program._number) is not None, 20)
        return ask(do, **details)

    monkeypatch.setattr(channel, "ask", late)
    assert program.output() == "last\n"
    assert program.returncode == 0


def test_a_program_that_is_not_there_says_so(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["no-such-program"], tmp_path)
    assert _end(program) == 127
    assert program.errors() == "no-such-program cannot be started: No such file or directory"


def test_a_tool_that_fails_is_an_error_that_repeats_its_complaint(channel: AgentChannel) -> None:
    assert channel.call("echo", "a b", "c") == "a b c\n"
    with pytest.raises(RunError, match=r"in guest here ls /nowhere failed: .*No such file"):
        channel.call("ls", "/nowhere")


def test_files_are_read_and_written_and_a_missing_one_is_an_error(channel: AgentChannel, tmp_path: Path) -> None:
    channel.write(str(tmp_path / "note"), "grüße\n")
    assert channel.read(str(tmp_path / "note")) == "grüße\n"
    with pytest.raises(RunError, match=r"guest here refused read .*nowhere: No such file"):
        channel.read("/nowhere")


def test_the_agent_ends_everything_only_where_it_is_the_first_process(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["sleep", "60"], tmp_path)
    with pytest.raises(RunError, match="not alone"):
        channel.ask("signal", signal=int(signal.SIGKILL))
    assert program.returncode is None
    program.stop()


def test_malformed_requests_are_refused_and_the_agent_lives_on(channel: AgentChannel) -> None:
    with pytest.raises(RunError, match="refused dance"):
        channel.ask("dance")
    assert channel.call("echo", "still", "here") == "still here\n"


def test_much_output_arrives_whole(channel: AgentChannel, tmp_path: Path) -> None:
    program = channel.start(["seq", "1", "300000"], tmp_path)
    assert _end(program) == 0
    assert program.output().splitlines() == [str(number) for number in range(1, 300_001)]


def _pair(name: str = "here") -> tuple[AgentChannel, socket.socket]:
    ours, theirs = socket.socketpair()
    return AgentChannel(ours, name, lambda: "Kernel panic"), theirs


def test_a_guest_that_hangs_up_is_an_error_with_the_end_of_its_console() -> None:
    channel, theirs = _pair("shop")
    theirs.close()
    with pytest.raises(RunError, match=r"the agent of guest shop hung up.*: Kernel panic"):
        channel.ask("read", path="/proc/uptime")
    channel.close()


def test_an_agent_that_is_silent_is_an_error_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.guests.channel._ANSWER_WITHIN_S", 0.3)
    channel, theirs = _pair("shop")
    began = time.monotonic()
    with pytest.raises(RunError, match=r"the agent of guest shop did not answer within 0 s: Kernel panic"):
        channel.ask("read", path="/proc/uptime")
    assert time.monotonic() - began > 0.2
    channel.close()
    theirs.close()


@given(st.lists(st.binary(max_size=60), max_size=8), st.integers(1, 7))
def test_noise_on_the_line_changes_no_answer(noise: list[bytes], piece: int) -> None:
    channel, theirs = _pair()
    lines = [data.replace(b"\n", b" ") for data in noise if not data.lstrip().startswith((b"{", b"["))]
    sent = b"\n".join([*lines, b'{"number": 1, "text": "fine"}', b""])
    with contextlib.closing(channel), theirs:

        def answer() -> None:
            for begin in range(0, len(sent), piece):
                theirs.send(sent[begin : begin + piece])

        speaker = threading.Thread(target=answer)
        speaker.start()
        assert channel.read("/anything") == "fine"
        speaker.join()


def test_the_agent_is_a_file_that_needs_the_standard_library_only() -> None:
    """In a guest nothing else is sure to be there; -S keeps site-packages away."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(AGENT), "no-such-port"], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 1
    assert "FileNotFoundError" in done.stderr
