"""Runs in Dom0: takes orders from the lab as lines of JSON, and answers each with its result.

It pauses and resumes domains by the call that `xl pause` makes, too: xl itself would take an emulated Dom0 a third of a
second of CPU time each time, which the guests would feel.
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
PATIENCE_S = 60.0  # for the port to appear
PIECE = 2048  # bytes: longer writes were garbled now and then, for the pages of a Dom0 do not lie side by side


def serve(orders: BinaryIO, answers: int) -> None:
    """Answer every order until the other side goes away; commands run side by side."""
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
        if "argv" in order:
            threading.Thread(target=lambda order=order: answer(carry_out(order)), daemon=True).start()
            continue
        result: dict[str, Any] = {}
        if "pause" in order:
            hypervisor = hypervisor or Hypervisor()
            result = {"problem": hypervisor.switch(order["pause"], order["resume"])}
        elif "look" in order:
            result = look(order["look"], order["path"])
        elif "snapshot" in order:
            snapshot(order["snapshot"], order["trace"], order["into"])
        else:
            result = piece(order["piece"], order["begin"], order["most"])
        answer({"id": order["id"], **result})


def carry_out(order: dict[str, Any]) -> dict[str, Any]:
    """Run `argv` with `input` (base64) for at most `timeout_s`; code None = it took too long or did not start."""
    try:
        done = subprocess.run(
            order["argv"],
            input=base64.b64decode(order["input"]),
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
    """Look at all of these at once, and keep that in a file: in a busy Dom0 each answer on its own would take seconds.

    The trace's length is read before the clocks, as the profiler does.
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
    """Xen's control library, whose calls need no new process."""

    def __init__(self) -> None:
        self._calls = ctypes.CDLL(str(next(Path("/usr/lib").glob("*/libxenctrl.so.*"))), use_errno=True)
        self._calls.xc_interface_open.restype = ctypes.c_void_p
        self._handle = ctypes.c_void_p(self._calls.xc_interface_open(None, None, 0))

    def switch(self, pause: list[int], resume: list[int]) -> str:
        """Pause some domains and resume others; "" or what went wrong. A paused domain has left its pCPU."""
        for name, domains in (("pause", pause), ("unpause", resume)):
            call = getattr(self._calls, f"xc_domain_{name}")
            for domain in domains:
                if call(self._handle, ctypes.c_uint32(domain)) != 0:
                    return f"domain {domain} cannot {name}: {os.strerror(ctypes.get_errno())}"
        return ""


def find_port() -> Path:
    """The virtio port of the lab, by the name that QEMU gave it."""
    end = time.monotonic() + PATIENCE_S
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
