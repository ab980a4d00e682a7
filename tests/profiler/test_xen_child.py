"""The child that prints the trace: started once, drained without waiting, restarted when it ends, never left behind."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.processes import wait_until
from profiler.backends import commands
from profiler.backends.commands import StreamChild
from profiler.backends.xen.scheduling import xentrace_argv

TICKS = ("sh", "-c", "while :; do echo tick; sleep 0.05; done")


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may go between opening and reading
        return True


# Beside other work a tool that prints at once takes a while to start: 30 s.
def _child(*argv: str, first_s: float = 30.0, settle_s: float = 0.1) -> contextlib.closing[StreamChild]:
    return contextlib.closing(StreamChild(argv, "it comes with Xen's tools", first_s, settle_s))


def test_xentrace_is_asked_for_changes_of_run_state_on_its_standard_output() -> None:
    assert xentrace_argv("runstate") == ("xentrace", "-D", "-e", "0x00021000", "/proc/self/fd/1")
    assert xentrace_argv("full")[3] == "0x00221000"


@pytest.mark.measured
def test_readings_drain_one_child_without_waiting() -> None:
    with _child(*TICKS) as child:
        first = child.read()
        assert (first.stream, first.problem) == (1, "")
        assert b"tick" in first.data
        begin = time.monotonic()
        second = child.read()
        assert time.monotonic() - begin < 0.3
        assert second.stream == 1
        assert wait_until(lambda: b"tick" in child.read().data, 60)


def test_a_tool_opens_its_output_by_name_as_xentrace_does() -> None:
    with _child("sh", "-c", "printf named > /proc/self/fd/1; sleep 9") as child:
        assert child.read().data == b"named"


def test_more_than_a_pipe_holds_by_default_waits_for_the_reading() -> None:
    data = bytearray()

    def whole() -> bool:
        data.extend(child.read().data)
        return len(data) == 900_000

    with _child("sh", "-c", "head -c 900000 /dev/zero; sleep 9") as child:
        assert wait_until(whole, 60)


@pytest.mark.measured
def test_a_child_that_ends_is_named_with_its_last_words_and_started_anew_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "_RETRY_S", 0.3)
    script = "echo some; echo 'failed to bind to VIRQ port' >&2; exit 1"
    with _child("sh", "-c", script, settle_s=1.0) as child:  # by then it has ended, which the first reading shows
        first = child.read()
        assert (first.data, first.problem) == (b"some\n", "sh ended: failed to bind to VIRQ port")
        second = child.read()
        assert (second.stream, second.data) == (1, b"")
        assert "VIRQ" in second.problem
        assert wait_until(lambda: child.read().stream == 2, 60)


def test_a_missing_tool_is_a_reason_and_no_error() -> None:
    with _child("no-such-xentrace") as child:
        piece = child.read()
    assert (piece.stream, piece.data) == (0, b"")
    assert "no-such-xentrace cannot be started" in piece.problem


@pytest.mark.measured
def test_a_child_that_prints_nothing_holds_the_first_reading_up_for_a_moment_only() -> None:
    with _child("sleep", "60", first_s=0.5) as child:
        begin = time.monotonic()
        assert child.read().problem == ""
        assert time.monotonic() - begin < 2


@pytest.mark.parametrize("script", ["exec sleep 60", "trap '' TERM; while :; do sleep 0.1; done", "yes"])
def test_close_ends_the_child_whatever_it_does_and_may_be_called_twice(script: str) -> None:
    with _child("sh", "-c", f"echo; {script}") as child:
        child.read()
        assert child._process is not None
        pid = child._process.pid
        child.close()
    assert _gone(pid)


def test_close_lets_the_child_switch_tracing_off(tmp_path: Path) -> None:
    mark = tmp_path / "off"
    script = f"trap 'echo off > {mark}; exit 0' TERM; echo; while :; do sleep 0.05; done"
    with _child("sh", "-c", script) as child:
        child.read()
    assert mark.read_text() == "off\n"


def test_the_child_of_a_killed_agent_ends_by_itself(tmp_path: Path) -> None:
    program = (
        "import time\nfrom profiler.backends.commands import StreamChild\n"
        f"child = StreamChild({TICKS!r}, '', 30)\nchild.read()\nprint(child._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=root, text=True) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        assert not _gone(pid)
        agent.send_signal(signal.SIGKILL)
        agent.wait()
    assert wait_until(lambda: _gone(pid), 60)
