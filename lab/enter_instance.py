"""Starts a program inside an instance: joins control groups and a network namespace, waits for the start, then execs.

Run as a file of its own (`python -I -S enter_instance.py PARENT NETNS WAIT GROUPFILE... -- COMMAND...`), so that no
Python code of the lab, which may have threads, runs between fork and exec. It imports only what it needs.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGKILL = 9  # signal(7); importing the module would cost a quarter of the time until exec
_CLONE_NEWNET = 0x40000000  # linux/sched.h
_BEFORE_GROUPS = 3  # PARENT NETNS WAIT


def main(arguments: list[str]) -> None:
    split = arguments.index("--")
    parent, network, wait = int(arguments[0]), arguments[1], arguments[2] == "wait"
    libc = ctypes.CDLL(None, use_errno=True)
    # The program dies with the lab, however the lab ends; exec keeps this setting.
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the lab ended before its program could start")
    for path in arguments[_BEFORE_GROUPS:split]:
        with open(path, "w", encoding="ascii") as procs:  # noqa: PTH123 - starts fast without pathlib
            procs.write(str(os.getpid()))
    descriptor = os.open(network, os.O_RDONLY | os.O_CLOEXEC)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        sys.exit(f"cannot enter {network}: {os.strerror(ctypes.get_errno())}")
    if wait and not os.read(0, 1):
        sys.exit("the lab called the start off")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    command = arguments[split + 1 :]
    try:
        os.execvp(command[0], command)  # noqa: S606 - this is what the file is for
    except OSError as error:
        sys.exit(f"{command[0]} cannot be started: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
