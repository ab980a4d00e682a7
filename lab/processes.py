"""Starts and stops the lab's programs and calls its small tools; argument lists only, never a shell."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from lab.errors import RunError, ToolError

_ENTER = str(Path(__file__).with_name("enter_instance.py"))
_TOOL_TIMEOUT_S = 20.0
_POLL_S = 0.01
_SHOWN = 400  # characters of a program's complaint that an error repeats


class Program(Protocol):
    """A program that was started in an instance, or against one."""

    command: tuple[str, ...]

    @property
    def returncode(self) -> int | None:
        """None while it runs."""

    def release(self) -> None:
        """Let a program that was started with `wait` begin."""

    def output(self) -> str: ...

    def errors(self) -> str:
        """The end of what it complained about, on one line."""

    def terminate(self) -> None:
        """Ask it to end, once, and do not wait for it."""

    def stop(self, patience_s: float = 1.0) -> None:
        """End it: politely, then by force; safe to repeat."""

    def check(self) -> None:
        """Raise RunError when it ended with a failure."""
        code = self.returncode
        if code not in (None, 0):
            raise RunError(f"{self.command[0]} ended with status {code}: {self.errors() or 'no message'}")


class LabProcess(Program):
    """A program inside an instance. Its output goes to memory, so that no full disk and no unread pipe can stop it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        groups: Sequence[str],
        network: str,
        directory: Path,
        wait: bool = False,
        passed: Sequence[int] = (),
    ) -> None:
        self.command = tuple(command)
        self._output = os.memfd_create("output", os.MFD_CLOEXEC)
        self._errors = os.memfd_create("errors", os.MFD_CLOEXEC)
        self._asked = False
        start = [sys.executable, "-I", "-S", "-B", _ENTER, str(os.getpid()), network, "wait" if wait else "go"]
        self._popen = subprocess.Popen(
            [*start, *groups, "--", *command],
            stdin=subprocess.PIPE if wait else subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
            cwd=directory,
            pass_fds=passed,
            start_new_session=True,  # Ctrl-C on the terminal reaches the lab only, which then ends its programs
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def release(self) -> None:
        if self._popen.stdin is not None:
            try:
                os.write(self._popen.stdin.fileno(), b"\n")
            except BrokenPipeError:
                return  # it ended early; its exit status says why
            finally:
                self._popen.stdin.close()

    def output(self) -> str:
        return _whole(self._output)

    def errors(self) -> str:
        text = " ".join((_whole(self._errors) or _whole(self._output)).split())
        return text[-_SHOWN:]

    def terminate(self) -> None:
        if not self._asked and self._popen.poll() is None:
            self._popen.terminate()
        self._asked = True

    def stop(self, patience_s: float = 1.0) -> None:
        if self._popen.poll() is None and patience_s > 0:
            self.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(patience_s)
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        for descriptor in (self._output, self._errors):
            if descriptor >= 0:
                os.close(descriptor)
        self._output = self._errors = -1


def _whole(descriptor: int) -> str:
    if descriptor < 0:
        return ""
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode("utf-8", "replace")


def wait_until(done: Callable[[], bool], timeout_s: float) -> bool:
    """Poll a callable until it is true; False when the time is over."""
    deadline = time.monotonic() + timeout_s
    while True:
        if done():
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)


def sleep_until(moment: float) -> None:
    """Sleep until this time on the monotonic clock; not at all when it has passed."""
    time.sleep(max(0.0, moment - time.monotonic()))


def call(
    command: Sequence[str], text: str = "", *, directory: Path | None = None, timeout_s: float = _TOOL_TIMEOUT_S
) -> str:
    """Run a small tool to its end and return its output; ToolError repeats its complaint."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False,
            cwd=directory, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ToolError(f"{command[0]} did not answer within {timeout_s:.0f} s") from None
    except OSError as error:
        raise ToolError(f"{command[0]} cannot be started: {error.strerror}") from None
    if done.returncode != 0:
        raise ToolError(f"{' '.join(command[:6])} failed: {' '.join(done.stderr.split())[-_SHOWN:]}")
    return done.stdout
