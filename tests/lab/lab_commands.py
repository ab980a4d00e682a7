"""Runs the lab's command as its users do, in the foreground or the background, and looks at what it leaves behind."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from lab.processes import wait_until
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource

TINY = Path(__file__).with_name("tiny.yaml")
REPOSITORY = Path(__file__).parents[2]


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "lab.cli", *map(str, arguments)]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), **more}


def lab(*arguments: str | Path, within_s: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=within_s, check=False, env=environment(**more)
    )


def measure(campaign: Path, out: Path, state: Path, *more: str, within_s: float = 60) -> dict[str, Any]:
    """Run a campaign to its end; its summary."""
    done = lab("run", campaign, "--dataset", out, "--state", state, "--json", *more, within_s=within_s)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def table(out: Path, name: str) -> list[dict[str, str]]:
    """Rows of a table of a dataset, which may be packed."""
    path = out / f"{name}.csv"
    if path.exists():
        return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    return list(csv.DictReader(gzip.decompress((out / f"{name}.csv.gz").read_bytes()).decode().splitlines()))


def write_campaign(path: Path, **changes: object) -> Path:
    document = {**yaml.safe_load(TINY.read_text(encoding="utf-8")), **changes}
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def finished(out: Path) -> list[str]:
    """The journal's lines of finished runs."""
    path = out / "journal.jsonl"
    return [line for line in path.read_text().splitlines() if '"run":' in line] if path.exists() else []


def wait_for_runs(out: Path, count: int) -> None:
    wait_until(lambda: len(finished(out)) >= count, 60)


class Started:
    """A lab run in the background; `run` is its id once it measures."""

    def __init__(self, campaign: Path, out: Path, state: Path) -> None:
        words = command("run", campaign, "--dataset", out, "--state", state)
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
        )
        self._state = state
        self.run = ""

    def wait_until_it_works(self) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            for path in self._state.glob("*.jsonl"):
                self.run = path.stem
                if any("wrk" in entry or "sysbench" in entry for entry in self._programs()):
                    return
            time.sleep(0.05)
        raise AssertionError(f"the lab did not start: {self.process.communicate()}")

    def _programs(self) -> list[str]:
        root = find_mounts(LiveSource()).get("cpuacct") or find_mounts(LiveSource())["unified"]
        names: list[str] = []
        for procs in Path(root).glob(f"*{self.run}*/cgroup.procs"):
            try:
                names += [Path(f"/proc/{pid}/comm").read_text() for pid in procs.read_text().split()]
            except OSError:
                continue
        return names

    def end(self, number: signal.Signals) -> tuple[int, str, float]:
        begin = time.monotonic()
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=120)
        return self.process.returncode, errors, time.monotonic() - begin
