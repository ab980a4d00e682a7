"""On/off measurement for real: frozen groups, ratios of known size, and nothing left of a lab killed while it froze."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from lab.processes import wait_until
from profiler.backends.lxc.control_groups import find_mounts
from profiler.backends.sources import LiveSource
from tests.lab.container_run import left_of
from tests.lab.lab_commands import Started, finished, lab, table, write_campaign

pytestmark = pytest.mark.lab
SPINNING: dict[str, Any] = {
    "workloads": {"spin": {"kind": "loop"}, "web": {"kind": "web"}},
    "pinnings": {"same": {"cpus": ["0"], "clients": ["1"]}},
    "on_off": {"dwell_ms": 100, "guard_ms": 20},
    "warmup_s": 0.6,
}


@pytest.mark.usefixtures("bystanders")
@pytest.mark.measured
def test_two_loops_halve_each_other_on_one_cpu_and_a_web_server_survives_freezing(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    pairs = [["spin", "spin"], ["spin", "web"]]
    campaign = write_campaign(tmp_path / "c.yaml", pairs=pairs, seconds=2, **SPINNING)
    done = lab("run", campaign, "--dataset", out, "--state", state)
    assert done.returncode == 0, done.stderr
    if "(disturbed)" in done.stderr + done.stdout:
        pytest.skip("other work on this machine disturbed a quarter of the windows: the lab dropped them")
    rows = [row for row in table(out, "colocations") if row["outcome"] == "throughput"]
    ratios = {(row["run"], row["instance"]): float(row["colocated"]) / float(row["solo"]) for row in rows}
    assert ratios["same:spin:spin", "spin.1"] == pytest.approx(0.5, abs=0.03)
    assert ratios["same:spin:spin", "spin.2"] == pytest.approx(0.5, abs=0.03)
    assert 0.3 < ratios["same:spin:web", "web.2"] < 0.8  # one connection more or less alive would show
    assert all(float(row["ratio_se"]) < 0.05 for row in rows if row["run"] == "same:spin:spin")
    assert lab("show", out, "--json").returncode == 0


@pytest.mark.skipif(
    "freezer" not in find_mounts(LiveSource()), reason="only version 1 keeps frozen processes from dying"
)
def test_a_lab_that_was_killed_while_a_workload_was_frozen_is_cleaned_up(tmp_path: Path, state: Path) -> None:
    out = tmp_path / "data"
    freezer = Path(find_mounts(LiveSource())["freezer"])
    slow = {**SPINNING, "on_off": {"dwell_ms": 1000, "guard_ms": 20}}
    campaign = write_campaign(tmp_path / "c.yaml", pairs=[["spin", "spin"]], **slow)
    started = Started(campaign, out, state)
    started.wait_until_it_works()

    def is_frozen(file: Path) -> bool:
        try:
            return file.read_text().strip() == "FROZEN"
        except OSError:  # its run has ended meanwhile
            return False

    def frozen() -> bool:
        return any(map(is_frozen, freezer.glob(f"*{started.run}*/freezer.state")))

    assert wait_until(frozen, 20)
    started.end(signal.SIGKILL)
    again = lab("clean", "--state", state, "--json")
    assert again.returncode == 0, again.stderr
    assert any(started.run in entry for entry in json.loads(again.stdout)["removed"])
    assert left_of(started.run, "cmdline") == []
    assert [line for line in finished(out) if json.loads(line)["kind"] == "group"] == []
