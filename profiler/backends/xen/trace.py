"""Runs xentrace(8) as a child process, drains its stream without blocking, and makes a scheduler trace of it."""

from __future__ import annotations

import base64
import binascii
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from typing import Any, BinaryIO

from profiler.backends.source import HostSource
from profiler.backends.xen import Mode
from profiler.backends.xen.runstates import LAG_S, RunStates
from profiler.parse.text import ParseError

# Classes of records (xen/include/public/trace.h): changes of run state; with them hypercalls of PV guests.
_MASKS = {"runstate": "0x00021000", "full": "0x00221000"}
_OUTPUT = "/proc/self/fd/1"  # xentrace needs a file's name; /dev/stdout is missing where udev did not make it
_PIPE_BYTES = 1 << 24  # only full pipes take memory; beyond 1 MB needs root
_PIPE_BYTES_ALL = 1 << 20
_READ_BYTES = 1 << 20
_MOST_BYTES = 1 << 26  # in one reading; the rest waits for the next one
_FIRST_S = 2.0  # until the first records come; the tool polls every 0.1 s
_OLD_ENOUGH_S = 3 * LAG_S  # the first reading counts up to LAG_S behind the newest record: more must be there
_END_S = 1.0  # for it to switch tracing off
_RETRY_S = 10.0  # after it ended, doubled with each failure …
_LONGEST_RETRY_S = 300.0  # … up to here
_STDERR_BYTES = 4096


def xentrace_argv(mode: Mode) -> tuple[str, ...]:
    """How xentrace is started: -D drops what older tracing left in Xen's buffers."""
    return ("xentrace", "-D", "-e", _MASKS[mode], _OUTPUT)


class TraceChild:
    """One long-running tool that prints a binary stream; `read` starts it, and starts it anew when it ended.

    It dies with this process: its next write finds no reader. Tracing then stays switched on in Xen until some xentrace
    ends in order; `close` lets it switch tracing off.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._errors: BinaryIO | None = None
        self._streams = 0
        self._failures = 0
        self._retry_at = 0.0
        self._problem = ""

    def read(self) -> dict[str, Any]:
        """What came since the last call, as `stream` (number of the start), `data` (base64) and `problem` (or "")."""
        data = b""
        if self._process is None and time.monotonic() >= self._retry_at:
            self._start()
        if self._process is not None:
            self._problem = ""
            data, ended = self._drain()
            if ended:
                self._failed(f"{self._argv[0]} ended: {self._last_words()}")
            elif data:
                self._failures = 0
        return {"stream": self._streams, "data": base64.b64encode(data).decode("ascii"), "problem": self._problem}

    def _start(self) -> None:
        """Start the tool; the first time, wait until its stream is old enough to be counted up to this reading."""
        inside, outside = os.pipe2(os.O_CLOEXEC)
        for size in (_PIPE_BYTES, _PIPE_BYTES_ALL):
            with contextlib.suppress(OSError):
                fcntl.fcntl(inside, fcntl.F_SETPIPE_SZ, size)
                break
        os.set_blocking(inside, False)
        self._output = inside
        self._errors = os.fdopen(os.memfd_create("errors", os.MFD_CLOEXEC), "w+b")
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}
        try:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=outside, stderr=self._errors, env=environment,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._failed(f"{self._argv[0]} cannot be started: {error.strerror} (it comes with Xen's tools)")
            return
        finally:
            os.close(outside)
        self._streams += 1
        if self._streams == 1 and select.select([inside], [], [], _FIRST_S)[0]:
            time.sleep(_OLD_ENOUGH_S)

    def _drain(self) -> tuple[bytes, bool]:
        """All that waits in the pipe, and whether the tool has closed it."""
        parts: list[bytes] = []
        size = 0
        while size < _MOST_BYTES:
            try:
                part = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                break
            if not part:
                return b"".join(parts), True
            parts.append(part)
            size += len(part)
        return b"".join(parts), False

    def _failed(self, problem: str) -> None:
        self._problem = problem
        self._retry_at = time.monotonic() + min(_RETRY_S * 2**self._failures, _LONGEST_RETRY_S)
        self._failures = min(self._failures + 1, 10)
        self._end()

    def _last_words(self) -> str:
        if self._errors is None:
            return "it said nothing"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _STDERR_BYTES))
        complaint = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return complaint[-1][:200] if complaint else "it said nothing"

    def restart(self, problem: str) -> None:
        """Give up this stream; the next one is started after a while."""
        self._failed(problem)

    def close(self) -> None:
        """End the tool, gently at first; harmless when called twice."""
        self._end()
        self._retry_at = 0.0

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._stop(process)
        if self._output >= 0:
            os.close(self._output)
            self._output = -1
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM, and reading on meanwhile, because a tool that waits for room in the pipe hears nothing else."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + _END_S
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                self._drain()
            time.sleep(0.01)
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)


class SchedulerTrace:
    """The trace, reading after reading: `drain` before the clock is read, `advance` after it.

    `problem` says why the interval up to this reading is not known; "" = `states` holds it.
    """

    def __init__(self, source: HostSource, mhz: float, mode: Mode) -> None:
        self._source = source
        self._mhz = mhz
        self._child = TraceChild(xentrace_argv(mode)) if mode != "off" else None
        self._stream = 0
        self._lost = 0
        self._fresh = True  # no reading of this stream was made yet
        self.full = mode == "full"
        self.states = RunStates(mhz)
        self.problem = "tracing is switched off"

    def drain(self) -> None:
        """Take what the stream brought since the last reading."""
        if self._child is None:
            return
        try:
            stream, data, self.problem = _piece(self._source.value("xentrace", self._child.read))
            if stream != self._stream:
                if self._stream and not self.problem:
                    self.problem = "xentrace was started anew"
                self._stream, self._fresh, self._lost, self.states = stream, True, 0, RunStates(self._mhz)
            self.states.feed(data)
        except OSError as error:
            self.problem = f"xentrace: {error.strerror or 'cannot be read'}"
        except ParseError as error:
            self._give_up(error)

    def advance(self, monotonic_s: float) -> None:
        """Count up to this reading, and judge whether the interval is known."""
        if self._child is None:
            return
        try:
            self.states.advance(monotonic_s)
        except ParseError as error:
            self._give_up(error)
        lost, self._lost = self.states.lost - self._lost, self.states.lost
        fresh, self._fresh = self._fresh, False
        if not self.problem and lost > 0 and not fresh:  # what was lost before the first reading belongs to nothing
            self.problem = f"Xen lost {lost} trace records, because Dom0 read them too late"
        if not self.problem and self.states.seconds <= 0:
            self.problem = "xentrace has given too few records yet"

    def _give_up(self, error: ParseError) -> None:
        self.problem = error.reason
        self.states = RunStates(self._mhz)
        self._lost = 0
        if self._child is not None:
            self._child.restart(error.reason)

    def close(self) -> None:
        """Stop the child; harmless when called twice."""
        if self._child is not None:
            self._child.close()


def _piece(value: Any) -> tuple[int, bytes, str]:
    """Check what came from a recording or from the child."""
    try:
        return int(value["stream"]), base64.b64decode(value["data"], validate=True), str(value["problem"])
    except (KeyError, TypeError, ValueError, binascii.Error) as error:
        raise ParseError("xentrace", "", 1, f"the recording holds no piece of a trace ({error})") from None
