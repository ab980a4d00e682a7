"""Proxmox VE's own history as demand over time: what each version keeps, and what is said where it reports nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
from cotenant_proxmox.calls import ProxmoxAccount, ProxmoxApi
from cotenant_proxmox.rrd import rows
from cotenant_proxmox.source import Proxmox
from cotenant_proxmox.tests.proxmox_server import TOKEN, Cluster, serving
from hypothesis import given
from hypothesis import strategies as st

from advisor.service import Advisor
from advisor.settings import Settings
from models.profiling.demand_estimation import demanded_cpus
from profiler.demand import Demand
from tests.api import cli_runs
from tests.servers.fixtures import sqlite_with_tables

DAY_S = 86_400


def day_and_night(end_s: float) -> float:
    """The part of its vCPUs that a guest uses: much by day, and twice as much in every other five minutes."""
    level = 0.4 if 8 * 3600 < end_s % DAY_S <= 20 * 3600 else 0.1
    return level * (1.5 if -(-end_s // 300) % 2 else 0.5)


class Synced:
    """A cluster whose guests are in the inventory, and the command that reads their history."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def history(self, *arguments: str, code: int = 0) -> Any:
        reported = cli_runs.run("history", "proxmox", "--since", "24h", "--json", *arguments)
        assert reported.exit_code == code, reported.output
        return json.loads(reported.stdout)

    def demand(self, name: str) -> dict[str, Demand]:
        with Advisor(Settings()) as advisor:
            return {str(resource): one for resource, one in advisor.inventory.instance(name).demand.items()}


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Synced]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "var").mkdir()
    sqlite_with_tables(tmp_path / "var" / "cotenant.sqlite3")
    cluster = Cluster()
    with serving(cluster) as endpoint:
        monkeypatch.setenv("PROXMOX_VE_ENDPOINT", endpoint)
        monkeypatch.setenv("PROXMOX_VE_API_TOKEN", TOKEN)
        source = Proxmox(open_api=lambda: ProxmoxApi(ProxmoxAccount(endpoint, TOKEN)))
        with Advisor(Settings()) as advisor:
            advisor.inventory.follow(source.read())
        yield Synced(cluster)


def _windows(seconds: int) -> list[float]:
    end = int(time.time()) // 300 * 300
    return [4 * day_and_night(float(at)) for at in range(end - seconds + 300, end + 1, 300)]


def test_version_9_tells_a_month_of_which_a_day_in_windows(synced: Synced) -> None:
    synced.cluster.busy = day_and_night
    synced.cluster.guests[0]["maxcpu"] = 4
    found = synced.history("--since", "21d")
    assert found["instances"] == {name: ["cpu", "disk_mb_s", "net_mbit"] for name in ("100", "101")}
    assert (found["silent"], found["failed"]) == ([], [])
    demand, true = synced.demand("100"), _windows(21 * DAY_S)
    cpu = demand["cpu"]
    assert (cpu.origin, cpu.windows) == ("history", pytest.approx(21 * 288, abs=15))
    assert (cpu.mean, cpu.spread) == pytest.approx((fmean(true), pstdev(true)), rel=0.03)
    assert cpu.p95 == pytest.approx(2.4, rel=0.1)  # a half hour's mean never was above 1.6
    assert cpu.hours[12] / cpu.hours[0] == pytest.approx(4, rel=0.2)
    assert (demand["net_mbit"].mean, demand["disk_mb_s"].mean) == pytest.approx((16.0, 3.0))


def test_version_8_tells_an_hour_in_windows_and_a_day_of_half_hours(synced: Synced) -> None:
    synced.cluster.version, synced.cluster.busy = 8, day_and_night
    assert synced.history("--since", "14d")["silent"] == ["waiting"]
    cpu, true = synced.demand("100")["cpu"], _windows(35 * 3600)
    assert cpu.windows == pytest.approx(35 * 12, abs=8)
    assert (cpu.mean, cpu.spread) == pytest.approx((fmean(true), pstdev(true)), rel=0.06)
    assert len(cpu.hours) == 24


def test_read_again_nothing_changes_and_a_dry_run_writes_nothing(synced: Synced) -> None:
    assert synced.history("--dry-run")["changed"] == ["100", "101"]
    assert synced.demand("100") == {}
    assert synced.history()["changed"] == ["100", "101"]
    assert synced.history()["changed"] == []


def test_pressure_is_the_least_of_waiting_but_where_a_cap_may_be_the_cause(synced: Synced) -> None:
    synced.cluster.pressure = 60.0
    synced.history()
    assert synced.demand("101")["cpu"].mean == pytest.approx(demanded_cpus(0.5, 0.6, 2))
    assert synced.demand("100")["cpu"].mean == pytest.approx(1.0)  # cpulimit: 3


