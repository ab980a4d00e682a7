"""Runs `virsh` read-only: several of its commands over one connection, and the answer of each."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Sequence

TIMEOUT_S = 60.0  # for one run; libvirt itself gives up on a host that does not answer after about 30 s
_LONGEST_REASON = 200


class VirshError(Exception):
    """A host that gave no answer; the message says why."""


def ask(uri: str, commands: Sequence[str], timeout_s: float = TIMEOUT_S) -> list[str]:
    """The output of each command, empty where it failed; VirshError where the host cannot be asked at all.

    `commands` are lines of virsh (virsh(1), "name arguments"), made here: nothing from outside but UUIDs that were
    checked. A line with a random word stands between two answers, so that no answer can pass for two.
    """
    mark = secrets.token_hex(16)
    script = "; ".join(f"{command}; echo {mark}" for command in commands)
    output, errors = _run(["virsh", "--readonly", "--quiet", "--connect", unattended(uri), script], timeout_s)
    answers = output.split(mark)
    if len(answers) != len(commands) + 1:
        raise VirshError(_reason(errors) or "virsh gave no answer")
    return answers[:-1]


def unattended(uri: str) -> str:
    """The URI with no_tty=1 where the program ssh is the transport: it then fails where it would ask for a password."""
    scheme = uri.partition(":")[0]
    if not scheme.endswith("+ssh") or "no_tty=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}no_tty=1"


def _run(argv: list[str], timeout_s: float) -> tuple[str, str]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}  # virsh translates the names of what it prints
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise VirshError("virsh is not installed (Debian and Ubuntu: apt-get install libvirt-clients)") from None
    except (OSError, ValueError) as error:
        raise VirshError(f"virsh cannot be run: {error}"[:_LONGEST_REASON]) from None
    try:
        return process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise VirshError(f"no answer in {timeout_s:g} s") from None
    finally:
        if process.poll() is None:  # and ssh with it, which virsh started
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _reason(errors: str) -> str:
    """The last thing that went wrong, on one line; "failed to connect" stands before its reason."""
    lines = [line.strip().removeprefix("error: ") for line in errors.splitlines() if line.strip()]
    reasons = [line for line in lines if line != "failed to connect to the hypervisor"]
    reason = "".join(char if char.isprintable() else " " for char in (reasons or lines or [""])[0])
    return reason[:_LONGEST_REASON]
