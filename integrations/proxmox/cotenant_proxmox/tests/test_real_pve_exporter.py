"""`history pve-exporter` from the real prometheus-pve-exporter, which asks the stand-in for Proxmox VE."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, guest, serving

from advisor.domain import Instance
from tests.advisor.short_history import HISTORY_S, WINDOW_S, ShortHistory
from tests.servers.certificates import certified
from tests.servers.exporters import scraped
from tests.servers.prometheus import Prometheus
from tests.servers.running import NotInstalled

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
EXPORTER = Path(__file__).resolve().parents[4] / "var" / "pve-exporter" / "bin" / "pve_exporter"
SPEED = {"netin": 0.5e6, "netout": 1.5e6, "diskread": 2e6, "diskwrite": 1e6}  # bytes per second


class Busy(Cluster):
    """Two guests of one name whose counters run."""

    def answer(self, path: str) -> tuple[int, bytes]:
        counters: dict[str, Any] = {name: int(time.monotonic() * speed) for name, speed in SPEED.items()}
        counters["uptime"] = time.monotonic()
        web = guest(100, name="web", cpu=0.1, **counters)
        other = guest(101, "pve2", "lxc", name="web", maxcpu=2, cpu=0.3, **counters)
        self.guests = [web, other, guest(102, status="stopped", cpu=0)]
        return super().answer(path)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if not EXPORTER.exists():
        pytest.skip("prometheus-pve-exporter is not installed: run `make test-real`")
    folder = tmp_path_factory.mktemp("pve")
    context, _, _ = certified(folder)
    name, _, secret = TOKEN.partition("=")
    user, _, token = name.partition("!")
    file = folder / "pve.yml"  # JSON is YAML
    access = {"user": user, "token_name": token, "token_value": secret, "verify_ssl": False}
    file.write_text(json.dumps({"default": access}), encoding="utf-8")
    only = [f"--no-collector.{name}" for name in ("status", "version", "node", "cluster", "backup-info", "qdevice")]
    with serving(Busy(), context) as url:
        asked = {"target": [url.removeprefix("https://")], "cluster": ["1"], "node": ["0"]}
        options = [f"--config.file={file}", *only]
        try:
            with scraped(
                "pve", *options, path="/pve", parameters=asked, program=str(EXPORTER), root=True
            ) as running:  # fmt: skip
                time.sleep(HISTORY_S + WINDOW_S)
                yield running
        except NotInstalled as missing:
            pytest.skip(str(missing))


def test_guests_of_one_name_are_known_by_their_numbers(
    store: Prometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guests = [Instance(vmid, 4, host="h1", labels={"name": "web"}) for vmid in ("100", "101")]
    known = ShortHistory(monkeypatch, tmp_path).of("pve-exporter", store, *guests)
    assert known.said["silent"] == []
    assert known.said["unknown"] == ["vm102"]
    for vmid, cpus, group in (("100", 0.4, "qemu/100"), ("101", 0.6, "lxc/101")):
        seen = _seconds_per_second(store, group, known.end_s)
        means = {resource: one.mean for resource, one in known.demands[vmid].items()}
        assert means == pytest.approx({"cpu": cpus, "net_mbit": 16.0 * seen, "disk_mb_s": 3.0 * seen}, rel=0.03)


def _seconds_per_second(store: Prometheus, group: str, end_s: float) -> float:
    """How fast the guest's uptime ran as Prometheus saw it: less than 1 where a busy machine missed scrapes."""
    rate = f'rate(pve_uptime_seconds{{id="{group}"}}[{WINDOW_S}s])'
    begin_s = end_s - HISTORY_S + WINDOW_S
    reported = store.ask("query_range", query=rate, start=str(begin_s), end=str(end_s), step=str(WINDOW_S))
    return fmean(float(value) for _, value in reported["result"][0]["values"])