def test_what_a_former_guest_of_its_number_did_is_not_its_own(synced: Synced) -> None:
    born = int(time.time()) - 2 * 3600
    synced.cluster.configs[100]["meta"] = f"creation-qemu=9.2.0,ctime={born}"
    synced.cluster.busy = lambda end_s: 0.25 if end_s > born else 1.0
    synced.history()
    cpu = synced.demand("100")["cpu"]
    assert (cpu.mean, cpu.windows) == (pytest.approx(1.0), pytest.approx(24, abs=1))


def test_an_instance_made_half_an_hour_ago_is_not_reported(synced: Synced) -> None:
    def young(reported: list[Any]) -> list[Any]:
        return [row if row["time"] > time.time() - 1800 else {"time": row["time"]} for row in reported]

    synced.cluster.spoil = young
    assert synced.history()["instances"] == {}


@pytest.mark.parametrize("status", [403, 595])
def test_a_guest_that_cannot_be_read_is_reported_and_the_others_count(synced: Synced, status: int) -> None:
    synced.cluster.codes["/nodes/pve2/lxc/101/rrddata"] = status
    found = synced.history(code=1)
    assert list(found["instances"]) == ["100"]
    (sentence,) = found["failed"]
    assert sentence.startswith(f"guest 101: /nodes/pve2/lxc/101/rrddata?timeframe=day&cf=AVERAGE: HTTP {status}")
    reported = cli_runs.run("history", "proxmox", "--since", "24h")
    assert (reported.exit_code, f"Not read: {sentence}." in reported.stdout) == (1, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/cluster/resources", b'{"data": 1}'),
        ("/nodes/pve2/lxc/101/rrddata", b"<html>"),
        ("/nodes/pve2/lxc/101/rrddata", b'{"data": {}}'),
    ],
)
def test_an_answer_that_is_none_is_said_to_be(synced: Synced, path: str, body: bytes) -> None:
    synced.cluster.raw[path] = body
    reported = cli_runs.run("history", "proxmox", "--since", "24h")
    assert reported.exit_code != 0
    assert path in reported.output + str(reported.exception)


LIES: tuple[Callable[[dict[str, Any]], object], ...] = (
    lambda row: {**row, "cpu": -1.0, "netin": -5},
    lambda row: {**row, "cpu": "NaN", "netin": "Infinity"},
    lambda row: {**row, "cpu": 1e300, "netin": 1e300},
    lambda row: {**row, "cpu": None, "netin": None, "maxcpu": -1},
    lambda row: {"time": row["time"]},
    lambda row: {**row, "time": "soon", "cpu": 1.0},
    lambda _: 7,
)


def test_values_that_cannot_be_are_gaps(synced: Synced) -> None:
    def lying(reported: list[Any]) -> list[Any]:
        """Every other window lies in each minute, the others in two of five."""
        return [LIES[at](row) if (at := row["time"] // 60 % 10) < len(LIES) else row for row in reported]

    synced.cluster.spoil = lying
    assert synced.history()["failed"] == []
    demand = synced.demand("100")
    assert (demand["cpu"].mean, demand["net_mbit"].mean) == pytest.approx((1.0, 16.0))
    assert demand["cpu"].windows == pytest.approx(144, abs=1)


def test_coarse_rows_of_before_an_upgrade_stand_in_front_of_fine_ones() -> None:
    ends = [*range(1800, 9001, 1800), *range(7260, 7561, 60)]
    steps = [step for _, step, _ in rows([{"time": end} for end in ends])]
    assert steps == [1800.0] * 5 + [60.0] * 6


_VALUES = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.none(), max_size=1)
)
_ROWS = st.dictionaries(st.sampled_from(["time", "cpu", "maxcpu", "netin", "netout", "pressurecpusome"]), _VALUES)


@given(st.lists(_ROWS | _VALUES, max_size=6))
def test_whatever_a_history_holds_its_values_are_numbers_from_0_on(reported: list[object]) -> None:
    for _, step, values in rows(reported):
        assert step > 0
        assert all(0 <= one < float("inf") for one in values.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cadvisor", "--fingerprint", "AB"], "go with a system that keeps a history"),
        (["ceilometer", "--cloud", "west"], "name a cloud of clouds.yaml by --cloud"),
        (["ceilometer", "--cloud", "west", "--prometheus", "http://127.0.0.1:9"], "give --prometheus, or --cloud"),
        (["proxmox", "--prometheus", "http://127.0.0.1:9"], "--prometheus goes with a preset"),
        (["proxmox", "--cloud", "nowhere"], "cannot be read"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    synced: Synced, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    del synced
    monkeypatch.setenv("HOME", "/nonexistent")
    reported = cli_runs.run("history", *arguments)
    assert reported.exit_code != 0
    assert words in reported.output + str(reported.exception)
