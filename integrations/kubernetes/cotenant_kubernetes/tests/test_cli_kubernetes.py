"""`cotenant sync kubernetes --watch` as a process: it follows until it is asked to stop, and is refused elsewhere."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from cotenant_kubernetes.tests.kubernetes_server import TOKEN, node, pod, serving

from advisor.service import Advisor
from advisor.settings import Settings
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables
from tests.servers.forked import Forked
from tests.servers.service import COTENANT


def test_the_command_follows_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    database = sqlite_with_tables(tmp_path / "db.sqlite3")
    with serving() as api, Advisor(Settings(database=database, state_dir=tmp_path)) as advisor:
        api.put("nodes", node("n1"))
        environment = {**os.environ, "COTENANT_DATABASE": database, "KUBECONFIG": str(api.kubeconfig(tmp_path))}
        process = Forked(COTENANT, "sync", "kubernetes", "--watch", environment=environment, log=tmp_path / "log")
        try:
            for name in ("first", "second"):
                api.put("pods", pod(name, "n1"))
                ends = time.monotonic() + 60
                while f"uid-{name}" not in {one.id for one in advisor.inventory.instances().items}:
                    assert time.monotonic() < ends
                    assert process.poll() is None
                    time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 0
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert "Put 1 hosts and 0 instances" in said or "Put 1 hosts and 1 instances" in said
    assert TOKEN not in said


def test_only_kubernetes_is_watched() -> None:
    refused = cli_runs.run("sync", "libvirt", "--watch")
    assert refused.exit_code != 0
    assert "--watch goes with a system that reports changes" in refused.output
