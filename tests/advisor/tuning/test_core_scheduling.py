"""Core scheduling is named where different instances share cores and CPUs are not short, as others measured."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.domain import Host
from advisor.tuning.host import CROWDED, core_scheduling_note
from profiler.host_kinds import HOST_KINDS
from tests.advisor.tuning.tuning_hosts import tuned, vm

HOST = Host("h", "kvm", 104, 65536, threads_per_core=2)
MEASURED = Path(__file__).parents[4] / "shared" / "data" / "large-hosts" / "skylake104_sysbench_gemmbench.csv"


@pytest.mark.parametrize(
    ("busy", "named"), [(30.0, False), (51.0, False), (64.0, True), (128.0, True), (131.0, False), (256.0, False)]
)
def test_it_is_named_from_as_many_busy_cpus_as_cores_until_cpus_are_short(busy: float, named: bool) -> None:
    residents = [vm("a", busy / 2, vcpus=128), vm("b", busy / 2, vcpus=128)]
    assert bool(list(core_scheduling_note(HOST, residents))) is named


@pytest.mark.skipif(not MEASURED.exists(), reason="the measurements of large hosts are not beside the project")
def test_it_is_named_where_the_measurements_show_a_gain_and_not_where_they_show_none() -> None:
    rate = {}
    for row in csv.DictReader(MEASURED.read_text("ascii").splitlines()):
        rate[row["config"], int(row["na_threads"])] = float(row["throughput"])
    for threads in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        gain = rate["coresched", threads] / rate["smt", threads] - 1
        residents = [vm("a", float(threads), vcpus=256), vm("b", float(threads), vcpus=256)]
        assert bool(list(core_scheduling_note(HOST, residents))) is (gain > 0.05), (threads, gain)


def test_each_kind_of_host_has_its_own_way_and_one_thread_for_each_core_needs_none() -> None:
    residents = [vm("a", 40.0, vcpus=64), vm("b", 40.0, vcpus=64)]
    notes = {kind: list(core_scheduling_note(replace(HOST, kind=kind), residents)) for kind in HOST_KINDS}
    assert len({note for (note,) in notes.values()}) == len(HOST_KINDS)
    assert not list(core_scheduling_note(replace(HOST, threads_per_core=1), residents))
    assert not list(core_scheduling_note(HOST, residents[:1]))


def test_a_tuning_names_it_among_its_notes() -> None:
    host = replace(HOST, pcpus=8)
    found = tuned(host, vm("a", 3.0, vcpus=4), vm("b", 3.0, vcpus=4))
    assert any("Core scheduling" in note for note in found.notes)
    assert CROWDED > 1
