"""Starts the hypervisor's own tools: argv lists, a time limit, a size limit and the C locale for each of them."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Sequence
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
