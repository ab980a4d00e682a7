"""Runs a command again and again and counts the runs, for work that is a program of its own.

Run as a file of its own: `python -I -S repeat.py SECONDS COMMAND...`. It counts in the file `progress` of its folder
where there is one (lab/on_off/progress.py), and prints runs and seconds as a JSON object. The command dies with it.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def counter() -> memoryview:
    """The slots of the file, of which slot 0 counts what was done; without the file one that is not read."""
    try:
        with open("progress", "r+b") as file:  # noqa: PTH123 - starts fast without pathlib
            return memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
    except FileNotFoundError:
        return memoryview(bytearray(8)).cast("Q")


def run(command: list[str], libc: ctypes.CDLL, nothing: int) -> int:
    """Run it to its end; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.dup2(nothing, 1)
    try:
        os.execvp(command[0], command)  # noqa: S606 - this is what the file is for
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    os._exit(127)


def main(arguments: list[str]) -> None:
    seconds, command = float(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None)
    nothing = os.open(os.devnull, os.O_WRONLY)
    slots = counter()
    begin = time.monotonic()
    done = 0
    while time.monotonic() < begin + seconds:
        status = run(command, libc, nothing)
        if status:
            sys.exit(f"{command[0]} ended with status {status}")
        done += 1
        slots[0] += 1
    os.write(1, json.dumps({"runs": done, "seconds": time.monotonic() - begin}).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
