"""Presets of monitoring history against exporters that really run: what they ask for is there, under these names."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.telemetry.monitoring_history import load_preset
from tests.servers.exporters import answers, scraped
from tests.servers.prometheus import Prometheus
from tests.servers.running import NotInstalled


@pytest.fixture(scope="module")
def node() -> Iterator[Prometheus]:
    try:
        with scraped("prometheus-node-exporter", every="500ms") as store:
            yield store
    except NotInstalled as missing:
        pytest.skip(str(missing))


def _names(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


def test_node_exporter_tells_all_that_its_preset_asks_for(node: Prometheus) -> None:
    preset = load_preset("node-exporter")
    wanted = set(preset.queries)
    if not any(name[:2] in {"sd", "vd", "nv", "xv"} for name in _names("/sys/block")):
        wanted.discard("disk_mb_s")
    if not any(name.startswith(("e", "w")) for name in _names("/sys/class/net")):
        wanted.discard("net_mbit")
    reported = answers(node, preset, sorted(wanted), platform.node())
    assert set(reported) == wanted
    assert 0 < reported["cpu"] <= (os.cpu_count() or 1) * 1.05
    assert reported["waiting"] >= 0
