"""Runs programs side by side in the foreground until one of them ends or the time is over; they die with it.

Run as a file of its own: `python -I -S run_together.py SECONDS -- COMMAND... [-- COMMAND...]`. SECONDS 0 = no limit;
when the time is over, the programs are ended, and that is a success. For servers that need two processes, and for tools
without a time limit of their own.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT}


def start(command: list[str], libc: ctypes.CDLL) -> int:
    """Fork and execute; the program is killed when this process ends, in whatever way."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _WATCHED)
    try:
        os.execvp(command[0], command)  # noqa: S606 - this is what the file is for
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    os._exit(127)


def split(arguments: list[str]) -> list[list[str]]:
    """Commands between the `--`."""
    commands: list[list[str]] = []
    for argument in arguments:
        if argument == "--":
            commands.append([])
        else:
            commands[-1].append(argument)
    return [command for command in commands if command]


def main(arguments: list[str]) -> None:
    seconds, commands = float(arguments[0]), split(arguments[1:])
    libc = ctypes.CDLL(None)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    children = [start(command, libc) for command in commands]
    received = signal.sigtimedwait(_WATCHED, seconds) if seconds else signal.sigwaitinfo(_WATCHED)
    status = 0
    if received is not None and received.si_signo == signal.SIGCHLD:
        status = os.waitstatus_to_exitcode(os.waitpid(received.si_pid, 0)[1])
        children.remove(received.si_pid)
    for child in children:
        os.kill(child, signal.SIGTERM)
    for child in children:
        os.waitpid(child, 0)
    sys.exit(abs(status))


if __name__ == "__main__":
    main(sys.argv[1:])
