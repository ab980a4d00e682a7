"""A real VictoriaMetrics for a test, of the system or as the Makefile unpacks it; its data is in a temporary folder."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.running import Running, found, free_port, hand_over, own_folder

UNPACKED = Path(__file__).resolve().parents[2] / "var" / "tools" / "usr" / "bin"
_WRITTEN_S = 8.0  # its -inmemoryDataFlushInterval is 5 s


class VictoriaMetrics:
    """One server on a free port of loopback; of samples with one time it keeps one, as the documentation says."""

    def __init__(self, folder: Path, scraped: Mapping[str, Any] | None = None) -> None:
        """NotInstalled where there is none; `scraped` is what it reads, as Prometheus is configured."""
        server = found("victoria-metrics", UNPACKED)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "data"
        self.data.mkdir()
        hand_over(self.data)
        argv = [
            server, f"-storageDataPath={self.data}", f"-httpListenAddr=127.0.0.1:{self.port}",
            "-dedup.minScrapeInterval=1ms", "-retentionPeriod=2", "-memory.allowedPercent=10",
        ]  # fmt: skip
        if scraped is not None:
            file = folder / "scraped.yml"
            file.write_text(json.dumps(scraped), encoding="utf-8")  # JSON is YAML
            hand_over(file)
            argv.append(f"-promscrape.config={file}")
        self.running = Running(argv, self._ready, folder / "log", drop=True)
        self.running.start()

    def flush(self) -> None:
        """Make what was written readable at once, which takes it a second or two."""
        urllib.request.urlopen(f"{self.url}/internal/force_flush", timeout=30).close()

    def bytes_on_disk(self) -> int:
        """Of its data and index, merged, after what is in memory was written: by default that takes it five seconds."""
        self.flush()
        time.sleep(_WRITTEN_S)
        urllib.request.urlopen(f"{self.url}/internal/force_merge", timeout=60).close()
        time.sleep(_WRITTEN_S / 2)
        files = (file for part in ("data", "indexdb") for file in (self.data / part).rglob("*") if file.is_file())
        return sum(file.stat().st_size for file in files)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def victoria_metrics(scraped: Mapping[str, Any] | None = None) -> Iterator[VictoriaMetrics]:
    """A running server, stopped and removed at the end; NotInstalled where there is none."""
    folder = own_folder("victoria-metrics")
    server = None
    try:
        server = VictoriaMetrics(folder, scraped)
        yield server
    finally:
        if server is not None:
            server.running.stop()
        shutil.rmtree(folder)
