"""The first process of a guest: starts programs and reports their end, reads and writes small files, over JSON lines.

Run as a file of its own (`python -I -S agent.py PORT`) inside the guest; it imports only what it needs. PORT is the
name of a virtio-serial port, or the number of a TCP port where there is none. A request is one object on one line with
`do`; one that has a `number` is answered with it. The agent also reports when it is up and when a program ends.
"""

# ruff: noqa: PTH123, PTH208
# Without pathlib, which would take half of the time that the agent needs to start on an emulated CPU.

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Request = dict[str, Any]

_NICE = -20  # so that it answers at once also while the guest's programs keep its CPUs busy
_MOST_OUTPUT = 8 << 20  # bytes of a program's output that are handed over, from its end
_HUNG_UP_S = 0.05  # between two looks at a port that is not open
_FIRST = 1  # process id of the agent in a guest
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games"


class ForkedProgram:
    """A program that was started: its process, what it writes, and the pipe that it waits at."""

    def __init__(self, request: Request) -> None:
        self._files = [os.memfd_create(name) for name in ("output", "errors")]
        self._gate = gate = -1
        if request["wait"]:
            gate, self._gate = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(request, gate)
        if gate >= 0:
            os.close(gate)

    def _become(self, request: Request, gate: int) -> NoReturn:
        try:
            os.setsid()
            os.nice(-os.nice(0))
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
                score.write("0")
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec keeps that
                signal.signal(number, signal.SIG_DFL)
            os.chdir(request["directory"])
            nothing = os.open(os.devnull, os.O_RDONLY)
            for target, source in enumerate([nothing, *self._files]):
                os.dup2(source, target)
            if gate >= 0:
                os.close(self._gate)
                if not os.read(gate, 1):
                    os._exit(1)
            os.execvp(request["command"][0], request["command"])  # noqa: S606 - this is what the agent is for
        except OSError as error:
            os.write(2, f"{request['command'][0]} cannot be started: {error.strerror}".encode())
        os._exit(127)

    def release(self) -> None:
        """Let a program that waits begin."""
        if self._gate >= 0:
            with contextlib.suppress(BrokenPipeError):  # it ended early; its exit status says why
                os.write(self._gate, b"\n")
            os.close(self._gate)
            self._gate = -1

    def texts(self) -> Request:
        return {name: self._text(file) for name, file in zip(("output", "errors"), self._files, strict=True)}

    def _text(self, file: int) -> str:
        size = os.fstat(file).st_size
        return os.pread(file, _MOST_OUTPUT, max(0, size - _MOST_OUTPUT)).decode("utf-8", "replace")

    def forget(self) -> None:
        for file in (*self._files, self._gate):
            if file >= 0:
                os.close(file)


class GuestAgent:
    """Answers the lab, and reaps whatever ends in the guest."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._programs: dict[int, ForkedProgram] = {}
        self._rest = b""

    def serve(self) -> NoReturn:
        """Serve for ever: a guest without its agent is over. A virtio port that the lab has not opened is hung up."""
        wake, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write_end)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._say({"up": os.uname().release})
        poll = select.poll()
        for descriptor in (self._descriptor, wake):
            poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, events in poll.poll():
                if descriptor == wake:
                    os.read(wake, 4096)
                    self._reap()
                elif events & select.POLLIN:
                    self._hear()
                else:
                    time.sleep(_HUNG_UP_S)

    def _hear(self) -> None:
        data = os.read(self._descriptor, 65536)
        if not data:
            time.sleep(_HUNG_UP_S)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._answer(json.loads(line))

    def _answer(self, request: Request) -> None:
        try:
            answer = getattr(self, f"do_{request['do']}")(request) or {}
        except Exception as error:  # noqa: BLE001 - the lab gets it; a guest ends with its agent
            answer = {"error": getattr(error, "strerror", None) or str(error) or repr(error)}
        if "number" in request:
            self._say({"number": request["number"], **answer})

    def do_start(self, request: Request) -> None:
        self._programs[request["program"]] = ForkedProgram(request)

    def do_release(self, request: Request) -> None:
        if request["program"] in self._programs:
            self._programs[request["program"]].release()

    def do_output(self, request: Request) -> Request | None:
        """The output so far; None for a program that has just ended: its output was reported with its end."""
        program = self._programs.get(request["program"])
        return None if program is None else program.texts()

    def do_signal(self, request: Request) -> None:
        """Signal one program and all that it started; without a program everything but this agent."""
        with contextlib.suppress(ProcessLookupError):
            if "program" not in request:
                if os.getpid() != _FIRST:
                    raise PermissionError("this agent is not alone")
                os.kill(-1, request["signal"])
            elif request["program"] in self._programs:
                os.killpg(self._programs[request["program"]].pid, request["signal"])

    def do_read(self, request: Request) -> Request:
        with open(request["path"], "rb") as file:
            return {"text": file.read().decode("utf-8", "replace")}

    def do_write(self, request: Request) -> None:
        with open(request["path"], "w", encoding="utf-8") as file:
            file.write(request["text"])

    def do_uncache(self, request: Request) -> None:
        """Write what is below a folder to its disk, and drop it from the page cache."""
        os.sync()
        for folder, _folders, files in os.walk(request["path"]):
            for name in files:
                file = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

    def do_clock(self, request: Request) -> None:
        time.clock_settime(time.CLOCK_REALTIME, request["seconds"])

    def _reap(self) -> None:
        """Report the programs that ended; processes that they left behind end without a report."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for number, program in list(self._programs.items()):
                if program.pid == pid:
                    self._say({"ended": number, "status": os.waitstatus_to_exitcode(status), **program.texts()})
                    program.forget()
                    del self._programs[number]

    def _say(self, message: Request) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select([], [self._descriptor], [])


def open_port(name: str) -> int:
    """The virtio-serial port of this name, or a connection to this TCP port."""
    if name.isdecimal():
        with socket.create_server(("", int(name))) as listener:
            connection, _peer = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection.detach()
    folder = "/sys/class/virtio-ports"
    for port in os.listdir(folder):
        with open(f"{folder}/{port}/name", encoding="utf-8") as file:
            if file.read().strip() == name:
                return os.open(f"/dev/{port}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    raise FileNotFoundError(name)


def main() -> None:
    """Be the guest's agent; never returns."""
    if os.getpid() == _FIRST:
        os.nice(_NICE)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
            score.write("-1000")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    os.environ["PATH"] = _PATH
    GuestAgent(open_port(sys.argv[1])).serve()


if __name__ == "__main__":
    main()
