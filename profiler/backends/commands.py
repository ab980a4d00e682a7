"""Starts the hypervisor's own tools: argv lists, a time limit, a size limit and the C locale for each; streams, too."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

TIMEOUT_S = 5.0  # for one tool; xl hangs as long as xenstored does
_LARGEST = 1 << 26  # 64 MB: a thousand guests of xenstore-ls are under 10 MB
_SHOWN = 200
_KILL_S = 1.0


def run_tool(argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> str:
    """Return what a tool prints, as text with undecodable bytes replaced.

    Raises OSError as the kernel does when it cannot be started, TimeoutError when it takes too long (the tool and its
    children are killed), OSError with EIO when it fails and with EFBIG when it prints without end. What a tool
    printed before it failed is not returned: half a table is no table.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "LANGUAGE": ""}
    # files, not pipes: a child that keeps our pipe open cannot make us wait for it; in memory, for disks can be full
    with _memory_file() as output, _memory_file() as errors:
        process = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment, start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(errno.ETIMEDOUT, f"{argv[0]} gave no answer in {timeout_s:g} s") from None
        finally:
            _kill(process)
        if code != 0:
            errors.seek(0)
            complaint = errors.read(4096).decode("utf-8", "replace").strip().splitlines() or ["it said nothing"]
            raise OSError(errno.EIO, f"{argv[0]} failed with {code}: {complaint[-1][:_SHOWN]}")
        if output.seek(0, os.SEEK_END) > _LARGEST:
            raise OSError(errno.EFBIG, f"{argv[0]} printed more than {_LARGEST >> 20} MB")
        output.seek(0)
        return output.read().decode("utf-8", "replace")


def _memory_file() -> BinaryIO:
    return os.fdopen(os.memfd_create("tool", os.MFD_CLOEXEC), "w+b")


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # one that sleeps in the kernel dies later
            process.wait(_KILL_S)


# A tool that runs as a child process and prints a stream, which is drained without blocking.

_PIPE_BYTES = 1 << 24  # only full pipes take memory; beyond 1 MB needs root
_PIPE_BYTES_ALL = 1 << 20
_READ_BYTES = 1 << 20
_MOST_BYTES = 1 << 26  # in one reading; the rest waits for the next one
_END_S = 1.0  # for it to end in order
_RETRY_S = 10.0  # after it ended, doubled with each failure …
_LONGEST_RETRY_S = 300.0  # … up to here
_STDERR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """What one read gave: the number of the start that printed it, the bytes, and why nothing follows (or "")."""

    stream: int
    data: bytes
    problem: str


class StreamChild:
    """One long-running tool that prints a stream; `read` starts it, and starts it anew when it ended.

    `comes_with` says how to get the tool where it is missing. The first reading waits up to `first_s` for the first
    bytes, and `settle_s` more. The tool dies with this process if a write without a reader ends it.
    """

    def __init__(self, argv: Sequence[str], comes_with: str, first_s: float = 0.0, settle_s: float = 0.0) -> None:
        self._comes_with = comes_with
        self._first_s = first_s
        self._settle_s = settle_s
        self._argv = list(argv)
        self._process: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._errors: BinaryIO | None = None
        self._streams = 0
        self._failures = 0
        self._retry_at = 0.0
        self._problem = ""

    def read(self) -> StreamPiece:
        """What came since the last call."""
        data = b""
        if self._process is None and time.monotonic() >= self._retry_at:
            self._start()
        if self._process is not None:
            self._problem = ""
            data, ended = self._drain()
            if ended:
                self.give_up(f"{self._argv[0]} ended: {self._last_words()}")
            elif data:
                self._failures = 0
        return StreamPiece(self._streams, data, self._problem)

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
            self.give_up(f"{self._argv[0]} cannot be started: {error.strerror} ({self._comes_with})")
            return
        finally:
            os.close(outside)
        self._streams += 1
        if self._streams == 1 and self._first_s and select.select([inside], [], [], self._first_s)[0]:
            time.sleep(self._settle_s)

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

    def give_up(self, problem: str) -> None:
        """End the tool and its stream; a new one is started after a while, later after each failure."""
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
        """Send SIGTERM and read on meanwhile: a tool that waits for room in the pipe cannot react."""
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
