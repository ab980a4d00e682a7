"""Runs xentrace(8) as a child process and makes run states of the trace that it prints."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from profiler.backends.source import HostSource
from profiler.backends.stream_child import StreamChild
from profiler.backends.xen import Mode
from profiler.backends.xen.runstates import LAG_S, RunStates
from profiler.parse.text import ParseError

# Classes of records (xen/include/public/trace.h): changes of run state; with them hypercalls of PV guests.
_MASKS = {"runstate": "0x00021000", "full": "0x00221000"}
_OUTPUT = "/proc/self/fd/1"  # xentrace needs a file's name; /dev/stdout is missing where udev did not make it
_FIRST_S = 2.0  # until the first records come; the tool polls every 0.1 s
_OLD_ENOUGH_S = 3 * LAG_S  # the first reading counts up to LAG_S behind the newest record: more must be there


def xentrace_argv(mode: Mode) -> tuple[str, ...]:
    """How xentrace is started: -D drops what older tracing left in Xen's buffers."""
    return ("xentrace", "-D", "-e", _MASKS[mode], _OUTPUT)


def trace_child(mode: Mode) -> StreamChild:
    """xentrace, not started yet.

    It dies with this process: its next write finds no reader. Tracing then stays switched on in Xen until some xentrace
    ends in order; `close` makes it switch tracing off.
    """
    return StreamChild(xentrace_argv(mode), "it comes with Xen's tools", _FIRST_S, _OLD_ENOUGH_S)


class SchedulerTrace:
    """The trace, reading after reading: call `drain` before the clock is read, `advance` after it.

    `problem` says why the interval up to this reading is not known; "" = `states` covers it.
    """

    def __init__(self, source: HostSource, mhz: float, mode: Mode) -> None:
        self._source = source
        self._mhz = mhz
        self._child = trace_child(mode) if mode != "off" else None
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
            stream, data, self.problem = _piece(self._source.value("xentrace", self._read_child))
            if stream != self._stream:
                if self._stream and not self.problem:
                    self.problem = "xentrace was started anew"
                self._stream, self._fresh, self._lost, self.states = stream, True, 0, RunStates(self._mhz)
            self.states.feed(data)
        except OSError as error:
            self.problem = f"xentrace: {error.strerror or 'cannot be read'}"
        except ParseError as error:
            self._give_up(error)

    def _read_child(self) -> dict[str, Any]:
        """A piece of the trace as a recording holds it."""
        if self._child is None:
            return {}
        piece = self._child.read()
        data = base64.b64encode(piece.data).decode("ascii")
        return {"stream": piece.stream, "data": data, "problem": piece.problem}

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
        if not self.problem and lost > 0 and not fresh:  # what was lost before the first reading is in no interval
            self.problem = f"Xen lost {lost} trace records, because Dom0 read them too late"
        if not self.problem and self.states.seconds <= 0:
            self.problem = "xentrace has given too few records yet"

    def _give_up(self, error: ParseError) -> None:
        self.problem = error.reason
        self.states = RunStates(self._mhz)
        self._lost = 0
        if self._child is not None:
            self._child.give_up(error.reason)

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
