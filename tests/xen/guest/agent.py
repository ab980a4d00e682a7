"""Runs in Dom0: takes commands as lines of JSON from the lab, runs them together, answers with what came out."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

PORT = "cotenant.lab"


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Answer every order until the other side goes away; orders do not wait for each other."""
    lock = threading.Lock()

    def answer(document: dict[str, Any]) -> None:
        line = json.dumps(document).encode() + b"\n"
        with lock:
            answers.write(line)
            answers.flush()

    answer({"id": 0, "ready": True})
    for line in orders:
        order = json.loads(line)
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
    with os.fdopen(port, "rb") as orders, os.fdopen(os.dup(port), "wb") as answers:
        serve(orders, answers)
