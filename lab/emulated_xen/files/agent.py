"""Runs in Dom0: takes commands as lines of JSON from the lab, runs them together, answers with what came out.

Domains are paused and let go on by the call that `xl pause` makes too: xl itself would take an emulated Dom0 a third of
a second of its CPU time each time, which the others would feel.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any, BinaryIO

PORT = "cotenant.lab"
PIECE = 2048  # bytes: longer ones reached the lab garbled now and then, for a Dom0's pages do not lie side by side


def serve(orders: BinaryIO, answers: int) -> None:
    """Answer every order until the other side goes away; orders do not wait for each other."""
    lock = threading.Lock()

    def answer(document: dict[str, Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        with lock:
            left = memoryview(line)
            while left:
                left = left[os.write(answers, left[:PIECE]) :]

    answer({"id": 0, "ready": True})
    hypervisor = None
    for line in orders:
        order = json.loads(line)
        if "pause" in order:
            hypervisor = hypervisor or Hypervisor()
            answer({"id": order["id"], "problem": hypervisor.switch(order["pause"], order["resume"])})
            continue
        if "look" in order:
            answer({"id": order["id"], **look(order["look"], order["path"])})
            continue
        if "snapshot" in order:
            snapshot(order["snapshot"], order["trace"], order["into"])
            answer({"id": order["id"]})
            continue
        if "piece" in order:
            answer({"id": order["id"], **piece(order["piece"], order["from"], order["most"])})
            continue
        threading.Thread(target=lambda order=order: answer(carry_out(order)), daemon=True).start()


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Run `argv` with `input` (base64) for at most `timeout_s`; code None = it took too long or did not start."""
    given = base64.b64decode(order["input"])
    try:
        done = subprocess.run(
            order["argv"],
            input=given,
            capture_output=True,
            timeout=order["timeout_s"],
            cwd=order["folder"],
            check=False,
        )
        code, output, errors = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as error:
        code, output, errors = None, error.stdout or b"", (error.stderr or b"") + b"\n(it took too long)"
    except OSError as error:
        code, output, errors = None, b"", str(error).encode()
    encoded = {"output": base64.b64encode(output).decode(), "errors": base64.b64encode(errors).decode()}
    return {"id": order["id"], "code": code, **encoded}


def look(how: str, path: str) -> dict[str, Any]:
    """The text of a file, the names of a folder's folders, or where a link leads; or the number of the error."""
    try:
        if how == "read":
            return {"found": Path(path).read_bytes().decode("utf-8", "replace")}
        if how == "link":
            return {"found": str(Path(path).readlink())}
        with os.scandir(path) as entries:
            return {"found": sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))}
    except OSError as error:
        return {"errno": error.errno or 5}


def snapshot(looks: list[list[str]], trace: str, into: str) -> None:
    """Look at all of these at once, and keep it in a file: with much work to do an answer of each would take seconds.

    How long the trace was is read before the clocks, as the profiler reads them.
    """
    size = Path(trace).stat().st_size
    clock = [time.time(), time.monotonic()]
    found = [look(how, path) for how, path in looks]
    Path(into).write_text(json.dumps({"size": size, "clock": clock, "found": found}))


def piece(path: str, begin: int, most: int) -> dict[str, Any]:
    """A part of a file with its checksum; an empty one at the end."""
    with Path(path).open("rb") as file:
        file.seek(begin)
        data = file.read(most)
    return {"found": base64.b64encode(data).decode(), "crc32": zlib.crc32(data)}


class Hypervisor:
    """Xen's control library, whose calls take no new process."""

    def __init__(self) -> None:
        self._calls = ctypes.CDLL(str(next(Path("/usr/lib").glob("*/libxenctrl.so.*"))), use_errno=True)
        self._calls.xc_interface_open.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(self._calls.xc_interface_open(None, None, 0))

    def switch(self, pause: list[int], resume: list[int]) -> str:
        """Pause some domains and let others go on; "" or what went wrong. A paused domain has left its pCPU."""
        for name, domains in (("pause", pause), ("unpause", resume)):
            call = getattr(self._calls, f"xc_domain_{name}")
            for domain in domains:
                if call(self._handle, ctypes.c_uint32(domain)) != 0:
                    return f"domain {domain} cannot {name}: {os.strerror(ctypes.get_errno())}"
        return ""


def find_port(patience_s: float = 60.0) -> Path:
    """The virtio port of the lab, by the name that QEMU gave it."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        for name in Path("/sys/class/virtio-ports").glob("*/name"):
            if name.read_text().strip() == PORT:
                return Path("/dev") / name.parent.name
        time.sleep(0.1)
    sys.exit(f"LAB-FAILED no virtio port {PORT}")


if __name__ == "__main__":
    port = os.open(find_port(), os.O_RDWR)  # the driver lets it be opened once
    with os.fdopen(port, "rb") as orders:
        serve(orders, port)
