"""Real exporters that a real Prometheus scrapes each second."""

from __future__ import annotations

import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from advisor.telemetry.monitoring_history import Preset
from tests.servers.prometheus import UNPACKED, Prometheus, prometheus
from tests.servers.running import Running, found, free_port, own_folder

WINDOW_S = 10.0
_WAIT_S = 60.0


@contextmanager
def scraped(
    name: str,
    *options: str,
    listen: str = "--web.listen-address",
    path: str = "/metrics",
    parameters: Mapping[str, Sequence[str]] | None = None,
    program: str | None = None,
    root: bool = False,
    every: str = "1s",
) -> Iterator[Prometheus]:
    """A Prometheus with what an exporter reports from now on; NotInstalled where one of the two is not there."""
    port, folder = free_port(), own_folder("exporter")
    argv = [program or found(name, UNPACKED), f"{listen}=127.0.0.1:{port}", *options]
    asked = f"http://127.0.0.1:{port}{path}?{urlencode(parameters or {}, doseq=True)}"

    def ready() -> bool:
        try:
            with urllib.request.urlopen(asked, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    exporter = Running(argv, ready, folder / "log", drop=not root)
    job = {"job_name": name, "metrics_path": path, "params": parameters or {}}
    configuration = {
        "global": {"scrape_interval": every, "scrape_timeout": every},
        "scrape_configs": [{**job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }
    try:
        exporter.start()
        with prometheus(configuration) as store:
            yield store
    finally:
        exporter.stop()
        shutil.rmtree(folder)


def answers(store: Prometheus, preset: Preset, queries: Sequence[str], name: str) -> Mapping[str, float]:
    """The latest value of each query of a preset for the instance of a name, once all have one; else those that do.

    Its window begins after the call: what ran before, a guest without its load say, is not part of it.
    """
    time.sleep(WINDOW_S)
    until = time.monotonic() + _WAIT_S
    reported: dict[str, float] = {}
    while set(reported) != set(queries) and time.monotonic() < until:
        time.sleep(1.0)
        reported = {
            query: float(row["value"][1])
            for query in queries
            for row in _ask(store, preset.queries[query])
            if name in row["metric"].values()
        }
    return reported


def _ask(store: Prometheus, query: str) -> Sequence[Mapping[str, Any]]:
    whole = query.replace("$window", f"{WINDOW_S:.0f}s")
    found_rows: Sequence[Mapping[str, Any]] = store.ask("query", query=whole)["result"]
    return found_rows
