"""A real Prometheus for a test, of the system or as the Makefile unpacks it; its data is in a temporary folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.servers.running import Running, as_child, found, free_port, hand_over, own_folder

UNPACKED = Path(__file__).resolve().parents[2] / "var" / "tools" / "usr" / "bin"


def promtool(*arguments: str, text: bytes | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; NotInstalled where there is none."""
    argv = [found("promtool", UNPACKED), *arguments]
    done = subprocess.run(argv, input=text, capture_output=True, check=False, cwd=cwd, timeout=120)
    return subprocess.CompletedProcess(argv, done.returncode, done.stdout.decode(), done.stderr.decode())


class Prometheus:
    """One server with a configuration of the test's own, on a free port of loopback."""

    def __init__(self, folder: Path, configuration: dict[str, Any], history: str | None = None) -> None:
        """`history` is OpenMetrics text with timestamps that it has stored before it starts."""
        server = found("prometheus", UNPACKED)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        data, file = folder / "data", folder / "prometheus.yml"
        file.write_text(json.dumps(configuration), encoding="utf-8")  # JSON is YAML
        hand_over(file)
        if history is not None:
            self._fill(folder, data, history)
        argv = [
            server, f"--config.file={file}", f"--storage.tsdb.path={data}", "--storage.tsdb.retention.time=30d",
            f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn", "--web.enable-remote-write-receiver",
        ]  # fmt: skip
        self.running = Running(argv, self._ready, folder / "log", drop=True)
        self.running.start()

    def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API; urllib's HTTPError where it refuses."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def _fill(self, folder: Path, data: Path, history: str) -> None:
        file = folder / "history.txt"
        file.write_text(history, encoding="utf-8")
        data.mkdir()
        hand_over(file)
        hand_over(data)
        # the whole text is gone through once for each block: by default of two hours
        blocks = ["create-blocks-from", "--max-block-duration=60h", "openmetrics"]
        argv = [*as_child(True), found("promtool", UNPACKED), "tsdb", *blocks]
        done = subprocess.run([*argv, str(file), str(data)], capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode != 0:
            raise RuntimeError(f"promtool: {done.stderr[-2000:]}")


@contextmanager
def prometheus(configuration: dict[str, Any], *, history: str | None = None) -> Iterator[Prometheus]:
    """A running server, stopped and removed at the end; NotInstalled where there is none."""
    folder = own_folder("prometheus")
    server = None
    try:
        server = Prometheus(folder, configuration, history)
        yield server
    finally:
        if server is not None:
            server.running.stop()
        shutil.rmtree(folder)
